"""Checks of GPUs and their driver."""

from __future__ import annotations

import re

from jaxsif.diagnose.symptoms import HARMLESS_XIDS, XIDS_OF_PROGRAMS
from jaxsif.doctor.facts import DoctorFacts, Gpu, NodeFacts, TaskFacts
from jaxsif.doctor.result import NODE, SITE, USER, Results, failure, find_odd, warning
from jaxsif.limits import IDLE_GPU_MEMORY

LOST = "lost"  # in place of the name of a GPU that does not answer
_REPORT = "report it to the site; leave the node out with --exclude"
# The driver that comes with a version of CUDA, by major and minor.
_DRIVERS = {
    **dict(zip([(12, minor) for minor in range(8)], (525, 530, 535, 545, 550, 555, 560, 560))),
    (12, 8): 570,
    (12, 9): 575,
    (13, 0): 580,
    (13, 1): 590,
}
_LEAST = {12: 525, 13: 580}  # that runs a major version
_RECOVERY = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "draining of its peers",
    4: "draining and a reset",
}
_XID = re.compile(r"Xid.*?: (\d{1,3})\b")
_NOT_BROKEN = XIDS_OF_PROGRAMS + HARMLESS_XIDS
_HANGING_NCCL = (2, 30, 7)
_OLDEST_ON_ARM = (2, 29, 3)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(map(int, re.findall(r"\d{1,9}", text)[:3]))


def _each_gpu(seen: DoctorFacts) -> list[tuple[NodeFacts, Gpu]]:
    return [(node, gpu) for node in seen.nodes.values() for gpu in node.gpus or ()]


def find_gpu_tasks(seen: DoctorFacts) -> dict[str, TaskFacts]:
    """Return a task of each node whose tasks are to compute on NVIDIA's GPUs."""
    tasks = [task for task in seen.tasks.values() if task.uses_gpus]
    return {task.node: task for task in sorted(tasks, key=lambda task: task.visible)}


def _count_gpus(node: NodeFacts) -> int | None:
    """Return the GPUs of a node, None with MIG: Slurm then hands out parts of GPUs, and the driver
    counts whole ones.
    """
    if node.gpus is None:
        return node.devices
    return None if any(gpu.mig == 1 for gpu in node.gpus) else len(node.gpus)


def check_gpus(seen: DoctorFacts) -> Results:
    """Check that each node has the GPUs that Slurm hands out, and that JAX computes on them."""
    planned = find_gpu_tasks(seen)
    # Slurm sets CUDA_VISIBLE_DEVICES for GPUs of other makers, too.
    has_nvidia = any(node.devices or node.gpus for node in seen.nodes.values())
    for node in seen.nodes.values():
        there = _count_gpus(node)
        if node.node in planned and there is not None and there < planned[node.node].visible:
            yield failure(
                node.trouble or f"the driver sees {there} of {planned[node.node].visible} GPUs",
                _REPORT,
                NODE if has_nvidia else SITE,
                [node.node],
            )
    for found in seen.sums.values():
        if found.node in planned and found.platform == "cpu":
            yield failure(
                "JAX computes on CPUs, not on the GPUs",
                "unset JAX_PLATFORMS, or use an image with CUDA",
                USER,
                [found.node],
            )


def find_cuda(seen: DoctorFacts) -> tuple[int, ...]:
    """Return the version of the CUDA compiler that tasks use, or else that of the image's label; ()
    if there is none.
    """
    found = (
        version
        for task in seen.tasks.values()
        for name, version in task.packages.items()
        if name.startswith("nvidia-cuda-nvcc")
    )
    return parse_version(next(found, seen.host.labels.get("io.jaxsif.cuda", "")))


def check_driver(seen: DoctorFacts) -> Results:
    """Check that the driver is new enough for the image's CUDA."""
    drivers = {node.node: node.driver for node in seen.nodes.values() if node.driver}
    cuda = (*find_cuda(seen), 0, 0)[:2]
    label = parse_version(seen.host.labels.get("io.jaxsif.driver", ""))
    least = max(0, _LEAST.get(cuda[0], 0), *label[:1])
    best = _DRIVERS.get((cuda[0], cuda[1]), least)
    # An image may bring CUDA's libraries for older drivers (cuda-compat): only the sum shows that.
    make = failure if seen.sums else warning
    good = {
        found.node
        for found in seen.sums.values()
        if found.phase == "summed" and found.platform in ("gpu", "cuda")
    }
    for name, driver in drivers.items():
        if name in good:
            continue
        major = (*parse_version(driver), 0)[0]
        if major < least:
            yield make(
                f"driver {driver} is too old: the image's CUDA needs {least}, or cuda-compat",
                "use an image for an older CUDA, such as jaxsif's flavour cuda12",
                USER,
                [name],
            )
        elif major < best:
            yield warning(
                f"driver {driver} is old: PTX of the image's CUDA {cuda[0]}.{cuda[1]} needs {best}",
                "if JAX reports an unsupported PTX version, use an image for an older CUDA",
                USER,
                [name],
            )
    common, odd = find_odd(drivers)
    for driver, nodes in odd.items():
        yield warning(
            f"driver {driver}; most nodes have {common}",
            "leave these nodes out with --exclude",
            SITE,
            nodes,
        )


def check_health(seen: DoctorFacts) -> Results:
    """Check that no GPU is lost, asks for a reset, or has broken memory or links."""
    for node, gpu in _each_gpu(seen):
        wish = _RECOVERY.get(gpu.recovery, f"recovery action {gpu.recovery}")
        problems = (
            (failure, gpu.name == LOST, "is lost"),
            (failure, gpu.recovery > 0, f"needs {wish}, according to its driver"),
            (failure, gpu.failed > 0, "has a memory row that could not be remapped"),
            # A driver that asks for nothing has contained them.
            (
                warning if gpu.recovery == 0 else failure,
                gpu.errors > 0,
                f"has had {gpu.errors} uncorrected memory errors",
            ),
            (warning, gpu.pending > 0, "has memory rows to remap at its next reset"),
            (warning, gpu.down > 0, f"has {gpu.down} NVLinks down"),
        )
        for make, is_bad, what in problems:
            if is_bad:
                yield make(f"GPU {gpu.number} {what}", _REPORT, NODE, [node.node])


def check_memory(seen: DoctorFacts) -> Results:
    """Check that no other process uses the GPUs' memory."""
    return [
        warning(
            f"GPU {gpu.number} has {gpu.memory} MiB in use before the run",
            "end your processes there, or report the node to the site",
            NODE,
            [node.node],
        )
        for node, gpu in _each_gpu(seen)
        if gpu.memory > IDLE_GPU_MEMORY and gpu.mig != 1  # of which others may use parts
    ]


def check_power(seen: DoctorFacts) -> Results:
    """Check that all GPUs are of one kind, have their usual power, and are alike in MIG mode."""
    for node, gpu in _each_gpu(seen):
        if 0 < gpu.power < gpu.usual:
            yield warning(
                f"a GPU is limited to {gpu.power} W; its default is {gpu.usual} W",
                "ask the site whether that is intended",
                SITE,
                [node.node],
            )
    kinds = {
        (node.node, gpu.number): f"{gpu.name}{', with MIG' * (gpu.mig == 1)}"
        for node, gpu in _each_gpu(seen)
        if gpu.name != LOST
    }
    common, odd = find_odd(kinds)
    for kind, keys in odd.items():
        yield warning(
            f"a GPU is {kind}; most are {common}",
            "ask for GPUs of one kind with --constraint or --gpus-per-node TYPE:N",
            SITE,
            [node for node, _ in keys],
        )


def check_xid(seen: DoctorFacts) -> Results:
    """Check that the kernel reports no broken GPU, and no process killed for its memory."""
    for node in seen.nodes.values():
        for line in node.kernel or ():
            found = _XID.search(line)
            if "Xid" not in line:
                yield warning(
                    f"the kernel killed a process because memory ran out: {line}",
                    "ask for more memory with --mem",
                    USER,
                    [node.node],
                )
            elif found and found[1] not in _NOT_BROKEN:
                yield warning(f"the kernel reports Xid {found[1]}", _REPORT, NODE, [node.node])


def _hangs(task: TaskFacts, version: tuple[int, ...]) -> bool:
    old = task.machine == "aarch64" and version < _OLDEST_ON_ARM
    return version == _HANGING_NCCL or old


def check_nccl(seen: DoctorFacts) -> Results:
    """Check that NCCL, of the image or of a layer, is no version that is known to hang."""
    return [
        warning(
            f"NCCL {version} is known to hang some programs",
            "build the image or the layer with another version of nvidia-nccl",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        for name, version in task.packages.items()
        if name.startswith("nvidia-nccl") and _hangs(task, parse_version(version))
    ]


def check_imex(seen: DoctorFacts) -> Results:
    """Check that the container sees the IMEX channels of its node."""
    channels = {node.node: node.imex for node in seen.nodes.values()}
    return [
        failure(
            "the container does not see the node's IMEX channel",
            "pass --bind /dev/nvidia-caps-imex-channels",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if task.imex < channels.get(task.node, 0)
    ]
