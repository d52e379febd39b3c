"""What is asked for over all nodes -> what is asked for on each: --nodes=MIN-MAX, and --gpus."""

from __future__ import annotations

import math

from jaxsif.errors import JaxsifError, enclose
from jaxsif.job.allocation import parse_gpu_count
from jaxsif.layout.layout import known
from jaxsif.settings.request import RunOptions


def settle_totals(asked: RunOptions, there: int | None) -> RunOptions:
    """Return the options with --nodes as a number, and --gpus-per-node instead of --gpus.

    `there` is the number of nodes that there are, None where Slurm makes a job first. Raises
    JaxsifError for tasks or GPUs that the nodes cannot share evenly.
    """
    if asked.node_range:
        nodes = _choose_nodes(asked, *asked.node_range, there)
        asked = asked._replace(nodes=nodes, node_range=None)
    return _share_gpus(asked, asked.gpus, there) if asked.gpus else asked


def _choose_nodes(asked: RunOptions, least: int, most: int, there: int | None) -> int:
    """Return as many nodes of a range as there are; of a new job the fewest, since srun places no
    tasks on nodes whose number is open.
    """
    if least > most:
        raise JaxsifError(
            f"not a range of nodes: '{least}-{most}'", asked.source("nodes"), f"{most}-{least}"
        )
    if there:
        return min(most, max(least, there))
    # 0, where neither is given, is a multiple of any number.
    shared = math.gcd(*known(asked.ntasks, _count_gpus(asked.gpus, asked.source("gpus"))))
    fitting = (nodes for nodes in range(least, most + 1) if shared % nodes == 0)
    nodes = next(fitting, 0)
    if nodes:
        return nodes
    raise JaxsifError(
        f"{least} to {most} nodes cannot share {shared} tasks or GPUs evenly",
        asked.source("nodes"),
        "another range, or another number of tasks or GPUs",
    )


def _count_gpus(given: str | None, source: str) -> int | None:
    """Return the number in an option's value; None without one."""
    return parse_gpu_count(given, source) if given else None


def _share_gpus(asked: RunOptions, gpus: str, there: int | None) -> RunOptions:
    """Return the options with the GPUs of each node."""
    source = asked.source("gpus")
    total, kind = parse_gpu_count(gpus, source), gpus.rpartition(":")[0]
    nodes = asked.nodes or there or _count_new_nodes(asked, total)
    if nodes is None:
        raise JaxsifError(
            f"{total} GPUs on a number of nodes that is not known", source, "add --nodes=N"
        )
    each, left = divmod(total, nodes)
    if left:
        hint = f"--gpus={nodes * each}" if each else "--nodes=1"
        raise JaxsifError(f"{nodes} nodes cannot share {total} GPUs evenly", source, hint)
    if _count_gpus(asked.gpus_per_node, "--gpus-per-node") not in (None, each):
        raise JaxsifError(
            f"--gpus={gpus} and --gpus-per-node={asked.gpus_per_node} contradict each other",
            source,
            f"leave out --gpus: {nodes} node(s)",
        )
    per_node = asked.gpus_per_node or enclose("", kind, ":") + str(each)
    sources = {**asked.sources, "gpus-per-node": asked.sources.get("gpus-per-node", source)}
    nodes = asked.nodes or (None if there else nodes)  # those of a job are not asked for again
    return asked._replace(nodes=nodes, gpus_per_node=per_node, sources=sources)


def _count_new_nodes(asked: RunOptions, total: int) -> int | None:
    """Return the number of nodes that follows from what is asked for; None where none does."""
    if total == 1:
        return 1
    gpus = _count_gpus(asked.gpus_per_node, "--gpus-per-node")
    per_node, ntasks, tasks = known(gpus, asked.ntasks, asked.ntasks_per_node)
    pairs = ((total, per_node), (ntasks, tasks))
    counts = (whole // part for whole, part in pairs if part and whole % part == 0)
    return next(filter(None, counts), None)
