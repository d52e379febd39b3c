"""One line of JSON for this process: where it is, and which GPUs and CPUs it has."""

import json
import os
import sys

visible = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu.isdecimal()]
ids = os.environ.get("JAX_LOCAL_DEVICE_IDS", "") if visible else ""
found = {
    "process": int(os.environ["SLURM_PROCID"]),
    "ntasks": int(os.environ["SLURM_NTASKS"]),
    "node": os.environ["SLURMD_NODENAME"],
    "task": int(os.environ["SLURM_LOCALID"]),
    "gpus": [int(visible[int(index)]) for index in ids.split(",") if index],
    "on_node": int(os.environ.get("SLURM_GPUS_ON_NODE", "0")),
    "devices": os.environ.get("JAX_NUM_CPU_DEVICES"),
    "cpus": os.environ.get("SLURM_CPUS_PER_TASK") or os.environ["SLURM_CPUS_ON_NODE"] + " shared",
    "memory": os.environ.get("XLA_CLIENT_MEM_FRACTION"),
}
sys.stdout.write(json.dumps(found) + "\n")  # one write: lines of several processes never mix
