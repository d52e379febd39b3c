"""What typical requests start, whole, as --verbose prints it.

One file of expected text for each case, in run/; `make golden` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kit.hosts import CONTAINER, LAPTOP, LOGIN_NODE, WORKSTATION, plan_for, srun_words

from jaxsif.images.file import Allowed
from jaxsif.plan.command import render_command, render_summary
from jaxsif.plan.container import Container
from jaxsif.plan.host import Host
from jaxsif.plan.host_list import HostList
from jaxsif.plan.notes import find_notes
from jaxsif.runtime import Runtime
from jaxsif.settings.options import RunOptions

EXPECTED = Path(__file__).parent / "run"

TRAIN = ("python", "train.py", "--steps=100", "--name", "first try")


@dataclass(frozen=True)
class Case:
    """A request, where it is made, and the environment there."""

    options: RunOptions
    host: Host = LOGIN_NODE
    environ: Mapping[str, str] = field(default_factory=dict)
    container: Container = CONTAINER


def job(**variables: str) -> dict[str, str]:
    """The environment of a job with two nodes."""
    return {"SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "gpu[07-08]", **variables}


CASES = {
    "in-a-job": Case(RunOptions(TRAIN), environ=job(SLURM_GPUS_PER_NODE="a100:4")),
    "in-a-job-with-uneven-gpus": Case(
        RunOptions(TRAIN, allow_uneven=True, time="10"),
        LOGIN_NODE._replace(job_gpus=((3, 1), (1, 1))),
        job(SLURM_GPUS="4", SLURM_JOB_CPUS_PER_NODE="4(x2)", SLURM_CPUS_PER_TASK="1"),
    ),
    "in-a-job-with-gpus-per-task": Case(
        RunOptions(TRAIN, per_node=True),
        environ=job(
            SLURM_NTASKS="4",
            SLURM_NTASKS_PER_NODE="2",
            SLURM_TASKS_PER_NODE="2(x2)",
            SLURM_TRES_PER_TASK="cpu=4,gres/gpu=2",
            SLURM_TRES_BIND="gres/gpu:per_task:2",
        ),
    ),
    "in-a-heterogeneous-job": Case(
        RunOptions(TRAIN, allow_uneven=True),
        environ={
            "SLURM_JOB_ID": "4711",
            "SLURM_HET_SIZE": "2",
            "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1",
            "SLURM_GPUS_PER_NODE_HET_GROUP_0": "1",
            "SLURM_JOB_NUM_NODES_HET_GROUP_1": "2",
            "SLURM_GPUS_PER_NODE_HET_GROUP_1": "4",
        },
    ),
    "more-tasks-than-gpus": Case(RunOptions(TRAIN, ntasks_per_node=8, gpus_per_node="4", share_gpus=True)),
    "outside-with-all-options": Case(
        RunOptions(
            TRAIN,
            launcher="srun",
            nodes=2,
            ntasks_per_node=2,
            gpus_per_node="a100:4",
            time="1-12:00:00",
            partition="gpu",
            account="physics",
            constraint="nvlink&ib",
            srun_args=srun_words("--qos=debug", "--comment=a night's run"),
            binds=("/scratch", "/data/My Set:/data:ro"),
            env=(("WANDB_MODE", "offline"),),
            label=True,
        ),
        container=CONTAINER._replace(source="--image"),
    ),
    "variables": Case(
        RunOptions(
            TRAIN,
            cleanenv=True,
            env=(
                ("XLA_FLAGS", "--xla_gpu_graph_level=0 --xla_dump_to='/scratch/a b',--xla_dump_hlo_as_text"),
                ("GREETING", 'it\'s "quoted", $HOME, `date`\nand two lines'),
                ("EMPTY", ""),
            ),
        ),
        environ=job(
            SLURM_GPUS_PER_NODE="4",
            LOADEDMODULES="jax/sif",
            PMIX_RANK="0",
            JAX_PLATFORMS="cpu",
            JAX_ENABLE_PREEMPTION_SERVICE="1",
            http_proxy="http://proxy.example.org:3128",
            HTTPS_PROXY="http://other.example.org:8080",
            no_proxy="localhost,.example.org",
            **{"BASH_FUNC_ml%%": "() { module; }"},
        ),
    ),
    "singularityce-with-layers-and-a-coordinator": Case(
        RunOptions(
            TRAIN,
            coordinator_ports="61000-61099",
            node_address="%N-ib",
            init_timeout=600,
            heartbeat_timeout=20,
            shutdown_timeout=30,
        ),
        LOGIN_NODE._replace(runtime=Runtime("/opt/ce/bin/singularity", "SINGULARITYENV_")),
        container=CONTAINER._replace(
            layers=("/home/a/my layers/a.0.sqfs", "/home/a/b.1.sqfs"), cache="/home/a/.cache/jaxsif/compiled/0123"
        ),
    ),
    "under-a-policy": Case(
        RunOptions(TRAIN, ntasks_per_node=1),
        container=CONTAINER._replace(allowed=Allowed("sha256:0123", "4711:2800000000:1795344762464")),
    ),
    "mpirun": Case(
        RunOptions(TRAIN, launcher="mpirun", hosts="n1:4,n2:4", label=True, env=(("SEED", "1"),)),
        WORKSTATION._replace(gpus=8, host_list=HostList({"n1": 4, "n2": 4}, "--hosts")),
        {"HOME": "/home/a", "PATH": "/usr/bin", "http_proxy": "http://proxy.example.org:3128", "OMPI_MCA_btl": "tcp"},
    ),
    "local": Case(RunOptions(TRAIN), WORKSTATION),
    "local-without-a-runtime": Case(
        RunOptions(TRAIN, env=(("SEED", "1"),)), LAPTOP._replace(package=LOGIN_NODE.package)
    ),
}


def render(case: Case) -> str:
    """What --verbose prints, its command line folded, and the notes."""
    plan = plan_for(case.options, case.host, case.container, case.environ)
    summary = render_summary(plan).partition("\n")[0]
    return "\n".join([summary, render_command(plan, width=118), *find_notes(plan), ""])


@pytest.mark.parametrize("name", CASES)
def test_run(name: str, compare: Callable[[Path, str], None]) -> None:
    compare(EXPECTED / f"{name}.txt", render(CASES[name]))


def test_every_expected_text_has_its_case() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == set(CASES)
