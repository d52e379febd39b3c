"""Whether a layout can work: what cannot is refused before the step, with the flag that mends it."""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.errors import JaxsifError
from jaxsif.layout import gpu_bind as binding
from jaxsif.layout.layout import Group, Layout
from jaxsif.task.contract import share


def check_layout(layout: Layout, share_gpus: bool) -> None:
    """Raise JaxsifError for tasks without a GPU, and for GPUs in unequal shares that nobody asked
    for.
    """
    shares = set()
    any_gpu = any(group.gpus for group in layout.groups)
    for group in layout.groups:
        if group.tasks is None or group.gpus is None or not any_gpu:
            continue
        if group.tasks > group.gpus and not (share_gpus and group.gpus):
            raise JaxsifError(
                f"{group.tasks} tasks on a node with {group.gpus} GPU(s): JAX needs at least one GPU for each process",
                layout.why,
                f"--ntasks-per-node={group.gpus}, --gpus-per-node={group.tasks}, or --share-gpus",
            )
        if layout.gpu_bind:
            found = binding.predict(layout.gpu_bind, group.tasks, group.gpus)
            if found and not share_gpus:
                binding.check_sharing(layout.gpu_bind, found)
            continue
        shares |= {
            len(share(local, group.tasks, group.gpus, layout.gpus_per_task))
            for local in (0, group.tasks - 1)
        }
    if len(shares) > 1 and not layout.uneven:
        raise JaxsifError(
            f"processes would have different numbers of GPUs: {render_gpus(layout.groups, of_tasks=True)}",
            layout.why,
            _even_remedy(layout),
        )


def _even_remedy(layout: Layout) -> str:
    gpus = min(group.gpus or 1 for group in layout.groups)
    divisors = [str(count) for count in range(1, gpus + 1) if gpus % count == 0]
    return f"--ntasks-per-node={' or '.join(divisors)}, --gpus-per-task=1, or --allow-uneven"


def render_gpus(groups: Sequence[Group], of_tasks: bool = False) -> str:
    """'3 + 1', equal nodes as '4 (x7)'; with `of_tasks`, the GPUs of each task of a node: '2, 1 +
    1, 1'.
    """
    words = []
    for group in groups:
        one = str(group.gpus)
        if of_tasks and group.tasks and group.gpus:
            one = ", ".join(
                str(len(share(local, group.tasks, group.gpus))) for local in range(group.tasks)
            )
        words.append(f"{one} (x{group.nodes})" if (group.nodes or 1) > 1 else one)
    return " + ".join(words)


def count_sharers(layout: Layout) -> int:
    """The greatest number of tasks on one GPU."""
    most = 1
    for group in layout.groups:
        if group.tasks and group.gpus:
            found = (
                binding.predict(layout.gpu_bind, group.tasks, group.gpus)
                if layout.gpu_bind
                else None
            )
            most = max(most, binding.sharers(found) if found else -(-group.tasks // group.gpus))
    return most
