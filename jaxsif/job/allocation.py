"""Slurm's side: what an allocation's variables say, and the options of srun that ask for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.job import nodelist as hostlist
from jaxsif.job.counts import Counts, fold, parse_counts
from jaxsif.limits import MOST_NODES, read_number, shorten


class Allocation(NamedTuple):
    """The Slurm job that this process is in, as its environment tells; see srun(1), OUTPUT
    ENVIRONMENT VARIABLES.
    """

    job_id: str  # SLURM_JOB_ID
    nodes: int  # SLURM_JOB_NUM_NODES
    ntasks: int | None  # SLURM_NTASKS: only when the job asked for a number of tasks
    ntasks_per_node: int | None  # SLURM_NTASKS_PER_NODE: likewise
    # None when the environment does not tell (--gres under salloc, --gpus).
    gpus_per_node: int | None
    cpus: Counts = ()  # SLURM_JOB_CPUS_PER_NODE
    # SLURM_CPUS_PER_TASK, which srun does not inherit from Slurm 22.05 on.
    cpus_per_task: int | None = None
    mem_per_node: int | None = None  # SLURM_MEM_PER_NODE, in MiB
    # This process is in a step of the job, such as `srun --pty bash`, and not beside its steps.
    in_step: bool = False
    tasks: Counts = ()  # SLURM_TASKS_PER_NODE: where Slurm would place the job's own tasks
    gpus: int | None = None  # SLURM_GPUS: a total, which Slurm spreads as it likes
    # SLURM_TRES_PER_TASK, SLURM_GPUS_PER_TASK: srun then binds, unless told otherwise.
    gpus_per_task: int | None = None
    ntasks_per_gpu: int | None = None  # SLURM_NTASKS_PER_GPU: likewise
    # SLURM_TRES_BIND, SLURM_GPU_BIND: what the job asked for, without 'gres/gpu:'.
    gpu_bind: str = ""
    nodelist: str = ""  # SLURM_JOB_NODELIST
    distribution: str = ""  # SLURM_DISTRIBUTION: how the job wants its tasks dealt to nodes
    components: tuple[Allocation, ...] = ()  # of a heterogeneous job, two or more

    @property
    def cpus_per_node(self) -> int | None:
        """CPUs on the node that has fewest."""
        return min((cpus for cpus, _ in self.cpus), default=None)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Allocation | None:
        """The allocation, or None outside of one; raises JaxsifError for values that Slurm does not
        write.
        """
        if not environ.get("SLURM_JOB_ID"):
            return None
        components = _number_of_components(environ)
        if components == 1 or _is_in_step(environ):
            return cls._of_one(environ)
        parts = tuple(cls._of_one(_component(environ, index)) for index in range(components))
        return parts[0]._replace(
            nodes=sum(part.nodes for part in parts),
            ntasks=None,
            ntasks_per_node=None,
            components=parts,
        )

    @classmethod
    def _of_one(cls, environ: Mapping[str, str]) -> Allocation:
        nodes = _number_of_nodes(environ)
        in_step = _is_in_step(environ)
        # In a step these are the step's own.
        ntasks = None if in_step else _optional_int(environ, "SLURM_NTASKS")
        return cls(
            job_id=environ["SLURM_JOB_ID"],
            nodes=nodes,
            ntasks=ntasks,
            ntasks_per_node=None if in_step else _optional_int(environ, "SLURM_NTASKS_PER_NODE"),
            gpus_per_node=_gpus_per_node(environ, nodes),
            cpus=parse_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", "")),
            # The user's own answer to srun's change stands.
            cpus_per_task=None
            if "SRUN_CPUS_PER_TASK" in environ
            else _optional_int(environ, "SLURM_CPUS_PER_TASK"),
            mem_per_node=_optional_int(environ, "SLURM_MEM_PER_NODE"),
            in_step=in_step,
            tasks=parse_counts(environ.get("SLURM_TASKS_PER_NODE", "")) if ntasks else (),
            gpus=None if in_step else _optional_gpus(environ, "SLURM_GPUS"),
            gpus_per_task=None if in_step else _gpus_per_task(environ),
            ntasks_per_gpu=None if in_step else _optional_int(environ, "SLURM_NTASKS_PER_GPU"),
            gpu_bind="" if in_step else _gpu_bind(environ),
            nodelist=environ.get("SLURM_JOB_NODELIST", ""),
            distribution=environ.get("SLURM_DISTRIBUTION", ""),
        )


_MOST_COMPONENTS = 128  # of a heterogeneous job, Slurm's MAX_HET_JOB_COMPS
_OF_A_JOB = "SLURMD?_|SRUN_CPUS_PER_TASK$"  # variables
_OF_THE_SITE = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")  # but for these


def outside_of_job(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of a job, whose numbers another job would take for its own."""
    if "SLURM_JOB_ID" not in environ:
        return dict(environ)
    return {
        name: value
        for name, value in environ.items()
        if name in _OF_THE_SITE or not re.match(_OF_A_JOB, name)
    }


def _component(environ: Mapping[str, str], index: int) -> dict[str, str]:
    """The variables of one component of a heterogeneous job, by the names that a plain job has."""
    ending = f"_HET_GROUP_{index}"
    own = {name[: -len(ending)]: value for name, value in environ.items() if name.endswith(ending)}
    return {"SLURM_JOB_ID": environ["SLURM_JOB_ID"], **own}


def _is_in_step(environ: Mapping[str, str]) -> bool:
    """True in an ordinary step; salloc's interactive step and the batch script have numbers from
    0xFFFFFFF0 on.
    """
    step = _optional_int(environ, "SLURM_STEP_ID")
    return step is not None and step < 0xFFFFFFF0


def _number_of_nodes(environ: Mapping[str, str]) -> int:
    value = environ.get("SLURM_JOB_NUM_NODES") or "1"
    nodes = read_number(value)
    if not nodes or nodes > MOST_NODES:
        raise JaxsifError(
            f"not a number of nodes: {shorten(value)!r}",
            "SLURM_JOB_NUM_NODES (environment)",
            "unset SLURM_JOB_ID when this is not inside of a job",
        )
    return nodes


def _number_of_components(environ: Mapping[str, str]) -> int:
    """Of a heterogeneous job; 1 of any other."""
    components = _optional_int(environ, "SLURM_HET_SIZE") or 1
    if components > _MOST_COMPONENTS:
        raise JaxsifError(
            f"a heterogeneous job of {components} components, more than {_MOST_COMPONENTS}",
            "SLURM_HET_SIZE (environment)",
            "unset SLURM_JOB_ID when this is not inside of a job",
        )
    return components


def _optional_int(environ: Mapping[str, str], name: str) -> int | None:
    """The number that a variable has; None where it has none. Raises JaxsifError for one that no
    number of Slurm is.
    """
    value = environ.get(name, "")
    number = read_number(value)
    if number is None and value.isdecimal():
        raise JaxsifError(
            f"too long for a number: {shorten(value)!r}", f"{name} (environment)", f"unset {name}"
        )
    return number


def _gpus_per_node(environ: Mapping[str, str], nodes: int) -> int | None:
    if "SLURM_GPUS_PER_NODE" in environ:
        return parse_gpu_count(environ["SLURM_GPUS_PER_NODE"], "SLURM_GPUS_PER_NODE (environment)")
    # What the batch node has is what all have, unless there are others.
    return _optional_int(environ, "SLURM_GPUS_ON_NODE") if nodes == 1 else None


def _optional_gpus(environ: Mapping[str, str], name: str) -> int | None:
    return parse_gpu_count(environ[name], f"{name} (environment)") if environ.get(name) else None


def _gpus_per_task(environ: Mapping[str, str]) -> int | None:
    """From 'cpu=4,gres/gpu:a100=2' of Slurm 24.05 and later, or from the variable of older ones."""
    found = re.search(r"gres/gpu(?::[^=,]+)?[=:](\d+)", environ.get("SLURM_TRES_PER_TASK", ""))
    if found:
        return parse_gpu_count(found[1], "SLURM_TRES_PER_TASK (environment)")
    return _optional_gpus(environ, "SLURM_GPUS_PER_TASK")


def _gpu_bind(environ: Mapping[str, str]) -> str:
    """'single:1' of 'gres/gpu:single:1'."""
    value = environ.get("SLURM_GPU_BIND") or environ.get("SLURM_TRES_BIND", "")
    return value[len("gres/gpu:") :] if value.startswith("gres/gpu:") else value


def gpus_of(job: Allocation) -> Counts:
    """GPUs on each node of a job, as far as its variables tell."""
    if job.gpus_per_node is not None:
        return ((job.gpus_per_node, job.nodes),)
    if job.gpus is not None and job.nodes == 1:
        return ((job.gpus, 1),)
    if job.gpus_per_task and sum(times for _, times in job.tasks) == job.nodes:
        return tuple((tasks * job.gpus_per_task, times) for tasks, times in job.tasks)
    return ()


def parse_gpu_count(text: str, source: str = "--gpus-per-node") -> int:
    """The number in an option's value: '4', 'a100:4', 'a100:2,v100:2'; raises JaxsifError for
    anything else.
    """
    counts = [read_number(part.rsplit(":", 1)[-1]) for part in text.split(",")]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        raise JaxsifError(
            f"not a number of GPUs: {shorten(text)!r}", source, "give N or TYPE:N, as for srun"
        )
    return sum(known)


def parse_job_gpus(details: str) -> Counts:
    """GPUs on each node of a job, from `scontrol --details show job`.

    Its lines look like 'Nodes=node[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)', one for each
    group of nodes.
    """
    found: list[tuple[int, int]] = []
    for nodelist, gres in re.findall(r"^\s+Nodes=(\S+) .*?GRES=(\S*)", details, re.MULTILINE):
        gpus = sum(read_number(count) or 0 for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))
        found.append((gpus, hostlist.count(nodelist, "scontrol show job")))
    return fold(found)
