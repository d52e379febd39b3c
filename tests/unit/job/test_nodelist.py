"""Node lists against the names that they stand for; tests/cluster holds both against Slurm itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.job.nodelist import count, expand
from jaxsif.task.contract import first_host

FORMS = {
    "a": "a",
    "n[001-003,20],h": "n001 n002 n003 n20 h",
    "rack[1-2]n[1-4]": "rack1n1 rack1n2 rack1n3 rack1n4 rack2n1 rack2n2 rack2n3 rack2n4",
    "node[007]": "node007",
    "a[10,9]": "a10 a9",
    "n[099-101]": "n099 n100 n101",
    "n[001-3]": "n001 n002 n003",
    "[1-2]": "1 2",
    "a[1-2]b[1-2]c[1-2]": "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2",
    "n[1-2],n1": "n1 n2 n1",
    "": "",
}


@pytest.mark.parametrize("nodelist", FORMS)
def test_forms_of_node_lists(nodelist: str) -> None:
    names = tuple(FORMS[nodelist].split())
    assert expand(nodelist) == names
    assert count(nodelist) == len(names)
    assert first_host(nodelist) == (names[0] if names else "")


@pytest.mark.parametrize("text", ["a[1", "a]", "a[x]", "a[]", "a[3-1]", "a[1-]", "a[1,]", "a,,b", ",", "a[1-2/2]"])
@pytest.mark.parametrize("function", [expand, count])
def test_what_is_no_node_list_is_refused(function: Callable[[str, str], object], text: str) -> None:
    error = catch(JaxsifError, function, text, "scontrol show job")
    assert (error.what, error.where) == (f"not a node list: {text!r}", "scontrol show job")


def test_many_names() -> None:
    names = expand("rack[001-064]n[0001-1024]")
    assert (len(names), names[0], names[-1]) == (65_536, "rack001n0001", "rack064n1024")
    assert count("rack[001-064]n[0001-1024]") == 65_536


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("n[1-99999999999]", "a list of more than 65536 nodes: 'n[1-99999999999]'"),
        ("n[0-99999999999999999999]", "not a node list: 'n[0-99999999999999999999]'"),
        ("r[1-1000]n[1-1000]", "a list of more than 65536 nodes: 'r[1-1000]n[1-1000]'"),
        ("n[1-65536],m", "a list of more than 65536 nodes: 'n[1-65536],m'"),
        (f"n[{'9' * 5000}-{'9' * 5001}]", "not a node list: 'n[999999"),
        (f"n[1-65536]{'x' * 60000}", "not a node list: 'n[1-65536]xxx"),
        (f"n{'[1-9]' * 30000}", "not a node list: 'n[1-9][1-9]"),
        (",".join(["n"] * 65537), "a list of more than 65536 nodes: 'n,n,n"),
    ],
    ids=lambda text: text[:20],
)
def test_lists_without_a_bound_are_refused_at_once(text: str, what: str) -> None:
    for error in (read_bounded(lambda: expand(text)), read_bounded(lambda: count(text))):
        assert error.what.startswith(what)
        assert error.where == "SLURM_JOB_NODELIST"


@given(st.lists(st.sampled_from([*"[]-,0019nm", "[1-9]", "[0-65535]", "9" * 19, "x" * 300, "n,"]), max_size=40))
def test_any_list_is_read_or_refused_in_bounds(parts: list[str]) -> None:
    read_bounded(lambda: expand("".join(parts)))


@st.composite
def bracket_groups(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A group such as '[001-003,07]' and what it stands for, in order; or '' and ['']."""
    if not draw(st.booleans()):
        return "", [""]
    texts, numbers = [], []
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 4))
        first = draw(st.integers(0, 10**width - 1))
        last = draw(st.none() | st.integers(first, min(first + 12, 10**width - 1)))
        texts.append(f"{first:0{width}}" if last is None else f"{first:0{width}}-{last:0{width}}")
        numbers += [f"{number:0{width}}" for number in range(first, (first if last is None else last) + 1)]
    return f"[{','.join(texts)}]", numbers


@st.composite
def node_lists(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A node list of one to four names with up to two groups each, and the names that it stands for."""
    letters = st.text("abcdxyz-.", min_size=1, max_size=4)
    texts, hosts = [], []
    for _ in range(draw(st.integers(1, 4))):
        before, between, after = draw(letters), draw(letters | st.just("")), draw(letters | st.just(""))
        (first_text, firsts), (second_text, seconds) = draw(bracket_groups()), draw(bracket_groups())
        texts.append(before + first_text + between + second_text + after)
        hosts += [before + first + between + second + after for first in firsts for second in seconds]
    return ",".join(texts), hosts


@given(node_lists())
def test_node_list_written_out(case: tuple[str, list[str]]) -> None:
    nodelist, hosts = case
    assert expand(nodelist) == tuple(hosts)
    assert count(nodelist) == len(hosts)
    assert first_host(nodelist) == hosts[0]
