"""Report facts of this task, and with --sum, add up a number over all devices; `jaxsif doctor` runs
this program in place of the user's.

    examine.py [--sum]

Each line is a JSON object: `TaskFacts`, then `SumFacts` for each phase of the sum
(jaxsif/doctor/facts.py). Only the sum imports JAX.
"""

from __future__ import annotations

import getpass
import glob
import importlib
import importlib.util
import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any

from . import contract

_PACKAGES = re.compile(r"(jax|jaxlib|numpy|jax-cuda\d+-\w+|nvidia-(nccl|cuda-nvcc|cudnn)(-cu\d+)?)")
# But for those that differ between tasks, or between nodes with other GPUs.
_OF_JAX = re.compile(
    r"(?!JAX_(LOCAL_DEVICE_IDS|NUM_CPU_DEVICES|COMPILATION_CACHE_DIR"
    r"|(COORDINATOR|MTLS|DISTRIBUTED)_))"
    r"(JAX|XLA|NCCL|TF)_\w+"
)
_OF_DUMPS = re.compile(r"--xla_dump_\S*")  # folders, which may differ between tasks
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "LD_LIBRARY_PATH")
# gRPC obeys these in lower case.
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy")
_LIMITS = ("RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_AS")
_MOST = 64  # of a list
_NETWORK = re.compile(r"NCCL INFO Using network (\w[\w /]{0,40})")
_BIG = 1 << 60


def say(kind: str, facts: Mapping[str, object]) -> None:
    """Print facts, each piece with one write, so that srun does not mix them."""
    task = int(os.environ.get("SLURM_PROCID", "0"))
    facts = {
        "node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "task": task,
        **facts,
    }
    for piece in contract.cut(json.dumps(facts), f"{kind}{task}"):
        os.write(1, f"{piece}\n".encode())


def shorten(text: str) -> str:
    """Return a text of limited length; a longer one ends with its digest."""
    if len(text) <= contract.LONGEST_TEXT:
        return text
    import hashlib  # here, like others below: each task waits for these imports

    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{text[: contract.LONGEST_TEXT - 20]}... {digest}"


def collect(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the facts of this task."""
    found = importlib.util.find_spec("jax")
    home = environ.get("HOME", "")
    return {
        "flavour": environ.get(contract.FLAVOUR, ""),
        "machine": os.uname().machine,
        "python": sys.version.split()[0],
        "jax": shorten(found.origin or "") if found else "",
        "folder": shorten(os.getcwd()),
        "home": shorten(home),
        "lacks": [shorten(home)] if home and not os.path.isdir(home) else [],
        "user": find_user(),
        "temporary": shorten(environ.get("TMPDIR") or "/tmp"),
        "packages": dict(find_packages()),
        "variables": {
            name: shorten(_OF_DUMPS.sub("", environ[name]).strip())
            for name in list(filter(_OF_JAX.fullmatch, sorted(environ)))[:_MOST]
        },
        "foreign": {name: shorten(environ[name]) for name in _FOREIGN if environ.get(name)},
        "proxies": [name for name in _PROXIES if environ.get(name)],
        "flags": find_unknown_flags(environ, found),
        "visible": len(contract.visible_gpus(environ.get("CUDA_VISIBLE_DEVICES", ""))),
        "memory": find_memory(environ),
        "tasks": contract.tasks_on_node(environ),
        "cpus": len(os.sched_getaffinity(0)),
        "limits": {
            name: min(resource.getrlimit(getattr(resource, name))[0], _BIG) for name in _LIMITS
        },
        "verbs": os.path.exists("/dev/infiniband") and can_load("libibverbs.so.1"),
        "imex": len(glob.glob("/dev/nvidia-caps-imex-channels/channel*")),
        "left": find_left(environ.get("SLURM_JOB_END_TIME", "")),
    }


def find_left(end: str) -> int:
    """Return the seconds until a time, in seconds since 1970; -1 for none."""
    return max(0, int(end) - int(time.time())) if end.isdecimal() else -1


def find_user() -> str:
    """Return the user's name, or '' if the container knows none."""
    with suppress(KeyError, OSError):
        return shorten(getpass.getuser())
    return ""


def find_packages() -> Iterator[tuple[str, str]]:
    """Yield the packages of JAX with their versions, by the names of their folders."""
    for folder in reversed(sys.path):  # the first one counts
        for path in glob.glob(f"{glob.escape(folder)}/*.dist-info")[:10_000]:
            name, _, version = os.path.basename(path)[: -len(".dist-info")].partition("-")
            name = name.replace("_", "-").lower()
            if _PACKAGES.fullmatch(name):
                yield name, shorten(version)


def find_unknown_flags(environ: Mapping[str, str], found: ModuleSpec | None) -> list[str]:
    """Return the flags in XLA_FLAGS whose names no library of JAX has: JAX would abort. One task
    looks.
    """
    names = re.findall(r"--(xla_\w+)", environ.get("XLA_FLAGS", ""))
    if environ.get("SLURM_PROCID", "0") != "0" or not names or not (found and found.origin):
        return []
    import mmap

    packages = os.path.dirname(os.path.dirname(found.origin))
    libraries = glob.glob(f"{packages}/jaxlib/*.so") + glob.glob(f"{packages}/jax_plugins/*/*.so")
    left = set(names)
    for path in libraries:
        if left and os.path.getsize(path) > 1 << 20:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                left = {name for name in left if data.find(b"%s\0" % name.encode()) < 0}
    return sorted(left)[:_MOST] if libraries else []


def find_memory(environ: Mapping[str, str]) -> int:
    """Return the MiB that the tasks of this node may use together: by Slurm, or of the node."""
    names = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")
    texts = [environ.get(name, "") for name in names]
    per_node, per_cpu, cpus = (int(text) if text.isdecimal() else 0 for text in texts)
    of_node = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return min(per_node or per_cpu * cpus or of_node, _BIG)


def can_load(library: str) -> bool:
    """Return whether a library is there, with all that it needs."""
    import ctypes

    with suppress(OSError):
        return bool(ctypes.CDLL(library))
    return False


# --- The sum


def add_up() -> None:
    """Add 1 for each device, over all processes; report each phase."""
    log = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"jaxsif-doctor-nccl-{os.getpid()}")
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_FILE", log)
    # By name: type checkers have no JAX, and nothing else in this package imports it.
    jax: Any = importlib.import_module("jax")
    numpy: Any = importlib.import_module("numpy")
    say("s", {"phase": "imported"})
    if contract.COORDINATOR_PORT in os.environ and os.environ.get("SLURM_NTASKS", "1") != "1":
        jax.distributed.initialize()
    say("s", {"phase": "connected"})
    devices = jax.devices()
    known: dict[str, object] = {
        "platform": jax.default_backend(),
        "here": jax.local_device_count(),
        "devices": len(devices),
    }
    say("s", {"phase": "devices", **known})
    mesh = jax.sharding.Mesh(numpy.array(devices), ("all",))
    sharding, axes = jax.sharding.NamedSharding, jax.sharding.PartitionSpec
    each, everywhere = sharding(mesh, axes("all")), sharding(mesh, axes())
    ones = numpy.ones(len(devices), numpy.float32)
    numbers = jax.make_array_from_callback(ones.shape, each, lambda index: ones[index])
    total = jax.jit(lambda x: x.sum(), out_shardings=everywhere)(numbers)
    known["total"] = float(total.addressable_data(0))
    say("s", {"phase": "summed", **known, "network": find_network(log)})


def find_network(log: str) -> str:
    """Return the network that NCCL has chosen, by its log; '' if there is none."""
    with suppress(OSError):
        with open(log, errors="replace") as file:
            found = _NETWORK.search(file.read(1 << 22))
        os.unlink(log)
        return found[1].strip() if found else ""
    return ""


if __name__ == "__main__":
    say("t", collect(os.environ))
    if "--sum" in sys.argv[1:]:
        add_up()
