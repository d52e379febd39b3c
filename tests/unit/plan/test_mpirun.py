"""Open MPI's lists of hosts, its argument vector, and what it says."""

from __future__ import annotations

import pytest
from bounds import read_bounded
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.errors import JaxsifError
from jaxsif.plan.mpirun import (
    Host,
    Output,
    build_argv,
    choose_slots,
    choose_variables,
    parse_hostfile,
    parse_hosts,
)

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
        ("node1", (Host("node1", None),)),
        ("node1:4,node2:4", (Host("node1", 4), Host("node2", 4))),
        ("b-1.x.org, a", (Host("b-1.x.org", None), Host("a", None))),
        ("a,b,a,a:2", (Host("a", 4), Host("b", None))),
    ],
    ids=["one", "slots", "order and blanks", "a name that stands several times"],
)
def test_hosts(text: str, hosts: tuple[Host, ...]) -> None:
    assert parse_hosts(text, "--hosts") == hosts


def test_hostfile() -> None:
    hosts = (Host("node1", 4), Host("node2", 2), Host("node3", 2), Host("10.0.0.7", None))
    assert parse_hostfile(HOSTFILE, "hosts") == hosts


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
    with pytest.raises(JaxsifError) as caught:
        parse_hosts(text, "--hosts")
    assert (caught.value.what, caught.value.where) == (what, "--hosts")


def test_hostfile_without_hosts() -> None:
    with pytest.raises(JaxsifError, match="a list of hosts without a host"):
        parse_hostfile("# none\n", "hosts")


def test_slots() -> None:
    assert choose_slots(parse_hosts("a:4,b:4", ""), "") == 4
    assert choose_slots(parse_hosts("a,b", ""), "") is None
    with pytest.raises(JaxsifError, match="the hosts have different numbers of slots: a:4, b"):
        choose_slots(parse_hosts("a:4,b", ""), "--hosts")


def test_argv() -> None:
    expected = "mpirun --host a:2,b:2 -np 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none --tag-output -x A -x B"
    assert build_argv(["a", "b"], 2, True, ["A", "B"]) == tuple(expected.split())


def test_variables() -> None:
    own = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES", "PWD", "_", "PBS_JOBID")
    environ = dict.fromkeys((*own, "HOME", "_CE_CONDA", "BASH_FUNC_ml%%", "http_proxy", "HTTP_PROXY"), "")
    chosen = choose_variables(environ, ["JAXSIF_STEP", "HTTP_PROXY"], ["http_proxy"])
    assert chosen == ("HOME", "_CE_CONDA", "HTTP_PROXY", "JAXSIF_STEP")


NOISE = b"[login:00258] plm:ssh: Warning: setpgid(262,262) failed in parent with errno=Permission denied(13)\n"


def test_labels_are_as_sruns() -> None:
    out = Output(label=True)
    shown = [
        out.feed(data) for data in (b"[prterun-a-1@1,", b"10]<stdout>: a\n[1,2]<stderr>:b [1,2]<stderr>: c\nx", b"")
    ]
    assert shown == [b"", b"10: a\n2:b [1,2]<stderr>: c\n".replace(b"2:b", b"2: b"), b"x"]


def test_noise_is_left_out_and_the_rest_is_shown_at_once() -> None:
    out = Output(label=False)
    assert [out.feed(NOISE + b"10 %"), out.feed(b" 20 %\r"), out.feed(b"")] == [b"10 %", b" 20 %\r", b""]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"hello\n", ""),
        (
            NOISE + b"ssh: connect to host n9 port 22: No route to host\n",
            "ssh: connect to host n9 port 22: No route to host",
        ),
        (b"a@n1: Permission denied (publickey).\n", "a@n1: Permission denied (publickey)."),
        (
            b"-" * 74 + b"\nThere are not enough slots\nfor it:\n\n  sh\n" + b"-" * 74,
            "There are not enough slots for it:",
        ),
    ],
    ids=["none", "ssh", "a key", "mpirun's own"],
)
def test_complaint(said: bytes, complaint: str) -> None:
    out = Output(label=False)
    out.feed(said)
    assert out.complaint == complaint


@pytest.mark.parametrize("text", [f"a:{'9' * 5000}", "a," * 100_000 + "a", "a:0", f"{'a:' * 50_000}"])
def test_lists_without_a_bound_are_refused_at_once(text: str) -> None:
    error = read_bounded(lambda: parse_hosts(text, "--hosts"))
    assert error is not None
    assert error.where == "--hosts"
    assert len(error.what) < 200


PIECES = st.sampled_from(["a", "b1", ":", "4", " slots=", "9" * 19, ",", "\n", "#", "\0", "\u2028", " ", "x" * 300])


@given(st.lists(st.tuples(PIECES, st.sampled_from([1, 2, 70_000])), max_size=12))
def test_any_list_is_read_or_refused_in_bounds(pieces: list[tuple[str, int]]) -> None:
    text = "".join(piece * times for piece, times in pieces)[: 1 << 22]
    read_bounded(lambda: choose_slots(parse_hosts(text, "--hosts"), "--hosts"))
    read_bounded(lambda: choose_slots(parse_hostfile(text, "--hostfile"), "--hostfile"))
