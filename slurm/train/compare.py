"""Train one model in several modes, a step of each in turn, and hold all losses against those of one device.

Process 0 prints a table: the time of a step, examples a second, the parameters and moments on each device, and how far
the losses are from those of one device. It fails when that is more than the tolerance.
"""

import argparse

import jax
import numpy as np
from train import Training, parse_options

TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # relative; rounding, which grows with width, depth and steps


def variants(devices, options):
    """What to run: name -> how its options differ."""
    other = "a message each" if options.one_message else "one message"
    line, split = {"mode": "sharded", "mesh": (devices, 1)}, {"fsdp": True, "one_message": False}
    found = {
        "single": {"mode": "single"},
        "jit + sharding": line,
        f"jit, {other}": line | {"one_message": not options.one_message},
        "pmap": {"mode": "pmap"},
        "jit, FSDP, 2 parts": line | split | {"accumulate": 2},
    }
    if devices % 2 == 0:
        data, model = options.mesh if options.mesh[1] > 1 else (devices // 2, 2)
        found[f"jit, mesh {data}x{model}, FSDP"] = {"mode": "sharded", "mesh": (data, model), **split}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tolerance", type=float, help="by default 1e-5; with bfloat16, 1e-2")
    options = parse_options(parser)
    first = jax.process_index() == 0
    trainings = {
        name: Training(argparse.Namespace(**vars(options) | changes))
        for name, changes in variants(jax.device_count(), options).items()
        if first or changes["mode"] != "single"
    }
    for _ in range(options.steps):
        for training in trainings.values():
            training.advance()
    if first:
        print(
            f"{options.model}, {options.precision}, {jax.process_count()} process(es), {jax.device_count()} device(s)"
        )
        print("mode                    step ms  examples/s  state MB/device  difference")
        different = [compare(name, training, trainings["single"]) for name, training in trainings.items()]
        tolerance = options.tolerance or TOLERANCE[options.precision]
        worst = np.max(different)  # nan where one is
        assert worst <= tolerance, f"the losses differ by {worst:.1e}, and not by {tolerance} at most"
        print(f"losses {trainings['single'].losses[0]:.5f} to {trainings['single'].losses[-1]:.5f}, the same in all")


def compare(name, training, single):
    """Print a line of the table; return the largest relative difference of the losses."""
    seconds = training.step_seconds()
    state = sum(x.addressable_data(0).nbytes for x in jax.tree.leaves(training.state))
    different = np.max(np.abs(np.array(training.losses) / single.losses - 1))
    rate = training.options.batch / seconds
    print(f"{name:22}{seconds * 1e3:9.2f}{rate:12.0f}{state / 1e6:17.3f}{different:12.1e}")
    return different


if __name__ == "__main__":
    main()
