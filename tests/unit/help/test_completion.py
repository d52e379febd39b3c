"""What bash and zsh offer, asked of the real shells where they are installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jaxsif import cli
from jaxsif.commands.about import RENDER

SHELLS = tuple(RENDER)
# A line that is typed -> all that is offered for its last word, in a folder with image.sif and others/.
CASES = {
    "jaxsif su": {"submit"},
    "jaxsif image s": {"sbom", "sign"},
    "jaxsif layer sh": {"show"},
    "jaxsif layer show m": {"my-layer"},
    "jaxsif run --layer m": {"my-layer"},
    "jaxsif run --ntasks-per-n": {"--ntasks-per-node"},
    "jaxsif run --resv": {"--resv-ports"},
    "jaxsif submit --dep": {"--dependency"},
    "jaxsif run --containers ": {"node", "task"},
    "jaxsif run --image im": {"image.sif"},
    "jaxsif run --time ": set(),
    "jaxsif image inspect i": {"image.sif"},
    "jaxsif completion z": {"zsh"},
    "jaxsif run --nodes=2 -- ./scr": {"script.sh"},
    "jaxsif run -- python i": {"image.sif"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with completion scripts, a layer, an image, a program."""
    program = cli.describe_all()
    for shell in SHELLS:
        (tmp_path / f"completion.{shell}").write_text(RENDER[shell](program))
    layers = tmp_path / "data/jaxsif/layers"
    layers.mkdir(parents=True)
    for name in ("image.sif", "data/jaxsif/layers/my-layer.json", "data/jaxsif/layers/my-layer.0.sqfs"):
        (tmp_path / name).touch()
    (tmp_path / "script.sh").write_text("#!/bin/sh\n")
    (tmp_path / "script.sh").chmod(0o755)
    return tmp_path


def environ(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": f"{folder}/data", "TERM": "dumb"}


def ask_bash(lines: list[str], folder: Path) -> list[set[str]]:
    script = """
source completion.bash
compopt() { :; } # which works only while readline asks
for line; do
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _jaxsif
    printf '%s\n' "${COMPREPLY[@]}" ==
done
"""
    # As readline takes words apart.
    return _answers(["bash", "--norc", "-c", script, "bash", *(line.replace("=", " = ") for line in lines)], folder)


def _answers(argv: list[str], folder: Path) -> list[set[str]]:
    done = subprocess.run(argv, cwd=folder, env=environ(folder), capture_output=True, text=True)
    assert done.stderr == ""
    *answers, end = done.stdout.split("==\n")
    assert end == ""
    return [{line.split("\t")[0] for line in answer.splitlines() if line} for answer in answers]


def ask_zsh(lines: list[str], folder: Path) -> list[set[str]]:
    """By typing them: zsh completes only where it has a terminal."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environ(folder))
    setup = "PS1=; autoload -U compinit; compinit -u -D; source completion.zsh; unsetopt list_beep beep; LISTMAX=99; "
    setup += "ask() { zle list-choices; zle -R; print; print en''d }; zle -N ask; bindkey '^I' ask; "
    setup += "zstyle ':completion:*' verbose no; print re''ady\n"
    answers = []
    try:
        os.write(terminal, setup.encode())
        _read(terminal, "ready\r\n")
        for line in lines:
            os.write(terminal, f"{line}\t".encode())
            said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x07\x08\r#%*]", " ", _read(terminal, "end\r\n")[: -len("end\r\n")])
            answers.append(set(said.split()) - {*line.split(), "command", "verb"})
            os.write(terminal, b"\x15")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return answers


def _read(terminal: int, until: str) -> str:
    said = ""
    while until not in said:
        ready, _, _ = select.select([terminal], [], [], 20)
        assert ready, said
        said += os.read(terminal, 65536).decode()
    return said


ASK = {"bash": ask_bash, "zsh": ask_zsh}


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_offered(shell: str, folder: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on this machine")
    answers = ASK[shell](list(CASES), folder)
    # zsh leaves out of files what is typed already.
    offered = {line: {word.rpartition("/")[2] for word in answer} for line, answer in zip(CASES, answers)}
    assert offered == CASES


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_offered_without_layers(shell: str, folder: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on this machine")
    (folder / "data/jaxsif/layers/my-layer.json").unlink()
    assert ASK[shell](["jaxsif layer show "], folder) == [set()]


@pytest.mark.starts_processes
def test_zsh_without_compinit(folder: Path) -> None:
    """As `module load` reads it."""
    if not shutil.which("zsh"):
        pytest.skip("no zsh on this machine")
    done = subprocess.run(["zsh", "-f", "-c", ". ./completion.zsh"], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.starts_processes
def test_shellcheck_finds_nothing(folder: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "--shell=bash", folder / "completion.bash"], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_every_command_is_there(shell: str) -> None:
    program = cli.describe_all()
    text = RENDER[shell](program)
    for command in program.commands:
        for argument in command.arguments:
            for flag in argument.flags:
                assert flag.lstrip("-") in text, (command.name, flag)
