"""one_device.py on the devices of all processes: each reads its part of the batches. Process 0 prints the losses."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

BATCH, STEPS = 1024, 100


def read(first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the data: points, and the values to learn; from a file, in earnest."""
    x = np.random.default_rng(0).uniform(-1, 1, (BATCH * 8, 2)).astype(np.float32)[first:end]
    return x, np.sin(3 * x[:, :1]) * x[:, 1:]


def start(width: int = 64) -> list[jax.Array]:
    a, b = jax.random.split(jax.random.key(0))
    return [
        jax.random.normal(a, (2, width)),
        jnp.zeros(width),
        jax.random.normal(b, (width, 1)) / width**0.5,
        jnp.zeros(1),
    ]


def loss(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    a, b, c, d = params
    return jnp.mean((jnp.tanh(x @ a + b) @ c + d - y) ** 2)


@jax.jit
def train(params: list[jax.Array], x: jax.Array, y: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    value, slopes = jax.value_and_grad(loss)(params, x, y)
    return [param - 0.1 * slope for param, slope in zip(params, slopes)], value


params = jax.device_put(start(), everywhere)
share = BATCH // jax.process_count()
for step in range(1, STEPS + 1):
    first = BATCH * (step % 8) + share * jax.process_index()
    local = read(first, first + share)
    x, y = (jax.make_array_from_process_local_data(split, part, (BATCH, part.shape[1])) for part in local)
    params, value = train(params, x, y)
    if step % 25 == 0 and jax.process_index() == 0:
        print(f"step {step}: loss {value:.5f}")
