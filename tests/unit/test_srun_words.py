"""Each option of srun on jaxsif's command lines: passed on, jaxsif's own, or refused; and typing errors."""

from __future__ import annotations

import argparse

import pytest

from jaxsif.cli import build_parsers, find_command, main
from jaxsif.job.srun_options import MAYBE, OWN, REFUSED, TABLE, VALUE, SrunArgument, SrunOption, join, split_options
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.read import read_settings

COMMANDS = [["run"], ["submit"], ["shell"], ["jupyter"], ["bench", "collectives"]]
PASSED = [option for option in TABLE if option.handled not in (OWN, REFUSED)]
LIFTED = {"--gres": "gpu:2", "--ntasks-per-gpu": "1", "--tasks-per-node": "2"}


def parse(*words: str) -> argparse.Namespace:
    return build_parsers(find_command(words))[()].parse_args(words)


def spellings(option: SrunOption) -> list[list[str]]:
    """All ways to write an option with the value 'v', or without one."""
    names = [name for name in (option.flag, option.short) if name]
    if option.value == VALUE:
        joined = [f"{name}=v" if name == option.flag else f"{name}v" for name in names]
        return [*([name, "v"] for name in names), *([word] for word in joined)]
    return [[name] for name in names]


def taken(word: str) -> SrunArgument:
    """The argument that argparse keeps: one word."""
    (argument,) = split_options([word])
    return argument


@pytest.mark.parametrize("option", PASSED, ids=lambda option: option.flag)
def test_option_is_passed_on(option: SrunOption) -> None:
    word = f"{option.flag}=v" if option.value == VALUE else option.flag
    for spelling in spellings(option):
        found = parse("run", *spelling, "python")
        assert (found.passed, found.command) == ({option.flag: taken(word)}, ["python"])


@pytest.mark.parametrize("option", [one for one in PASSED if one.value == MAYBE], ids=lambda option: option.flag)
def test_a_value_that_may_be_there_stands_behind_an_equals_sign(option: SrunOption) -> None:
    names = [f"{option.flag}=v", *([f"{option.short}v"] if option.short else [])]
    for word in names:
        found = parse("run", word, "python", word)
        assert (found.passed, found.command) == ({option.flag: taken(f"{option.flag}=v")}, ["python", word])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_every_option(command: list[str]) -> None:
    known = build_parsers(tuple(command))[()]
    for word in command:
        actions = [action for action in known._actions if isinstance(action, argparse._SubParsersAction)]
        known = actions[0].choices[word]
    assert [option.flag for option in TABLE if option.flag not in known._option_string_actions] == []


@pytest.mark.parametrize("option", [one for one in TABLE if one.handled == REFUSED], ids=lambda option: option.flag)
def test_option_is_refused(option: SrunOption, capsys: pytest.CaptureFixture[str]) -> None:
    for name in filter(None, (option.flag, option.short)):
        for words in ([name, "v"], *([[f"{name}=v"]] if option.value else [])):
            assert main(["run", *words, "--", "python"]) == 2
            error = f"jaxsif: error: {option.flag} is not for jaxsif run\n  from: {option.flag}\n"
            assert capsys.readouterr().err == f"{error}  try:  {option.instead}\n"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("submit --export=NONE", "--env NAME=VALUE, or --cleanenv"),
        ("submit --bcast", "--stage"),
        ("submit --parsable", "leave it out: jaxsif submit always does so"),
        ("submit --container=a", "--image PATH"),
        ("shell --pty", "leave it out: jaxsif shell always does so"),
        ("shell --tres-bind=a", "leave it out, or jaxsif run --gpu-bind=TYPE"),
        ("shell -N 1", "leave it out, or jaxsif run --nodes"),
        ("jupyter -o a", ">FILE in the shell, or jaxsif submit --output"),
    ],
)
def test_what_to_use_is_an_option_of_the_command(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.endswith(f"  try:  {hint}\n")


def test_own_options_are_those_of_run() -> None:
    flags = {option.flag for option in OPTIONS} | {"--help", "--verbose"}
    assert {option.flag for option in TABLE if option.handled == OWN} <= flags
    assert {option.flag for option in TABLE if option.handled != OWN} & flags == set()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-N2 -n8 -G8 -c3", {"nodes": 2, "ntasks": 8, "gpus": "8", "cpus_per_task": 3}),
        ("-t 5 -p a -A b -C c", {"time": "5", "partition": "a", "account": "b", "constraint": "c"}),
        ("-N 2-4 -G a100:8", {"node_range": (2, 4), "nodes": None, "gpus": "a100:8"}),
        ("--gpus-per-task=a100:2", {"gpus_per_task": 2, "gpu_type": "a100"}),
        (
            "-G a100-sxm4:8 --gpus-per-task=3g.20gb:2",
            {"gpus": "a100-sxm4:8", "gpus_per_task": 2, "gpu_type": "3g.20gb"},
        ),
        ("--gres=gpu:a100:4,nvme:1 -l", {"gpus_per_node": "a100:4", "passed": ("--gres=nvme:1",), "label": True}),
        ("--ntasks-per-gpu=1 --tasks-per-node 2", {"per_gpu": True, "ntasks_per_node": 2, "passed": ()}),
        ("--qos=a -q b --qos c", {"passed": ("--qos=c",)}),
        ("--qos=a --srun-args='-q b --mem 0'", {"passed": ("--qos=a",), "srun_args": ("--mem", "0")}),
        ("--srun-args='--nodes=3'", {"nodes": 3, "srun_args": ()}),
    ],
)
def test_what_options_mean(words: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    said = vars(parse("run", *shlex.split(words), "python"))
    asked = read_settings(said, ("python",), {"HOME": "/nonexistent"}, in_job=False).options
    asked_words = {"passed": join(asked.passed), "srun_args": join(asked.srun_args)}
    assert {name: asked_words.get(name, getattr(asked, name)) for name in options} == options


TYPOS = {
    "run --nodse=2": "--nodes?",
    "run --Nodes=2": "--nodes?",
    "run --n-tasks=2": "--ntasks?",
    "run --gpu=2": "--gpus?",
    "run --gpus_per_node=2": "--gpus-per-node?",
    "run --cpus=2": "--cpus-per-gpu or --cpus-per-task?",
    "run --lable": "--label?",
    "run --dryrun": "--dry-run?",
    "run --part=a": "--partition?",
    "run --job=x": "--job-name or --jobid?",
    "run --nproc_per_node=4": "--ntasks-per-node?",
    "run --queue=a": "--partition?",
    "run --mount=/a": "--bind?",
    "run --cpu=4": "--cpus-per-task?",
    "run --tasks=8": "--ntasks?",
    "run --cores=4": "--cpus-per-task?",
    "run --no-lable": "--no-label?",
    "run --nodse=2 --lable --mem=0 --qso=a": "--nodes for --nodse, --label for --lable, --qos for --qso",
    "shell --stage": "jaxsif run --stage?",
    "submit --dependancy=a": "--dependency?",
    "image build --flavor=cpu": "--flavour?",
    "rum": "run?",
    "sumbit": "submit?",
    "imgae list": "image?",
    "image bild": "build?",
    "bench colectives": "collectives?",
    "pull": "image pull?",
    "list": "image list or layer list or module list?",
    "help rnu": "run?",
}


@pytest.mark.parametrize("line", TYPOS)
def test_typing_errors_are_answered_with_what_is_near(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    options = [word for word in words if word.startswith("--") and "mem" not in word]
    program = ["--", "python"] if words[0] in ("run", "submit") else []
    assert main([*words, *program]) == 2
    first, _, last = capsys.readouterr().err.splitlines()
    assert last == f"  try:  {TYPOS[line]}"
    assert all(option in first for option in options)
