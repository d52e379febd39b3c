"""The GPUs of a task's process: what Slurm shows it, held against what was planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Set by `jaxsif run`: what each node should find, such as '4:4(x3),2:2 uneven'; see
# Layout.expectation.
_LAYOUT = "JAXSIF_LAYOUT"


class Planned(NamedTuple):
    """What the plan says of this node; None where it says nothing."""

    tasks: int | None
    gpus: int | None
    each: int | None = None  # GPUs of each task, which may leave others idle
    bound: bool = False  # Slurm binds GPUs to tasks
    uneven: bool = False
    share: bool = False


class MisfitError(Exception):
    """This task must not run: why, and what to do."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


def find_device_ids(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The indices into the task's visible GPUs that its process uses, () without GPUs; raises
    MisfitError.
    """
    gpus, tasks = len(visible_gpus(environ)), tasks_on_node(environ)
    local_id = _number(environ.get("SLURM_LOCALID", "0"), "SLURM_LOCALID")
    private = has_private_gpus(environ)
    node = _number(environ.get("SLURM_NODEID", "0"), "SLURM_NODEID")
    planned = parse_layout(environ[_LAYOUT], node) if environ.get(_LAYOUT) else None
    if planned:
        _check(planned, tasks, gpus, private)
    if not gpus:
        return ()
    if planned and planned.each and not private:
        return tuple(range(local_id * planned.each, (local_id + 1) * planned.each))
    return local_device_ids(local_id, tasks, gpus, private, uneven=bool(planned and planned.uneven))


def _number(text: str, name: str) -> int:
    """A number of nodes, tasks or GPUs, which is short; raises MisfitError."""
    if not text.isdecimal() or len(text) > 10:
        raise MisfitError(f"{name} is not a number: {text[:40]!r}", _tell_who_sets(name))
    return int(text)


def _tell_who_sets(name: str) -> str:
    return f"do not set {name}; {'jaxsif' if name == _LAYOUT else 'Slurm'} sets it"


def _check(planned: Planned, tasks: int, gpus: int, private: bool) -> None:
    if planned.tasks is not None and tasks != planned.tasks:
        raise MisfitError(
            f"{tasks} task(s) on this node, but {planned.tasks} were planned",
            "leave --distribution and other options of placement out of --srun-args",
        )
    if planned.gpus is not None and not private and not planned.bound and gpus != planned.gpus:
        raise MisfitError(
            f"this task sees {gpus} GPU(s), but {planned.gpus} on this node were planned",
            "leave --gpu-bind, --gpus and CUDA_VISIBLE_DEVICES to jaxsif, or see gres.conf of the node"
            if gpus
            else "ask for GPUs, by --gpus-per-node=N; if the job has them, see gres.conf of the node",
        )
    if planned.bound and planned.gpus and not gpus:
        raise MisfitError(
            "Slurm bound no GPU to this task", "--gpu-bind=none, by which each task takes its share"
        )
    on_node = planned.gpus or 0
    if private and gpus * tasks > on_node > 0 and not planned.share and not planned.uneven:
        raise MisfitError(
            f"each of {tasks} tasks on this node is bound to {gpus} of its {on_node} GPU(s), so some have the same",
            "--gpu-bind=none, by which each task takes its share, or --share-gpus",
        )
    if gpus and tasks > gpus and not private and not planned.share:
        raise MisfitError(
            f"{tasks} tasks on this node share {gpus} GPU(s): JAX needs at least one GPU for each process",
            f"--ntasks-per-node={gpus}, or --share-gpus",
        )


def parse_layout(text: str, node: int) -> Planned:
    """What '4:4(x3),2:- uneven' says of node number `node` of the step; the last nodes go on for
    ever.
    """
    groups, *words = text.split(" ")
    tasks = gpus = ""
    for group in groups.split(","):
        counts, _, times = group.rstrip(")").partition("(x")
        tasks, _, gpus = counts.partition(":")
        node -= _number(times or "1", _LAYOUT)
        if node < 0:
            break
    each = [word[len("per-task=") :] for word in words if word.startswith("per-task=")]
    return Planned(
        None if tasks == "-" else _number(tasks, _LAYOUT),
        None if gpus == "-" else _number(gpus, _LAYOUT),
        _number(each[0], _LAYOUT) if each else None,
        *(word in words for word in ("bound", "uneven", "share")),
    )


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The task's CUDA_VISIBLE_DEVICES as a tuple: indices, UUIDs (GPU-…) or MIG names.

    Slurm's NoDevFiles is none, and -1 is how people write none.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(name for name in value.split(",") if name not in ("", "NoDevFiles", "-1"))


def has_private_gpus(environ: Mapping[str, str]) -> bool:
    """True when all visible GPUs are the task's own: Slurm bound them (--gpus-per-task,
    --gpu-bind), or a script did.

    SLURM_GPUS_ON_NODE counts those of the step. SLURM_STEP_GPUS has the task's own where Slurm
    bound them (24.11) or all of the step, and it stays when a script sets CUDA_VISIBLE_DEVICES.
    """
    visible = len(visible_gpus(environ))
    of_step = len(list(filter(None, environ.get("SLURM_STEP_GPUS", "").split(","))))
    on_node = environ.get("SLURM_GPUS_ON_NODE", "")
    return (
        0
        < visible
        < max(of_step, _number(on_node, "SLURM_GPUS_ON_NODE") if on_node.isdecimal() else 0)
    )


def tasks_on_node(environ: Mapping[str, str]) -> int:
    """How many tasks the step has on this node.

    SLURM_GTIDS lists them. SLURM_STEP_TASKS_PER_NODE, a list such as '2(x3),1', is the second
    choice: its order is not that of SLURM_NODEID in a heterogeneous job.
    """
    if environ.get("SLURM_GTIDS"):
        return len(environ["SLURM_GTIDS"].split(","))
    name = "SLURM_STEP_TASKS_PER_NODE"
    # Nodes before this one, in the rest of the list.
    before = _number(environ.get("SLURM_NODEID", "0"), "SLURM_NODEID")
    for part in environ.get(name, "1").split(","):
        count, _, nodes = part.rstrip(")").partition("(x")
        before -= _number(nodes or "1", name)
        if before < 0:
            return _number(count, name)
    raise MisfitError(
        f"{name} has nothing of this node: {environ[name][:40]!r}", _tell_who_sets(name)
    )


def local_device_ids(
    local_id: int, tasks: int, gpus: int, private: bool, uneven: bool = False
) -> tuple[int, ...]:
    """The indices into the task's visible GPUs that its process uses: all when private, else an
    equal share.

    `local_id` counts the node's tasks from 0. With more tasks than GPUs, tasks have a GPU in turn;
    `uneven` gives the first tasks one more, where a rest would be left.
    """
    if private:
        return tuple(range(gpus))
    if tasks > gpus:
        return (local_id % gpus,)
    quotient, rest = divmod(gpus, tasks)
    more = min(local_id, rest) if uneven else 0
    first = local_id * quotient + more
    return tuple(range(first, first + quotient + (uneven and local_id < rest)))
