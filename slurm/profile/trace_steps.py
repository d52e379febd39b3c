"""Profiles training steps with the JAX profiler: one trace for each node, by the first process there.

That process reads its trace again, and prints how long a step took, how much of it was loading, and the trace's file.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path, help="for the traces; on a disk that all nodes share")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--width", type=int, default=1024)
args = parser.parse_args()

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
by_rows, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


def load(step):
    """A batch of 64 rows for each device."""
    rng = np.random.default_rng([step, jax.process_index()])
    local = rng.random((64 * jax.local_device_count(), args.width), np.float32)
    return jax.make_array_from_process_local_data(by_rows, local)


@functools.partial(jax.jit, out_shardings=replicated)
def train(weights, batch):
    """A step, with an all-reduce of the gradient."""
    gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(weights)
    return weights - 0.1 * gradient


def milliseconds(trace, name):
    """How long the parts of a trace that have this name took, on the host."""
    hosts = [plane for plane in trace.planes if plane.name.startswith("/host:")]
    events = (event for plane in hosts for line in plane.lines for event in line.events)
    return [event.duration_ns / 1e6 for event in events if event.name == name]


weights = jax.jit(lambda: jnp.ones((args.width, args.width)) / args.width, out_shardings=replicated)()
weights = train(weights, load(0)).block_until_ready()  # compiles, outside of the trace

# The traces of all nodes go to one folder, named after process 0's clock; each file is named after its node. Processes
# of one node would have one file, and tracing costs time, so the first one does it for all.
options = jax.profiler.ProfileOptions()
options.session_id = str(multihost_utils.broadcast_one_to_all(np.int32(time.time())))
traces = os.environ.get("SLURM_LOCALID", "0") == "0"
with jax.profiler.trace(args.folder, profiler_options=options) if traces else contextlib.nullcontext():
    for step in range(args.steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            with jax.profiler.TraceAnnotation("load"):
                batch = load(step)
            weights = train(weights, batch).block_until_ready()  # or the step would seem to end before its work

if traces:
    file = args.folder / "plugins/profile" / options.session_id / f"{platform.node()}.xplane.pb"
    trace = jax.profiler.ProfileData.from_file(str(file))
    steps, loads = milliseconds(trace, "train"), milliseconds(trace, "load")
    assert len(steps) == len(loads) == args.steps, (steps, loads)
    assert all(0 < load < step for step, load in zip(steps, loads, strict=True)), (steps, loads)
    times = f"{np.mean(steps):.1f} ms a step, {np.mean(loads):.1f} ms of it loading"
    print(f"Process {jax.process_index()} on {platform.node()}: {times}, in {file}")
