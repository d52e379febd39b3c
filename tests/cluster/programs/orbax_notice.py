"""Saves on preemption as Orbax documents it: orbax_notice.py FOLDER STEPS."""

import os
import pathlib
import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

folder, steps = pathlib.Path(sys.argv[1]).absolute(), int(sys.argv[2])
jax.distributed.initialize()
first = jax.process_index() == 0
state = {"value": np.ones(1, np.float32)}
with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(save_interval_steps=1000)) as manager:
    step = manager.latest_step() or 0
    if step:
        state = manager.restore(step, args=ocp.args.StandardRestore(state))
    print(f"start from {step} in run {os.environ.get('SLURM_RESTART_COUNT', '0')}", flush=True) if first else None
    while step < steps:
        parts = multihost_utils.process_allgather(state["value"] * np.float32(1.01) + np.float32(step))
        state = {"value": (parts.sum(0) / jax.process_count() * np.float32(0.5)).astype(np.float32)}
        step += 1
        time.sleep(0.2)
        manager.save(step, args=ocp.args.StandardSave(state))
        if manager.reached_preemption(step):
            manager.wait_until_finished()
            print(f"saved {step}", flush=True) if first else None
            sys.exit()
print(f"end {float(state['value'][0]).hex()} after {step}", flush=True) if first else None
