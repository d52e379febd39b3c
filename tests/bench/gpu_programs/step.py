"""Multiply matrices step by step: print the size at which a step takes 1 ms, or the mean time of a step.

step.py              print the size
step.py SIZE STEPS   print the seconds of a step of this size
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

SECONDS = 1e-3  # of a step


def measure(size, steps):
    """Return the mean seconds of a step, each of which is waited for."""
    step = jax.jit(lambda x: x @ x / size)
    x = jax.block_until_ready(step(jnp.ones((size, size))))
    begin = time.perf_counter()
    for _ in range(steps):
        x = jax.block_until_ready(step(x))
    return (time.perf_counter() - begin) / steps


def find_size():
    """Return the size of a step of SECONDS, to a quarter."""
    size = 256
    for _ in range(8):
        ratio = SECONDS / measure(size, 100)
        if 0.8 < ratio < 1.25:
            break
        size = max(64, round(size * ratio ** (1 / 3) / 32) * 32)
    return size


found = {"seconds": measure(*map(int, sys.argv[1:]))} if sys.argv[1:] else {"size": find_size()}
print(json.dumps({**found, "platform": jax.default_backend()}))
