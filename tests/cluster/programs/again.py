"""All tasks sum in a loop and resume from the last checkpoint; in the first starts, one task fails.

    again.py FOLDER FAULT [--starts N] [--at STEP] [--task TASK] [--seed SEED]

FAULT is a row of FAULTS below. It happens in the first N starts (1), at a step and in a task that are drawn with the
seed unless they are given. A line `start K from step S` tells each start, `went on TIME` its first step, `fails TIME`
the fault, and `end BYTES` the final state to the bit.
"""

import argparse
import os
import pathlib
import random
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("fault")
parser.add_argument("--starts", type=int, default=1, help="with the fault")
parser.add_argument("--at", type=int, help="the step of the fault")
parser.add_argument("--later", action="store_true", help="--at counts from the first step of the start")
parser.add_argument("--grow", type=int, default=0, help="add this to --at with each start")
parser.add_argument("--task", type=int)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--every", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def fail():
    raise ValueError(f"shapes {time.time_ns()} and 4 differ at {id(parser):#x}")


def fill_disk():
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"checkpoint")


def read_slowly():
    """Read a little, for longer than ten timeouts."""
    end = time.monotonic() + float(os.environ["SLOW"])
    while time.monotonic() < end:
        with open("/dev/zero", "rb") as file:
            file.read(1 << 20)
        time.sleep(0.2)


def hoard():
    """Take 2 GB, and keep them until somebody objects."""
    held = np.ones(1 << 28)
    time.sleep(60)
    held.sum()


FAULTS = {
    "none": lambda: None,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(9)),  # it takes two seconds
    "bus": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "error": fail,
    "memory": lambda: np.ones(1 << 50),
    "hoard": hoard,
    "disk": fill_disk,
    "sleep": lambda: time.sleep(1000),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "slow": read_slowly,
}

jax.distributed.initialize()
process, count = jax.process_index(), jax.process_count()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
by_rows = NamedSharding(mesh, PartitionSpec("data"))


def decide():
    """The number of this start, and the step of the newest checkpoint: process 0 decides."""
    numbers = np.zeros(2, np.int32)
    if process == 0:
        before = len(list(args.folder.glob("start-*")))
        (args.folder / f"start-{before}").touch()
        steps = [int(path.stem.partition("_")[2]) for path in args.folder.glob("checkpoints/step_*.npy")]
        numbers[:] = before, max(steps, default=0)
    return [int(number) for number in multihost_utils.broadcast_one_to_all(numbers)]


def save(step, state):
    """Commit a checkpoint once all tasks have come so far."""
    multihost_utils.sync_global_devices(f"save {step}")
    if process == 0:
        partial = args.folder / f"checkpoints/.step_{step}.npy"
        np.save(partial.open("wb"), state)
        partial.rename(args.folder / f"checkpoints/step_{step}.npy")


@jax.jit
def advance(state, noise):
    return jnp.tanh(state * 1.01 + noise.mean(axis=0))


number, step = decide()
drawn = random.Random(args.seed)
odd, at = drawn.randrange(count), drawn.randrange(5, args.steps)
odd, at = odd if args.task is None else args.task, at if args.at is None else args.at
at += number * args.grow + (step if args.later else 0)
(args.folder / "checkpoints").mkdir(exist_ok=True)
state = np.load(args.folder / f"checkpoints/step_{step}.npy") if step else np.zeros(8, np.float32)
if process == 0:
    print(f"start {number} from step {step} with {count} processes on {os.environ['SLURM_STEP_NODELIST']}", flush=True)
if process == odd:
    print(f"odd {odd} on {os.environ['SLURMD_NODENAME']} at {at}", flush=True)
first = step
while step < args.steps:
    noise = np.random.default_rng(1000 * step + process).normal(size=(jax.local_device_count(), 8)).astype(np.float32)
    if step == at and process == odd and number < args.starts:
        print(f"fails {time.time()}", flush=True)
        FAULTS[args.fault]()
    state = np.asarray(advance(state, jax.make_array_from_process_local_data(by_rows, noise)).addressable_data(0))
    step += 1
    time.sleep(0.05)
    if process == 0 and step == first + 1:
        print(f"went on {time.time()}", flush=True)
    if step % args.every == 0:
        save(step, state)
if process == 0:
    print(f"end {state.tobytes().hex()}", flush=True)
