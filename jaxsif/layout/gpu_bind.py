"""What srun's --gpu-bind gives each task of a node, as measured with Slurm (docs/layouts.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain, cycle, islice, repeat

from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten

REMEDY = "--gpu-bind=none, by which each task takes its share"
Bound = tuple[tuple[int, ...], ...]  # a node's GPUs of each of its tasks


def predict(bind: str, tasks: int, gpus: int) -> Bound:
    """Return the node's GPUs of each of its `tasks`; raise JaxsifError for what cannot be.

    () where only Slurm knows, or nothing is bound.
    """
    kind, _, value = bind.replace("verbose,", "").partition(":")
    rule = _RULES.get(kind, _unknown)
    try:
        found = rule(value, tasks, gpus)
    except ValueError as error:
        raise JaxsifError(
            f"cannot read --gpu-bind={shorten(bind)}", "--gpu-bind", "see srun(1)"
        ) from error
    missing = set(chain.from_iterable(found)).difference(range(gpus))
    if missing:
        raise _refusal(bind, f"GPU {min(missing)} of a node with {gpus}")
    if not all(found):
        raise _refusal(bind, "no GPU to a task")
    return found


def _refusal(bind: str, what: str) -> JaxsifError:
    return JaxsifError(f"--gpu-bind={shorten(bind)} gives {what}", "--gpu-bind", REMEDY)


def count_sharers(bind: str, tasks: int, gpus: int) -> int:
    """Return the greatest number of tasks on one GPU of a node; raise JaxsifError as `predict`."""
    found = predict(bind, tasks, gpus)
    if not found:
        return -(-tasks // gpus)
    return max(Counter(chain.from_iterable(found)).values())


def _single(value: str, tasks: int, gpus: int) -> Bound:
    """Put N tasks on each GPU by single:N, again and again; one task is not bound."""
    if tasks == 1:
        return (tuple(range(gpus)),)
    each = _positive(value)
    return tuple((local // each % gpus,) for local in range(tasks))


def _per_task(value: str, tasks: int, gpus: int) -> Bound:
    """Give each task the next N by per_task:N; of those that the node lacks, the first one."""
    each = _positive(value)
    firsts = (min(local * each, gpus) for local in range(tasks))
    return tuple(tuple(range(first, min(first + each, gpus + 1))) for first in firsts)


def _unknown(_value: str, _tasks: int, _gpus: int) -> Bound:
    """Predict nothing; as for closest, where only gres.conf and the CPUs of each task tell."""
    return ()


def _map(value: str, tasks: int, _gpus: int) -> Bound:
    """Give the first task GPU 0, and the next two GPU 1, by map_gpu:0,1*2."""
    return _deal(value, tasks, lambda gpu: (int(gpu, 0),))


def _mask(value: str, tasks: int, gpus: int) -> Bound:
    """Give the first task GPUs 0 and 1, and the second one GPUs 2 and 3, by mask_gpu:3,c."""
    return _deal(value, tasks, lambda mask: _bits(int(mask, 16), gpus))


_RULES: dict[str, Callable[[str, int, int], Bound]] = {
    "single": _single,
    "per_task": _per_task,
    "map_gpu": _map,
    "mask_gpu": _mask,
}


def _bits(mask: int, gpus: int) -> tuple[int, ...]:
    """Return the GPUs of a mask; of those that the node lacks, the first one."""
    first_missing = [gpus] if mask >> gpus else []
    return (*(bit for bit in range(gpus) if mask >> bit & 1), *first_missing)


def _positive(value: str) -> int:
    number = read_number(value)
    if not number:
        raise ValueError(value)
    return number


def _deal(value: str, tasks: int, read: Callable[[str], tuple[int, ...]]) -> Bound:
    """Return what `read` makes of each item of '0,1*2', the second one twice; a list that is too
    short for all tasks is gone through again.
    """
    if not value.isascii():  # int would read the digits of other scripts
        raise ValueError(value)
    parts = [part.partition("*") for part in value.split(",")]
    runs = [repeat(read(item), _positive(times) if star else 1) for item, star, times in parts]
    return tuple(islice(cycle(chain.from_iterable(runs)), tasks))
