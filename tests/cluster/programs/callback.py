"""A callback that JAX calls raises an exception; the argument says which kind of callback it is."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback


def fail(_):
    raise ValueError("in the callback")


def program(x):
    if sys.argv[1] == "io":
        io_callback(fail, None, x)
        return x
    return jax.pure_callback(fail, jax.ShapeDtypeStruct((), np.float32), x)


jax.block_until_ready(jax.jit(program)(jnp.float32(1)))
jax.effects_barrier()
