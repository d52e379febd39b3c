"""Slurm's description of an allocation: in the variables of a process, and in scontrol's output."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.job import nodelist as hostlist
from jaxsif.job.counts import Counts, each_node, fold, parse_counts, size
from jaxsif.limits import MOST_NODES, is_decimal, read_number
from jaxsif.text import shorten

_MOST_COMPONENTS = 128  # of a heterogeneous job, Slurm's MAX_HET_JOB_COMPS
_OF_A_JOB = "SLURMD?_|SRUN_CPUS_PER_TASK$"  # variables
_OF_THE_SITE = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")  # but for these


def parse_gpu_count(text: str, source: str = "--gpus-per-node") -> int:
    """Return the number in an option's value: '4', 'a100:4', 'a100:2,v100:2'; raise JaxsifError for
    anything else.
    """
    counts = [read_number(part.rsplit(":", 1)[-1]) for part in text.split(",")]
    if None in counts:
        raise JaxsifError(
            f"not a number of GPUs: {shorten(text)!r}", source, "give N or TYPE:N, as in srun"
        )
    return sum(filter(None, counts))


def _number(value: str, source: str) -> int | None:
    """Return the number, or None for any other text; raise JaxsifError for a number that is too
    long for Slurm.
    """
    number = read_number(value)
    if number is None and is_decimal(value):
        name = source.partition(" ")[0]
        raise JaxsifError(f"too long for a number: {shorten(value)!r}", source, f"unset {name}")
    return number


def _gpus_of_tres(value: str, source: str) -> int | None:
    """Return 2 of 'cpu=4,gres/gpu:a100=2', as Slurm 24.05 and later write it; None without GPUs."""
    found = re.search(r"gres/gpu(?::[^=,]+)?[=:]([0-9]+)", value)
    return parse_gpu_count(found[1], source) if found else None


def _text(value: str, _source: str) -> str:
    """Return the text, without the 'gres/gpu:' of a binding such as 'gres/gpu:single:1'."""
    return value.removeprefix("gres/gpu:")


def _counts(value: str, _source: str) -> Counts:
    return parse_counts(value)


# Attribute of Allocation, variable, reader. Of two variables for one attribute, the first with a
# value counts.
_VARIABLES: tuple[tuple[str, str, Callable[[str, str], object]], ...] = (
    ("ntasks", "SLURM_NTASKS", _number),
    ("ntasks_per_node", "SLURM_NTASKS_PER_NODE", _number),
    ("gpus_per_node", "SLURM_GPUS_PER_NODE", parse_gpu_count),
    ("gpus_per_node", "SLURM_GPUS_ON_NODE", _number),
    ("cpus", "SLURM_JOB_CPUS_PER_NODE", _counts),
    ("cpus_per_task", "SLURM_CPUS_PER_TASK", _number),
    ("mem_per_node", "SLURM_MEM_PER_NODE", _number),
    ("tasks", "SLURM_TASKS_PER_NODE", _counts),
    ("gpus", "SLURM_GPUS", parse_gpu_count),
    ("gpus_per_task", "SLURM_TRES_PER_TASK", _gpus_of_tres),
    ("gpus_per_task", "SLURM_GPUS_PER_TASK", parse_gpu_count),
    ("gpu_bind", "SLURM_GPU_BIND", _text),
    ("gpu_bind", "SLURM_TRES_BIND", _text),
    ("nodelist", "SLURM_JOB_NODELIST", _text),
    ("distribution", "SLURM_DISTRIBUTION", _text),
)
# In a step, these describe the step.
_TASK_VARIABLES = ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS")
# These, too; outside a step, they make srun bind a part of a node's GPUs to each task.
BINDING_VARIABLES = (
    *("SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"),
    *("SLURM_TRES_BIND", "SLURM_GPU_BIND"),
)


class Allocation(NamedTuple):
    """The Slurm job that this process is in, according to its environment (see srun(1), OUTPUT
    ENVIRONMENT VARIABLES); _VARIABLES has the source of each attribute.
    """

    job_id: str
    nodes: int
    ntasks: int | None = None  # only if the job requested a number of tasks
    ntasks_per_node: int | None = None  # likewise
    # None if the environment does not say (--gres under salloc, --gpus).
    gpus_per_node: int | None = None
    cpus: Counts = ()
    cpus_per_task: int | None = None  # srun does not inherit it from Slurm 22.05 on
    mem_per_node: int | None = None  # in MiB
    # This process is in a step of the job, such as `srun --pty bash`, not outside its steps.
    in_step: bool = False
    tasks: Counts = ()  # where Slurm would place the job's own tasks
    gpus: int | None = None  # a total, which Slurm spreads as it likes
    gpus_per_task: int | None = None  # srun then binds, unless told otherwise
    gpu_bind: str = ""  # what the job requested, without 'gres/gpu:'
    nodelist: str = ""
    distribution: str = ""  # how the job wants its tasks distributed to nodes
    components: tuple[Allocation, ...] = ()  # of a heterogeneous job, two or more
    left_out: str | None = None  # the job's other nodes, if this is a part of it; see take_nodes
    overlaps: bool = False  # a step that Slurm cannot end, as on a lost node, holds its resources

    @property
    def is_held(self) -> bool:
        """Return whether a step holds the resources: our own, or one that Slurm cannot end."""
        return self.in_step or self.overlaps

    @property
    def parts(self) -> tuple[Allocation, ...]:
        """Return the components of a heterogeneous job, or else the job itself."""
        return self.components or (self,)

    @property
    def cpus_per_node(self) -> int | None:
        """Return the number of CPUs on the node with the fewest; None if they are not known."""
        return min((cpus for cpus, _ in self.cpus), default=None)

    @property
    def placement(self) -> Counts:
        """Return the tasks on each node that the job requested; () if it requested none."""
        if self.ntasks_per_node:
            return ((self.ntasks_per_node, self.nodes),)
        if self.ntasks and not self.tasks and self.ntasks % self.nodes == 0:
            return ((self.ntasks // self.nodes, self.nodes),)
        return self.tasks

    @property
    def task_variable(self) -> str:
        """Return the variable that gives the number of the job's tasks, or '' if none does."""
        if all(part.ntasks_per_node for part in self.parts):
            return "SLURM_NTASKS_PER_NODE"
        has_tasks = any(part.ntasks or part.ntasks_per_node for part in self.parts)
        name = "SLURM_TASKS_PER_NODE" if len(self.placement) > 1 else "SLURM_NTASKS"  # uneven
        return name if has_tasks else ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Allocation | None:
        """Return the allocation, or None outside one; raise JaxsifError for values that Slurm does
        not write.
        """
        if not environ.get("SLURM_JOB_ID"):
            return None
        components = _number_of_components(environ)
        if components == 1 or _is_in_step(environ):
            return _read(environ)
        parts = tuple(_read(_component(environ, index)) for index in range(components))
        return parts[0]._replace(
            nodes=sum(part.nodes for part in parts),
            ntasks=None,
            ntasks_per_node=None,
            components=parts,
        )


# For planning outside a job: it has nothing and requested nothing.
NO_JOB = Allocation("", 0)


def _read(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation of a job, or of one component."""
    nodes = _number_of_nodes(environ)
    in_step = _is_in_step(environ)
    # An empty variable does not count.
    kept = {**environ, **dict.fromkeys(_ignored(environ, nodes, in_step), "")}
    found: dict[str, Any] = {}
    for attribute, variable, read in _VARIABLES:
        value = kept.get(variable)
        if value and found.get(attribute) is None:
            found[attribute] = read(value, f"{variable} (environment)")
    if not found.get("ntasks"):
        found["tasks"] = ()  # Slurm sets them even if nobody requested tasks
    return Allocation(environ["SLURM_JOB_ID"], nodes, in_step=in_step, **found)


def _ignored(environ: Mapping[str, str], nodes: int, in_step: bool) -> set[str]:
    """Return the variables that do not describe the job."""
    names = {*_TASK_VARIABLES, *BINDING_VARIABLES} if in_step else set()
    if nodes > 1:
        names.add("SLURM_GPUS_ON_NODE")  # the batch node's; others may have different numbers
    if "SRUN_CPUS_PER_TASK" in environ:
        names.add("SLURM_CPUS_PER_TASK")  # the user's own response to srun's change counts
    return names


def _component(environ: Mapping[str, str], index: int) -> dict[str, str]:
    """Return the variables of one component of a heterogeneous job, named as in a plain job."""
    ending = f"_HET_GROUP_{index}"
    own = {name[: -len(ending)]: value for name, value in environ.items() if name.endswith(ending)}
    return {"SLURM_JOB_ID": environ["SLURM_JOB_ID"], **own}


def _is_in_step(environ: Mapping[str, str]) -> bool:
    """Return whether this process is in an ordinary step.

    The batch script and salloc's interactive step have numbers from 0xFFFFFFF0 on.
    """
    step = _number(environ.get("SLURM_STEP_ID", ""), "SLURM_STEP_ID (environment)")
    return step is not None and step < 0xFFFFFFF0


def _number_of_nodes(environ: Mapping[str, str]) -> int:
    """Return the job's number of nodes; raise JaxsifError for a value that Slurm does not write."""
    value = environ.get("SLURM_JOB_NUM_NODES") or "1"
    nodes = read_number(value)
    if not nodes or nodes > MOST_NODES:
        raise JaxsifError(
            f"not a number of nodes: {shorten(value)!r}",
            "SLURM_JOB_NUM_NODES (environment)",
            "unset SLURM_JOB_ID if this is not inside a job",
        )
    return nodes


def _number_of_components(environ: Mapping[str, str]) -> int:
    """Return the number of components of a heterogeneous job, or 1; raise JaxsifError if there are
    too many.
    """
    source = "SLURM_HET_SIZE (environment)"
    components = _number(environ.get("SLURM_HET_SIZE", ""), source) or 1
    if components > _MOST_COMPONENTS:
        raise JaxsifError(
            f"a heterogeneous job of {components} components, more than {_MOST_COMPONENTS}",
            source,
            "unset SLURM_JOB_ID if this is not inside a job",
        )
    return components


def take_nodes(job: Allocation, chosen: Sequence[int]) -> Allocation:
    """Return the part of a job that consists of only the chosen nodes, by their numbers."""
    there = hostlist.expand(job.nodelist)
    left_out = set(range(len(there))).difference(chosen)
    tasks = take_counts(job.tasks, chosen)
    ntasks = sum(count * times for count, times in tasks) or None
    if job.ntasks and not tasks:
        ntasks = job.ntasks * len(chosen) // job.nodes
    return job._replace(
        nodes=len(chosen),
        ntasks=ntasks if job.ntasks else None,
        cpus=take_counts(job.cpus, chosen),
        tasks=tasks,
        gpus=job.gpus if len(chosen) == job.nodes else None,  # a total, of all nodes
        nodelist=",".join(there[index] for index in chosen),
        left_out=",".join(there[index] for index in sorted(left_out)),
    )


def take_counts(counts: Counts, chosen: Sequence[int]) -> Counts:
    """Return the counts of the chosen nodes, by their numbers; () if they are not known."""
    each = tuple(each_node(counts))
    return fold((each[index], 1) for index in chosen) if each else ()


def outside_of_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of a job: another job would take them for its own."""
    if "SLURM_JOB_ID" not in environ:
        return dict(environ)
    return {
        name: value
        for name, value in environ.items()
        if name in _OF_THE_SITE or not re.match(_OF_A_JOB, name)
    }


def name_job(environ: Mapping[str, str]) -> str:
    """Return the name of the job that this process is in; one job of an array is 12_3, because its
    number may be that of the whole array.
    """
    array = [environ.get(f"SLURM_ARRAY_{part}_ID", "") for part in ("JOB", "TASK")]
    return "_".join(array) if all(array) else environ.get("SLURM_JOB_ID", "")


def gpus_of(job: Allocation) -> Counts:
    """Return the GPUs on each node of a job; () if its variables do not say."""
    if job.gpus_per_node is not None:
        return ((job.gpus_per_node, job.nodes),)
    if job.gpus is not None and job.nodes == 1:
        return ((job.gpus, 1),)
    if job.gpus_per_task and size(job.tasks) == job.nodes:
        return tuple((tasks * job.gpus_per_task, times) for tasks, times in job.tasks)
    return ()


def parse_job_gpus(details: str) -> Counts:
    """Return the GPUs on each node of a job, from `scontrol --details show job`.

    Its lines look like 'Nodes=node[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)', one for each
    group of nodes.
    """
    found: list[tuple[int, int]] = []
    for nodelist, gres in re.findall(r"^\s+Nodes=(\S+) .*?GRES=(\S*)", details, re.MULTILINE):
        gpus = sum(
            read_number(count) or 0 for count in re.findall(r"gpu(?::[^:,(]+)?:([0-9]+)", gres)
        )
        found.append((gpus, hostlist.count(nodelist, "scontrol show job")))
    return fold(found)
