"""Compile, in every process, a program of its own and one over all; print results, and whether JAX's cache had both."""

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
jax.distributed.initialize()


def steps(x):
    for number in range(25):
        x = jnp.sin(x * 1.01 + number) + jnp.sort(x, axis=1)
    return x


ones = np.ones((jax.device_count(), 64), np.float32)
own = jax.jit(lambda x: (steps(x) * 0).sum())(ones[:1]) + jax.process_index()
sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ("x",)), PartitionSpec("x"))
shared = jax.make_array_from_callback(ones.shape, sharding, lambda index: ones[index])
everywhere = jax.jit(lambda x: (steps(x) * 0 + x).sum())(shared)
hits = events.count("/jax/compilation_cache/cache_hits")
print(f"Process {jax.process_index()}: {float(own):g} {float(everywhere):g} {'hits' if hits >= 2 else 'compiled'}")
