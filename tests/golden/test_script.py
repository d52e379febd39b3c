"""Job scripts of typical requests, whole; `make lint` has shellcheck read them too.

One script for each case, in script/; `make golden` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.hosts import CONTAINER, LOGIN_NODE, plan_for, srun_words

from jaxsif.images.file import Allowed
from jaxsif.launch.script import JobOptions, Script, judge_image, render_script
from jaxsif.plan.container import Container
from jaxsif.runtime import Runtime
from jaxsif.settings.options import RunOptions

EXPECTED = Path(__file__).parent / "script"
TRAINING = JobOptions("train", output="%x-%j.out")
TRAIN = ("python", "train.py", "--steps=100", "--name", "first try")
ODD = ("*", "~", "\\", "!x", "&", "bytes \udcff", "", "two\nlines")
IMAGE = CONTAINER._replace(image="/sw/images/jax.sif")


@dataclass(frozen=True)
class Case:
    """A request for a job."""

    run: RunOptions
    job: JobOptions = TRAINING
    container: Container = IMAGE
    flavour: str | None = "cuda12"
    inherited: tuple[str, ...] = ()
    checksum: str = ""
    run_words: tuple[tuple[str, ...], ...] = ()
    exports: tuple[str, ...] = ()


JAXSIF = (("/sw/jaxsif/0.1.0/bin/jaxsif", "run"), ("--image=/sw/images/jax.sif",))
CASES = {
    "all-options": Case(
        RunOptions(
            TRAIN,
            nodes=2,
            ntasks_per_node=2,
            gpus_per_node="a100:4",
            time="1-12:00:00",
            partition="gpu",
            account="physics",
            constraint="nvlink&ib",
            srun_args=srun_words("--cpu-bind=cores", "--qos=long", "--plugin", "x"),
            binds=("/data/My Set:/data:ro", "/usr/lib64/libcxi.so.1:/opt/jaxsif/fabric/libcxi.so.1:ro"),
            env=(
                *(("WANDB_API_KEY", "secret"), ("NCCL_NET", "AWS Libfabric"), ("LD_LIBRARY_PATH", "/home/a/lib")),
                *(("JAXSIF_FABRIC", "alps"), ("JAXSIF_FABRIC_NEEDS", "/dev/cxi*")),
                ("JAXSIF_FABRIC_LIBRARIES", "/opt/jaxsif/fabric"),
            ),
            label=True,
            coordinator_ports="7000-7009",
            node_address="%N-ib",
            init_timeout=600,
        ),
        JobOptions(
            "my training",
            array="0-9%2",
            dependency="afterok:4711",
            output="%x-%A_%a.out",
            error="%x-%A_%a.err",
            task_output="%x-%A_%a-%t.out",
            sbatch_args=(("--signal=URG@60", "--mem", "0"), ('--comment=it\'s "C:\\temp" #1',)),
        ),
        container=IMAGE._replace(layers=("/home/a/my layers/a.0.sqfs",), cache="/home/a/.cache/jaxsif/compiled/0123"),
        inherited=("WANDB_API_KEY",),
    ),
    "odd-words": Case(
        RunOptions(
            ("python", "-c", "print('$HOME `date`', \"#\")", *ODD),
            nodes=2,
            gpus_per_node="4",
            env=(("XLA_FLAGS", "--xla_dump_to='/scratch/a b',--xla_dump_hlo_as_text"), ("EMPTY", "")),
        ),
        JobOptions("python", output="%x-%j.out"),
    ),
    "foreign-image-by-singularityce-under-a-policy": Case(
        RunOptions(TRAIN, ntasks_per_node=1, gpus_per_node="4", binds=("/scratch",)),
        container=IMAGE._replace(
            runtime=Runtime("/opt/ce/bin/singularity", "SINGULARITYENV_"),
            image="/sw/my images/jax.sif",
            allowed=Allowed("sha256:0123", "4711:2800000000:1795344762464341680"),
        ),
        flavour=None,
        checksum="0123456789abcdef" * 4,
    ),
    "that-is-requeued": Case(
        RunOptions(TRAIN, nodes=2, ntasks_per_node=4, env=(("MY_TOKEN", "s3cr3t $1"),)),
        TRAINING._replace(requeue=True, max_restarts=3, spare_nodes=1),
        run_words=(*JAXSIF, ("--max-requeues=100",), ("--checkpoints=my $HOME",), ("--env=MY_TOKEN",)),
        exports=("MY_TOKEN",),
    ),
    "of-a-chain": Case(
        RunOptions(TRAIN, nodes=2),
        TRAINING._replace(job_name="my training", chain=3, dependency="afterok:4711"),
        run_words=(*JAXSIF, ("--max-requeues=0",)),
    ),
}


def render(case: Case) -> str:
    host = LOGIN_NODE._replace(runtime=case.container.runtime)
    plan = plan_for(case.run, host, case.container, {})
    assert plan.container
    foreign = judge_image(case.flavour, plan.layout)
    text = render_script(
        Script(plan, plan.container, case.job, foreign, case.inherited, case.checksum, case.run_words, case.exports)
    )
    return text.replace("\udcff", "ÿ")  # what a file of text can hold


@pytest.mark.parametrize("name", CASES)
def test_script(name: str, compare: Callable[[Path, str], None]) -> None:
    compare(EXPECTED / f"{name}.sbatch", render(CASES[name]))


def test_every_expected_script_has_its_case() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == set(CASES)
