"""What is found on a host whose PATH, image and variables the tests make."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from hosts import LOGIN_NODE

from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.file import find_state
from jaxsif.job.allocation import Allocation
from jaxsif.launch.probe import (
    Image,
    find_image,
    find_port,
    free_ports,
    probe,
    step_name,
    unchanged_image,
)
from jaxsif.plan.coordinator import COORDINATOR_PORTS
from jaxsif.process import find_executable
from jaxsif.runtime import Runtime, find_runtime, require_runtime
from jaxsif.settings.config import Setting
from jaxsif.settings.request import RunOptions

JOB = Allocation("4711", 2, None, None, None)
PROGRAM = RunOptions(("hostname",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def write_image(path: Path) -> Path:
    """A whole SIF image without contents."""
    path.write_bytes(bytes(32) + b"SIF_MAGIC\x00" + bytes(22) + struct.pack("<8q", 0, 0, 0, 0, 0, 0, 128, 8) + bytes(8))
    return path


def error_of(caught: pytest.ExceptionInfo[JaxsifError]) -> tuple[int, str]:
    return caught.value.exit_code, caught.value.render()


@pytest.mark.parametrize(
    ("name", "path", "found"),
    [
        ("tool", "{0}/nowhere:{0}/a:{0}/b", "{0}/a/tool"),
        ("tool", "{0}/no:{0}/b", "{0}/b/tool"),
        ("tool", "{0}/folder:{0}/b", "{0}/b/tool"),
        ("tool", "{0}/no", None),
        ("here", "{0}/a:", "here"),
        ("{0}/a/tool", "{0}/b", "{0}/a/tool"),
        ("b/tool", "{0}/a", "b/tool"),
        ("{0}/no/tool", "{0}/a", None),
        ("{0}/a", "", None),
    ],
    ids=[
        "first on the PATH",
        "not one that cannot be executed",
        "not a folder",
        "none",
        "the working directory",
        "a path",
        "a relative path",
        "a path that cannot be executed",
        "a path of a folder",
    ],
)
def test_find_executable(folder: Path, name: str, path: str, found: str | None) -> None:
    for place in ("a/tool", "b/tool", "here"):
        executable(folder / place)
    executable(folder / "no/tool").chmod(0o644)
    (folder / "folder/tool").mkdir(parents=True)
    environ = {"PATH": path.format(folder)}
    assert find_executable(name.format(folder), environ) == (found and found.format(folder))


def test_runtime_prefers_apptainer(folder: Path) -> None:
    executable(folder / "bin/singularity")
    environ = {"PATH": f"{folder}/bin"}
    assert find_runtime(environ) == Runtime("singularity", "SINGULARITYENV_")
    executable(folder / "bin/apptainer")
    assert find_runtime(environ) == Runtime("apptainer", "APPTAINERENV_")


def test_runtime_behind_apptainers_link(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/singularity").symlink_to(executable(folder / "lib/apptainer"))
    assert find_runtime({"PATH": f"{folder}/bin"}) == Runtime("singularity", "APPTAINERENV_")


def test_runtime_that_is_named(folder: Path) -> None:
    executable(folder / "bin/apptainer")
    named = str(executable(folder / "ce/singularity"))
    environ = {"PATH": f"{folder}/bin", "JAXSIF_RUNTIME": named}
    assert find_runtime(environ) == Runtime(named, "SINGULARITYENV_")


def test_runtime_that_is_named_and_missing(folder: Path) -> None:
    executable(folder / "bin/apptainer")
    with pytest.raises(HostError) as caught:
        find_runtime({"PATH": f"{folder}/bin", "JAXSIF_RUNTIME": "/opt/ce/singularity"})
    assert error_of(caught) == (
        125,
        "jaxsif: error: cannot execute the container runtime /opt/ce/singularity\n"
        "  from: JAXSIF_RUNTIME\n"
        "  try:  unset it, or correct it",
    )


def test_no_runtime(folder: Path) -> None:
    environ = {"PATH": str(folder)}
    assert find_runtime(environ) is None
    with pytest.raises(HostError) as caught:
        require_runtime(environ)
    assert error_of(caught) == (
        125,
        "jaxsif: error: no container runtime: neither apptainer nor singularity is on the PATH\n"
        "  from: PATH\n"
        "  try:  load its module, or set JAXSIF_RUNTIME to its path on the nodes",
    )


@pytest.mark.parametrize(
    ("setting", "found", "source"),
    [
        (Setting("a.sif", "--image"), "a.sif", "--image"),
        (Setting("b.sif", "JAX_IMAGE (environment)"), "b.sif", "JAX_IMAGE (environment)"),
        (None, "jax.sif", "./jax.sif"),
        (Setting("a folder", "--image"), "a folder", "--image"),
    ],
    ids=["option", "variable", "default", "sandbox folder"],
)
def test_image(folder: Path, setting: Setting | None, found: str, source: str) -> None:
    for name in ("a.sif", "b.sif", "jax.sif"):
        write_image(folder / name)
    (folder / "a folder/.singularity.d").mkdir(parents=True)
    assert find_image(setting) == Image(f"{folder}/{found}", source)


LONG = "x" * 300

NOT_FOUND = """\
jaxsif: error: image not found: {}
  from: --image
  try:  make image, module load jax/sif, or pass --image PATH"""
NO_FILE = """\
jaxsif: error: cannot read image {}: {}
  from: --image
  try:  check its path and permissions"""


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("nowhere.sif", NOT_FOUND.format("nowhere.sif")),
        ("file/jax.sif", NOT_FOUND.format("file/jax.sif")),
        (LONG, NO_FILE.format(LONG, "File name too long")),
        (f"loop/{LONG}", NO_FILE.format(f"loop/{LONG}", "Too many levels of symbolic links")),
        (
            "folder",
            "jaxsif: error: not an image: folder is a folder without .singularity.d\n"
            "  from: --image\n"
            "  try:  pass a .sif file",
        ),
        (
            "file",
            "jaxsif: error: not a SIF image: file\n"
            "  from: --image\n"
            "  try:  make image, or pass --image PATH to a .sif file",
        ),
    ],
    ids=["missing", "below a file", "a long name", "a loop of links", "a folder", "another file"],
)
def test_image_refused(folder: Path, named: str, text: str) -> None:
    (folder / "file").write_text("hello\n")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    with pytest.raises(HostError) as caught:
        find_image(Setting(named, "--image"))
    assert error_of(caught) == (125, text)


def test_no_image_at_all(folder: Path) -> None:
    with pytest.raises(HostError) as caught:
        find_image(None)
    assert error_of(caught) == (
        125,
        "jaxsif: error: no image: neither --image nor JAX_IMAGE names one, and there is no ./jax.sif here\n"
        "  try:  module load jax/sif, make image, or pass --image PATH",
    )


def test_port_is_in_range_and_can_be_bound() -> None:
    port = find_port(COORDINATOR_PORTS)
    assert port in COORDINATOR_PORTS
    with socket.socket() as listener:
        listener.bind(("", port))


def test_taken_ports_are_left_out_and_each_other_one_comes_once() -> None:
    with socket.create_server(("", 0)) as listener:
        taken = listener.getsockname()[1]
        assert taken not in free_ports(range(taken - 2, taken + 3))
        with pytest.raises(HostError) as caught:
            find_port(range(taken, taken + 1))
    assert caught.value.what == f"none of the ports {taken} to {taken} is free"
    found = list(free_ports(COORDINATOR_PORTS))
    assert len(set(found)) == len(found) > len(COORDINATOR_PORTS) // 2


def test_names_of_steps_differ() -> None:
    assert len({step_name() for _ in range(100)}) == 100


def test_probe_on_a_login_node(folder: Path) -> None:
    executable(folder / "bin/srun")
    executable(folder / "bin/apptainer")
    write_image(folder / "jax.sif")
    host, source = probe(PROGRAM, None, None, {"PATH": f"{folder}/bin"})
    assert (host.srun, host.runtime, host.image) == (True, Runtime("apptainer", "APPTAINERENV_"), f"{folder}/jax.sif")
    assert (host.gpus, host.job_gpus, source) == (0, None, "./jax.sif")
    assert (Path(host.package) / "task/start.sh").is_file()


def test_probe_without_slurm_and_runtime_needs_no_image(folder: Path) -> None:
    host, source = probe(PROGRAM, None, None, {"PATH": str(folder), "CUDA_VISIBLE_DEVICES": "0,1"})
    assert (host.srun, host.runtime, host.image, host.gpus) == (False, None, None, 2)
    assert source == "nowhere (no container)"


def test_probe_with_srun_needs_a_runtime(folder: Path) -> None:
    executable(folder / "srun")
    with pytest.raises(HostError, match=r"^no container runtime"):
        probe(PROGRAM, None, None, {"PATH": str(folder)})


@pytest.mark.parametrize(
    ("value", "gpus"),
    [("", 0), ("0", 1), ("2,3", 2), ("GPU-5ac1,GPU-77b0", 2), ("NoDevFiles", 0), ("-1", 0)],
)
def test_gpus_of_this_machine_that_are_visible(folder: Path, value: str, gpus: int) -> None:
    host, _ = probe(PROGRAM, None, None, {"PATH": str(folder), "CUDA_VISIBLE_DEVICES": value})
    assert host.gpus == gpus


@pytest.mark.parametrize(
    "command",
    [
        ("python",),
        ("python", "-c", "nowhere.py"),
        ("python", "-m", "nowhere"),
        ("python", "train.py"),
        ("python3.12", "src/train.py"),
        ("./run.sh",),
        ("/opt/in/the/image",),
        ("python", "/opt/in/the/image.py"),
        ("nowhere",),
    ],
    ids=" ".join,
)
def test_programs_that_may_exist(folder: Path, command: tuple[str, ...]) -> None:
    (folder / "src").mkdir()
    for name in ("train.py", "src/train.py", "run.sh"):
        executable(folder / name)
    host, _ = probe(RunOptions(command), None, None, {"PATH": str(folder)})
    assert host.image is None


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (("python", "nowhere.py"), "nowhere.py"),
        (("/usr/bin/python3", "src/nowhere.py", "-v"), "src/nowhere.py"),
        (("./run.sh",), "./run.sh"),
    ],
    ids=["script", "script of a Python with a path", "program"],
)
def test_program_that_is_certainly_missing(folder: Path, command: tuple[str, ...], missing: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        probe(RunOptions(command), None, None, {"PATH": str(folder)})
    assert error_of(caught) == (
        127,
        f"jaxsif: error: script not found: {missing}\n  from: looked for in {folder}\n  try:  check its path",
    )


@pytest.fixture
def in_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node of a job, with the folder bin/ as PATH of this process too: `scontrol` is started from there."""
    executable(folder / "bin/srun")
    executable(folder / "bin/apptainer")
    write_image(folder / "jax.sif")
    monkeypatch.setenv("PATH", f"{folder}/bin")
    return folder


@pytest.mark.starts_processes
def test_gpus_of_the_job_are_asked_for(in_job: Path) -> None:
    line = "     Nodes=node[1-2] CPU_IDs=0 Mem=0 GRES=gpu:a100:3(IDX:0-2)"
    executable(in_job / "bin/scontrol", f'[ "$*" = "--details show job 4711" ] && echo "{line}"\n')
    host, _ = probe(PROGRAM, None, JOB, {"PATH": f"{in_job}/bin"})
    assert host.job_gpus == ((3, 2),)


@pytest.mark.parametrize(
    ("options", "allocation"),
    [
        (RunOptions(("hostname",), ntasks_per_node=1), JOB),
        (RunOptions(("hostname",), gpus_per_node="1"), JOB),
        (PROGRAM, Allocation("4711", 2, 8, None, None)),
        (PROGRAM, Allocation("4711", 2, None, None, 4)),
        (PROGRAM, None),
    ],
    ids=["tasks given", "GPUs given", "tasks known", "GPUs known", "no job"],
)
def test_gpus_of_the_job_are_not_asked_for_without_need(
    in_job: Path, options: RunOptions, allocation: Allocation | None
) -> None:
    host, _ = probe(options, None, allocation, {"PATH": f"{in_job}/bin"})  # a process would fail the test
    assert host.job_gpus is None


@pytest.mark.starts_processes
@pytest.mark.parametrize("scontrol", [None, "echo 'slurm_load_jobs error' >&2; exit 1\n"], ids=["missing", "failing"])
def test_gpus_of_the_job_that_slurm_does_not_tell(in_job: Path, scontrol: str | None) -> None:
    if scontrol:
        executable(in_job / "bin/scontrol", scontrol)
    with pytest.raises(HostError) as caught:
        probe(PROGRAM, None, JOB, {"PATH": f"{in_job}/bin"})
    assert error_of(caught) == (
        125,
        "jaxsif: error: scontrol does not tell the GPUs of job 4711\n"
        "  from: SLURM_JOB_ID (environment)\n"
        "  try:  pass --gpus-per-node=N or --ntasks-per-node=N, or unset SLURM_JOB_ID when that job is over",
    )


@pytest.mark.parametrize("moment", ["before", "during", "never"])
def test_an_image_under_a_policy_that_changes_around_a_run_here(folder: Path, moment: str) -> None:
    image = folder / "a.sif"
    image.write_text("good")
    host = LOGIN_NODE._replace(image=str(image), allowed=("sha256:0123", find_state(str(image))))
    ran: list[str] = []

    def run() -> None:
        with unchanged_image(host):
            ran.append("ran")
            if moment == "during":
                image.write_text("other")

    if moment == "before":
        image.write_text("other")
    if moment == "never":
        run()
    else:
        with pytest.raises(HostError, match=f"^the image changed while the policy looked at it: {image}$"):
            run()
    assert ran == ([] if moment == "before" else ["ran"])


def test_without_a_policy_an_image_may_change(folder: Path) -> None:
    image = folder / "a.sif"
    image.write_text("good")
    with unchanged_image(LOGIN_NODE._replace(image=str(image))):
        image.unlink()


def test_an_image_under_a_policy_that_is_gone(folder: Path) -> None:
    host = LOGIN_NODE._replace(image=str(folder / "a.sif"), allowed=("sha256:0123", "1:2:3"))
    with (
        pytest.raises(HostError, match=r"^cannot read image .*/a\.sif: No such file or directory$"),
        unchanged_image(host),
    ):
        pass
