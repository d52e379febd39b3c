"""Several GPUs per process: each prints 'Process p of N on NODE: L local devices, G global devices'."""

import os
import platform

import jax

# Otherwise JAX may give each process of a Slurm job one device only. The ids count the devices that the process sees,
# which CUDA_VISIBLE_DEVICES lists under whatever names: with CUDA_VISIBLE_DEVICES=2,3 they are 0 and 1.
ids = os.environ.get("JAX_LOCAL_DEVICE_IDS")
if ids:
    local_device_ids = [int(i) for i in ids.split(",")]
else:
    local_device_ids = list(range(len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))))
jax.distributed.initialize(local_device_ids=local_device_ids)

local, everywhere = jax.local_device_count(), jax.device_count()
print(
    f"Process {jax.process_index()} of {jax.process_count()} on {platform.node()}: "
    f"{local} local device{'s' * (local != 1)}, {everywhere} global device{'s' * (everywhere != 1)}"
)
