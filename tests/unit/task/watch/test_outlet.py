"""Reports reach the standard error of start.sh, wherever a script sends that of its Python."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from kit.tasks import run_task

pytestmark = pytest.mark.starts_processes

RAISES = "raise ValueError('shapes')"
CLOSES = "import os; os.closerange(0, 100); os.open('/dev/null', 1); " + RAISES


def run(script: str, program: str, folder: Path, **variables: str) -> tuple[list[tuple[str, str]], bytes, bytes]:
    """Events and texts of what a script reports, the rest of standard error, and standard output."""
    (folder / "train.py").write_text(program)
    script = script.replace("PYTHON", f"{shlex.quote(sys.executable)} train.py")
    done = run_task("sh", "-c", script, cwd=folder, **variables)
    return [(one.event, one.text) for one in done.reports], done.err, done.out


EXCEPTION = ("exception", "ValueError: shapes")


@pytest.mark.parametrize(
    ("script", "program"),
    [
        ("PYTHON", RAISES),
        ("PYTHON 2>log", RAISES),
        ("PYTHON 2>&1 | cat", RAISES),
        ("sh -c 'sh -c \"PYTHON\" 2>log'", RAISES),
        ("exec 3>&1 9>log; PYTHON 2>&3", RAISES),
        ("PYTHON 2>&-", RAISES),
        ("PYTHON", CLOSES),
    ],
    ids=["as it is", "file", "pipe", "shells", "other numbers", "closed", "daemon"],
)
def test_reports_reach_who_listens(tmp_path: Path, script: str, program: str) -> None:
    reports, rest, output = run(script, program, tmp_path)
    assert [one for one in reports if one[0] == "exception"] == [EXCEPTION]
    assert reports[-1][0] == "exit"
    log = (tmp_path / "log").read_bytes() if (tmp_path / "log").exists() else b""
    assert b"\x1e" not in rest + output + log
    if program == RAISES and script != "PYTHON 2>&-":
        assert b"ValueError: shapes" in rest + output + log


def test_a_python_of_the_program_has_its_own_standard_error(tmp_path: Path) -> None:
    """What it reports is no failure of the task: the program reads it."""
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {RAISES!r}], stderr=subprocess.PIPE)"
    reports, rest, _ = run("PYTHON", program, tmp_path)
    assert (reports, rest) == ([("exit", "")], b"")


CAPTURED = """\
import subprocess, sys
child = [sys.executable, "-c", "import sys; sys.stderr.write('word'); raise SystemExit(3)"]
print(subprocess.run(child, stderr=subprocess.PIPE).stderr.decode())
subprocess.run([sys.executable, "-c", "raise ValueError('shapes')"])
"""


@pytest.mark.parametrize("script", ["PYTHON", "PYTHON 2>log"])
def test_a_program_reads_from_its_child_what_that_wrote(tmp_path: Path, script: str) -> None:
    """A child with the program's standard error reports as before, unless a script has moved that."""
    reports, _, output = run(script, CAPTURED, tmp_path)
    assert output == b"word\n"
    assert ([EXCEPTION] if script == "PYTHON" else []) == [one for one in reports if one[0] == "exception"]


def test_a_python_of_the_program_may_move_its_own_standard_error(tmp_path: Path) -> None:
    """Once it runs: as with a program's own log."""
    moves = f"import os; os.dup2(os.open('log', os.O_WRONLY | os.O_CREAT), 2); {RAISES}"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {moves!r}])"
    reports, rest, _ = run("PYTHON", program, tmp_path)
    assert EXCEPTION in reports
    assert (rest, b"\x1e" in (tmp_path / "log").read_bytes()) == (b"", False)


def test_without_a_listener_nothing_is_written(tmp_path: Path) -> None:
    reports, rest, output = run("PYTHON 2>&1 | cat", RAISES, tmp_path, JAXSIF_REPORT="")
    assert (reports, rest) == ([], b"")
    assert b"ValueError: shapes" in output
    assert b"\x1e" not in output


def test_the_number_of_start_sh_may_be_that_of_another_process(tmp_path: Path) -> None:
    """As in a namespace of its own: then standard error is all that is known."""
    reports, rest, _ = run(f"JAXSIF_STARTER={os.getpid()} PYTHON", RAISES, tmp_path)
    assert EXCEPTION in reports
    assert b"ValueError: shapes" in rest


def test_reports_that_are_lost_are_said_once(tmp_path: Path) -> None:
    """Where no descriptor is free, they cannot reach anybody."""
    program = (
        "import os, resource\n"
        "os.dup2(os.open('log', os.O_WRONLY | os.O_CREAT), 2)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        f"{RAISES}"
    )
    run("PYTHON", program, tmp_path)
    text = b"jaxsif: warning: reports from this process do not reach 'jaxsif run': Too many open files\n"
    assert (tmp_path / "log").read_bytes().count(text) == 1
