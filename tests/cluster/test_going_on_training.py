"""slurm/train with checkpoints under jaxsif run --max-restarts: the same losses to the bit, whatever was killed.

SEEDS=20 kills in 20 runs; unless given, in 3.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import time

import pytest
from harness import Cluster, program_lines

TRAIN = "python train.py --width=32 --depth=1 --batch=32 --steps=150 --every=10 --checkpoints=checkpoints --json"
# A process of a run on a node: a pattern for pgrep -f that does not match itself.
PARTS = {"task": "^python[^ ]* [t]rain.py", "runtime": "[A]pptainer runtime parent|[s]tarter", "keeper": "[k]eeper.py"}


def train(cluster: Cluster, folder: str, layer: str, options: str) -> subprocess.Popen[str]:
    """Start slurm/train on 2 nodes x 2."""
    run = f"jaxsif run --layer={layer} {options} -- {TRAIN} 2>err </dev/null"
    salloc = f"salloc -Q --no-kill -N2 --ntasks-per-node=2 --gpus-per-node=2 -t 10 bash -c {shlex.quote(run)}"
    return cluster.start(f"cd {folder}/slurm/train && module load jax/sif && exec {salloc}")


def losses_of(process: subprocess.Popen[str], cluster: Cluster, folder: str) -> list[float]:
    out, _ = process.communicate("", 240)
    err = cluster.run(["cat", f"{folder}/slurm/train/err"]).stdout
    assert process.returncode == 0, out + err
    return list(json.loads(program_lines(out)[-1])["losses"])


@pytest.fixture(scope="module")
def undisturbed_losses(cluster: Cluster, layer: str) -> list[float]:
    folder = cluster.check('module load jax/sif; d=$(mktemp -d ~/whole.XXXXXX); cp -r "$JAXSIF_HOME/slurm" $d; echo $d')
    found = losses_of(train(cluster, folder.strip(), layer, ""), cluster, folder.strip())
    cluster.check(["rm", "-r", folder.strip()])
    assert len(found) == 150
    return found


@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", "3"))))
def test_training_with_a_random_kill_has_the_same_losses(
    cluster: Cluster, programs: str, layer: str, undisturbed_losses: list[float], seed: int
) -> None:
    """Of a task, a runtime or a keeper, at any time after the first checkpoint; also beside a half-written one."""
    drawn = random.Random(seed)
    part, node, delay = drawn.choice(list(PARTS)), drawn.choice(["node1", "node2"]), drawn.uniform(0, 3)
    run = train(cluster, programs, layer, "--max-restarts=2 --checkpoints=checkpoints")
    checkpoints = f"{programs}/slurm/train/checkpoints"
    cluster.check(["sh", "-c", f"until [ -e {checkpoints}/10 ]; do sleep 0.2; done"], timeout=90)
    cluster.check(f"mkdir -p {checkpoints}/149.orbax-checkpoint-tmp/state")  # what a killed save leaves
    time.sleep(delay)
    pid = drawn.choice(cluster.check(["pgrep", "-f", PARTS[part]], node=node).split())
    cluster.check(["kill", "-KILL", pid], node=node)
    assert losses_of(run, cluster, programs) == undisturbed_losses
    if part == "task":  # not all parts of the others are needed to the end
        assert "attempt 2 on node1,node2" in cluster.check(["cat", f"{programs}/slurm/train/err"])


def test_a_training_that_is_done_ends_at_once(
    cluster: Cluster, programs: str, layer: str, undisturbed_losses: list[float]
) -> None:
    for _ in range(2):
        assert losses_of(train(cluster, programs, layer, ""), cluster, programs) == undisturbed_losses
