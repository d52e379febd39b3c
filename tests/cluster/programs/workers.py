"""All tasks sum in a loop; task 2 waits for a process of multiprocessing that was killed.

workers.py pool | process
"""

import multiprocessing
import os
import signal
import sys


def load(turn, results=None):
    if turn == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if results:
        results.put(turn)
    return turn


if __name__ == "__main__":  # workers import the script, and start sooner without JAX
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    context = multiprocessing.get_context("spawn")
    jax.distributed.initialize()
    split = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    total = jax.jit(jnp.sum)
    pool, results = context.Pool(2), context.Queue()
    for turn in range(1_000_000):
        if jax.process_index() == 2 and sys.argv[1] == "pool":
            pool.map(load, [turn])
        elif jax.process_index() == 2:
            context.Process(target=load, args=(turn, results)).start()
            results.get()
        part = np.full(jax.local_device_count(), turn, np.float32)
        total(jax.make_array_from_process_local_data(split, part)).block_until_ready()
