"""While all is well: no word, no byte on the network, no write to a disk, and output as fast as without jaxsif."""

from __future__ import annotations

import json

from harness import Cluster, jaxsif_run, program_lines

TIMES, SECONDS = 3, 20


def test_an_observer_writes_to_memory_alone(cluster: Cluster, folder: str) -> None:
    """For a minute, on two nodes. Slurm's own daemons speak every 100 s at most, so one of three times is silent."""
    options = ("--nodes=2", "--ntasks-per-node=1", "--env=JAXSIF_INDEPENDENT=1")
    done = cluster.run(f"cd {folder} && {jaxsif_run(*options, '--', 'python', 'quiet.py', str(TIMES))}", timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in program_lines(done.stdout)]
    assert len(found) == 2 * TIMES
    for one in found:
        assert (one["process disk"], one["observer disk"]) == (0, 0), one
        # The memory file is written, so it lives.
        assert 0.5 * SECONDS < one["observer wrote"] / 4096 < 1.5 * SECONDS, one
    for node in {one["node"] for one in found}:
        sent = [one["packets"] for one in found if one["node"] == node]
        assert min(sent) == 0, (node, sent)
