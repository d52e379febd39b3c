"""One process computes something that the others skip: process 0 logs a mean of an array that spans all processes.

    python skip.py           the mistake: process 0's mean meets the others' next step, and each gets the other's number
    python skip.py --right   the cure: all processes compute, and process 0 prints

Each process prints 'Process p: sums ...', of which the right ones are 0 N 2N 3N for N devices.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
parser.add_argument("--right", action="store_true")
arguments = parser.parse_args()

jax.distributed.initialize()
process = jax.process_index()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, P("data"))
total, mean = jax.jit(jnp.sum), jax.jit(jnp.mean)

sums = []
for step in range(4):
    batch = np.full(jax.local_device_count(), step, np.float32)
    array = jax.make_array_from_process_local_data(sharding, batch, (jax.device_count(),))
    sums.append(int(total(array)))
    if arguments.right or process == 0:
        value = mean(array)
    if process == 0:
        print(f"step {step}: mean {value}", flush=True)
print(f"Process {process}: sums {' '.join(map(str, sums))}", flush=True)
