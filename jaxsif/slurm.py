"""Slurm's side: what an allocation's variables say, and the options of srun that ask for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jaxsif import hostlist
from jaxsif.errors import JaxsifError

# Option of srun -> the attribute of RunOptions that fills it, in the order in which they are written.
ALLOCATION_OPTIONS = {
    "--nodes": "nodes",
    "--ntasks-per-node": "ntasks_per_node",
    "--gpus-per-node": "gpus_per_node",
    "--time": "time",
    "--partition": "partition",
    "--account": "account",
    "--constraint": "constraint",
}
# The options that still mean something inside an allocation.
STEP_OPTIONS = ("--nodes", "--ntasks-per-node", "--gpus-per-node")


class Allocation(NamedTuple):
    """The Slurm job that this process is in, as its environment tells; see srun(1), OUTPUT ENVIRONMENT VARIABLES."""

    job_id: str  # SLURM_JOB_ID
    nodes: int  # SLURM_JOB_NUM_NODES
    ntasks: int | None  # SLURM_NTASKS: only when the job asked for a number of tasks
    ntasks_per_node: int | None  # SLURM_NTASKS_PER_NODE: likewise
    gpus_per_node: int | None  # None when the environment does not tell (--gres under salloc, --gpus)
    cpus_per_node: int | None = None  # SLURM_JOB_CPUS_PER_NODE: on the node that has fewest
    cpus_per_task: int | None = None  # SLURM_CPUS_PER_TASK, which srun does not inherit from Slurm 22.05 on
    mem_per_node: int | None = None  # SLURM_MEM_PER_NODE, in MiB
    in_step: bool = False  # this process is in a step of the job, such as `srun --pty bash`, and not beside its steps

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Allocation | None:
        """The allocation, or None outside of one; raises JaxsifError for values that Slurm does not write."""
        if not environ.get("SLURM_JOB_ID"):
            return None
        nodes = _number_of_nodes(environ)
        in_step = _is_in_step(environ)
        return cls(
            job_id=environ["SLURM_JOB_ID"],
            nodes=nodes,
            # In a step these two are the step's own.
            ntasks=None if in_step else _optional_int(environ, "SLURM_NTASKS"),
            ntasks_per_node=None if in_step else _optional_int(environ, "SLURM_NTASKS_PER_NODE"),
            gpus_per_node=_gpus_per_node(environ, nodes),
            cpus_per_node=_cpus_per_node(environ),
            # The user's own answer to srun's change stands.
            cpus_per_task=None if "SRUN_CPUS_PER_TASK" in environ else _optional_int(environ, "SLURM_CPUS_PER_TASK"),
            mem_per_node=_optional_int(environ, "SLURM_MEM_PER_NODE"),
            in_step=in_step,
        )


def _is_in_step(environ: Mapping[str, str]) -> bool:
    """True in an ordinary step; salloc's interactive step and the batch script have numbers from 0xFFFFFFF0 on."""
    step = _optional_int(environ, "SLURM_STEP_ID")
    return step is not None and step < 0xFFFFFFF0


def _number_of_nodes(environ: Mapping[str, str]) -> int:
    value = environ.get("SLURM_JOB_NUM_NODES") or "1"
    if not value.isdecimal() or int(value) < 1:
        raise JaxsifError(
            f"not a number of nodes: {value!r}",
            "SLURM_JOB_NUM_NODES (environment)",
            "unset SLURM_JOB_ID when this is not inside of a job",
        )
    return int(value)


def _optional_int(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isdecimal() else None


def _gpus_per_node(environ: Mapping[str, str], nodes: int) -> int | None:
    if "SLURM_GPUS_PER_NODE" in environ:
        return parse_gpu_count(environ["SLURM_GPUS_PER_NODE"], "SLURM_GPUS_PER_NODE (environment)")
    # What the batch node has is what all have, unless there are others.
    return _optional_int(environ, "SLURM_GPUS_ON_NODE") if nodes == 1 else None


def _cpus_per_node(environ: Mapping[str, str]) -> int | None:
    """SLURM_JOB_CPUS_PER_NODE is a list such as '16(x3),8'."""
    counts = re.findall(r"(?:^|,)(\d+)", environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return min(map(int, counts), default=None)


def parse_gpu_count(text: str, source: str = "--gpus-per-node") -> int:
    """The number in an option's value: '4', 'a100:4', 'a100:2,v100:2'; raises JaxsifError for anything else."""
    counts = [part.rsplit(":", 1)[-1] for part in text.split(",")]
    if not all(count.isdecimal() for count in counts):
        raise JaxsifError(f"not a number of GPUs: {text!r}", source, "give N or TYPE:N, as for srun")
    return sum(map(int, counts))


def parse_job_gpus(details: str) -> tuple[int, ...]:
    """GPUs on each node of a job, from `scontrol --details show job`.

    Its lines look like 'Nodes=node[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)', one for each group of nodes.
    """
    found: list[int] = []
    for nodelist, gres in re.findall(r"^\s+Nodes=(\S+) .*?GRES=(\S*)", details, re.MULTILINE):
        gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))
        found += [gpus] * hostlist.count(nodelist, "scontrol show job")
    return tuple(found)
