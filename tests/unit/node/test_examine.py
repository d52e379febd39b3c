"""What a node says of a container that fails."""

from __future__ import annotations

import pytest

from jaxsif.node import examine


@pytest.mark.starts_processes
def test_the_last_line_of_a_container_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apptainer resets the colour in a line of its own."""
    said: list[object] = []
    monkeypatch.setattr(examine, "say", lambda *facts: said.append(facts))
    text = r"\033[91mERROR  : Requesting capability set\n\033[0m\n\n\036jaxsif 2c3d {}\n"
    examine.run_task(["sh", "-c", f"printf '{text}' >&2; exit 1"], {"SLURMD_NODENAME": "node1", "SLURM_PROCID": "2"})
    facts = {"node": "node1", "task": 2, "status": 1, "error": "ERROR  : Requesting capability set"}
    assert said == [("e", 2, facts)]
