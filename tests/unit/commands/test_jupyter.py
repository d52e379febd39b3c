"""Kernels of an image, and what a server tells."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kit.hosts import CONTAINER, WORKSTATION, plan_for

from jaxsif.commands.jupyter import find_kernel, find_module
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import write_file
from jaxsif.images.file import Allowed, find_state
from jaxsif.plan.container import Container
from jaxsif.plan.kernel import render_kernel
from jaxsif.runtime import Runtime
from jaxsif.settings.options import RunOptions
from jaxsif.task.jupyter import find_port, listens, render_address

RUNTIME = Runtime("singularity", "SINGULARITYENV_")
IMAGE = CONTAINER._replace(image="/sw/jax.sif", layers=("/home/a/jupyter.0.sqfs",))
RUN = RunOptions(("python3",), binds=("/scratch",), env=(("XLA_FLAGS", "--a --b=c,d"),))


def install(name: str = "jax", container: Container = IMAGE, **environ: str) -> Path:
    path = find_kernel(name, environ)
    plan = plan_for(RUN, WORKSTATION._replace(runtime=RUNTIME), container, environ)
    assert plan.container
    write_file(str(path), render_kernel(name, plan, plan.container, "/opt/bin/singularity").encode())
    return path


def test_a_kernel_is_the_image_with_its_layers(tmp_path: Path) -> None:
    path = install(HOME=str(tmp_path))
    assert path == tmp_path / ".local/share/jupyter/kernels/jax/kernel.json"
    kernel = json.loads(path.read_text())
    engine = ["/opt/bin/singularity", "--quiet", "run", "--nv", "--no-eval", "--bind", "/scratch"]
    python = ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert kernel["argv"] == [*engine, "--overlay", "/home/a/jupyter.0.sqfs:ro", "/sw/jax.sif", *python]
    assert kernel["env"]["SINGULARITYENV_XLA_FLAGS"] == "--a --b=c,d"
    assert not [name for name in kernel["env"] if "JAXSIF" in name]
    assert [one.name for one in path.parent.iterdir()] == ["kernel.json"]


def test_under_a_policy_a_kernel_compares_the_image_at_each_start(tmp_path: Path) -> None:
    path = install(container=IMAGE._replace(allowed=Allowed("sha256:0123", "1:2:3")), HOME=str(tmp_path))
    argv = json.loads(path.read_text())["argv"]
    share = ["/usr/bin/python3", "-IS", "/sw/jaxsif/lib/jaxsif/node/share.py", "--alone"]
    assert argv[:8] == [*share, "--allowed", "sha256:0123", "1:2:3", "/sw/jax.sif"]
    assert argv[8] == "/opt/bin/singularity"
    assert argv[-6:] == ["--", "python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def test_under_a_policy_jupyter_is_looked_for_in_the_image_that_was_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by a program in the image, on this host."""
    image = tmp_path / "jax.sif"
    image.write_text("good")

    def captured(_argv: object, _environ: object) -> subprocess.CompletedProcess[str]:
        image.write_text("other")
        return subprocess.CompletedProcess((), 0, "notebook\n", "")

    monkeypatch.setattr("jaxsif.process.captured", captured)
    container = IMAGE._replace(image=str(image))
    assert find_module(("jupyterlab", "notebook"), container, {}) == "notebook"
    allowed = container._replace(allowed=Allowed("sha256:0123", find_state(str(image))))
    with pytest.raises(HostError, match="the image changed while it was checked against the policy"):
        find_module(("jupyterlab", "notebook"), allowed, {})


@pytest.mark.parametrize("variable", ["JUPYTER_DATA_DIR", "XDG_DATA_HOME"])
def test_the_folder_is_jupyters(tmp_path: Path, variable: str) -> None:
    folder = tmp_path if variable == "JUPYTER_DATA_DIR" else tmp_path / "jupyter"
    assert install(**{variable: str(tmp_path), "HOME": "/nowhere"}) == folder / "kernels/jax/kernel.json"


@pytest.mark.parametrize("name", ["../../x", "..", "my kernel", ""])
def test_what_is_no_name_for_a_kernel(tmp_path: Path, name: str) -> None:
    with pytest.raises(JaxsifError, match="not a valid kernel name"):
        install(name, HOME=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_kernel_of_others_stays(tmp_path: Path) -> None:
    path = install(HOME=str(tmp_path))
    assert install(HOME=str(tmp_path)) == path  # its own, it replaces
    for theirs in ("{}", "[]", "no JSON", "[" * 100_000):
        path.write_text(theirs)
        with pytest.raises(JaxsifError, match="kernel jax already exists"):
            install(HOME=str(tmp_path))
        assert path.read_text() == theirs


def test_a_server_elsewhere_is_reached_by_ssh() -> None:
    assert render_address("me@front", "node1", 41, "lab?token=t").splitlines()[2:] == [
        "    ssh -N -L 41:node1:41 me@front",
        "In your browser:",
        "    http://localhost:41/lab?token=t",
    ]
    assert "ssh" not in render_address("", "here", 41, "lab?token=t")


def test_a_free_port_has_no_listener() -> None:
    assert not listens(find_port("127.0.0.1"))
