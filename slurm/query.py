"""One process per GPU: each prints 'Process p of N on NODE: L local devices, G global devices'."""

import platform

import jax

jax.distributed.initialize()

local, everywhere = jax.local_device_count(), jax.device_count()
print(
    f"Process {jax.process_index()} of {jax.process_count()} on {platform.node()}: "
    f"{local} local device{'s' * (local != 1)}, {everywhere} global device{'s' * (everywhere != 1)}"
)
