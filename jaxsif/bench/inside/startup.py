"""Where the seconds of a start go: each process reads the clock between its phases, counted from
the start of the command.

    startup.py --began SECONDS [--depth N]

`--began` is the time of the command. Process 0 prints a record for each task: its node, the seconds
of each phase, and how far its node's clock is ahead of process 0's, as far as messages prove it;
the phases are corrected for that. Other modules are imported only after the phases have been
measured.
"""

import time

FIRST_LINE = time.time()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

PHASES = (
    "launch",
    "container",
    "python",
    "import",
    "initialize",
    "devices",
    "compile",
    "collective",
)


def process_start(pid):
    """Return the time when a process of this node was created, to within 10 ms; see
    proc_pid_stat(5).
    """
    with open(f"/proc/{pid}/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def compile_chain(depth):
    """Compile the gradient through a chain of unequal layers; nothing runs."""
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.sum(x * x)

    sizes = [8 + number for number in range(depth + 1)]
    weights = [jnp.zeros(shape) for shape in zip(sizes, sizes[1:])]
    jax.jit(jax.grad(loss)).lower(weights, jnp.zeros((4, 8))).compile()


def sum_over_all():
    """Sum a 1 from each device of every process with an all-reduce."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("all",))
    ones = np.ones(jax.local_device_count(), np.float32)
    spread = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), ones)
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(spread)
    assert float(total) == jax.device_count(), total


def gather(record, size=4096):
    """Return the records of all processes, in order."""
    import numpy as np
    from jax.experimental import multihost_utils

    text = json.dumps(record).encode().ljust(size)
    assert len(text) == size, text
    rows = multihost_utils.process_allgather(np.frombuffer(text, np.uint8))
    return [json.loads(bytes(row)) for row in rows.reshape(-1, size)]


def watch_rounds(rounds=5):
    """Return the time before and after each of a few rounds in which all processes wait for each
    other.
    """
    from jax.experimental import multihost_utils

    seen = []
    for number in range(rounds):
        before = time.time()
        multihost_utils.sync_global_devices(f"clock {number}")
        seen.append((before, time.time()))
    return seen


def clock_ahead(mine, first):
    """Return how far a clock must be ahead of process 0's, judging by the rounds that both saw; 0
    if the rounds do not show it.

    No process leaves a round before all have entered it.
    """
    least = max(before - after for (before, _), (_, after) in zip(mine, first))
    most = min(after - before for (_, after), (before, _) in zip(mine, first))
    return min(max(0.0, least), most)


def measure(options):
    """Return the time at the end of each phase."""
    # The launcher's process on this node.
    task = os.environ.get("SLURM_TASK_PID") or os.getpgid(0)
    times = [process_start(task), process_start(os.getpid()), FIRST_LINE]
    import jax

    times.append(time.time())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    for step in (
        jax.distributed.initialize,
        jax.devices,
        lambda: compile_chain(options.depth),
        sum_over_all,
    ):
        step()
        times.append(time.time())
    return times


def find_phases(task, first, began):
    """Return the seconds of a task's phases, by the clock of process 0."""
    ahead = clock_ahead(task["rounds"], first["rounds"])
    ends = [began, *(at - ahead for at in task["times"])]
    phases = {phase: round(end - begin, 4) for phase, begin, end in zip(PHASES, ends, ends[1:])}
    return phases | {"total": round(ends[-1] - began, 4), "clock_ahead": round(ahead, 4)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--began", type=float, required=True)
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    times = measure(options)
    import common

    names = common.node_names()
    common.tell_system(names)
    tasks = gather({"times": times, "rounds": watch_rounds()})
    for number, (node, task) in enumerate(zip(names, tasks)):
        common.emit("task", task=number, node=node, **find_phases(task, tasks[0], options.began))


if __name__ == "__main__":
    main()
