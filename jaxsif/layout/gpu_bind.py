"""What srun's --gpu-bind gives each task of a node; measured with real Slurm, see docs/layouts.md."""

from __future__ import annotations

from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten

_REMEDY = "--gpu-bind=none, by which each task takes its share"


def predict(bind: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...] | None:
    """The node's GPUs of each of its `tasks`; None where only Slurm knows. Raises JaxsifError for
    what cannot be.

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
        raise JaxsifError(
            f"cannot read --gpu-bind={shorten(bind)}", "--gpu-bind", "see srun(1)"
        ) from error
    missing = sorted({gpu for one in found for gpu in one if gpu >= gpus})
    if missing or not all(found):
        what = f"GPU {missing[0]} of a node with {gpus}" if missing else "no GPU to a task"
        raise JaxsifError(f"--gpu-bind={shorten(bind)} gives {what}", "--gpu-bind", _REMEDY)
    return found


def check_sharing(bind: str, found: tuple[tuple[int, ...], ...]) -> None:
    """Raise JaxsifError where two tasks have the same GPU."""
    every = [gpu for one in found for gpu in one]
    if len(set(every)) < len(every):
        raise JaxsifError(
            f"--gpu-bind={shorten(bind)} gives one GPU to several of {len(found)} tasks",
            "--gpu-bind",
            f"{_REMEDY}, or --share-gpus",
        )


def sharers(found: tuple[tuple[int, ...], ...]) -> int:
    """The greatest number of tasks on one GPU."""
    times: dict[int, int] = {}
    for one in found:
        for gpu in one:
            times[gpu] = times.get(gpu, 0) + 1
    return max(times.values())


def _single(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """single:N puts N tasks on each GPU, and begins anew at the end."""
    each = _positive(value)
    return tuple((local // each % gpus,) for local in range(tasks))


def _per_task(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """per_task:N gives each task the next N; of those that the node does not have, the first one."""
    each = _positive(value)
    firsts = [min(local * each, gpus) for local in range(tasks)]
    return tuple(tuple(range(first, min(first + each, gpus + 1))) for first in firsts)


def _map(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """map_gpu:0,1*2: the list is gone through again when it is too short."""
    listed = [(int(gpu, 0),) for gpu in _repeated(value, tasks)]
    return tuple(listed[local % len(listed)] for local in range(tasks))


def _mask(value: str, tasks: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    sets = {mask: _bits(int(mask, 16), gpus) for mask in value.replace("*", ",").split(",")}
    listed = [sets[mask] for mask in _repeated(value, tasks)]
    return tuple(listed[local % len(listed)] for local in range(tasks))


def _bits(mask: int, gpus: int) -> tuple[int, ...]:
    """The GPUs of a mask; of those that the node does not have, the first one."""
    first_missing = [gpus] if mask >> gpus else []
    return (*(bit for bit in range(gpus) if mask >> bit & 1), *first_missing)


def _positive(value: str) -> int:
    number = read_number(value)
    if not number:
        raise ValueError(value)
    return number


def _repeated(value: str, most: int) -> list[str]:
    """'0,1*2' -> 0, 1, 1; each at most as often as it is used."""
    parts = [part.partition("*") for part in value.split(",")]
    return [
        item
        for item, star, times in parts
        for _ in range(min(_positive(times), most) if star else 1)
    ]
