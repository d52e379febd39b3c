"""The table of variables: what it does to an environment, what it warns of, and that its page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.container.environment import (
    CAUTIONS,
    PATH,
    RULES,
    Caution,
    Rule,
    find_cautions,
    find_rule,
    resolve_environment,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/environment.md").read_text()
VALUES = {"JAXSIF_COORDINATOR_PORT": "61234", "JAX_COMPILATION_CACHE_DIR": "/home/u/.cache/c", "JAXSIF_CACHE": "1"}
IN_CONTAINER = {"JAX_ENABLE_PREEMPTION_SERVICE": "0", "PYTHONNOUSERSITE": "1", "LC_ALL": "C.UTF-8", **VALUES}


def rows(heading: str) -> list[str]:
    """The rows of the table below a heading of the page."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def row_of_rule(rule: Rule) -> str:
    names = ", ".join(f"`{name}`" for name in rule.names)
    value = f" to `{rule.value}`" if rule.value not in ("", "...") else ""
    return f"| {names} | {rule.action}{value} | {rule.why} |"


def row_of_caution(caution: Caution) -> str:
    return f"| `{caution.name}` | {caution.condition} | `{caution.what.format('VALUE')}` |"


def test_the_page_shows_every_rule_and_no_other() -> None:
    assert rows("What is done with each variable") == list(map(row_of_rule, RULES))


def test_the_page_shows_every_caution_and_no_other() -> None:
    assert rows("Values that are known to break runs") == list(map(row_of_caution, CAUTIONS))


def test_tasks_look_at_the_paths_of_the_table() -> None:
    loop = (ROOT / "jaxsif/task/start.sh").read_text().partition("for name in ")[2].partition(";")[0]
    names = [name for rule in RULES if rule.action == PATH for name in rule.names]
    assert loop.replace("\\\n", " ").split() == names


def test_no_name_has_two_rules() -> None:
    names = [name for rule in RULES for name in rule.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("OMPI_COMM_WORLD_RANK", "unset"),
        ("OMPI_MCA_orte_hnp_uri", "unset"),
        ("OMPI_MCA_btl", "passed"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "passed"),
        ("PMIX_RANK", "unset"),
        ("PMI_NO_FORK", "passed"),
        ("SLURM_PROCID", "passed"),
        ("JAXSIF_REPORT", "set"),
        ("JAX_DEBUG_NANS", "passed"),
        ("LOADEDMODULES", None),
        ("HOMES", None),
    ],
)
def test_the_longest_name_counts(name: str, action: str | None) -> None:
    rule = find_rule(name)
    assert (rule.action if rule else None) == action


SETTLED = {
    "nothing to do": ({"HTTP_PROXY": "http://p:1", "no_proxy": "localhost", "EDITOR": "vi"}, {}, (), {}),
    "moved": ({"http_proxy": "http://p:1"}, {"HTTP_PROXY": "http://p:1"}, ("http_proxy",), {}),
    "both spellings": ({"http_proxy": "http://p:1", "HTTP_PROXY": "http://q:2"}, {}, ("http_proxy",), {}),
    "gRPC's own": ({"grpc_proxy": "http://p:1"}, {}, ("grpc_proxy",), {}),
    "of the host's system": ({"PYTHONHOME": "/usr", "LD_PRELOAD": "x.so"}, {}, ("PYTHONHOME", "LD_PRELOAD"), {}),
    "left to others": ({"LD_LIBRARY_PATH": "/usr/lib", "TMPDIR": "/local"}, {}, (), {}),
    "the user's choice": ({"JAX_ENABLE_PREEMPTION_SERVICE": "1"}, {}, (), {"JAX_ENABLE_PREEMPTION_SERVICE": None}),
    "the user's empty choice": ({"JAX_ENABLE_PREEMPTION_SERVICE": ""}, {}, (), {"JAX_ENABLE_PREEMPTION_SERVICE": None}),
    "the user's cache": ({"JAX_COMPILATION_CACHE_DIR": "/mine"}, {}, (), {"JAX_COMPILATION_CACHE_DIR": None}),
    "the host's locale": ({"LC_ALL": "de_DE.UTF-8"}, {}, (), {}),
    "by the runtime's own way": ({"APPTAINERENV_LC_ALL": "de_DE.UTF-8"}, {}, (), {"LC_ALL": None}),
}


@pytest.mark.parametrize(("environ", "host", "unset", "changed"), SETTLED.values(), ids=SETTLED)
def test_settle(
    environ: dict[str, str], host: dict[str, str], unset: tuple[str, ...], changed: dict[str, str | None]
) -> None:
    expected = {name: value for name, value in {**IN_CONTAINER, **changed}.items() if value is not None}
    assert resolve_environment(environ, {}, VALUES) == (host, unset, expected)


def test_env_wins() -> None:
    asked = {"LC_ALL": "C", "JAXSIF_COORDINATOR_PORT": "5", "MINE": ""}
    assert resolve_environment({}, asked, VALUES).container == {**IN_CONTAINER, **asked}


def test_no_cache_without_its_folder() -> None:
    found = resolve_environment({}, {}, {"JAXSIF_COORDINATOR_PORT": "1"}).container
    assert {"JAX_COMPILATION_CACHE_DIR", "JAXSIF_CACHE"}.isdisjoint(found)


def test_without_a_container_the_hosts_python_is_left_alone() -> None:
    environ = {"PYTHONHOME": "/usr", "LD_PRELOAD": "x.so", "https_proxy": "p", "OMPI_COMM_WORLD_SIZE": "2"}
    found = resolve_environment(environ, {}, VALUES, container=False)
    assert found.unset == ("https_proxy", "OMPI_COMM_WORLD_SIZE")
    assert {"LC_ALL", "PYTHONNOUSERSITE"}.isdisjoint(found.container)


def test_cleanenv_keeps_what_the_table_passes() -> None:
    kept = ("SLURM_JOB_ID", "XLA_FLAGS", "NCCL_DEBUG", "HOME", "PATH", "LD_LIBRARY_PATH", "APPTAINER_X", "TMPDIR")
    dropped = ("LOADEDMODULES", "BASH_FUNC_module%%", "PYTHONPATH", "WANDB_MODE", "PYTHONHOME", "https_proxy")
    environ = dict.fromkeys((*kept, *dropped), "x")
    found = resolve_environment(environ, {}, {}, clean=True)
    assert found.unset == dropped
    assert found.host == {"HTTPS_PROXY": "x"}


@given(st.dictionaries(st.sampled_from([*VALUES, "PATH", "http_proxy", "X", "OMPI_X", "LC_ALL"]), st.text(max_size=3)))
def test_nothing_is_both_set_and_taken_away(environ: dict[str, str]) -> None:
    for clean in (False, True):
        found = resolve_environment(environ, {}, VALUES, clean)
        assert set(found.unset) <= set(environ)
        assert set(found.unset).isdisjoint(found.host)


@pytest.mark.parametrize(
    ("environ", "asked", "warning"),
    [
        ({"JAX_PLATFORMS": "cpu"}, {}, "JAX_PLATFORMS=cpu: JAX will not use the requested GPUs"),
        ({}, {"JAX_PLATFORMS": "cpu"}, "JAX_PLATFORMS=cpu: JAX will not use the requested GPUs"),
        ({"JAX_PLATFORMS": "cuda,cpu"}, {}, ""),
        ({"JAX_PLATFORMS": ""}, {}, ""),
        (
            {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5", "APPTAINERENV_XLA_CLIENT_MEM_FRACTION": ".4"},
            {},
            "XLA_CLIENT_MEM_FRACTION and XLA_PYTHON_CLIENT_MEM_FRACTION are both set: JAX refuses that on GPUs",
        ),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, {}, ""),
        ({"JAX_ENABLE_RECOVERABILITY": "1"}, {}, "JAX_ENABLE_RECOVERABILITY=1: even successful runs end with SIGABRT"),
        ({"JAX_ENABLE_RECOVERABILITY": "0"}, {}, ""),
        ({"JAX_LOCAL_DEVICE_IDS": "0"}, {}, "JAX_LOCAL_DEVICE_IDS=0: all tasks on a node take the same GPUs"),
        ({"LD_LIBRARY_PATH": "/usr/lib"}, {}, ""),
        (
            {},
            {"LD_LIBRARY_PATH": "/x"},
            "LD_LIBRARY_PATH=/x: libraries there may take the place of those that come with JAX",
        ),
        (
            {"PYTHONPATH": "/sw/lib/python3.9/site-packages"},
            {},
            "PYTHONPATH=/sw/lib/python3.9/site-packages: packages for another Python may hide those of the image",
        ),
        ({"PYTHONPATH": "/home/u/src"}, {}, ""),
        ({"PATH": "/usr/bin"}, {}, ""),
        (
            {},
            {"PATH": "/x:$PATH"},
            "PATH=/x:$PATH: it replaces the image's own; to add to that, --env PREPEND_PATH=DIR",
        ),
        ({"https_proxy": "http://p:1"}, {}, ""),
        ({}, {"https_proxy": "p"}, "https_proxy=p: JAX's processes would connect through it"),
    ],
)
def test_cautions(environ: dict[str, str], asked: dict[str, str], warning: str) -> None:
    assert list(find_cautions(environ, asked, False, gpus=4, tasks=4)) == [warning] * bool(warning)


def test_a_coordinator_that_was_left_in_the_shell() -> None:
    left = {"JAX_COORDINATOR_ADDRESS": "localhost:1234"}
    (warning,) = find_cautions(left, {}, False, gpus=0, tasks=1)
    assert warning.startswith("JAX_COORDINATOR_ADDRESS=localhost:1234: JAX would connect there, not to this run; ")
    assert find_cautions(left, left, False, gpus=0, tasks=1) == ()
    named = {f"APPTAINERENV_{name}": value for name, value in left.items()}
    assert find_cautions({**left, **named}, {}, False, gpus=0, tasks=1) == ()


def test_no_caution_about_gpus_where_there_are_none() -> None:
    environ = {"JAX_PLATFORMS": "cpu", "JAX_LOCAL_DEVICE_IDS": "0", "PYTHONPATH": "/x/site-packages"}
    assert len(find_cautions(environ, {}, False, gpus=0, tasks=4)) == 1
    assert find_cautions(environ, {}, True, gpus=None, tasks=None) == ()
