"""The processes sum in a loop; one of them fails in the way that the argument names, while the others wait for it."""

import ctypes
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp

kind, culprit = sys.argv[1], int(sys.argv[2])
if kind == "absent" and os.environ["SLURM_PROCID"] == str(culprit):
    sys.exit(0)
jax.distributed.initialize()
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
step = 0
while True:
    total(jnp.ones(jax.local_device_count())).block_until_ready()
    step += 1
    if step == 3 and jax.process_index() == culprit:
        print(f"process {culprit} fails at {time.time()}", flush=True)
        if kind == "raise":
            raise ValueError("boom, at step 3")
        if kind == "exit":
            sys.exit(3)
        if kind == "end":
            sys.exit(0)
        if kind == "leave":
            os._exit(0)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "segv":
            ctypes.string_at(0)
        if kind == "stay":
            time.sleep(600)
    if step == 3:
        print(f"process {jax.process_index()} computes", flush=True)
