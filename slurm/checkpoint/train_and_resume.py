"""Training that writes checkpoints with Orbax, and goes on from the last one when it is started again.

It may go on with another number of processes or devices. SIGURG ends it after the next checkpoint. Process 0 prints
the loss at each checkpoint. At the end each process compares its part of the state with that of training without a
stop on one device, which it repeats alone.
"""

import argparse
import pathlib
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as ocp

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path, help="for the checkpoints; on a disk that all nodes share")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--every", type=int, default=50, help="steps from one checkpoint to the next")
args = parser.parse_args()

stopping = []
signal.signal(signal.SIGURG, lambda *_: stopping.append(True))
jax.config.update("jax_default_matmul_precision", "highest")  # on GPUs too, so that the end can be compared
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
by_rows, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
optimizer = optax.adam(1e-3)


def say(text):
    """Print, in process 0."""
    if jax.process_index() == 0:
        print(text, flush=True)


def is_shared(folder):
    """Whether all processes see what process 0 writes there. Orbax would wait ten minutes for files of the others."""
    mark = folder / f".shared-{multihost_utils.broadcast_one_to_all(np.int32(time.time()))}"
    if jax.process_index() == 0:
        mark.touch()
    multihost_utils.sync_global_devices("marked")
    seen = multihost_utils.process_allgather(np.array(mark.exists())).all()
    if jax.process_index() == 0:
        mark.unlink()
    return seen


def init():
    """The state before the first step: parameters, moments, and the random key, as numbers."""
    first, second, noise = jax.random.split(jax.random.key(0), 3)
    params = {
        "hidden": jax.random.normal(first, (64, 256)) / 8,
        "bias": jnp.zeros(256),
        "out": jax.random.normal(second, (256, 1)) / 16,
    }
    return params, optimizer.init(params), jax.random.key_data(noise)


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["hidden"] + params["bias"]) @ params["out"] - y) ** 2)


def update(state, x, y):
    """A step of training: the next state, and the loss before it."""
    params, moments, key = state
    key, now = jax.random.split(jax.random.wrap_key_data(key))
    noise = jax.random.normal(now, x.shape) / 100  # the same on any number of devices
    value, gradients = jax.value_and_grad(loss)(params, x + noise, y)
    changes, moments = optimizer.update(gradients, moments)
    return (optax.apply_updates(params, changes), moments, jax.random.key_data(key)), value


def rows(step):
    """The batch of a step, a matter of its number: so a checkpoint needs no more to know where the data goes on."""
    x = np.random.default_rng(step).normal(size=(128, 64)).astype(np.float32)
    return x, np.tanh(x[:, :1])


def batch(step):
    return [jax.make_array_from_callback(a.shape, by_rows, lambda at, a=a: a[at]) for a in rows(step)]


def sharded(leaf):
    """A part on each device where the rows can be shared equally, else all of it; as in fully sharded training."""
    equal = leaf.ndim > 0 and len(leaf) % jax.device_count() == 0
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=by_rows if equal else replicated)


args.folder.mkdir(parents=True, exist_ok=True)
if not is_shared(args.folder):
    sys.exit(f"the nodes do not share the folder {args.folder.absolute()}")

wanted = jax.tree.map(sharded, jax.eval_shape(init))  # of this run, whatever wrote the checkpoint
shardings = jax.tree.map(lambda leaf: leaf.sharding, wanted)
train = jax.jit(update, out_shardings=(shardings, replicated))
policy = ocp.training.preservation_policies.LatestN(3)
with ocp.training.Checkpointer(args.folder.absolute(), preservation_policy=policy) as checkpointer:
    # Process 0 decides: on a shared disk, others may not see the newest checkpoint yet.
    newest = checkpointer.latest.step if checkpointer.latest else 0
    step = int(multihost_utils.broadcast_one_to_all(np.int32(newest)))
    state = checkpointer.load(step, wanted) if step else jax.jit(init, out_shardings=shardings)()
    say(f"{jax.process_count()} process(es), {jax.device_count()} device(s), from step {step}")

    while step < args.steps:
        state, value = train(state, *batch(step))
        step += 1
        if step % args.every == 0 or step == args.steps:
            say(f"step {step}: loss {value:.9g}")
            checkpointer.save_async(step, state, force=True)  # writes while training goes on
            # All must stop at the same step: one that left alone would let the others wait.
            if multihost_utils.process_allgather(np.array(bool(stopping))).any():
                say(f"stopped after step {step}")
                break


def check(leaf, expected):
    """This process's part of the state is what one device computes without a stop, but for rounding."""
    for shard in leaf.addressable_shards:
        np.testing.assert_allclose(shard.data, expected[shard.index], rtol=1e-4, atol=1e-5)


alone, train_alone = init(), jax.jit(update)
for number in range(step):
    alone, _ = train_alone(alone, *rows(number))
jax.tree.map(check, state, alone)
print(f"Process {jax.process_index()} has the state of an uninterrupted run after step {step}")
