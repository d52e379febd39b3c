"""Lines of bounded length, and what reads the output of programs through them: in linear time, in bounded memory."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.bounds import read_bounded

from jaxsif.bench.collectives import parse_bytes
from jaxsif.bench.execute import read_records
from jaxsif.commands.bench import positive
from jaxsif.diagnose.reports import ReportFilter
from jaxsif.errors import JaxsifError
from jaxsif.launch.launchers.local import _Labeller
from jaxsif.launch.launchers.mpirun import Output
from jaxsif.limits import LONGEST_LINE, read_number
from jaxsif.process import run_logged
from jaxsif.task.contract import MisfitError, parse_number

Feed = Callable[[bytes], object]


READERS: dict[str, Callable[[], Feed]] = {
    "--label": lambda: _Labeller(3, ReportFilter()).stdout,
    "--label, standard error": lambda: _Labeller(3, ReportFilter()).stderr,
    "mpirun --label": lambda: Output(label=True).feed,
    "mpirun": lambda: Output(label=False).feed,
    "records": lambda: read_records(lambda _: None, lambda _: None),
}


def feed_endless(reader: Callable[[], Feed], size: int) -> float:
    """Seconds of processor time that a line of `size` bytes takes, as it comes from a pipe."""
    feed, chunk = reader(), b"x" * 65536
    begin = time.process_time()
    for _ in range(size // len(chunk)):
        feed(chunk)
    feed(b"")
    return time.process_time() - begin


@pytest.mark.parametrize("name", READERS)
def test_an_endless_line_takes_linear_time_and_bounded_memory(name: str) -> None:
    """A line that a reader keeps until its end takes quadratic time."""
    size = 8 << 20
    assert read_bounded(lambda: feed_endless(READERS[name], size)) is None
    short = min(feed_endless(READERS[name], size) for _ in range(3))
    assert feed_endless(READERS[name], 4 * size) < 8 * short + 0.02


def test_a_long_line_has_its_label_at_each_piece() -> None:
    label = _Labeller(3, ReportFilter())
    shown = [label.stderr(b"x" * LONGEST_LINE + b"yy"), label.stderr(b"y\nz"), label.stderr(b"")]
    assert shown == [b"3: " + b"x" * LONGEST_LINE + b"\n", b"3: yyy\n", b"3: z\n"]


def test_a_long_line_of_mpirun_stays_one() -> None:
    out = Output(label=True)
    data = b"[prterun-a-1@1,10]<stdout>: " + b"x" * LONGEST_LINE
    assert [out.feed(data), out.feed(b"y\n")] == [b"10: " + b"x" * LONGEST_LINE, b"y\n"]


@pytest.mark.starts_processes
def test_a_long_line_of_a_command_comes_in_pieces(tmp_path: Path) -> None:
    pieces: list[str] = []
    argv = [sys.executable, "-c", f"print('x' * {2 * LONGEST_LINE + 5}); print('end')"]
    assert run_logged(argv, {}, str(tmp_path / "log"), str(tmp_path), pieces.append) == 0
    assert pieces == ["x" * LONGEST_LINE, "x" * LONGEST_LINE, "x" * 5, "end"]
    assert (tmp_path / "log").read_text() == "".join(pieces[:3]) + "\nend\n"


@pytest.mark.parametrize("text", ["٣", "२", "1٣", "³", "", "-1", "1_0"])
def test_texts_that_are_no_numbers(text: str) -> None:
    assert read_number(text) is None
    if text:
        with pytest.raises(MisfitError):
            parse_number(text, "SLURM_NODEID")
    with pytest.raises(JaxsifError, match="not a size"):
        parse_bytes(text, "--sizes")
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)
