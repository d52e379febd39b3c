"""The run's certificate in a task: JAX's variables, and programs that have certificates of their own."""

from __future__ import annotations

import importlib
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxsif.task import coordinator, credentials, importing
from jaxsif.task.contract import MisfitError

TEXT = "---BEGIN,MHcC"
FILE = "/proc/7/fd/6"
TASK = {"SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "gpu[07-08]", "JAXSIF_COORDINATOR_PORT": "61234"}
GIVEN = {**TASK, "SLURM_NTASKS": "4", "JAXSIF_CREDENTIALS": "", "JAXSIF_COORDINATOR_TLS": "auto"}
OURS = {
    "JAX_MTLS_CERT_FILE": FILE,
    "JAX_MTLS_KEY_FILE": FILE,
    "JAX_MTLS_CA_FILE": FILE,
    "JAX_MTLS_PEER_URI_PREFIX": "spiffe://jaxsif/",
}
OWN_ADDRESS = {"JAX_COORDINATOR_ADDRESS": "gpu01:1"}


@pytest.fixture
def pipe() -> Iterator[str]:
    """What start.sh leaves: the path of a pipe."""
    read, write = os.pipe()
    os.write(write, TEXT.encode())
    yield f"/proc/self/fd/{read}"
    os.close(read)
    os.close(write)


def find_variables(path: str, **variables: str) -> dict[str, str]:
    """JAX's variables in a task with these; the certificate's file is FILE in them."""
    environ = {**GIVEN, "JAXSIF_CREDENTIALS": path, **variables}
    coordinator.prepare(environ, lambda _: None)
    assert "JAXSIF_CREDENTIALS" not in environ
    found = {name: value for name, value in environ.items() if name.startswith("JAX_MTLS")}
    files = set(found.values()) - {"spiffe://jaxsif/", "mine"}
    for file in files:
        opened = Path(file)
        for _ in range(2):
            assert opened.read_text() == "---BEGIN\nMHcC"
        assert (opened.stat().st_mode & 0o777, opened.stat().st_nlink) == (0o600, 0)
        os.close(int(opened.name))
    return {name: FILE if value in files else value for name, value in found.items()}


def test_each_python_of_a_task_gets_the_certificate(pipe: str) -> None:
    for _ in range(3):
        assert find_variables(pipe) == OURS


def test_a_shell_that_makes_it_a_file(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text(TEXT)
    for _ in range(2):
        assert find_variables(str(tmp_path / "kept")) == OURS


def test_a_certificate_that_is_gone() -> None:
    with pytest.raises(MisfitError, match=r"cannot store the certificate for JAX's coordinator: No such file"):
        find_variables("/proc/self/fd/987654")


def test_without_one_there_are_no_variables() -> None:
    assert find_variables("") == {}


@pytest.mark.parametrize("name", list(OURS))
def test_the_users_own_variables_stand(pipe: str, name: str) -> None:
    assert find_variables(pipe, **{name: "mine"}) == {name: "mine"}


@pytest.mark.parametrize(("mode", "found"), [("auto", {}), ("on", OURS)])
def test_a_coordinator_of_the_users_own_may_serve_other_runs(pipe: str, mode: str, found: dict[str, str]) -> None:
    assert find_variables(pipe, **OWN_ADDRESS, JAXSIF_COORDINATOR_TLS=mode) == found


JAX = """\
class State:
    def initialize(self, coordinator_address=None, num_processes=None, process_id=None, mtls_cert_file=None,
                   mtls_key_file=None, mtls_ca_file=None, mtls_peer_uri_prefix=None):
        own = (mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix)
        return tuple(value or getattr(config.config, "jax_" + name) for name, value in zip(config.NAMES, own))
"""
CONFIG = f"""\
NAMES = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")

class Config:
    jax_mtls_cert_file = jax_mtls_key_file = jax_mtls_ca_file = {FILE!r}
    jax_mtls_peer_uri_prefix = "spiffe://jaxsif/"

    def update(self, name, value):
        setattr(self, name, value)

config = Config()
"""
WITH = (FILE, FILE, FILE, "spiffe://jaxsif/")
WITHOUT = (None,) * 4


@pytest.fixture
def packages(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a JAX."""
    monkeypatch.setattr(importing, "_emits", [])
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/config.py").write_text(CONFIG)
    (packages / "jax/_src/distributed.py").write_text(f"from jax._src import config\n{JAX}")
    return packages


def initialize(*arguments: Any, mode: str = "auto", **named: Any) -> Any:
    """What a program's call of JAX's own comes to."""
    credentials.install({**GIVEN, **OURS, "JAXSIF_COORDINATOR_TLS": mode})
    return importlib.import_module("jax._src.distributed").State().initialize(*arguments, **named)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.parametrize("arguments", [(), (None, None, 3), ("gpu01:1", 4, 3)])
def test_the_processes_of_a_run(mode: str, arguments: tuple[Any, ...]) -> None:
    assert initialize(*arguments, mode=mode) == WITH


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(("mode", "found"), [("auto", WITHOUT), ("on", WITH)])
@pytest.mark.parametrize("number", [2, 8])
def test_processes_of_other_runs_too_have_other_certificates(mode: str, found: tuple[Any, ...], number: int) -> None:
    assert initialize("gpu01:1", number, process_id=3, mode=mode) == found


@pytest.mark.usefixtures("packages")
def test_arguments_of_the_program_stand_alone() -> None:
    """No prefix of ours is asked of its certificates."""
    own = {"mtls_cert_file": "c", "mtls_key_file": "k", "mtls_ca_file": "a"}
    assert initialize(mode="on", **own) == ("c", "k", "a", None)


@pytest.mark.usefixtures("packages")
def test_settings_of_the_program_stand_alone() -> None:
    importlib.import_module("jax._src.config").config.update("jax_mtls_ca_file", "a")
    assert initialize() == (None, None, "a", None)


@pytest.fixture
def kept(packages: Path, pipe: str) -> dict[str, str]:
    """The variables of a task, whose JAX has read them."""
    environ = {**GIVEN, "JAXSIF_CREDENTIALS": pipe}
    coordinator.prepare(environ, lambda _: None)
    (packages / "jax/_src/config.py").write_text(CONFIG.replace(FILE, environ["JAX_MTLS_CERT_FILE"]))
    return environ


def read_all(found: tuple[str, ...]) -> None:
    """JAX has one file of the certificate, and the prefix of its URI; close it."""
    file, *others = found
    assert others == [file, file, "spiffe://jaxsif/"]
    assert Path(file).read_text() == "---BEGIN\nMHcC"
    os.close(int(Path(file).name))


@pytest.mark.parametrize("is_used", [False, True])
def test_a_program_that_closes_all_descriptors(kept: dict[str, str], is_used: bool, tmp_path: Path) -> None:
    """Another file may have the number then."""
    credentials.install(kept)
    module = importlib.import_module("jax._src.distributed")
    number = int(Path(kept["JAX_MTLS_CERT_FILE"]).name)
    os.close(number)
    (tmp_path / "other").write_text("other")
    if is_used:
        other = os.open(tmp_path / "other", os.O_RDONLY)
        os.dup2(other, number)
        os.close(other)
    found = module.State().initialize()
    assert module.State().initialize() == found
    read_all(found)
    if is_used:
        os.close(number)


def test_a_child_outlives_its_parent(kept: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies the certificate at its start."""
    number = int(Path(kept["JAX_MTLS_CERT_FILE"]).name)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 7)
        credentials.install(kept)
    os.close(number)
    copied = {kept[name] for name in list(OURS)[:3]}
    assert copied == {f"/proc/7/fd/{number + 1}"}
    assert os.pread(number + 1, 100, 0) == b"---BEGIN\nMHcC"
    os.close(number + 1)


def test_a_parent_that_has_closed_it(kept: dict[str, str]) -> None:
    """There is nothing to copy: JAX says so."""
    file = kept["JAX_MTLS_CERT_FILE"]
    os.close(int(Path(file).name))
    credentials.install(kept)
    module = importlib.import_module("jax._src.distributed")
    assert module.State().initialize() == (file, file, file, "spiffe://jaxsif/")


def test_a_low_limit_of_descriptors(pipe: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert find_variables(pipe) == OURS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", ["jax_mtls_ca_file", "update", "config"])
def test_a_jax_with_other_settings_is_left_alone(packages: Path, name: str) -> None:
    """Whatever it makes of the variables."""
    (packages / "jax/_src/config.py").write_text(re.sub(rf"\b{name}\b", "moved", CONFIG))
    (packages / "jax/_src/distributed.py").write_text(
        "from jax._src import config\n" + JAX.partition("        own =")[0] + "        return 'its own'\n"
    )
    missing: list[str] = []
    importing._emits.append(lambda fields: missing.append(fields["text"]))
    assert initialize() == "its own"
    (found,) = missing
    assert found.startswith("jax._src.distributed.config.config.")
    assert name == "config" or found.endswith(f".{name}")


def test_a_python_without_the_certificate_is_left_alone() -> None:
    finders = list(sys.meta_path)
    credentials.install(TASK)
    assert sys.meta_path == finders
