"""All tasks sum in a loop of a thread, while the main thread waits for it; task 2 sleeps in iteration 30.

threads.py thread | to_thread | executor

threads.py lock: in all tasks, the main thread waits for a lock of a loader, which waits for a place in its full queue.
"""

import asyncio
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
split = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
total = jax.jit(jnp.sum)


def step(turn):
    if turn == 30 and jax.process_index() == 2:
        time.sleep(1000)
    part = np.full(jax.local_device_count(), turn, np.float32)
    return float(total(jax.make_array_from_process_local_data(split, part)))


def train():
    for turn in range(1_000_000):
        step(turn)
        time.sleep(0.05)


def load(batches, lock):
    while True:
        with lock:
            batches.put(1)


async def steps():
    for turn in range(1_000_000):
        await asyncio.to_thread(step, turn)
        await asyncio.sleep(0.05)


if sys.argv[1] == "thread":
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
elif sys.argv[1] == "lock":
    batches, lock = queue.Queue(4), threading.Lock()
    threading.Thread(target=load, args=(batches, lock), daemon=True).start()
    for _ in range(20):
        with lock:
            step(batches.get())
elif sys.argv[1] == "to_thread":
    asyncio.run(steps())
else:
    with ThreadPoolExecutor(1) as pool:
        for turn in range(1_000_000):
            pool.submit(step, turn).result()
            time.sleep(0.05)
