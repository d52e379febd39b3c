"""All tasks compute in loops; one of them, or some, compile a program that the others do not, or all is well.

    leads.py KIND

The functions below are the kinds. In the first table the numbers are wrong: the task at fault writes 'odd SECONDS'
when it calls the program, and each other one 'next SECONDS' when it begins the following iteration, waits or ends, in
seconds since 1970. In the second one nothing is wrong.
"""

import ctypes
import sys
import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS, AT, PERIOD = 400, 10, 0.05  # iterations, the one that differs, seconds of one

jax.distributed.initialize()
process, processes = jax.process_index(), jax.process_count()
is_odd = process == processes // 2
mesh = Mesh(np.array(jax.devices()), "d")
split, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())


def make(columns=4, dtype=np.float32, value=1):
    """A row for each device."""
    part = np.full((jax.local_device_count(), columns), value, dtype)
    return jax.make_array_from_process_local_data(split, part)


def note(word):
    print(word, time.time(), flush=True)


def differs(turn):
    """Whether this process is to differ in this iteration, and note that."""
    if turn == AT:
        note("odd" if is_odd else "at")
    if turn == AT + 1 and not is_odd:
        note("next")
    return turn == AT and is_odd


@jax.jit
def loss(x):
    return (x * x).sum()


@jax.jit
def other(x):
    return (x + 3).sum()


def value_of(result):
    return float(result.addressable_data(0).reshape(-1)[0])


def steps(function=loss, turns=STEPS, odd=None, usual=make):
    """Sum in a loop; `odd` is what the odd process sums in its iteration."""
    for turn in range(turns):
        value_of(function(odd() if odd and differs(turn) else usual()))
        time.sleep(PERIOD)


# --- Wrong numbers


def last_batch():
    steps(odd=partial(make, 3))


def last_batch_shard_map():
    steps(
        jax.jit(jax.shard_map(lambda x: jax.lax.psum(x.sum(), "d"), mesh=mesh, in_specs=P("d"), out_specs=P())),
        odd=partial(make, 3),
    )


def last_batch_pmap():
    total = jax.pmap(lambda x: jax.lax.psum(x, "d"), "d")
    for turn in range(STEPS):
        value_of(total(np.ones((jax.local_device_count(), 3 if differs(turn) else 4), np.float32)))
        time.sleep(PERIOD)


def another_type():
    steps(odd=partial(make, dtype=np.int32))


def another_function():
    for turn in range(STEPS):
        value_of((other if differs(turn) else loss)(make()))
        time.sleep(PERIOD)


def another_order():
    value_of(other(make()))
    for turn in range(STEPS):
        x = make(2) if differs(turn) else make()
        for function in (other, loss) if turn % 2 else (loss, other):
            value_of(function(x))
        time.sleep(PERIOD)


def another_constant():
    scaled = jax.jit(lambda x, factor: (factor * x).sum(), static_argnums=1)
    for turn in range(STEPS):
        value_of(scaled(make(), 3 if differs(turn) else 2))
        time.sleep(PERIOD)


def most_have_it():
    for turn in range(STEPS):
        if turn == AT:
            note("odd" if is_odd else "at")
        if turn == AT + 1 and is_odd:
            note("next")
        value_of(loss(make(3) if turn == AT and not is_odd else make()))
        time.sleep(PERIOD)


def epochs():
    turn = 0
    for _epoch in range(STEPS // 5):
        for _batch in range(5):
            value_of(loss(make(3) if differs(turn) else make()))
            turn += 1
            time.sleep(PERIOD)


def while_loop():
    turn = 0
    while turn < STEPS:
        value_of(loss(make(3) if differs(turn) else make()))
        turn += 1
        time.sleep(PERIOD)


def others_end():
    """Outside of loops."""
    value_of(loss(make()))
    multihost_utils.sync_global_devices("before")
    note("odd" if is_odd else "at")
    if is_odd:
        value_of(loss(make(3)))
    else:
        note("next")


def others_wait():
    others_end()
    if not is_odd:
        multihost_utils.sync_global_devices("after")
        multihost_utils.sync_global_devices("again")


# --- All is well


def plain():
    steps(turns=100)


def evaluates_alone():
    """Process 0, with programs of its own."""
    own = jax.jit(lambda x: (x @ x).sum())
    for turn in range(60):
        if turn % 20 == 5 and process == 0:
            for size in range(10, 14):
                float(own(jnp.ones((size, size))))
                time.sleep(0.5)
        value_of(loss(make()))


def pipeline():
    """Each half of the processes has programs of its own."""
    stage = process // (processes // 2)
    devices = [device for device in jax.devices() if device.process_index // (processes // 2) == stage]
    own = NamedSharding(Mesh(np.array(devices), "d"), P("d"))
    for _turn in range(100):
        x = jax.make_array_from_process_local_data(own, np.ones((jax.local_device_count(), 2 + stage), np.float32))
        value_of((other if stage else loss)(x))
        time.sleep(PERIOD)


def compiles_ahead():
    """One process compiles ahead of time what all run later."""
    if is_odd:
        loss.lower(make(3)).compile()
        ready = loss.lower(make()).compile()
    steps(turns=60)
    if is_odd:
        value_of(ready(make()))
    value_of(loss(make(3)))
    if not is_odd:
        value_of(loss(make()))


def all_compile_ahead():
    ready = {columns: loss.lower(make(columns)).compile() for columns in ((3, 4) if is_odd else (4, 3))}
    for turn in range(60):
        value_of(ready[3 + turn % 2](make(3 + turn % 2)))
        time.sleep(PERIOD)


def cost_analysis():
    if process == 0:
        jax.jit(lambda x: (x * 7).sum()).lower(make()).compile().cost_analysis()
        loss.lower(make()).compile().memory_analysis()
    steps(turns=80)
    steps(other, 20)


def clears_caches():
    for turn in range(80):
        if turn in (20, 40) and is_odd:
            jax.clear_caches()
        value_of(loss(make()))
        time.sleep(PERIOD)
    value_of(other(make()))


def prints_parameters():
    """Process 0 computes with an array that each process has whole."""
    parameters = jax.device_put(np.arange(16.0).reshape(4, 4), whole)
    for turn in range(80):
        if turn == 10 and process == 0:
            print(parameters[0, :2].addressable_data(0), (parameters * 2).sum().addressable_data(0), flush=True)
        value_of(loss(make()))
        time.sleep(PERIOD)
    value_of(other(make()))


def slow_to_compile():
    """One process comes late to a program that all compile."""
    steps(turns=20)
    if is_odd:
        time.sleep(8)
    value_of(other(make()))
    steps(turns=20)


def sleeps_in_c():
    """One process comes late from a function of C that holds the interpreter's lock; a signal would end it early."""
    steps(turns=20)
    left = ctypes.PyDLL(None).sleep(8) if is_odd else 0
    if left:
        sys.exit(f"the sleep ended {left} s early")
    value_of(other(make()))
    steps(turns=20)


def compiles_for_long():
    """One process compiles a long program of its own after all have connected, for which Gloo waits 30 s only."""
    value_of(loss(make()))
    if is_odd:
        value = jnp.ones((9, 9))
        jax.jit(lambda x: sum(jnp.sin(x @ x + number).sum() for number in range(300)))(value)
    value_of(loss(make()))
    steps(turns=20)


def last_batch_of_all():
    """It is smaller in all processes."""
    for turn in range(100):
        value_of(loss(make(3) if turn % 20 == 19 else make()))
        time.sleep(PERIOD)


def first_in_turn():
    """Each process comes to a new program at another time, in the same iteration."""
    for turn in range(30):
        time.sleep(0.3 * ((turn + process) % processes))
        value_of(loss(make(2 + turn % 5)))


def runs_ahead():
    """Nobody waits for results, so processes are in other iterations at the same time."""
    value = make()
    for turn in range(300):
        value = jax.jit(lambda x: x + x.sum() * 1e-9)(value) if turn == 0 else value + 1
        time.sleep(0.01 * (process + 1))
    value_of(value)
    value_of(loss(value))


def in_threads():
    """Threads compile in another order in each process; the programs run in one order."""
    x = make()
    compiled = [None] * 4
    lowered = [jax.jit(lambda x, factor=factor: (factor * x).sum()).lower(x) for factor in range(4)]

    def compile_one(number):
        time.sleep(0.2 * ((number + process) % 4))
        compiled[number] = lowered[number].compile()

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in compiled:
        value_of(one(x))
    steps(turns=20)


def subset():
    """Only some processes take part; the others go on."""
    members = [device for device in jax.devices() if device.process_index < 2]
    own = NamedSharding(Mesh(np.array(members), "d"), P("d"))
    for _turn in range(60):
        if process < 2:
            x = jax.make_array_from_process_local_data(own, np.ones((jax.local_device_count(), 4), np.float32))
            value_of(loss(x))
        value_of(loss(make()))
        time.sleep(PERIOD)


def checkpoints_alone():
    """Process 0 saves what all have."""
    parameters = jax.device_put(np.arange(16.0), whole)
    for turn in range(60):
        if turn % 20 == 10:
            if process == 0:
                np.save("saved.npy", np.asarray(parameters))
                time.sleep(3)
            multihost_utils.sync_global_devices(f"saved {turn}")
        value_of(loss(make()))


def gathers():
    for _turn in range(60):
        total = multihost_utils.process_allgather(np.ones(2))
        if process == 0:
            jnp.asarray(total).sum()
        value_of(loss(make()))
        time.sleep(PERIOD)


def uneven_host_work():
    """The host's own work differs in each process."""
    for turn in range(30):
        jnp.ones(3 + process).sum()
        jnp.ones((turn + 1, process + 1)).sum()
        value_of(loss(make()))


def closures():
    """A new function in each iteration, the same in all processes."""
    for turn in range(30):
        value_of(jax.jit(lambda x, turn=turn: (x + turn).sum())(make()))


def static_arguments():
    scaled = jax.jit(lambda x, factor: (factor * x).sum(), static_argnums=1)
    for turn in range(60):
        value_of(scaled(make(), turn // 20))
        time.sleep(PERIOD)


def ends_early():
    """One process is long done with its own work when the others end."""
    steps(turns=20)
    if not is_odd:
        jnp.ones(77).sum()
        time.sleep(6)


def works_after():
    """Process 0 alone computes after all is done."""
    steps(turns=20)
    if process == 0:
        for size in range(5):
            jnp.ones(size + 1).sum()
            time.sleep(1)


def different_loops():
    """Each process has a loop of its own before the common one."""
    for _ in range(process * 10):
        time.sleep(0.05)
    steps(turns=40)
    for _ in range((processes - process) * 10):
        time.sleep(0.05)
    value_of(other(make()))


def callbacks():
    shown = jax.jit(lambda x: jax.debug.callback(lambda _: None, x.sum()) or x.sum())
    steps(shown, 40)


def sync_before():
    """Process 0 comes first to a program, and the others wait elsewhere meanwhile."""
    steps(turns=10)
    if process:
        time.sleep(5)
    value_of(other(make()))
    multihost_utils.sync_global_devices("after")


WRONG = (
    *(last_batch, last_batch_shard_map, last_batch_pmap, another_type, another_function, another_order),
    *(another_constant, most_have_it, epochs, while_loop, others_wait, others_end),
)
RIGHT = (
    *(plain, evaluates_alone, pipeline, compiles_ahead, all_compile_ahead, cost_analysis, clears_caches),
    *(prints_parameters, slow_to_compile, sleeps_in_c, compiles_for_long, last_batch_of_all, first_in_turn),
    *(runs_ahead, in_threads, subset, checkpoints_alone, gathers, uneven_host_work, closures, static_arguments),
    *(ends_early, works_after, different_loops, callbacks, sync_before),
)

if __name__ == "__main__":
    next(one for one in (*WRONG, *RIGHT) if one.__name__ == sys.argv[1])()
    print("done", flush=True)
