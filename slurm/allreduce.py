"""The sum of one number per process, over all processes: prints 'Process p has y=[N.]' for N devices in all."""

import jax
import jax.numpy as jnp

jax.distributed.initialize()

ones = jnp.ones(jax.local_device_count())
y = jax.pmap(lambda x: jax.lax.psum(x, axis_name="devices"), axis_name="devices")(ones)
print(f"Process {jax.process_index()} has y={y}")
