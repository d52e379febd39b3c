"""Four processes sum in a loop; one of them fails in the way that the argument names. The others wait for it."""

import ctypes
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp

kind, culprit = sys.argv[1], int(sys.argv[2])
jax.distributed.initialize()
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
for step in range(1000):
    total(jnp.ones(jax.local_device_count())).block_until_ready()
    if step == 3:
        print(f"process {jax.process_index()} has done 3 steps", flush=True)
        if jax.process_index() == culprit:
            if kind == "raise":
                raise ValueError("boom, at step 3")
            if kind == "exit":
                sys.exit(3)
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "segv":
                ctypes.string_at(0)
            if kind == "sleep":
                time.sleep(1000)
