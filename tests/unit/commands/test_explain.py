"""jaxsif explain: logs, folders, runs and standard input; what it prints, and its exit status."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.caught import catch
from kit.runs import BEGIN, a_run

from jaxsif.cli import build_parsers
from jaxsif.commands import explain
from jaxsif.errors import HostError, JaxsifError
from jaxsif.history.folder import RUN, STDERR, write
from jaxsif.history.run import render_record
from jaxsif.installation import find_data

MISSING = b"ModuleNotFoundError: No module named 'flax'\n"
CAUSE = "cause: Python cannot find the module flax\n"


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    """The variables of a user with a run that has output, and one that has not ended."""
    runs = folder / "state/jaxsif/runs"
    runs.mkdir(parents=True)
    for begin in (BEGIN, BEGIN + 60):
        run = a_run(begin=begin)
        write(str(runs / run.name), RUN, render_record(run))
    write(str(runs / a_run().name), STDERR, MISSING)
    return {"XDG_STATE_HOME": str(folder / "state")}


@pytest.fixture
def stdin(folder: Path) -> Iterator[Path]:
    """A file that is standard input."""
    path = folder / "stdin"
    path.touch()
    before, descriptor = os.dup(0), os.open(path, os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    yield path
    os.dup2(before, 0)
    os.close(before)


def call(environ: dict[str, str], *words: str) -> int:
    arguments = build_parsers(("explain",))[()].parse_args(["explain", *words])
    return explain.call(arguments, environ)


def test_a_file(environ: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.log").write_bytes(b"loss 0.1\n" + MISSING)
    assert call(environ, "a.log") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{CAUSE}  line: {MISSING.decode()}  from: a.log:2\n  try:  add the package to a layer")
    page = "\n  page: docs/troubleshooting.md#no-module-named-name\n"
    assert out.endswith(f"{page}docs: {find_data('docs')}\n")
    assert call(environ, "a.log", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert list(found) == ["role", "meaning", "remedy", "page", "text", "file", "line", "times", "files"]


def test_nothing_is_known(environ: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.log").write_bytes(b"step 1 error 0.1\nKilled\n")
    assert call(environ, "a.log") == 1
    assert call(environ, "a.log", "--json") == 1
    assert call(environ, "a.log", "a.log", "a.log") == 1
    out = "no known message in a.log\n[]\nno known message in a.log and 2 more files\n"
    assert capsys.readouterr().out == out


def test_a_folder_and_several_files(environ: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "logs").mkdir()
    for name in ("task-0.err", "task-0.out", "task-1.err", "notes.txt"):
        (folder / "logs" / name).write_bytes(MISSING)
    assert call(environ, "logs", "logs/notes.txt") == 0
    assert "  from: logs/task-0.err:1, 4 times in 4 files\n" in capsys.readouterr().out


def test_a_run(environ: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(environ, a_run().name) == 0
    assert capsys.readouterr().out.startswith(
        f"run {a_run().name}: it failed with exit status 137\n"
        "jaxsif: error: task 1 on node1 was killed by SIGKILL\n  from: train.py:16\n  try:  ask for more memory\n"
        + CAUSE
    )
    error = catch(JaxsifError, call, environ)  # the last run, which has not ended
    assert error.what.startswith(f"cannot read the run {a_run(begin=BEGIN + 60).name}: ")
    assert error.hint == "name another run of jaxsif history, or the log of its job, such as slurm-4711.out"
    (folder / "last").write_bytes(b"")
    assert call(environ, "last") == 1  # a file comes first


def test_an_interrupted_run(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """jaxsif ended its step: nobody else cancelled it."""
    run = a_run(begin=BEGIN + 120, status=130, error=None)
    folder = f"{environ['XDG_STATE_HOME']}/jaxsif/runs/{run.name}"
    write(folder, RUN, render_record(run))
    write(folder, STDERR, b"slurmstepd-node1: error: *** STEP 13.0 ON node1 CANCELLED AT 2026-11-24T14:17:40 ***\n")
    assert call(environ) == 1
    head, line = capsys.readouterr().out.splitlines()
    assert head == f"run {run.name}: a signal ended it, exit status 130"
    assert line == f"no known message in {folder}/stderr"


def test_a_damaged_run(environ: dict[str, str]) -> None:
    write(f"{environ['XDG_STATE_HOME']}/jaxsif/runs/{a_run().name}", RUN, b"{}")
    assert catch(HostError, call, environ, a_run().name).what.startswith("not the history of a run: ")


def test_standard_input(environ: dict[str, str], stdin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stdin.write_bytes(MISSING)
    assert call(environ, "-", "-") == 0
    assert "  from: standard input:1\n" in capsys.readouterr().out


def test_standard_input_without_an_argument(
    environ: dict[str, str], stdin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin.write_bytes(MISSING)
    assert call(environ) == 0
    assert "  from: standard input:1\n" in capsys.readouterr().out


@pytest.mark.parametrize("late", [False, True])
def test_a_pipe_without_an_argument(
    environ: dict[str, str],
    stdin: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    late: bool,
) -> None:
    """It is read whenever its text comes."""
    monkeypatch.setattr(explain, "_PATIENCE", 0.1 if late else 60)
    end, writer = os.pipe()
    os.dup2(end, 0)
    os.close(end)

    def write_text() -> None:
        os.write(writer, MISSING)
        os.close(writer)

    thread = threading.Timer(0.3 if late else 0, write_text)
    thread.start()
    if not late:
        thread.join()
    assert call(environ) == 0
    thread.join()
    out, err = capsys.readouterr()
    assert "  from: standard input:1\n" in out
    assert ("waiting for standard input; for the last run: jaxsif explain last" in err) == late


def test_a_device_is_no_standard_input(
    environ: dict[str, str], stdin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as /dev/null, which jobs have, and a terminal."""
    run = a_run(begin=BEGIN + 60).name
    write(f"{environ['XDG_STATE_HOME']}/jaxsif/runs/{run}", STDERR, MISSING)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    assert call(environ) == 0
    assert capsys.readouterr().out.startswith(f"run {run}: ")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("train.log", "no such file: train.log"),
        ("ffff", "no run 'ffff' in the history"),
        ("", "no such file: "),
        ("empty", "no such file: empty/task-*.err"),
    ],
)
def test_there_is_no_such_target(environ: dict[str, str], folder: Path, word: str, text: str) -> None:
    (folder / "empty").mkdir()
    error = catch(JaxsifError, call, environ, word)
    assert (error.exit_code, error.what, error.where) == (2, text, "RUN" if "run" in text else "FILE|RUN")


def test_a_file_in_a_closed_folder(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as another user's home folder; root may read it, so the system calls refuse."""
    stat = os.stat

    def refuse(path: str, **words: Any) -> os.stat_result:
        if path == "/home/other/hang.log":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, **words)

    monkeypatch.setattr(os, "lstat", refuse)
    monkeypatch.setattr(os, "stat", refuse)
    error = catch(HostError, call, environ, "/home/other/hang.log")
    assert error.what == "cannot read /home/other/hang.log: Permission denied"


def test_an_image_is_no_text(environ: dict[str, str], folder: Path, stdin: Path) -> None:
    """But a run of the history is its own, whatever its program printed."""
    image = b"#!/usr/bin/env run-singularity\nSIF_MAGIC\0" + MISSING
    for path in (folder / "jax.sif", stdin):
        path.write_bytes(image)
    for word in ("jax.sif", "-"):
        error = catch(HostError, call, environ, word)
        assert (error.exit_code, error.what) == (125, f"cannot read {word}: it is not text")
    write(f"{environ['XDG_STATE_HOME']}/jaxsif/runs/{a_run().name}", STDERR, image)
    assert call(environ, a_run().name) == 0


def test_what_is_no_file(environ: dict[str, str], folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    for word, text in (
        ("fifo", "log is a FIFO, not a file: fifo"),
        ("/dev/zero", "log is a device, not a file: /dev/zero"),
    ):
        assert catch(HostError, call, environ, word).what == text
    assert catch(HostError, call, environ, "loop").what.startswith("cannot read loop: Too many levels")


def test_a_history_that_cannot_be_read(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("jaxsif.history.folder.os.listdir", refuse)
    arguments = build_parsers(("explain",))[()].parse_args(["explain"])
    error = catch(HostError, explain.call, arguments, environ)
    assert error.what == "cannot read the history: Permission denied"
    assert (error.where, error.hint) == (f"{environ['XDG_STATE_HOME']}/jaxsif/runs", "correct its permissions")
