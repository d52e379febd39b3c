"""The table of srun's options, its page, and how words are taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.job.srun_options import (
    BOTH,
    JOB,
    OWN,
    REFUSED,
    STEP,
    TABLE,
    SrunArgument,
    find_unsafe,
    join,
    select,
    split_options,
    translate,
)

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
        ("--qos=a", [SrunArgument("--qos", "a", ("--qos=a",))]),
        ("--qos a", [SrunArgument("--qos", "a", ("--qos", "a"))]),
        ("-qa", [SrunArgument("--qos", "a", ("-qa",))]),
        ("-q a", [SrunArgument("--qos", "a", ("-q", "a"))]),
        ("--exclusive x", [SrunArgument("--exclusive", None, ("--exclusive",)), SrunArgument("x", None, ("x",))]),
        ("--nice=5", [SrunArgument("--nice", "5", ("--nice=5",))]),
        ("-O -H", [SrunArgument("--overcommit", None, ("-O",)), SrunArgument("--hold", None, ("-H",))]),
        ("--site-s=1 -N", [SrunArgument("--site-s", "1", ("--site-s=1",)), SrunArgument("--nodes", None, ("-N",))]),
    ],
)
def test_words_are_taken_apart(words: str, found: list[SrunArgument]) -> None:
    assert list(split_options(words.split())) == found


def test_select() -> None:
    qos, mem, mpi = arguments = list(split_options(["--qos=a", "--mem=0", "--mpi=none"]))
    assert select(arguments, JOB, BOTH) == (qos, mem)
    assert select(arguments, STEP) == (mpi,)


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


@pytest.mark.parametrize(
    ("words", "found", "left"),
    [
        (["--gpus-per-task=2", "--mem=0"], {"gpus_per_task": 2}, ("--mem=0",)),
        (["-n", "4", "-N2", "-c", "3"], {"ntasks": 4, "nodes": 2, "cpus_per_task": 3}, ()),
        (["--gres=gpu:a100:2"], {"gpus_per_node": "a100:2"}, ()),
        (["--gres=gpu:2,nvme:1", "--nodes=2-4"], {"gpus_per_node": "2"}, ("--gres=nvme:1", "--nodes=2-4")),
        (["--gres=gpu"], {"gpus_per_node": "1"}, ()),
        (["--gres=gpu:a100,gpu:v100:2"], {"gpus_per_node": "a100:1,v100:2"}, ()),
        (["--gres=none"], {}, ("--gres=none",)),
        (["--tasks-per-node=2", "--ntasks-per-gpu", "1"], {"ntasks_per_node": 2, "per_gpu": True}, ()),
        (["--mem", "0", "--site-option", "-x", "node1"], {}, ("--mem", "0", "--site-option", "-x", "node1")),
        (["--gpu-bind", "closest", "-O"], {"gpu_bind": "closest"}, ("-O",)),
        (["-l"], {"label": True}, ()),
    ],
)
def test_what_srun_args_say(words: list[str], found: dict[str, object], left: tuple[str, ...]) -> None:
    lifted = [translate(argument) for argument in split_options(words)]
    assert {key.replace("-", "_"): value for key, value, _ in lifted if value is not None} == found
    assert join(argument for _, _, rest in lifted for argument in rest) == left
