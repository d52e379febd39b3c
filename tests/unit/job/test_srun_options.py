"""The table of srun's options, its page, and how words are taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.job.srun_options import BOTH, JOB, OWN, REFUSED, STEP, TABLE, Given, find_unsafe, select, split_options

PAGE = (Path(__file__).parents[3] / "docs/srun.md").read_text()
# What the page says of each.
WORDS = {
    JOB: "passed on; asks for a job",
    STEP: "passed on; for the step",
    BOTH: "passed on; for a job and a step",
    OWN: "an option of jaxsif",
}
LIFTED = {"--gres", "--ntasks-per-gpu", "--tasks-per-node"}


def test_names_are_unique_and_sorted() -> None:
    flags = [option.flag for option in TABLE]
    short = [option.short for option in TABLE if option.short]
    assert len({*flags, *short}) == len(flags) + len(short)
    assert flags == sorted(flags)


def test_only_what_is_refused_has_another_word() -> None:
    assert [option.flag for option in TABLE if bool(option.instead) != (option.handled == REFUSED)] == []


def test_page_has_each_option_once() -> None:
    names = [", ".join(f"`{name}`" for name in (option.flag, option.short) if name) for option in TABLE]
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[0][2:] for row in rows] == names
    for option, row in zip(TABLE, rows):
        expected = WORDS.get(option.handled, f"refused: {option.instead}")
        assert option.flag in LIFTED or row.endswith(f"| {expected} |")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--qos=a", [Given("--qos", "a", ("--qos=a",))]),
        ("--qos a", [Given("--qos", "a", ("--qos", "a"))]),
        ("-qa", [Given("--qos", "a", ("-qa",))]),
        ("-q a", [Given("--qos", "a", ("-q", "a"))]),
        ("--exclusive x", [Given("--exclusive", None, ("--exclusive",)), Given("x", None, ("x",))]),
        ("--nice=5", [Given("--nice", "5", ("--nice=5",))]),
        ("-O -H", [Given("--overcommit", None, ("-O",)), Given("--hold", None, ("-H",))]),
        ("--site-s=1 -N", [Given("--site-s", "1", ("--site-s=1",)), Given("--nodes", None, ("-N",))]),
    ],
)
def test_words_are_taken_apart(words: str, found: list[Given]) -> None:
    assert list(split_options(words.split())) == found


def test_select() -> None:
    words = ("--qos=a", "--mem=0", "--mpi=none")
    assert select(words, JOB, BOTH) == ("--qos=a", "--mem=0")
    assert select(words, STEP) == ("--mpi=none",)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--mem=0 --nodelist a -x b --comment=--prolog=/x --nice", []),
        ("--prolog=/x --epilog /y", ["--prolog=/x", "--epilog /y"]),
        ("--task-prolog=/x --bcast", ["--task-prolog=/x", "--bcast"]),
        ("--prol=/x", ["--prol=/x"]),  # srun takes the beginning of a name
        ("--comment --prolog=/x", ["--prolog=/x"]),
        ("--container-image=a", ["--container-image=a"]),  # of pyxis
        ("--mem=0 sh -O id", ["sh", "id"]),
        ("-- sh", ["-- sh", "sh"]),
        ("--export=LD_PRELOAD=/x", ["--export=LD_PRELOAD=/x"]),
    ],
)
def test_words_that_run_programs(words: str, found: list[str]) -> None:
    assert list(find_unsafe(words.split())) == found
