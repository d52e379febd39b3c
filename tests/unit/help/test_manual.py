"""The man pages: one for each command, all of its options, right troff."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jaxsif import cli
from jaxsif.help.describe import Command
from jaxsif.help.manual import LETTERS, render_manual

PROGRAM = cli.describe_all()
PAGES = render_manual(PROGRAM, "1.2.3")


def plain(page: str) -> str:
    """As a reader sees it."""
    for letter, name in LETTERS.items():
        page = page.replace(name, letter)
    return re.sub(r"\\f[BIR]", "", page)


def test_there_is_a_page_for_each_command() -> None:
    assert set(PAGES) == {"jaxsif.1", *(f"jaxsif-{'-'.join(name)}.1" for name in cli.COMMANDS)}


@pytest.mark.parametrize("command", PROGRAM.commands, ids=lambda one: " ".join(one.name))
def test_a_page_has_what_help_has(command: Command) -> None:
    page = plain(PAGES[f"jaxsif-{'-'.join(command.name)}.1"])
    for argument in command.arguments:
        assert ", ".join(argument.flags) in page
        assert argument.help in page
    for line in command.description.splitlines():
        assert line in page


def test_words_that_troff_would_read_as_its_own() -> None:
    command = PROGRAM.commands[0]._replace(description="A\\nb 'c' -- d\n.e\n\n  $ f\n  'g\n", epilog="")
    page = render_manual(PROGRAM._replace(commands=(command,)), "0")["jaxsif-run.1"]
    text = "A\\enb \\(aqc\\(aq \\-\\- d\n\\&.e\n.PP\n.nf\n  $ f\n  \\(aqg\n.fi\n"
    assert f".SH DESCRIPTION\n{text}.SH OPTIONS\n" in page


@pytest.mark.starts_processes
def test_mandoc_finds_nothing(tmp_path: Path) -> None:
    """Beside long lines and the date, which pages that are made anew do not have."""
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc on this machine")
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)
    lint = subprocess.run(["mandoc", "-T", "lint", *sorted(tmp_path.iterdir())], capture_output=True, text=True)
    expected = ("input text line longer than 80 bytes", "missing date", "referenced manual not found")
    found = [line for line in lint.stdout.splitlines() if not any(text in line for text in expected)]
    assert found == []
