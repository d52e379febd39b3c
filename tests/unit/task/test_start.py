"""What start.sh tells of the step before the program begins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import jaxsif
from jaxsif.diagnose.reports import ReportFilter, find_start
from jaxsif.job.nodelist import expand

START = Path(jaxsif.__file__).parent / "task/start.sh"
LONG = ",".join(f"rack{number}node[1-{number}]" for number in range(2, 300))


@pytest.mark.starts_processes
@pytest.mark.parametrize("nodes", ["", "node[1-2]", LONG[:600], LONG[:601], LONG[:1200], LONG], ids=len)
def test_all_nodes_of_the_step_are_told(nodes: str) -> None:
    """In lines that srun --label leaves whole."""
    environ = {"PATH": os.environ["PATH"], "JAXSIF_REPORT": "2c3d:4e5f", "SLURM_STEP_NODELIST": nodes}
    step = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "rack2node1"}
    done = subprocess.run(["sh", START, "true"], env={**environ, **step}, capture_output=True, check=True)
    assert max(map(len, done.stderr.splitlines())) < 1000
    seen = ReportFilter(("2c3d", "4e5f"))
    assert seen.feed(done.stderr) == b""
    found = find_start(seen.reports)
    assert (found.step, found.nodes) == ("12.0", nodes)


def test_such_a_list_is_understood() -> None:
    assert len(expand(LONG)) == sum(range(2, 300))
