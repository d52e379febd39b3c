"""Whether a layout can work: what cannot is refused before the step, with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

from jaxsif.errors import JaxsifError, enclose
from jaxsif.layout import gpu_bind as binding
from jaxsif.layout.layout import Group, Layout
from jaxsif.limits import MOST_GPUS, MOST_TASKS, shorten
from jaxsif.task.contract import share, times


def check_layout(layout: Layout, share_gpus: bool) -> int:
    """Return the greatest number of tasks on one GPU.

    Raises JaxsifError for more tasks or GPUs on a node than can be, for tasks without a GPU, and
    for GPUs that are shared or in unequal shares where nobody asked for that.
    """
    for group in layout.groups:  # first: what follows goes through them one by one
        _check_size(group, layout.why)
    if not layout.has_gpus:
        return 1
    known = [group for group in layout.groups if None not in (group.tasks, group.gpus)]
    sharers = [_check_node(layout, group, share_gpus) for group in known]
    if not layout.gpu_bind and not layout.uneven:
        _check_even(layout, known)
    return max(sharers, default=1)


def _check_size(group: Group, why: str) -> None:
    _, tasks, gpus, _ = group.counts
    for number, most, noun in ((tasks, MOST_TASKS, "tasks"), (gpus, MOST_GPUS, "GPUs")):
        if number > most:
            raise JaxsifError(
                f"{number} {noun} on one node; the most is {most}", why, f"ask for fewer {noun}"
            )


def _check_node(layout: Layout, group: Group, share_gpus: bool) -> int:
    """Return the greatest number of tasks on one GPU of a group's nodes; raise JaxsifError."""
    _, tasks, gpus, _ = group.counts
    if share_gpus and gpus:
        return binding.count_sharers(layout.gpu_bind, tasks, gpus)
    if tasks > gpus:
        raise JaxsifError(
            f"{tasks} tasks on a node with {gpus} GPU(s): "
            "JAX needs at least one GPU for each process",
            layout.why,
            f"--ntasks-per-node={gpus}, --gpus-per-node={tasks}, or --share-gpus",
        )
    sharers = binding.count_sharers(layout.gpu_bind, tasks, gpus)
    if sharers > 1:
        raise JaxsifError(
            f"--gpu-bind={shorten(layout.gpu_bind)} gives one GPU to several of {tasks} tasks",
            "--gpu-bind",
            f"{binding.REMEDY}, or --share-gpus",
        )
    return sharers


def _check_even(layout: Layout, groups: Sequence[Group]) -> None:
    """Raise JaxsifError where tasks would have different numbers of GPUs."""
    # Of a node's tasks, the first one has the most, and the last one the fewest.
    ends = ((group, local) for group in groups for local in (0, group.counts[1] - 1))
    if len({_share_size(layout, group, local) for group, local in ends}) > 1:
        least = min(group.counts[2] for group in groups)
        divisors = [str(number) for number in range(1, least + 1) if least % number == 0]
        shares = _render(groups, partial(_render_shares, layout))
        raise JaxsifError(
            f"processes would have different numbers of GPUs: {shares}",
            layout.why,
            f"--ntasks-per-node={' or '.join(divisors)}, --gpus-per-task=1, or --allow-uneven",
        )


def _share_size(layout: Layout, group: Group, local: int) -> int:
    """Return the number of GPUs of a node's task."""
    _, tasks, gpus, _ = group.counts
    return len(share(local, tasks, gpus, layout.gpus_per_task))


def _render_shares(layout: Layout, group: Group) -> str:
    """Return the number of GPUs of each task of a node as '2, 1'."""
    return ", ".join(str(_share_size(layout, group, local)) for local in range(group.counts[1]))


def render_gpus(groups: Sequence[Group]) -> str:
    """Return the GPUs of each node as '3 + 1', those of equal nodes as '4 (x7)'."""
    return _render(groups, attrgetter("gpus"))


def _render(groups: Sequence[Group], describe: Callable[[Group], object]) -> str:
    return " + ".join(
        f"{describe(group)}{enclose(' ', times(group.counts[0]))}" for group in groups
    )
