"""A matrix split over some devices and repeated on others, drawn: which devices have which part.

The devices are a table with two axes, 'data' and 'model'. Process 0 draws five ways to lay the matrix out on them. The
numbers are places in `jax.devices()`; those of process 0 stand in brackets.
"""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()

devices = jax.devices()
columns = 2 if len(devices) % 2 == 0 else 1
mesh = jax.make_mesh((len(devices) // columns, columns), ("data", "model"))
matrix = np.arange(8.0 * len(devices) ** 2, dtype=np.float32).reshape(4 * len(devices), 2 * len(devices))


def draw(array: jax.Array) -> str:
    """A line for each row of blocks; in each block, the devices that have it."""
    blocks: dict[int, dict[int, list[str]]] = {}
    for device, (rows, columns) in array.sharding.devices_indices_map(array.shape).items():
        place = f"[{devices.index(device)}]" if device.process_index == 0 else f"{devices.index(device)}"
        blocks.setdefault(rows.start or 0, {}).setdefault(columns.start or 0, []).append(place)
    return "\n".join(f"  | {' | '.join(map(' '.join, row.values()))} |" for row in blocks.values())


def show(name: str, array: jax.Array) -> None:
    """Check what this process has of the matrix; process 0 prints how it is laid out."""
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, matrix[shard.index])
    if jax.process_index() == 0:
        addressable, replicated = array.is_fully_addressable, array.is_fully_replicated
        print(f"{name}: fully addressable {addressable}, fully replicated {replicated}", draw(array), sep="\n")


show("one device of each process", jax.device_put(matrix))
for spec in (P("data", "model"), P("data"), P(None, "model"), P()):
    # From the same matrix in all processes; jax.device_put would compare their copies first.
    array = jax.make_array_from_callback(matrix.shape, NamedSharding(mesh, spec), lambda index: matrix[index])
    show(str(spec), array)
np.testing.assert_array_equal(array, matrix)  # what is replicated, NumPy can read whole
