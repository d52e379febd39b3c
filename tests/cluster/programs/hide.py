"""The processes sum in a loop; process 2 fails while something hides that, which the argument names."""

import os
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp

SLURM_SAYS = f"""\
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP {os.environ["SLURM_JOB_ID"]}.0 ON node1 CANCELLED AT 2026-11-22T10:39:36 ***
"""


def hide(kind: str) -> None:
    """Do what hides the failure that follows."""
    if kind == "threads":
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if kind == "output":
        for _ in range(1000):
            os.write(2, b"step 3 took 0.123 s: loss 0.4567\n" * 3000)
    if kind == "child":
        subprocess.Popen(["sleep", "300"])
    if kind == "daemon":
        subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 301 & wait"], start_new_session=True)
    if kind == "text":
        sys.stderr.write(SLURM_SAYS)


jax.distributed.initialize()
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
for step in range(1000):
    total(jnp.ones(jax.local_device_count())).block_until_ready()
    if step == 3 and jax.process_index() == 2:
        hide(sys.argv[1])
        print(f"fails at {time.time()}", flush=True)
        raise ValueError("boom, at step 3")
    time.sleep(0.01)
