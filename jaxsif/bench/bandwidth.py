"""Sizes and times of collectives -> bandwidths, as nccl-tests defines them.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: the algorithm bandwidth is S/t.
The bus bandwidth is that times a factor by which it can be held against the bandwidth of the
hardware, whatever the number n of devices.

S is the size of what a device holds: of the input for all-reduce, reduce-scatter, all-to-all and
permute, and of the output for all-gather; so for all-gather and reduce-scatter it is that of the
whole array.
"""

from __future__ import annotations

from jaxsif.bench.results import Record

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")


def bus_factor(operation: str, devices: int) -> float:
    """Return bus bandwidth over algorithm bandwidth; permute is nccl-tests' sendrecv."""
    others = (devices - 1) / devices
    return {"all-reduce": 2 * others, "permute": 1.0}.get(operation, others)


def add_bandwidths(record: Record, devices: int) -> Record:
    """Return the record of an operation with its bandwidths in bytes per second."""
    algorithm = record["size"] / record["time"]
    bus = algorithm * bus_factor(record["operation"], devices)
    return {**record, "algorithm_bandwidth": algorithm, "bus_bandwidth": bus}


def complete_record(record: Record, devices: int) -> Record:
    """Return a record of inside/collectives.py with its bandwidths, where it is of an operation."""
    return add_bandwidths(record, devices) if record["record"] == "operation" else record
