"""How to get values back from an array that spans processes, five ways; each is checked against NumPy.

Process 0 prints a line for each.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()

mesh = jax.make_mesh((jax.device_count(),), ("data",))
expected = np.arange(2.0 * jax.device_count(), dtype=np.float32)
array = jax.make_array_from_callback(expected.shape, NamedSharding(mesh, P("data")), lambda index: expected[index])


def show(text: str) -> None:
    if jax.process_index() == 0:
        print(text)


# A mean, a loss: computed by all processes together, small, and the same in each of them. What a program mostly needs.
mean = jax.jit(jnp.mean)(array)
assert float(mean) == expected.mean()
show(f"a result that is replicated: {mean}")

# This process's part: nothing travels. A shard for each of its devices, with the part of the array that it is.
for shard in array.addressable_shards:
    np.testing.assert_array_equal(shard.data, expected[shard.index])
show(f"the shards of a process: {' '.join(str(shard.data) for shard in array.addressable_shards)}")

# All of it, in the memory of each process. All of them must call this, also those that want nothing.
everything = multihost_utils.process_allgather(array, tiled=True)
np.testing.assert_array_equal(everything, expected)
show(f"all of it, gathered: {everything.size} values up to {everything.max()}")

# What is not in JAX yet, such as a time or a count: a row from each process.
counts = np.reshape(multihost_utils.process_allgather(np.array([jax.process_index()])), -1)
np.testing.assert_array_equal(counts, np.arange(jax.process_count()))
show(f"a number from each process: {counts}")

# What does not work, because the other processes' devices cannot be reached from here.
try:
    np.asarray(array)
    assert array.is_fully_addressable
except RuntimeError as error:
    assert not array.is_fully_addressable
    show(f"np.asarray: {str(error).split('. ')[0]}")
