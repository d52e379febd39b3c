"""Commands in a terminal of 80 columns, in a log, and as JSON: each is run once in all three ways."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from harness import Cluster
from terminal import Terminal

IMAGES = "/sw/jaxsif/images"
# Command -> keys of its JSON, in docs/json.md.
COMMANDS = {
    "config": ("settings", "files"),
    "config run": ("settings", "files"),
    "history": ("name", "state", "command"),
    "history show": ("schema", "state", "folder"),
    f"image list --folder {IMAGES}": ("name", "flavour", "digest"),
    "image inspect $JAX_IMAGE": ("path", "jax", "notes"),
    "image diff $JAX_IMAGE $JAX_IMAGE": ("equal", "packages"),
    "module list": ("name", "default", "image"),
    "layer list": ("name", "status"),
    "run --nodes=2 --gpus-per-node=4 --explain -- python -c 1": ("tasks", "groups"),
    "run --nodes=2 --gpus-per-node=4 --dry-run -- python -c 1": ("command", "set"),
    "submit --nodes=2 --gpus-per-node=4 --dry-run -- python -c 1": ("text",),
    "bench compare old new": ("worse", "figures"),
}
# What people read: not a job script, nor two images without a difference.
SHOWN = [command for command in COMMANDS if not command.startswith(("submit", "image diff"))]
RESULTS = """
mkdir -p {0} && cat >{0}/results.jsonl <<'END'
{{"bench": "collectives", "complete": true, "devices": 8, "digest": "sha256:0123456789012345678901234567890123456789"}}
{{"record": "link", "from": "node1", "to": "node2", "size": 4194304, "bandwidth": {1}, "latency": 1e-5}}
END
"""


@pytest.fixture(scope="module", autouse=True)
def _things(cluster: Cluster) -> None:
    """A run in the history, results, and the image's digest, whose bar is no part of a text."""
    script = "module load jax/sif; jaxsif image inspect $JAX_IMAGE >/dev/null; jaxsif run --nodes=1 -- python -c 1;"
    script += RESULTS.format("old", 9e8)
    cluster.check(script + RESULTS.format("new", 3e8))


def plain(text: str) -> str:
    """A text without the escapes of colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("command", SHOWN)
def test_in_a_terminal_nothing_wraps(cluster: Cluster, command: str) -> None:
    terminal = Terminal(f"module load jax/sif; jaxsif {command}", columns=80)
    assert terminal.end() == 0, terminal.text
    lines = [line for line in plain(terminal.text).splitlines() if not line.startswith("jaxsif: ")]
    assert lines
    wide = [line for line in lines if len(line.rstrip()) > 80]
    assert [line for line in wide if " " in line.strip(" \\")] == []  # a path of a command line stays whole


@pytest.mark.parametrize("command", SHOWN)
def test_in_a_log_there_is_no_escape(cluster: Cluster, command: str) -> None:
    done = cluster.run(f"module load jax/sif; jaxsif {command}")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_as_json(cluster: Cluster, command: str) -> None:
    begin, dashes, program = command.partition(" -- ")
    found: Any = json.loads(cluster.check(f"module load jax/sif; jaxsif {begin} --json{dashes}{program}"))
    for one in found if isinstance(found, list) else [found]:
        assert set(COMMANDS[command]) <= one.keys()


def test_a_job_script_knows_nothing_of_the_terminal(cluster: Cluster) -> None:
    terminal = Terminal("module load jax/sif; jaxsif submit --dry-run --nodes=1 --ntasks=1 -- python -c 1")
    assert terminal.end() == 0, terminal.text
    assert "srun" in terminal.text
    assert not re.search("COLUMNS|--unbuffered", terminal.text)


@pytest.mark.core
def test_colours(cluster: Cluster) -> None:
    typo = "jaxsif history show nothing-like-that"
    for variables, stream, coloured in [
        ("", "", True),
        ("NO_COLOR=1", "", False),
        ("", "2>&1 | cat", False),
        ("FORCE_COLOR=1", "2>&1 | cat", True),
    ]:
        terminal = Terminal(f"module load jax/sif; {variables} {typo} {stream}")
        terminal.end()
        assert ("\x1b[1;31mjaxsif: error:\x1b[0m" in terminal.text) is coloured, (variables, stream, terminal.text)
