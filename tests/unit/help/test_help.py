"""The examples of --help: each command has some, each is a right command line, and one of each is run by a test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from jaxsif import cli

CLUSTER_TESTS = "".join(path.read_text() for path in (Path(__file__).parents[2] / "cluster").glob("test_*.py"))


def examples(name: tuple[str, ...]) -> list[str]:
    """The lines of jaxsif's below 'examples:', without what is told of them."""
    _, _, text = str(cli.build_parsers(name)[name].description).replace("\\\n", "").partition("example")
    return [re.split(r" {3,}", line)[0] for line in re.findall(r"^  (\S.*)", text, re.MULTILINE) if "jaxsif " in line]


def words_of(example: str) -> list[str]:
    """Those of jaxsif's own command line, behind its name; with a whole digest in the place of a cut one."""
    lexer = shlex.shlex(example.replace("…", "0" * 56), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    words = words[words.index("jaxsif") + 1 :]
    return words[: next((index for index, word in enumerate(words) if set(word) <= set("()<>|&;")), None)]


@pytest.mark.parametrize("name", cli.COMMANDS, ids=" ".join)
def test_examples(name: tuple[str, ...]) -> None:
    found = examples(name)
    own = [example for example in found if tuple(words_of(example)[: len(name)]) == name]
    assert own, f"no example in jaxsif {' '.join(name)} --help"
    for example in found:
        words = words_of(example)
        end = words.index("--") if "--" in words else len(words)
        cli.build_parsers(cli.find_command(words))[()].parse_args(words[:end])
    run = [example for example in own if example in CLUSTER_TESTS]
    assert run, f"no test below tests/cluster runs one of {own}"
