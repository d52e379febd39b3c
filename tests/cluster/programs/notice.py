"""Counts with all processes, and saves when the job is about to end, by JAX's own means or by Orbax.

notice.py FOLDER STEPS [--orbax] [--slow SECONDS]: the state after all steps is the same however often it is started.
"""

import argparse
import os
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("steps", type=int)
parser.add_argument("--every", type=int, default=1000, help="steps from one checkpoint to the next")
parser.add_argument("--slow", type=float, default=0.2, help="seconds of a step")
parser.add_argument("--evaluate", type=float, default=0, help="seconds of an evaluation, after the third step")
parser.add_argument(
    "--compile", type=int, default=0, help="operations of a program that is compiled after the third step"
)
args = parser.parse_args()

jax.distributed.initialize()
first = jax.process_index() == 0
args.folder.mkdir(exist_ok=True)
saved = [int(path.name[5:-4]) for path in args.folder.glob("step_*.npy")] if first else []
step = int(multihost_utils.broadcast_one_to_all(np.int32(max(saved, default=0))))
state = np.load(args.folder / f"step_{step}.npy") if step else np.float32(1)
print(f"start from {step} in run {os.environ.get('SLURM_RESTART_COUNT', '0')}", flush=True) if first else None


def add_up(value):
    return multihost_utils.process_allgather(np.float32(value)).sum() / jax.process_count()


def save():
    multihost_utils.sync_global_devices("save")
    if first:
        path = args.folder / f"step_{step}.npy"
        np.save(args.folder / "tmp.npy", state)
        os.rename(args.folder / "tmp.npy", path)
        print(f"saved {step}", flush=True)


while step < args.steps:
    state = np.float32(add_up(state * np.float32(1.01) + np.float32(step)) * np.float32(0.5))
    step += 1
    time.sleep(args.slow)
    if step == 3 and args.evaluate:
        time.sleep(args.evaluate)
    if step == 3 and args.compile:
        x = jnp.ones(4)
        jax.jit(lambda x: [x := jnp.sin(x) * 2 for _ in range(args.compile)][-1])(x).block_until_ready()
    if multihost_utils.reached_preemption_sync_point(step):
        save()
        sys.exit()
    if step % args.every == 0:
        save()
print(f"end {float(state).hex()} after {step}", flush=True) if first else None
