"""Dispatch runs ahead of the devices, and one task goes wrong; process 0 may save.

    ahead.py KIND SAVES SEED

KIND: sleep, end, ahead (leaves out a barrier), behind (waits where no other does), skip (leaves out a sum: then nothing
tells who has). SAVES: save, no. Task 0 is never the one. It writes its number and the iteration into odd.json.
"""

import json
import random
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

kind, saves, seed = sys.argv[1], sys.argv[2] == "save", int(sys.argv[3])
jax.distributed.initialize()
drawn = random.Random(seed)
process = jax.process_index()
odd, at = drawn.randrange(1, jax.process_count()), drawn.randrange(11, 39)
mesh = jax.make_mesh((jax.device_count(),), ("d",))
split, whole = NamedSharding(mesh, PartitionSpec("d")), NamedSharding(mesh, PartitionSpec())
parameters = jax.device_put(np.ones((256, 256), np.float32), whole)


@jax.jit
def step(parameters, x):
    return parameters + jnp.sum(x @ parameters) * 1e-6


def save(parameters):
    np.save("parameters.npy", np.asarray(parameters))


def note(turn):
    with open("odd.json", "w") as file:
        json.dump({"task": process, "turn": turn}, file)


for turn in range(100):
    if turn == at and process == odd:
        note(turn)
        if kind == "sleep":
            time.sleep(1000)
        if kind == "end":
            sys.exit()
        if kind == "behind":
            multihost_utils.sync_global_devices("of one task")
        if kind == "skip":
            continue
    x = jax.make_array_from_process_local_data(split, np.ones((jax.local_device_count(), 256), np.float32))
    parameters = step(parameters, x)
    if (turn + 1) % 10 == 0 and not (kind == "ahead" and process == odd and turn in range(at, at + 10)):
        if saves and process == 0:
            save(parameters)
        multihost_utils.sync_global_devices(f"step {turn}")
