"""Defaults of arguments that JAX has no variable for, in modules that stand for JAX's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from jaxsif.task import defaults
from jaxsif.task.defaults import set_default

TIMEOUTS = {"SLURM_PROCID": "0", "JAXSIF_INIT_TIMEOUT": "600", "JAXSIF_HEARTBEAT_TIMEOUT": "20"}
JAX = """\
def initialize(coordinator_address=None, initialization_timeout=300, *, heartbeat_timeout_seconds=100):
    return initialization_timeout, heartbeat_timeout_seconds
"""


def write_jax(packages: Path, source: str) -> None:
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/distributed.py").write_text(source)


def test_timeouts_are_those_given_unless_the_program_says_so(packages: Path) -> None:
    write_jax(packages, JAX)
    defaults.install(TIMEOUTS)
    initialize = importlib.import_module("jax._src.distributed").initialize
    assert initialize() == (600, 20)
    assert initialize("node1:1", 7) == (7, 20)
    assert initialize(heartbeat_timeout_seconds=8) == (600, 8)


def test_nothing_is_done_unless_asked(packages: Path) -> None:
    finders = list(sys.meta_path)
    defaults.install({"SLURM_PROCID": "0", "SLURMD_NODENAME": "node1", "JAXSIF_INIT_TIMEOUT": ""})
    assert sys.meta_path == finders


@pytest.mark.parametrize(("task", "times"), [("0", 1), ("1", 0)])
def test_a_jax_without_such_a_timeout(
    packages: Path, capsys: pytest.CaptureFixture[str], task: str, times: int
) -> None:
    write_jax(packages, "def initialize(initialization_timeout=300):\n    return initialization_timeout\n")
    defaults.install({**TIMEOUTS, "SLURM_PROCID": task})
    assert importlib.import_module("jax._src.distributed").initialize() == 600
    warning = (
        "jaxsif: warning: jax.distributed.initialize of this JAX has no heartbeat_timeout_seconds: "
        "the timeout given has no effect\n"
    )
    assert capsys.readouterr().err == warning * times


def test_gloo_is_told_the_nodes_address(packages: Path) -> None:
    (packages / "jaxlib").mkdir()
    (packages / "jaxlib/_jax.py").write_text(
        "def make_gloo_tcp_collectives(distributed_client, hostname=None, interface=None):\n    return hostname\n"
    )
    defaults.install({"SLURM_PROCID": "1", "SLURMD_NODENAME": "node2", "JAXSIF_NODE_ADDRESS": "%N-ib"})
    make = importlib.import_module("jaxlib._jax").make_gloo_tcp_collectives
    assert make(distributed_client=None) == "node2-ib"
    assert make(None, hostname="other") == "other"


def test_without_jax_an_import_fails_as_ever(packages: Path) -> None:
    (packages / "jax/_src").mkdir(parents=True)
    defaults.install(TIMEOUTS)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'jax\._src\.distributed'"):
        importlib.import_module("jax._src.distributed")


def test_set_default() -> None:
    def function(a: int, b: int = 2, c: int = 3) -> tuple[int, int, int]:
        local = c
        return a, b, local

    assert set_default(function, "c", 7)
    assert function(1) == (1, 2, 7)
    assert not any(set_default(function, name, 9) for name in ("a", "local", "d"))
    assert function(1) == (1, 2, 7)


@pytest.mark.parametrize(
    ("variables", "checks"),
    [
        ({}, True),
        ({"HTTP_PROXY": "http://proxy:1"}, False),
        ({"HTTPS_PROXY": "http://proxy:1", "no_proxy": "localhost", "http_proxy": ""}, False),
        ({"HTTP_PROXY": "http://proxy:1", "https_proxy": "http://proxy:1"}, True),
    ],
    ids=["no proxy", "upper case", "upper case and an empty one", "one that gRPC reads"],
)
def test_jax_warns_of_proxies_that_it_would_connect_through(
    packages: Path, variables: dict[str, str], checks: bool
) -> None:
    config = "found = {'jax_check_proxy_envs': True}\nclass config:\n    update = staticmethod(found.__setitem__)\n"
    write_jax(packages, "from jax._src import config\n")
    (packages / "jax/_src/config.py").write_text(config)
    defaults.install({"SLURM_PROCID": "0", "SLURMD_NODENAME": "node1", **variables})
    module = importlib.import_module("jax._src.distributed")
    assert module.config.found == {"jax_check_proxy_envs": checks}
