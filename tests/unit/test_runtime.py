"""The runtime's argument vector and variables, the values of --env."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch, error_of
from kit.executables import executable

from jaxsif.errors import HostError, JaxsifError
from jaxsif.runtime import Runtime, find_runtime, require_runtime
from jaxsif.settings.read import parse_env


@pytest.mark.parametrize(
    ("command", "real_path", "prefix"),
    [
        ("apptainer", "/usr/bin/apptainer", "APPTAINERENV_"),
        ("singularity", "/usr/bin/apptainer", "APPTAINERENV_"),
        ("singularity", "/opt/singularity-ce/bin/singularity", "SINGULARITYENV_"),
        ("/opt/bin/singularity", "/opt/bin/singularity-4.1", "SINGULARITYENV_"),
    ],
    ids=["Apptainer", "Apptainer's link", "SingularityCE", "with its version"],
)
def test_runtime_is_told_by_what_the_command_really_is(command: str, real_path: str, prefix: str) -> None:
    assert Runtime.from_executable(command, real_path) == Runtime(command, prefix)


@pytest.mark.parametrize(
    ("pairs", "parsed"),
    [
        ([], ()),
        (["A=1", "B=2"], (("A", "1"), ("B", "2"))),
        (["XLA_FLAGS=--a=1,--b=2"], (("XLA_FLAGS", "--a=1,--b=2"),)),
        (["EMPTY="], (("EMPTY", ""),)),
        (["WANDB_MODE"], (("WANDB_MODE", "offline"),)),
        (["A=1", "A=2"], (("A", "1"), ("A", "2"))),
    ],
    ids=["none", "two", "more equals signs", "empty", "passed on", "twice"],
)
def test_env(pairs: list[str], parsed: tuple[tuple[str, str], ...]) -> None:
    assert parse_env(pairs, {"WANDB_MODE": "offline"}) == parsed


@pytest.mark.parametrize("pair", ["", "=1", "2A=1", "A-B=1", "A B", "Größe=1"])
def test_env_that_is_no_variable(pair: str) -> None:
    assert catch(JaxsifError, parse_env, [pair], {"A B": "1"}).render() == (
        f"jaxsif: error: not a variable: {pair!r}\n  from: --env\n  try:  write NAME=VALUE, or NAME to pass it on"
    )


def test_env_to_pass_on_that_is_not_set() -> None:
    assert catch(JaxsifError, parse_env, ["WANDB_MODE"], {}).render() == (
        "jaxsif: error: variable WANDB_MODE is not set\n"
        "  from: --env\n"
        "  try:  export WANDB_MODE, or --env WANDB_MODE=VALUE"
    )
    error = catch(JaxsifError, parse_env, ["WANDB_MODE"], {}, "run.env in /sw/jaxsif/jaxsif.toml")
    assert error.hint == 'export WANDB_MODE, or write "WANDB_MODE=VALUE" there'


def test_runtime_prefers_apptainer(folder: Path) -> None:
    executable(folder / "bin/singularity")
    environ = {"PATH": f"{folder}/bin"}
    assert find_runtime(environ) == Runtime("singularity", "SINGULARITYENV_")
    executable(folder / "bin/apptainer")
    assert find_runtime(environ) == Runtime("apptainer", "APPTAINERENV_")


def test_runtime_behind_apptainers_link(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/singularity").symlink_to(executable(folder / "lib/apptainer"))
    assert find_runtime({"PATH": f"{folder}/bin"}) == Runtime("singularity", "APPTAINERENV_")


def test_runtime_that_is_named(folder: Path) -> None:
    executable(folder / "bin/apptainer")
    named = str(executable(folder / "ce/singularity"))
    environ = {"PATH": f"{folder}/bin", "JAXSIF_RUNTIME": named}
    assert find_runtime(environ) == Runtime(named, "SINGULARITYENV_")


def test_no_runtime(folder: Path) -> None:
    environ = {"PATH": str(folder)}
    assert find_runtime(environ) is None
    assert error_of(catch(HostError, require_runtime, environ)) == (
        125,
        "jaxsif: error: no container runtime: neither apptainer nor singularity is on the PATH\n"
        "  from: PATH\n"
        "  try:  load its module, or set JAXSIF_RUNTIME to its path on the nodes",
    )
