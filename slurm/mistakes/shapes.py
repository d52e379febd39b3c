"""The processes' batches differ in size: the rows of a data set are not a multiple of the processes.

    python shapes.py            the mistake: each process computes another mean, and nothing fails
    python shapes.py --gather   the mistake where rows travel: the transport ends processes
    python shapes.py --check    the mistake noticed: the process that differs from process 0 fails, with its shape
    python shapes.py --right    the cure: rows of zeros until all have as many, and a weight for each row

Each process prints 'Process p: mean M of N rows'.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
for option in ("--gather", "--check", "--right"):
    parser.add_argument(option, action="store_true")
arguments = parser.parse_args()

jax.distributed.initialize()
process, processes = jax.process_index(), jax.process_count()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
rows_of_data, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

# The last process has half as many rows as the others. Row i of the data set holds the number i.
usual = 2 * jax.local_device_count()
count = usual if process < processes - 1 else usual // 2
batch = np.arange(process * usual, process * usual + count, dtype=np.float32)

if arguments.check:
    multihost_utils.assert_equal(np.array(batch.shape), "the shapes of the batches differ")

if arguments.right:
    most = int(np.max(multihost_utils.process_allgather(np.array(count))))
    shape = (most * processes,)
    weights = np.pad(np.ones(count, np.float32), (0, most - count))
    x = jax.make_array_from_process_local_data(rows_of_data, np.pad(batch, (0, most - count)), shape)
    w = jax.make_array_from_process_local_data(rows_of_data, weights, shape)
    mean = jax.jit(lambda x, w: (x * w).sum() / w.sum())(x, w)
    total = usual * (processes - 1) + usual // 2
    assert mean == np.arange(total).mean()
    print(f"Process {process}: mean {mean} of {total} rows")
else:
    # Without the shape of the whole array, JAX takes it for granted that all processes have as many rows as this one.
    x = jax.make_array_from_process_local_data(rows_of_data, batch)
    if arguments.gather:
        x = jax.jit(lambda x: x, out_shardings=everywhere)(x)
    print(f"Process {process}: mean {jax.jit(jnp.mean)(x)} of {len(x)} rows")
