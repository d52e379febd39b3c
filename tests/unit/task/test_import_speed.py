"""What is spared while JAX is imported, with a package that stands for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kit.tasks import TASK_FOLDER
from kit.tasks import run_task as run_by_shell

from jaxsif.diagnose.reports import Report
from jaxsif.task import importing

pytestmark = pytest.mark.starts_processes


def run_task(folder: Path, jax: str, program: str) -> tuple[int, str, list[Report]]:
    """Exit status, output and reports of `program` in a task that finds `jax`."""
    package = folder / "site-packages/jax"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(jax)
    (folder / "train.py").write_text(program)
    path = f"{TASK_FOLDER}/site:{package.parent}"
    ended = run_by_shell(sys.executable, "train.py", cwd=folder, PYTHONPATH=path, SLURM_PROCID="0")
    expected = ("started", "success")
    told = [one for one in ended.reports if one.event not in expected and (one.event, one.status) != ("exit", 0)]
    return ended.status, ended.out.decode(), told


OBJECTS = "objects = [[] for _ in range(50_000)]"
COUNT = """
import gc
def collections():
    return sum(generation["collections"] for generation in gc.get_stats())
"""
TELL = """
gc.collect()  # else one may be due now
before = collections(), gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
import jax
after = collections(), gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
print(before == after, any(one is jax.objects for one in gc.get_objects()))
"""


@pytest.mark.parametrize("setting", ["", "gc.disable()", "gc.set_threshold(500)"])
def test_nothing_is_collected_during_the_import_and_all_is_as_before(tmp_path: Path, setting: str) -> None:
    """The program's settings stand, and the collector knows all objects."""
    assert run_task(tmp_path, OBJECTS, COUNT + setting + TELL) == (0, "True True\n", [])


def test_what_the_program_has_frozen_stays_so(tmp_path: Path) -> None:
    program = (
        "import gc; gc.freeze(); before = gc.get_freeze_count(); import jax; print(gc.get_freeze_count() == before)"
    )
    assert run_task(tmp_path, OBJECTS, program) == (0, "True\n", [])


def test_settings_that_the_import_makes_stand(tmp_path: Path) -> None:
    jax = "import gc; gc.disable(); gc.set_threshold(123)"
    program = "import gc, jax; print(gc.isenabled(), gc.get_threshold()[0])"
    assert run_task(tmp_path, jax, program) == (0, "False 123\n", [])


def test_objects_of_before_the_import_end_as_ever(tmp_path: Path) -> None:
    """In cycles, which only the collector finds: in the program's time, and at its end."""
    program = """
import gc, os
class Log:
    def __init__(self, name):
        self.name = name
        self.itself = self
    def __del__(self):
        os.write(1, f"{self.name} ends\\n".encode())
early, late = Log("early"), Log("late")
import jax
early = None
gc.collect()
os.write(1, b"the program ends\\n")
"""
    assert run_task(tmp_path, OBJECTS, program) == (0, "early ends\nthe program ends\nlate ends\n", [])


def test_a_failed_import_leaves_the_collector_as_it_was(tmp_path: Path) -> None:
    program = """
import gc
before = gc.get_threshold()
try:
    import jax
except ImportError as error:
    print(error, gc.get_threshold() == before)
import jax
"""
    status, output, _ = run_task(tmp_path, "raise ImportError('no CUDA')", program)
    assert (status, output) == (1, "no CUDA True\n")


@pytest.mark.parametrize(
    ("jax", "event", "text"),
    [("1 / 0", "exception", "ZeroDivisionError: division by zero"), ("import os; os.abort()", "exit", "")],
    ids=["an exception", "a crash"],
)
def test_a_failure_of_the_import_has_the_programs_line(tmp_path: Path, jax: str, event: str, text: str) -> None:
    _, _, reports = run_task(tmp_path, jax, "\nimport jax\n")
    first = reports[0]
    assert (first.event, first.text, Path(first.where).name) == (event, text, "train.py:2")


@pytest.mark.parametrize(("before", "after"), [({}, "20"), ({"OPENBLAS_THREAD_TIMEOUT": "28"}, "28")])
def test_threads_of_numpy_sleep_soon_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: str
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    environ = dict(before)
    importing.speed_up(environ)
    assert environ == {"OPENBLAS_THREAD_TIMEOUT": after}
