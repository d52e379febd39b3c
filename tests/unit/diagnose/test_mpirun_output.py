"""What mpirun shows of its tasks, and what it says itself."""

from __future__ import annotations

import pytest

from jaxsif.diagnose.mpirun_output import Output

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
