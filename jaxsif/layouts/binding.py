"""What srun's --gpu-bind gives each task of a node; measured with real Slurm, see docs/layouts.md."""

from __future__ import annotations

from jaxsif.errors import JaxsifError

_REMEDY = "--gpu-bind=none, by which each task takes its share"


def predict(bind: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...] | None:
    """The node's GPUs of each of its `tasks`; None where only Slurm knows. Raises JaxsifError for what cannot be.

    Slurm binds nothing where a node has one task, except by per_task.
    """
    kind, _, value = bind.replace("verbose,", "").partition(":")
    rule = {"single": _single, "per_task": _per_task, "map_gpu": _map, "mask_gpu": _mask}.get(kind)
    if rule is None:  # closest: only gres.conf and the CPUs of each task tell
        return None
    if tasks == 1 and kind == "single":
        return (tuple(range(gpus)),)
    try:
        found = rule(value, tasks, gpus)
    except ValueError as error:
        raise JaxsifError(f"cannot read --gpu-bind={bind}", "--gpu-bind", "see srun(1)") from error
    missing = sorted({gpu for one in found for gpu in one if gpu >= gpus})
    if missing or not all(found):
        what = f"GPU {missing[0]} of a node with {gpus}" if missing else "no GPU to a task"
        raise JaxsifError(f"--gpu-bind={bind} gives {what}", "--gpu-bind", _REMEDY)
    return found


def check_sharing(bind: str, found: tuple[tuple[int, ...], ...]) -> None:
    """Raise JaxsifError where two tasks have the same GPU."""
    every = [gpu for one in found for gpu in one]
    if len(set(every)) < len(every):
        raise JaxsifError(
            f"--gpu-bind={bind} gives one GPU to several of {len(found)} tasks",
            "--gpu-bind",
            f"{_REMEDY}, or --share-gpus",
        )


def sharers(found: tuple[tuple[int, ...], ...]) -> int:
    """The greatest number of tasks on one GPU."""
    every = [gpu for one in found for gpu in one]
    return max(map(every.count, every))


def _single(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """single:N puts N tasks on each GPU, and begins anew at the end."""
    return tuple((local // int(value) % gpus,) for local in range(tasks))


def _per_task(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    each = int(value)
    return tuple(tuple(range(local * each, (local + 1) * each)) for local in range(tasks))


def _map(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """map_gpu:0,1*2: the list is gone through again when it is too short."""
    listed = [(int(gpu, 0),) for gpu in _repeated(value)]
    return tuple(listed[local % len(listed)] for local in range(tasks))


def _mask(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    masks = [int(mask, 16) for mask in _repeated(value)]
    sets = [tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1) for mask in masks]
    return tuple(sets[local % len(sets)] for local in range(tasks))


def _repeated(value: str) -> list[str]:
    """'0,1*2' -> 0, 1, 1."""
    parts = [part.partition("*") for part in value.split(",")]
    return [item for item, _, times in parts for _ in range(int(times or 1))]
