"""Who asks JAX for a notice of preemption that cannot come is told so, once and by the first task."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxsif.task import preemption

SIGNALS = (signal.SIGTERM, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
SERVICE_OFF = """
def reached_preemption_sync_point(step_id):
    raise RuntimeError("Preemption sync manager has not been initialized.")
"""


@pytest.fixture
def multihost_utils(packages: Path) -> Iterator[Path]:
    """The file of a module that has the name of JAX's."""
    (packages / "jax/experimental").mkdir(parents=True)
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}  # other tests leave some
    yield packages / "jax/experimental/multihost_utils.py"
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("value", "task", "times"),
    [("0", "0", 1), ("0", "1", 0), ("false", "0", 0), ("1", "0", 0)],
    ids=["first task", "another task", "the user's own answer", "on"],
)
def test_the_question_is_warned_of(
    multihost_utils: Path, capsys: pytest.CaptureFixture[str], value: str, task: str, times: int
) -> None:
    multihost_utils.write_text(SERVICE_OFF)
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": value, "SLURM_PROCID": task})
    module = importlib.import_module("jax.experimental.multihost_utils")
    for step in range(2):
        with pytest.raises(RuntimeError, match="has not been initialized"):
            module.reached_preemption_sync_point(step)
    warning = "jaxsif: warning: the program asks JAX for preemption notices but gets none: "
    assert capsys.readouterr().err.count(warning) == times


def test_a_program_that_listens_to_a_signal_has_its_own_notice(
    multihost_utils: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As slurm/checkpoint does."""
    multihost_utils.write_text(SERVICE_OFF)
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": "0", "SLURM_PROCID": "0"})
    module = importlib.import_module("jax.experimental.multihost_utils")
    signal.signal(signal.SIGURG, lambda *_: None)
    with pytest.raises(RuntimeError):
        module.reached_preemption_sync_point(1)
    assert capsys.readouterr().err == ""


def test_an_answer_is_passed_on(multihost_utils: Path, capsys: pytest.CaptureFixture[str]) -> None:
    multihost_utils.write_text("def reached_preemption_sync_point(step_id):\n    return step_id == 3\n")
    preemption.install({"JAX_ENABLE_PREEMPTION_SERVICE": "0", "SLURM_PROCID": "0"})
    module = importlib.import_module("jax.experimental.multihost_utils")
    assert [module.reached_preemption_sync_point(step) for step in (2, 3)] == [False, True]
    assert capsys.readouterr().err == ""
