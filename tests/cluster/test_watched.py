"""What is seen of tasks that a script, C code or another program makes hard to watch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import Cluster
from kit import loop_shapes

SHAPES = Path(loop_shapes.__file__)
TWO = "--nodes=2 --ntasks-per-node=1 --hang-timeout=3"
# One task does something else at step 5, for long, and the other waits for it.
PROGRAM = """\
import ctypes, os, sys, time
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
for step in range(100):
    n = sum(len(v) for v in ([1], [2], [3]))
    if step == 5 and jax.process_index() == 1:
        begin = time.monotonic()
        left = ctypes.CDLL(None).sleep(25) if "c" in sys.argv else time.sleep(25)
        print("slept", round(time.monotonic() - begin), flush=True)
        break
    if "close" in sys.argv and step == 0:
        os.closerange(200, 1000)
    time.sleep(0.01)
    if (step + 1) % 10 == 0:
        multihost_utils.sync_global_devices("ckpt")
multihost_utils.sync_global_devices("end")
"""


@pytest.mark.parametrize(
    "command",
    [
        "python -u ck.py",
        "python -u ck.py c",
        "python -u ck.py close",
        "sh -c 'python -u ck.py 2>err.$SLURM_PROCID'",
        "sh -c 'python -u ck.py 2>&1 | tee log.$SLURM_PROCID'",
    ],
    ids=["sleep", "sleep in C", "closes all", "file", "pipe"],
)
def test_the_task_that_keeps_others_waiting_is_named(cluster: Cluster, folder: str, command: str) -> None:
    """With the loop that it is in, whatever has turned last."""
    cluster.write(f"{folder}/ck.py", PROGRAM)
    done = cluster.run(f"cd {folder} && module load jax/sif && timeout 100 jaxsif run {TWO} -- {command}")
    told = done.stdout + done.stderr
    said = [line for line in told.splitlines() if "ck.py:9 " in line]
    assert said, told
    assert "iteration 5 of the loop at ck.py:5" in said[0], told
    assert "likely: task 1 is keeping the others waiting" in told, told
    assert "slept 25" in told, told  # nothing has ended it early
    assert "\x1e" not in told
    assert "\x1e" not in cluster.check(f"cd {folder} && cat err.* log.* 2>/dev/null; true")


def test_a_program_that_is_no_python_is_named_once(cluster: Cluster) -> None:
    done = cluster.run(f"module load jax/sif && jaxsif run {TWO} -- sleep 15")
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if line.startswith("jaxsif: ")]
    assert said == ["jaxsif: cannot watch tasks 0-1 for hangs: sleep is not Python"], done.stderr


def test_a_python_without_jax_is_not_named(cluster: Cluster) -> None:
    done = cluster.run(f"module load jax/sif && jaxsif run {TWO} -- python -c 'import time; time.sleep(12)'")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_loop_of_programs_of_all_shapes_in_the_image(cluster: Cluster, folder: str) -> None:
    """By the image's Python; tests/unit/task/test_loops.py has others."""
    cluster.write(f"{folder}/loop_shapes.py", SHAPES.read_text())
    run = "jaxsif run --nodes=1 --ntasks-per-node=1 -- python loop_shapes.py"
    loop_shapes.judge(json.loads(cluster.check(f"cd {folder} && module load jax/sif && {run}")))


# One task passes values around once more than the others, which sum.
AROUND = """\
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.distributed.initialize()
mesh = jax.make_mesh((3,), ("r",), axis_types=(jax.sharding.AxisType.Auto,))
spread = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("r"), out_specs=P("r")))
around = spread(lambda x: jax.lax.ppermute(x, "r", [(0, 1), (1, 2), (2, 0)]))
total = spread(lambda x: jax.lax.psum(x, "r") + x)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("r")), np.ones(1, np.float32), (3,))
for step in range(9):
    jax.block_until_ready((around(x), total(x)))
jax.process_index() == 1 and jax.block_until_ready(around(x))
jax.block_until_ready(total(x))
"""


def test_tasks_that_wait_in_different_collectives_are_ended(cluster: Cluster, folder: str) -> None:
    """While JAX wakes their main threads to handle signals."""
    cluster.write(f"{folder}/around.py", AROUND)
    options = "--nodes=1 --ntasks-per-node=3 --hang-timeout=3 --on-hang=stop"
    done = cluster.run(f"cd {folder} && module load jax/sif && timeout 100 jaxsif run {options} -- python around.py")
    assert done.returncode == 124, done.stderr
    assert "likely: task 1 is keeping the others waiting" in done.stderr
    assert re.search(
        r"task 1 on \w+ kept the others waiting for \d+ s: it is waiting in a collective; the run was ended\n"
        r"  from: around\.py:11 <module>; the others are at around\.py:12 <module>\n",
        done.stderr,
    ), done.stderr
