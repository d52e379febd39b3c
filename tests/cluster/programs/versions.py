"""Two processes sum with this JAX, which process 0 names; process 1 compiles another program, and is late once."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))


@jax.jit
def other(value):
    return jnp.sum(value) * 2


def total(function, value):
    part = np.full(jax.local_device_count(), value, np.float32)
    return float(function(jax.make_array_from_process_local_data(sharding, part, (jax.device_count(),))))


found = [total(jnp.sum, 1) for turn in range(100)]
total(other if jax.process_index() else jnp.sum, 1)
if jax.process_index():
    time.sleep(15)  # two looks fit
multihost_utils.sync_global_devices("late")
begin = time.monotonic()
while time.monotonic() < begin + 2:  # as long as it takes to see that both go on
    np.ones((99, 99)).sum()
if jax.process_index() == 0:
    print(jax.__version__, found[-1])
