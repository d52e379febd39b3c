"""JAX finds its processes: `jax.distributed.initialize()` without arguments.

In a Slurm step JAX reads how many processes there are and which one this is. Each process prints
'Process p of N on NODE: local devices 2 3 of 0-3', with the places of its devices in `jax.devices()`.
"""

import platform

import jax

# Before anything else of JAX: what asks for devices first would see this process's own, and no others.
jax.distributed.initialize()

everywhere = jax.devices()
local = [everywhere.index(device) for device in jax.local_devices()]
print(
    f"Process {jax.process_index()} of {jax.process_count()} on {platform.node()}: "
    f"local devices {' '.join(map(str, local))} of 0-{len(everywhere) - 1}"
)
