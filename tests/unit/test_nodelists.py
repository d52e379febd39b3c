"""Node lists: the launcher counts their names, the task shim takes the first; both against a list written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.slurm import count_hosts
from jaxsif.task.setup import first_host


@pytest.mark.parametrize(
    ("nodelist", "count", "first"),
    [
        ("a", 1, "a"),
        ("a,b", 2, "a"),
        ("n[001-015,20],h", 17, "n001"),
        ("rack[1-2]n[1-4]", 8, "rack1n1"),
        ("cn[1-2]-ib", 2, "cn1-ib"),
        ("node[7]", 1, "node7"),
        ("a[1,3,5-7],b[2-3]", 7, "a1"),
        ("a[10,9]", 2, "a10"),
        ("node-a.example.org", 1, "node-a.example.org"),
        ("", 0, ""),
    ],
)
def test_forms_of_node_lists(nodelist: str, count: int, first: str) -> None:
    assert count_hosts(nodelist) == count
    assert first_host(nodelist) == first


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
    assert count_hosts(nodelist) == len(hosts)
    assert first_host(nodelist) == hosts[0]
