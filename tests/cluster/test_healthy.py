"""Healthy programs under --on-hang=stop: one task works or rests for long, and no run is ended."""

from __future__ import annotations

import pytest
from harness import Cluster, jaxsif_run, names_in

TIMEOUT = 2  # seconds, --hang-timeout


@pytest.mark.parametrize("kind", names_in("healthy.py", "KINDS"))
def test_a_healthy_run_is_not_ended(cluster: Cluster, folder: str, kind: str) -> None:
    options = ("--nodes=2", "--ntasks-per-node=2", f"--hang-timeout={TIMEOUT}", "--on-hang=stop")
    run = jaxsif_run(*options, "--", "python", "healthy.py", kind, str(sum(kind.encode())), str(TIMEOUT))
    done = cluster.run(f"cd {folder} && {run}", timeout=200)
    assert done.returncode == 0, done.stderr
    assert "hangs" not in done.stderr
    assert done.stdout.count("done") == 4
