"""The program tells JAX all that it would find: address, number of processes, own number, devices, timeouts.

For images and launchers of other kinds, and to see what `initialize()` does. Each process prints
'Process p of N on NODE: local devices 2 3 of 0-3', as automatic.py does; process 0 prints the address first.
"""

import os
import platform
import re

import jax


def coordinator_address() -> str:
    """Where process 0 listens: all processes must compute the same.

    `jaxsif run` has drawn a port that is free on the first node. Otherwise it is computed, as JAX does, but from the
    step's number too: two steps of a job would meet at one port. Above 60999 no outgoing connection of Linux has it.
    """
    given = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if given:
        return given
    nodes = os.environ["SLURM_STEP_NODELIST"]  # such as rack[1-2]n[07,09-12],login
    first = re.sub(r"\[(\w+)[^]]*\]", r"\1", nodes).split(",")[0]
    port = 61000 + (int(os.environ["SLURM_JOB_ID"]) + 7 * int(os.environ["SLURM_STEP_ID"])) % 4500
    return f"{first}:{port}"


def local_device_ids() -> list[int]:
    """This process's GPUs, as places in CUDA_VISIBLE_DEVICES: with CUDA_VISIBLE_DEVICES=6,7 they are 0 and 1.

    Unless told, JAX takes the place SLURM_LOCALID alone: one GPU of several, or one that is not there.
    """
    given = os.environ.get("JAX_LOCAL_DEVICE_IDS")  # by `jaxsif run`, and by its images
    if given:
        return [int(place) for place in given.split(",")]
    visible = len(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))
    if visible < int(os.environ.get("SLURM_GPUS_ON_NODE", visible)):
        return list(range(visible))  # Slurm has bound this task to its own GPUs, and shows it no others
    tasks = len(os.environ["SLURM_GTIDS"].split(","))  # of this node
    share = visible // tasks
    first = share * int(os.environ["SLURM_LOCALID"])
    return list(range(first, first + share))


address = coordinator_address()
jax.distributed.initialize(
    coordinator_address=address,
    num_processes=int(os.environ["SLURM_NTASKS"]),
    process_id=int(os.environ["SLURM_PROCID"]),
    local_device_ids=local_device_ids(),  # GPUs; for CPU devices JAX has no choice to make
    initialization_timeout=120,  # seconds; 300 by default: a process that never comes
    heartbeat_timeout_seconds=60,  # 100: one that dies without a word
    shutdown_timeout_seconds=120,  # 300: one that does not come to the end
)

if jax.process_index() == 0:
    print(f"The coordinator is {address}")
everywhere = jax.devices()
local = [everywhere.index(device) for device in jax.local_devices()]
print(
    f"Process {jax.process_index()} of {jax.process_count()} on {platform.node()}: "
    f"local devices {' '.join(map(str, local))} of 0-{len(everywhere) - 1}"
)
