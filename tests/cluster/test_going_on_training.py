"""slurm/train with checkpoints under jaxsif run --max-restarts: the same losses and parameters to the bit, whatever was
killed.

RUNS=20 kills in 20 runs; unless given, in 3.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from harness import Cluster, program_lines

RUNS = int(os.environ.get("RUNS", "3"))
STEPS, EVERY = 400, 10
# train.py itself, which also prints its final state to the bit, and the step that it resumed from.
DIGEST = """\
import hashlib, jax, numpy as np, train
train_to_the_end = train.train_with_checkpoints
def train_with_checkpoints(training, options):
    train_to_the_end(training, options)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(training.state):
        digest.update(np.asarray(leaf.addressable_data(0)).tobytes())
    if jax.process_index() == 0:
        print(f"state {digest.hexdigest()} from step {len(training.losses) - len(training.seconds)}", flush=True)
train.train_with_checkpoints = train_with_checkpoints
train.main()
"""
# On a shared disk, processes may see another newest checkpoint: here, all but process 0 see none.
DISAGREE = """\
import os
from orbax.checkpoint import v1 as ocp
if os.environ["SLURM_PROCID"] != "0":
    ocp.training.Checkpointer.latest = property(lambda _: None)
"""
OPTIONS = f"--width=32 --depth=1 --batch=32 --every={EVERY} --checkpoints=checkpoints --json"
# A process of a run on a node: a pattern for pgrep -f that does not match itself.
PARTS = {
    "task": "^python[^ ]* [d]igest.py",
    "runtime": "[A]pptainer runtime parent|[s]tarter",
    "keeper": "[n]ode/share.py",  # which the tasks are only until they enter the container
}
RESTARTS = "--max-restarts=2 --checkpoints=checkpoints"


class Trained(NamedTuple):
    """What a training has computed."""

    losses: tuple[float, ...]
    state: str
    resumed: int  # the step that its last start resumed from


class Training:
    """A run of slurm/train on 2 nodes x 2."""

    def __init__(
        self, cluster: Cluster, folder: str, layer: str, options: str = "", steps: int = STEPS, before: str = ""
    ) -> None:
        """`before` is executed before the program."""
        self.cluster = cluster
        self.folder = f"{folder}/slurm/train"
        cluster.write(f"{self.folder}/digest.py", before + DIGEST)
        run = f"jaxsif run --layer={layer} {options} -- python digest.py {OPTIONS} --steps={steps} 2>err </dev/null"
        salloc = f"salloc -Q --no-kill -N2 --ntasks-per-node=2 --gpus-per-node=2 -t 10 bash -c {shlex.quote(run)}"
        self.process: subprocess.Popen[str] = cluster.start(f"cd {self.folder} && module load jax/sif && exec {salloc}")

    @property
    def err(self) -> str:
        return self.cluster.run(["cat", f"{self.folder}/err"]).stdout

    @property
    def saved(self) -> list[int]:
        """The steps of the complete checkpoints."""
        names = self.cluster.check(["ls", f"{self.folder}/checkpoints"]).split()
        return sorted(int(name) for name in names if name.isdecimal())

    def end(self) -> Trained:
        out, _ = self.process.communicate("", 240)
        assert self.process.returncode == 0, out + self.err
        # A start that is ended after its last step prints its state, too.
        states, steps = zip(*re.findall(r"^state (\w+) from step (\d+)$", out, re.MULTILINE))
        assert len(set(states)) == 1, states
        losses = json.loads(program_lines(out)[-1])["losses"]
        return Trained(tuple(losses), states[-1], int(steps[-1]))


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, layer: str) -> Trained:
    copy = 'module load jax/sif; d=$(mktemp -d ~/whole.XXXXXX); cp -r "$JAXSIF_HOME/slurm" $d; echo $d'
    folder = cluster.check(copy).strip()
    found = Training(cluster, folder, layer).end()
    cluster.check(["rm", "-r", folder])
    assert len(found.losses) == STEPS
    return found


@pytest.mark.parametrize("seed", range(RUNS))
def test_training_with_a_random_kill_is_the_same_to_the_bit(
    cluster: Cluster,
    programs: str,
    layer: str,
    undisturbed: Trained,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Of a task, a runtime or a keeper, at any time after the first checkpoint; also beside a half-written one."""
    drawn = random.Random(seed)
    part, node, delay = drawn.choice(list(PARTS)), drawn.choice(["node1", "node2"]), drawn.uniform(0, 4)
    run = Training(cluster, programs, layer, RESTARTS)
    checkpoints = f"{run.folder}/checkpoints"
    cluster.check(["sh", "-c", f"until [ -e {checkpoints}/{EVERY} ]; do sleep 0.2; done"], timeout=90)
    cluster.check(f"mkdir -p {checkpoints}/{STEPS - 1}.orbax-checkpoint-tmp/state")  # what a killed save leaves
    time.sleep(delay)
    before = run.saved
    pid = drawn.choice(cluster.check(["pgrep", "-f", PARTS[part]], node=node).split())
    cluster.check(["kill", "-KILL", pid], node=node)
    done = run.end()
    is_again = "attempt 2 on node1,node2" in run.err
    record_property("killed", f"{part} on {node} after checkpoint {before[-1]}; {is_again=}, from {done.resumed}")
    assert (done.losses, done.state) == (undisturbed.losses, undisturbed.state)
    assert is_again or part != "task"  # not all parts of the others are needed to the end
    assert done.resumed >= before[-1] if is_again else done.resumed == 0
    assert run.saved[-3:] == [STEPS - 2 * EVERY, STEPS - EVERY, STEPS]


def test_a_half_written_checkpoint_does_not_break_process_0_alone(
    cluster: Cluster, programs: str, layer: str, undisturbed: Trained
) -> None:
    """Then all others would wait for it."""
    first = Training(cluster, programs, layer, steps=50)
    first.end()
    cluster.check(f"mkdir -p {first.folder}/checkpoints/60.orbax-checkpoint-tmp/state")
    done = Training(cluster, programs, layer, RESTARTS).end()
    assert done == undisturbed._replace(resumed=50)


def test_processes_that_disagree_on_the_newest_checkpoint_follow_process_0(
    cluster: Cluster, programs: str, layer: str, undisturbed: Trained
) -> None:
    Training(cluster, programs, layer, steps=50).end()
    done = Training(cluster, programs, layer, RESTARTS, before=DISAGREE).end()
    assert done == undisturbed._replace(resumed=50)


def test_a_training_that_is_done_ends_at_once(
    cluster: Cluster, programs: str, layer: str, undisturbed: Trained
) -> None:
    assert Training(cluster, programs, layer).end() == undisturbed
    assert Training(cluster, programs, layer).end() == undisturbed._replace(resumed=STEPS)
