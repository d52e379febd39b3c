"""What watches a program is imported when the program uses JAX, and no earlier."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxsif.task import importing
from jaxsif.task.watch import install as watching
from jaxsif.task.watch.observer import Observer
from jaxsif.task.watch.status_file import StatusFile

SITE = Path(__file__).parents[4] / "jaxsif/task/site"
WATCHERS = {f"jaxsif_task.watch.{name}" for name in ("observer", "loops", "census")}


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("program", "imported"),
    [
        ("pass", set()),
        ("import jax._src.monitoring", {"jaxsif_task.watch.observer", "jaxsif_task.watch.loops"}),
        ("import jax._src.compiler", {"jaxsif_task.watch.census"}),
    ],
    ids=["no JAX", "monitoring", "compiler"],
)
def test_what_a_program_imports(tmp_path: Path, program: str, imported: set[str]) -> None:
    folder = tmp_path / "jax/_src"
    folder.mkdir(parents=True)
    for file in ("../__init__.py", "__init__.py", "monitoring.py", "compiler.py"):
        (folder / file).touch()
    variables = {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "node1", "PYTHONPATH": f"{SITE}:{tmp_path}"}
    wishes = {"JAXSIF_HANG_TIMEOUT": "60", "JAXSIF_CHECK_PROGRAMS": "warn"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        env={"PATH": os.environ["PATH"], **variables, **wishes},
        capture_output=True,
        text=True,
        check=True,
    )
    assert WATCHERS.intersection(done.stdout.split()) == imported


def backends() -> None:
    """Stand for a function of JAX that a program uses first."""


def initialize() -> None:
    """Stand for the other one."""


class Jax:
    """Modules of JAX of which jaxsif is told that they are imported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps: dict[str, Callable[[Any], None]] = {}
        monkeypatch.setattr(importing, "after", self._steps.__setitem__)
        monkeypatch.setattr(watching, "_calls", {})
        monkeypatch.setattr(watching, "open_status_file", lambda _pipe: StatusFile())
        self.told: list[Mapping[str, Any]] = []
        watching.install({}, self.told.append, pipe=-1, hang_timeout=60, check="")

    def be_imported(self) -> None:
        state = SimpleNamespace(initialize=initialize)
        for name, module in (("xla_bridge", {"backends": backends}), ("distributed", {"State": state})):
            self._steps[f"jax._src.{name}"](SimpleNamespace(__name__=name, **module))


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Jax:
    return Jax(monkeypatch)


def test_the_first_use_of_jax_begins_it(jax: Jax, monitoring: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Observer] = []
    monkeypatch.setattr(Observer, "begin", lambda observer: begun.append(observer))
    jax.be_imported()
    assert begun == []
    assert [monitoring.start(backends.__code__) for _ in range(2)] == [monitoring.DISABLE] * 2
    assert len(begun) == 1


def test_an_error_at_the_first_use_is_none_of_the_program(
    jax: Jax, monitoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of each, which the launcher shows once."""
    monkeypatch.setattr(Observer, "begin", None)
    jax.be_imported()
    for function in (backends, initialize):
        assert monitoring.start(function.__code__) == monitoring.DISABLE
    text = "hang detection stopped: TypeError: 'NoneType' object is not callable"
    assert jax.told == [{"event": "warning", "text": text}] * 2
