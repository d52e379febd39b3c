"""What a node says of a container that fails."""

from __future__ import annotations

import pytest

from jaxsif.node import examine

STACK = r"*** SIGABRT received; stack trace: ***\nPC: @     0x7f2  (unknown)  raise\n    @     0x54c  run\n"
# As JAX ends a process that could not connect.
FATAL = (
    r"F1129 10:58:11.058492   17511 client.h:86] Terminating process because the JAX distributed service detected"
    r" fatal errors. absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.RegisterTask\n"
)


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        # Apptainer resets the colour in a line of its own.
        (r"\033[91mERROR  : capability set\n\033[0m\n\n\036jaxsif 2c3d {}\n", 1, "ERROR  : capability set"),
        (STACK, 1, "*** SIGABRT received; stack trace: ***"),
        (f"{FATAL}{STACK}", 1, "DEADLINE_EXCEEDED: Deadline Exceeded"),
        (
            r"F1129 10:58:11.05   24529 a.cc:86] Check failed: ok\n*** Check failure stack trace: ***",
            1,
            "Check failed: ok",
        ),
        (None, 127, "FATAL: cannot execute no-such-runtime: No such file or directory"),
    ],
    ids=["report", "stack", "jax", "fatal", "missing"],
)
def test_the_last_line_of_a_container_that_fails(
    words: str | None, status: int, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(examine, "say", lambda *facts: said.append(facts))
    argv = ["sh", "-c", f"printf '{words}' >&2; exit 1"] if words else ["no-such-runtime"]
    examine.run_task(argv, {"SLURMD_NODENAME": "node1", "SLURM_PROCID": "2"})
    assert said == [("e", 2, {"node": "node1", "task": 2, "status": status, "error": error})]
