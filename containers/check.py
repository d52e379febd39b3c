"""The image's %test: the locked JAX is here and computes over two devices. Argument: the version of JAX."""

import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

if jax.__version__ != sys.argv[1]:
    sys.exit(f"JAX {jax.__version__} is installed, {sys.argv[1]} is locked")
mesh = jax.make_mesh((jax.device_count(),), ("i",))
numbers = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("i")))
total = jax.jit(jnp.sum)(numbers)
if total != 28.0 or jax.device_count() != 2:
    sys.exit(f"sum of 0…7 over {jax.device_count()} devices: {total}")
