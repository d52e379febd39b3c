"""One process leaves the loop earlier than the others: it had fewer batches.

    python leave_early.py           the mistake: the others wait in the next step, and it waits for them at the end
    python leave_early.py --right   the cure: before the loop, all agree on the number of steps

Each process prints 'Process p: N steps'.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
parser.add_argument("--right", action="store_true")
arguments = parser.parse_args()

jax.distributed.initialize()
process, processes = jax.process_index(), jax.process_count()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, P("data"))
total = jax.jit(jnp.sum)

steps = 5 if process < processes - 1 else 3  # batches that this process has
if arguments.right:
    steps = int(np.min(multihost_utils.process_allgather(np.array(steps))))
for step in range(steps):
    batch = np.full(jax.local_device_count(), step, np.float32)
    array = jax.make_array_from_process_local_data(sharding, batch, (jax.device_count(),))
    assert total(array) == step * jax.device_count()
print(f"Process {process}: {steps} steps", flush=True)
