"""What srun's own options say of the layout, which the planner must know as if it had been asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from jaxsif.errors import JaxsifError
from jaxsif.job.srun_options import Given, split_options
from jaxsif.limits import is_decimal, read_number

# srun's option -> the attribute of RunOptions that means the same, and what reads its value.
_SAME: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--nodes": ("nodes", read_number),
    "--ntasks": ("ntasks", read_number),
    "--ntasks-per-node": ("ntasks_per_node", read_number),
    "--tasks-per-node": ("ntasks_per_node", read_number),
    "--gpus-per-node": ("gpus_per_node", str),
    "--gpus-per-task": ("gpus_per_task", read_number),
    "--cpus-per-task": ("cpus_per_task", read_number),
    "--gpu-bind": ("gpu_bind", str),
}
_GPU = "gpu"


def lift(
    words: Sequence[str],
    given: Mapping[str, Any],
    source: str,
    overruled: Container[str] = (),
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the attributes that `words` set, and the words that are left for srun; without what
    says something of `overruled` attributes, or options of srun that are spelled like these.

    A value that is no plain number, such as --nodes=2-4, is left to srun too. Raises JaxsifError
    where an option of `jaxsif run` in `given` says something else.
    """
    found: dict[str, Any] = {}
    left: list[str] = []
    for option in split_options(words):
        name, said, remaining = _read(option)
        if option.flag[2:].replace("-", "_") in overruled:
            continue
        left += remaining
        if said is None or name in overruled:
            continue
        found[name] = said
        if given.get(name) not in (None, said):
            flag = name.replace("_", "-")
            raise JaxsifError(
                f"--{flag}={given[name]} and {option.flag}={option.value} contradict each other",
                source,
                "leave out one of them",
            )
    return found, tuple(left)


def _read(option: Given) -> tuple[str, Any, tuple[str, ...]]:
    """Return an attribute, its value (None for none) and the words that are left for srun."""
    value = option.value or ""
    if option.flag == "--gres":
        gpus, others = _split_resources(value.split(","))
        left = (f"--gres={','.join(others)}",) if others else ()
        return ("gpus_per_node", gpus, left) if gpus else ("", None, option.words)
    if option.flag == "--ntasks-per-gpu":
        return "per_gpu", _read_tasks(value), ()
    name, read = _SAME.get(option.flag, ("", _read_nothing))
    said = read(value)
    return name, said, option.words if said is None else ()


def _read_nothing(_value: str) -> None:
    """Return None: the option says nothing of the layout."""


def _split_resources(resources: Iterable[str]) -> tuple[str, list[str]]:
    """Return the GPUs of a list of generic resources, as --gpus-per-node has them, and the other
    resources.
    """
    gpus, others = [], []
    for resource in resources:
        name, *parts = resource.replace("=", ":").split(":")
        number = [] if parts and is_decimal(parts[-1]) else ["1"]
        if name == _GPU:
            gpus.append(":".join(parts + number))
        else:
            others.append(resource)
    return ",".join(gpus), others


def _read_tasks(number: str) -> bool:
    """Return True for one task on each GPU; raise JaxsifError for other numbers."""
    if number != "1":
        raise JaxsifError(
            f"no {number!r} tasks for each GPU by --ntasks-per-gpu",
            "--ntasks-per-gpu",
            "--ntasks-per-node=N --share-gpus",
        )
    return True
