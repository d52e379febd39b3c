"""Four ways of loading the global batches of data parallelism from NumPy files, in a folder that make_data.py made.

Checks that the four give the same batches, and that the sums over an epoch are NumPy's over the whole files. Process 0
prints for each way how long an epoch took and how many rows it read; then each process prints the mean that it saw.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from loader import Loader, prefetch

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--batch-size", type=int, default=1024)  # rows of a global batch
args = parser.parse_args()

jax.distributed.initialize()
devices = jax.device_count()
assert args.batch_size % devices == 0, f"--batch-size is no multiple of the {devices} devices"
mesh = jax.make_mesh((devices,), ("data",), axis_types=(AxisType.Auto,))
by_rows = NamedSharding(mesh, PartitionSpec("data"))  # each device has an equal part of each array's rows
replicated = NamedSharding(mesh, PartitionSpec())


def mine(length):
    """Which of `length` rows the devices of this process have: for each device, their numbers."""
    return {device: np.arange(length)[at] for device, at in by_rows.addressable_devices_indices_map((length,)).items()}


def global_data(loader, step):
    """Each process loads the whole batch, and its devices take their rows.

    The simplest way, for data that is small. jax.device_put would do it too, but it first compares the batches of all
    processes, over the network.
    """
    return jax.tree.map(
        lambda whole: jax.make_array_from_callback(whole.shape, by_rows, lambda at: whole[at]), loader.load(step)
    )


def per_device(loader, step):
    """Each process loads for each of its devices: only what is needed, in several reads."""
    parts = [jax.device_put(loader.load(step, rows), device) for device, rows in mine(loader.batch_size).items()]

    def join(*arrays):
        shape = (loader.batch_size, *arrays[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, by_rows, arrays)

    return jax.tree.map(join, *parts)


def per_process(loader, step):
    """Each process loads the rows of all its devices at once: only what is needed, in one read. Mostly the best."""
    rows = np.sort(np.concatenate([*mine(loader.batch_size).values()]))
    return to_global(loader.load(step, rows), loader.batch_size)


def load_and_reshard(loader, step):
    """Each process loads what is at hand, and `deal` brings it into order on the devices.

    Here the rows are dealt like cards, to each device in turn, as readers of a common queue get them. The arrays have
    an axis of devices before that of the rows of each.
    """
    hands = np.sort(np.concatenate([*mine(devices).values()]))
    positions = np.arange(loader.batch_size).reshape(-1, devices).T[hands]  # device d has d, d + devices, ...
    local = loader.load(step, positions.ravel())
    return to_global(jax.tree.map(lambda x: x.reshape(*positions.shape, *x.shape[1:]), local), devices)


def to_global(local, length):
    """Arrays of `length` rows over all processes, of the rows of each process."""
    shapes = {name: (length, *array.shape[1:]) for name, array in local.items()}
    return {name: jax.make_array_from_process_local_data(by_rows, local[name], shapes[name]) for name in local}


@jax.jit
def deal(batch):
    """The rows in the order of the global batch, each where it belongs: an all-to-all between the devices."""
    ordered = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), batch)
    return jax.lax.with_sharding_constraint(ordered, by_rows)


@functools.partial(jax.jit, out_shardings=replicated)
def add(total, batch):
    """What a training step does with a batch: rows of weight 0 count for nothing."""
    weight = batch["weight"]
    return {
        "rows": total["rows"] + weight.sum(dtype=int),
        "labels": total["labels"] + (weight * batch["labels"]).sum(dtype=int),
        "features": total["features"] + (weight[:, None] * batch["features"]).sum(0),
    }


@jax.jit
def equal(one, other):
    return jax.tree.reduce(jnp.logical_and, jax.tree.map(jnp.array_equal, one, other))


def epoch(way, loader, number):
    """The global batches of an epoch, by its number."""
    first = number * loader.steps_per_epoch
    for batch in prefetch(functools.partial(way, loader), range(first, first + loader.steps_per_epoch)):
        yield deal(batch) if way is load_and_reshard else batch


def check_sums(way, loader, number):
    """Add up an epoch: each row counts once, so the sums are NumPy's over the whole files. Return the mean."""
    total = {"rows": 0, "labels": 0, "features": 0.0}
    for batch in epoch(way, loader, number):
        total = add(total, batch)
    total, features = jax.device_get(total), loader.arrays["features"]
    assert total["rows"] == len(features)
    assert total["labels"] == loader.arrays["labels"].sum()
    np.testing.assert_allclose(total["features"], features.sum(0, np.float64), rtol=1e-5)
    return total["features"].sum() / features.size


for way in (global_data, per_device, per_process, load_and_reshard):
    loader = Loader(args.folder, args.batch_size)
    for batch, whole in zip(epoch(way, loader, 0), epoch(global_data, loader, 0), strict=True):
        assert equal(batch, whole), f"{way.__name__} gives other batches than {global_data.__name__}"
    check_sums(way, loader, 0)  # compiles, too
    loader.rows_read, begin = 0, time.perf_counter()
    mean = check_sums(way, loader, 1)
    seconds = time.perf_counter() - begin
    if jax.process_index() == 0:
        steps, read = loader.steps_per_epoch, loader.rows_read
        print(f"{way.__name__}: an epoch of {steps} batches in {seconds:.3f} s, process 0 read {read} rows")

print(f"Process {jax.process_index()} saw {loader.rows} rows in each way, their mean is {mean:.5f}")
