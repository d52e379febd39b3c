"""Train a model in one of three modes, on all devices of all processes: the losses are the same in each.

Process 0 prints the losses, what a step takes and computes, and the memory; with --json, as one line of JSON.
"""

import argparse
import json
import pathlib
import resource
import statistics
import time

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import multihost_utils
from models import HEAD, MODELS
from modes import MODES, build_update

BATCHES = 8  # made before the first step, and used in turn

# Of each program that this process compiled, or found in the compile cache: the seconds that it took.
compiled = []


@jax.monitoring.register_event_duration_secs_listener
def note_compilation(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.append(seconds)


class Training:
    """A model in one mode; all processes make the same calls."""

    def __init__(self, options):
        self.options = options
        optimizer = optax.adamw(1e-3)

        def build():
            precision = jnp.dtype(options.precision)  # of what is computed; the parameters are float32
            return MODELS[options.model](options.width, options.depth, options.length, precision, nnx.Rngs(0))

        def init():
            parameters = nnx.state(build())
            return parameters, optimizer.init(parameters)

        self.model = nnx.eval_shape(build)
        update = build_update(self.model, optimizer, options.accumulate)
        self.state, self.step, put = MODES[options.mode](options, init, update)
        self.batches = [jax.tree.map(put, self.model.examples(seed, options.batch)) for seed in range(BATCHES)]
        self.losses, self.seconds, self.compile_seconds = [], [], None

    def advance(self):
        """Make a step; the first one is compiled before."""
        batch, before = self.batches[len(self.losses) % BATCHES], sum(compiled)
        begin = time.perf_counter()
        self.state, loss = jax.block_until_ready(self.step(self.state, batch))
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(np.asarray(loss.addressable_data(0)).item())
        if self.compile_seconds is None:
            self.compile_seconds = sum(compiled) - before

    def step_seconds(self):
        """The median, without the first step, in which the processes connect."""
        return statistics.median(self.seconds[1:] or self.seconds)


def report(training):
    """All that is known, of all processes; each must call it."""
    options, seconds = training.options, training.step_seconds()
    leaves = jax.tree_util.tree_leaves_with_path(nnx.state(training.model))
    # What is looked up, and not multiplied with, costs nothing.
    weights = sum(x.size for path, x in leaves if x.ndim == 2 and "embed" not in jax.tree_util.keystr(path))
    compile_seconds, memory = gather(options, training.compile_seconds, peak_memory())
    return vars(options) | {
        "processes": jax.process_count(),
        "devices": 1 if options.mode == "single" else jax.device_count(),
        "local_devices": jax.local_device_count(),
        "platform": jax.default_backend(),
        "device_kind": jax.devices()[0].device_kind,
        "parameters": sum(x.size for _, x in leaves),
        "losses": training.losses,
        "compile_seconds": compile_seconds,
        "first_step_seconds": training.seconds[0],
        "step_seconds": seconds,
        "examples_per_second": options.batch / seconds,
        "flops_per_step": options.batch * training.model.flops(weights),
        "memory_bytes_per_process": int(max(memory)),
    }


def gather(options, *numbers):
    """For each number, a list of those of all processes."""
    mine = np.array(numbers, np.float32)
    everyone = multihost_utils.process_allgather(mine)
    return np.reshape(everyone, (-1, len(numbers))).T.tolist()


def peak_memory():
    """Bytes: on the GPUs of this process; on CPUs, all that the process had in memory."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    if all(stats):
        return sum(one["peak_bytes_in_use"] for one in stats)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def add_options(parser):
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--width", type=int, default=256, help="features; of the transformer, a multiple of 32")
    parser.add_argument("--depth", type=int, default=4, help="blocks or layers")
    parser.add_argument("--length", type=int, default=64, help="tokens in an example of the transformer")
    parser.add_argument("--batch", type=int, default=256, help="examples in a step, of all devices together")
    parser.add_argument("--steps", type=int, default=20, help="2 or more: the first one is not timed")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of what is computed")
    parser.add_argument("--accumulate", type=int, default=1, metavar="K", help="add up the gradients of K parts")
    parser.add_argument("--mesh", type=parse_mesh, metavar="DATAxMODEL", help="by default, all devices x 1")
    one = "one all-reduce for all gradients, where parameters are not split; by default on CPUs"
    parser.add_argument("--one-message", action=argparse.BooleanOptionalAction, help=one)
    parser.add_argument("--fsdp", action="store_true", help="split parameters and moments over the axis DATA, too")


def parse_mesh(text):
    data, model = text.split("x")
    return int(data), int(model)


def parse_options(parser):
    """The options, which fit the devices; connects the processes."""
    add_options(parser)
    options = parser.parse_args()
    jax.distributed.initialize()
    devices = jax.device_count()
    options.mesh = options.mesh or (devices, 1)
    if options.mesh[0] * options.mesh[1] != devices:
        parser.error(f"--mesh: there are {devices} devices")
    if options.steps < 2:
        parser.error("--steps: must be 2 or more")
    if options.model == "transformer" and options.width % HEAD:
        parser.error(f"--width: must be a multiple of {HEAD} for the transformer")
    whole = not options.fsdp and options.mesh[1] == 1
    if options.one_message and not whole:
        parser.error("--one-message: needs the whole parameters on each device: no --fsdp, and a mesh of Nx1")
    if options.one_message is None:  # for GPUs, XLA itself puts gradients together, and sends while it computes
        options.one_message = whole and jax.default_backend() == "cpu"
    if options.batch % (devices * options.accumulate):
        parser.error(f"--batch: must be a multiple of {devices} devices x {options.accumulate} parts")
    return options


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="sharded", help="single: on one device of one process")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--checkpoints", type=pathlib.Path, help="a folder; the training resumes from the newest one")
    parser.add_argument("--every", type=int, default=10, help="steps from one checkpoint to the next")
    options = parse_options(parser)
    if options.mode == "single" and jax.process_count() > 1:
        parser.error("--mode single: is for one process")  # the others would wait at the end, and then give up
    if options.mode != "sharded" and options.checkpoints:
        parser.error("--checkpoints: is for --mode sharded")
    training = Training(options)
    if options.checkpoints:
        train_with_checkpoints(training, options)
    while len(training.losses) < options.steps:
        training.advance()
    found = report(training) if training.seconds else {"losses": training.losses}  # all steps were done before
    if jax.process_index() == 0:
        print(json.dumps(found, default=str) if options.json else render(found))


def train_with_checkpoints(training, options):
    """Make all steps that the newest checkpoint lacks."""
    from checkpoints import Checkpoints  # here: it needs Orbax

    with Checkpoints(options.checkpoints, options.every) as checkpoints:
        checkpoints.resume(training)
        while len(training.losses) < options.steps:
            training.advance()
            checkpoints.save(training)


def render(found):
    """Return the report as text."""
    losses = "\n".join(f"step {step}: loss {loss:.6f}" for step, loss in enumerate(found["losses"]))
    if len(found) == 1:
        return losses
    speed = found["flops_per_step"] / found["step_seconds"] / 1e9
    return f"""\
{losses}
{found["model"]}, {found["mode"]}: {found["parameters"]} parameters, {found["devices"]} device(s) in \
{found["processes"]} process(es), {found["device_kind"]}
compile {max(found["compile_seconds"]):.2f} s, step {found["step_seconds"] * 1e3:.2f} ms, \
{found["examples_per_second"]:.0f} examples/s, {speed:.1f} GFLOP/s, \
{found["memory_bytes_per_process"] / 2**20:.0f} MiB per process"""


if __name__ == "__main__":
    main()
