"""One array over the devices of all processes, made in three ways, from what each process has in its memory.

Each way gives the same array, which is compared with NumPy's. Process 0 prints a line for each: what it held in
memory for it, and the seconds that it took.
"""

import time

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()

mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, P("data"))  # rows are split over the devices, columns are not
shape = (1024 * jax.device_count(), 256)


def read(first: int, end: int) -> np.ndarray:
    """Rows of the data set; from a file, in earnest."""
    return np.arange(first * shape[1], end * shape[1], dtype=np.float32).reshape(-1, shape[1])


def from_full_array() -> tuple[jax.Array, int]:
    """Each process has all the rows. The simplest; JAX also compares them between the processes, which takes time."""
    rows = read(0, shape[0])
    return jax.device_put(rows, sharding), len(rows)


def from_local_rows() -> tuple[jax.Array, int]:
    """Each process has the rows of its own devices. The way for data; always give the shape of the whole array."""
    count = shape[0] // jax.process_count()
    rows = read(jax.process_index() * count, (jax.process_index() + 1) * count)
    return jax.make_array_from_process_local_data(sharding, rows, shape), len(rows)


def from_one_array_per_device() -> tuple[jax.Array, int]:
    """Each process fills its devices one by one. For what is on them already, or is read device by device."""
    parts = []
    for device, (rows, _) in sharding.addressable_devices_indices_map(shape).items():
        first, end, _ = rows.indices(shape[0])
        parts.append(jax.device_put(read(first, end), device))
    return jax.make_array_from_single_device_arrays(shape, sharding, parts), sum(len(part) for part in parts)


expected = read(0, shape[0])
arrays = []
for make in (from_full_array, from_local_rows, from_one_array_per_device):
    jax.block_until_ready(make())  # JAX prepares what it needs
    begin = time.perf_counter()
    array, rows = make()
    array.block_until_ready()
    seconds = time.perf_counter() - begin
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, expected[shard.index])
    arrays.append(array)
    if jax.process_index() == 0:
        print(f"{make.__name__}: {rows} of {shape[0]} rows in memory, {1000 * seconds:.1f} ms")

equal = jax.jit(lambda a, b, c: ((a == b) & (b == c)).all())(*arrays)
assert equal, "the three arrays differ"
print(f"Process {jax.process_index()}: all equal")
