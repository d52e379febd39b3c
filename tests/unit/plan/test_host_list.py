"""Lists of hosts for mpirun."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.plan.host_list import HostList, parse_hostfile, parse_hosts

HOSTFILE = """\
# two kinds
node1 slots=4 max-slots=8
node2:2   # as MPICH writes it

node3
node3
10.0.0.7
"""


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", {"node1": None}),
        ("node1:4,node2:4", {"node1": 4, "node2": 4}),
        ("b-1.x.org, a", {"b-1.x.org": None, "a": None}),
        ("a,b,a,a:2", {"a": 4, "b": None}),
    ],
    ids=["one", "slots", "order and blanks", "a name that stands several times"],
)
def test_hosts(text: str, hosts: dict[str, int | None]) -> None:
    assert parse_hosts(text, "--hosts") == HostList(hosts, "--hosts")


def test_hostfile() -> None:
    hosts = {"node1": 4, "node2": 2, "node3": 2, "10.0.0.7": None}
    assert parse_hostfile(HOSTFILE, "hosts") == HostList(hosts, "hosts")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a host: ''"),
        ("node1:x", "not a host: 'node1:x'"),
        ("node1:0", "not a host: 'node1:0'"),
        ("node1:", "not a host: 'node1:'"),
        ("node1,-x y", "not a host: '-x y'"),
        ("node1,--output", "not a host: '--output'"),
    ],
)
def test_what_is_no_host(text: str, what: str) -> None:
    error = catch(JaxsifError, parse_hosts, text, "--hosts")
    assert (error.what, error.where) == (what, "--hosts")


def test_hostfile_without_hosts() -> None:
    with pytest.raises(JaxsifError, match="an empty list of hosts"):
        parse_hostfile("# none\n", "hosts")


def test_slots() -> None:
    assert parse_hosts("a:4,b:4", "").common_slots(2) == 4
    assert parse_hosts("a,b", "").common_slots(2) is None
    assert parse_hosts("a:4,b", "").common_slots(1) == 4
    with pytest.raises(JaxsifError, match="the hosts have different numbers of slots: a:4, b"):
        parse_hosts("a:4,b", "--hosts").common_slots(2)


@pytest.mark.parametrize("text", [f"a:{'9' * 5000}", "a," * 100_000 + "a", "a:0", f"{'a:' * 50_000}"])
def test_lists_without_a_bound_are_refused_at_once(text: str) -> None:
    error = read_bounded(lambda: parse_hosts(text, "--hosts"))
    assert error.where == "--hosts"
    assert len(error.what) < 200


PIECES = st.sampled_from(["a", "b1", ":", "4", " slots=", "9" * 19, ",", "\n", "#", "\0", "\u2028", " ", "x" * 300])


@given(st.lists(st.tuples(PIECES, st.sampled_from([1, 2, 70_000])), max_size=12))
def test_any_list_is_read_or_refused_in_bounds(pieces: list[tuple[str, int]]) -> None:
    text = "".join(piece * times for piece, times in pieces)[: 1 << 22]
    read_bounded(lambda: parse_hosts(text, "--hosts").common_slots(1 << 20))
    read_bounded(lambda: parse_hostfile(text, "--hostfile").common_slots(1 << 20))
