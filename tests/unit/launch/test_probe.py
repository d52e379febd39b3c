"""What is found on a host whose PATH, image and variables the tests make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from kit.caught import catch, error_of
from kit.executables import executable
from kit.siffile import write_image

from jaxsif.errors import HostError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.pipeline import Prepared, prepare
from jaxsif.runtime import Runtime

JOB = Allocation("4711", 2, None, None, None)


def look_at(environ: Mapping[str, str], allocation: Allocation | None = None, **said: object) -> Prepared:
    return prepare({**said, "compile_cache": False}, ("hostname",), allocation, environ, print)


def test_probe_on_a_login_node(folder: Path) -> None:
    executable(folder / "bin/srun")
    executable(folder / "bin/apptainer")
    write_image(folder / "jax.sif", b"x")
    found = look_at({"PATH": f"{folder}/bin"})
    host = found.host
    assert (host.srun, host.runtime, host.gpus, host.job_gpus) == (True, Runtime("apptainer", "APPTAINERENV_"), 0, None)
    assert found.require_container()[:3] == (host.runtime, f"{folder}/jax.sif", "./jax.sif")
    assert (Path(host.package) / "task/start.sh").is_file()


def test_probe_without_slurm_and_runtime_needs_no_image(folder: Path) -> None:
    found = look_at({"PATH": str(folder), "CUDA_VISIBLE_DEVICES": "0,1"})
    host = found.host
    assert (host.srun, host.runtime, found.container, host.gpus) == (False, None, None, 2)


def test_probe_with_srun_needs_a_runtime(folder: Path) -> None:
    executable(folder / "srun")
    with pytest.raises(HostError, match=r"^no container runtime"):
        look_at({"PATH": str(folder)})


@pytest.fixture
def in_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node of a job, with the folder bin/ as PATH of this process too: `scontrol` is started from there."""
    executable(folder / "bin/srun")
    executable(folder / "bin/apptainer")
    write_image(folder / "jax.sif", b"x")
    monkeypatch.setenv("PATH", f"{folder}/bin")
    return folder


@pytest.mark.starts_processes
def test_gpus_of_the_job_are_asked_for(in_job: Path) -> None:
    line = "     Nodes=node[1-2] CPU_IDs=0 Mem=0 GRES=gpu:a100:3(IDX:0-2)"
    executable(in_job / "bin/scontrol", f'[ "$*" = "--details show job 4711" ] && echo "{line}"\n')
    host = look_at({"PATH": f"{in_job}/bin"}, JOB).host
    assert host.job_gpus == ((3, 2),)


@pytest.mark.parametrize(
    ("options", "allocation"),
    [
        ({"ntasks_per_node": 1}, JOB),
        ({"gpus_per_node": "1"}, JOB),
        ({}, Allocation("4711", 2, 8, None, None)),
        ({}, Allocation("4711", 2, None, None, 4)),
        ({}, None),
    ],
    ids=["tasks given", "GPUs given", "tasks known", "GPUs known", "no job"],
)
def test_gpus_of_the_job_are_not_asked_for_without_need(
    in_job: Path, options: dict[str, object], allocation: Allocation | None
) -> None:
    host = look_at({"PATH": f"{in_job}/bin"}, allocation, **options).host  # a process would fail the test
    assert host.job_gpus is None


@pytest.mark.starts_processes
@pytest.mark.parametrize("scontrol", [None, "echo 'slurm_load_jobs error' >&2; exit 1\n"], ids=["missing", "failing"])
def test_gpus_of_the_job_that_slurm_does_not_tell(in_job: Path, scontrol: str | None) -> None:
    if scontrol:
        executable(in_job / "bin/scontrol", scontrol)
    assert error_of(catch(HostError, look_at, {"PATH": f"{in_job}/bin"}, JOB)) == (
        125,
        "jaxsif: error: scontrol does not report the GPUs of job 4711\n"
        "  from: SLURM_JOB_ID (environment)\n"
        "  try:  pass --gpus-per-node=N or --ntasks-per-node=N, or unset SLURM_JOB_ID if that job is over",
    )
