"""Code that the programs in this folder share: times, records, and values that all processes must
agree on.
"""

import json
import os
import platform
import resource
import statistics
import time
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

NAME = 64  # bytes of a node's name
MOST = 100  # iterations
LEAST = 3


def emit(record, **fields):
    """Print a record, once for all processes; `jaxsif bench` reads it."""
    if jax.process_index() == 0:
        print(json.dumps({"record": record, **fields}), flush=True)


def gather(numbers):
    """Return a row of numbers from each process, in all processes."""
    rows = multihost_utils.process_allgather(np.asarray(numbers, np.float32))
    return np.asarray(rows).reshape(jax.process_count(), -1)


def node_names():
    """Return the node of each process."""
    own = os.environ.get("SLURMD_NODENAME") or platform.node()
    rows = gather(list(own.encode()[:NAME].ljust(NAME, b"\0")))
    return [bytes(int(number) for number in row).rstrip(b"\0").decode() for row in rows]


def tell_system(names):
    """Print the system that this program runs on, for the header of the results."""
    counts = {
        "nodes": len(set(names)),
        "processes": jax.process_count(),
        "devices": jax.device_count(),
    }
    emit(
        "system",
        jax=jax.__version__,
        platform=jax.default_backend(),
        device=jax.devices()[0].device_kind,
        **counts,
    )


def measure(program, x, iterations, seconds):
    """Call the program; return its last result, the median time of each process, and the number of
    timed calls.

    Every process must make the same number of calls, or they would wait for each other; so the
    first time of the slowest process decides that number.
    """
    first = [_time(program, x)[1] for _ in range(3)][1:]  # the very first one compiles
    if not iterations:
        iterations = int(np.clip(seconds / gather([min(first)]).max(), LEAST, MOST))
    times = []
    for _ in range(iterations):
        result, took = _time(program, x)
        times.append(took)
    return result, gather([statistics.median(times)])[:, 0], iterations


def _time(program, x):
    begin = time.perf_counter()
    result = program(x).block_until_ready()
    return result, time.perf_counter() - begin


def room_for_device(names):
    """Return the bytes that each device of this process may use."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return 0.9 * (stats["bytes_limit"] - stats["bytes_in_use"])
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = 1024 * int(lines["MemAvailable"].split()[0])
    per_cpu = int(os.environ.get("SLURM_MEM_PER_CPU", "0")) * int(
        os.environ.get("SLURM_CPUS_ON_NODE", "1")
    )
    job = (int(os.environ.get("SLURM_MEM_PER_NODE", "0")) or per_cpu) << 20  # 0: all of it
    neighbours = names.count(names[jax.process_index()])
    return 0.8 * min(free, job or free) / neighbours / jax.local_device_count()


def tell_memory(names):
    """Print each process's peak memory: resident in host memory, and allocated on its first
    device.
    """
    device = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", -1)
    rows = gather([1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, device])
    for process, (host, peak) in enumerate(rows):
        known = int(peak) if peak >= 0 else None
        emit(
            "memory",
            process=process,
            node=names[process],
            host_memory=int(host),
            device_memory=known,
        )
