"""All tasks sum in a loop and write much on standard error; one of them rests for 8 s now and then."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
split = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
total = jax.jit(jnp.sum)
for turn in range(60):
    if turn % 20 == 10 and jax.process_index() == 1:
        time.sleep(8)
    sys.stderr.write(f"{'x' * 4000}\n")
    part = np.full(jax.local_device_count(), turn, np.float32)
    float(total(jax.make_array_from_process_local_data(split, part)))
    time.sleep(0.3)
