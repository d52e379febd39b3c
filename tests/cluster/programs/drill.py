"""All tasks sum in a loop; a drawn one of them goes wrong at a drawn iteration, and writes down what it did.

    drill.py KIND SEED

KIND is a fault or a habit, see the tables below. The task writes record.json into the current folder: kind, seed, task,
node, the iteration in which it went wrong, where it stands then ('drill.py:41'; '' where it has ended), in which
iteration of which loop, and the time from which the others wait, in seconds since 1970. A habit, which does no harm,
writes its end into ended.json. The same seed draws the same.
"""

import atexit
import fcntl
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

PERIOD = 0.02  # seconds of an iteration
LONG = 20.0  # seconds that a habit takes
REST = 200  # iterations after the drawn one


def write(name, fields):
    """Write a file whole: those who wait for it see all of it."""
    with open(f".{name}", "w") as file:
        json.dump(fields, file)
    os.rename(f".{name}", name)


def note(ahead=1):
    """Write the record; the caller stays at the line so far ahead of its own, or at none for None."""
    caller = sys._getframe(1)
    place = "" if ahead is None else f"drill.py:{caller.f_lineno + ahead}"
    write(
        "record.json",
        {
            "kind": kind,
            "seed": seed,
            "task": process,
            "node": os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            "iteration": at,
            "place": place,
            "loop": loop,
            "stands": last if kind == "skip" else at,
            "time": time.time(),
        },
    )


def sleep():
    note()
    time.sleep(1000)


def own_lock():
    lock = threading.Lock()
    lock.acquire()
    note()
    lock.acquire()


def other_lock():
    lock = threading.Lock()
    threading.Thread(target=lambda: lock.acquire() and time.sleep(1000), daemon=True).start()
    time.sleep(0.2)
    note()
    with lock:
        pass


def pipe():
    end, _ = os.pipe()
    note()
    os.read(end, 1)


def fifo():
    os.mkfifo("fifo")
    note()
    os.open("fifo", os.O_RDONLY)


def file_lock():
    held, wanted = (os.open("lock", os.O_CREAT | os.O_RDWR) for _ in range(2))
    fcntl.flock(held, fcntl.LOCK_EX)
    note()
    fcntl.flock(wanted, fcntl.LOCK_EX)


def spin():
    note()
    sum(1 for _ in itertools.count())


def hold():
    note()
    re.match(r"(a+)+$", "a" * 64 + "b")


def stop():
    note()
    os.kill(os.getpid(), signal.SIGSTOP)


def standard_input():
    note()
    os.read(0, 1)


def end():
    note(None)
    sys.exit()


def at_exit():
    atexit.register(sleep)
    sys.exit()


def evaluate():
    """Compute alone."""
    note()
    value, begin = jnp.ones((200, 200)), time.monotonic()
    while time.monotonic() < begin + LONG:
        value = (value @ value / 200).block_until_ready()


def compile_long():
    """Compile a program with many lines, which no cache has from another run."""
    own = time.time_ns() % 1_000_000
    note()

    @jax.jit
    def big(value):
        for number in range(int(os.environ.get("DRILL_LINES", "500"))):
            value = jnp.sin(value @ value + number + own)
        return value

    big.lower(jnp.ones((40, 40))).compile()


def checkpoint():
    """Write slowly, as Orbax does onto a busy disk; a module of that name stands in for it."""
    os.makedirs("orbax/checkpoint", exist_ok=True)
    with open("orbax/checkpoint/stand_in.py", "w") as file:
        file.write("import time\n\n\ndef save(seconds):\n    begin = time.monotonic()\n    while ")
        file.write("time.monotonic() < begin + seconds:\n        with open('saved', 'ab') as file:\n")
        file.write("            file.write(bytes(1 << 16))\n        time.sleep(0.5)\n")
    sys.path.insert(0, os.getcwd())
    from orbax.checkpoint.stand_in import save

    note()
    save(LONG)


def late_batch():
    """Read the first batch of a process that needs its time."""
    reader = subprocess.Popen(["sh", "-c", f"sleep {LONG}; echo batch"], stdout=subprocess.PIPE)
    note()
    reader.stdout.readline()


FAULTS = {
    "skip": lambda: None,
    "leave": lambda: note(None),
    "sleep": sleep,
    "own-lock": own_lock,
    "other-lock": other_lock,
    "pipe": pipe,
    "fifo": fifo,
    "file-lock": file_lock,
    "spin": spin,
    "hold": hold,
    "stop": stop,
    "stdin": standard_input,
    "end": end,
    "at-exit": at_exit,
}
HABITS = {"evaluate": evaluate, "compile": compile_long, "checkpoint": checkpoint, "late-batch": late_batch}
ALL_SLOW = "all-slow"

kind, seed = sys.argv[1], int(sys.argv[2])
jax.distributed.initialize()
drawn = random.Random(seed)
process, odd, at = jax.process_index(), drawn.randrange(jax.process_count()), drawn.randrange(100, 200)
if kind in ("evaluate", "checkpoint"):  # of process 0 alone, by habit
    odd = 0
if kind in ("late-batch", ALL_SLOW):
    at = 0
last = at + REST if kind in HABITS or kind == "skip" else 30 if kind == ALL_SLOW else 1_000_000
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
total = jax.jit(jnp.sum)
loop = f"drill.py:{sys._getframe().f_lineno + 1}"
for iteration in range(last):
    if iteration == 50 and process == 0:
        write("alive.json", {"time": time.time()})
    if iteration == at and process == odd:
        {**FAULTS, **HABITS, ALL_SLOW: lambda: note(None)}.get(kind, lambda: None)()
        if kind == "leave":
            break
        if kind == "skip":
            continue
        if kind in HABITS:
            write("ended.json", {"time": time.time()})
    time.sleep(8.0 if kind == ALL_SLOW and iteration % 10 == 0 else PERIOD)
    part = np.full(jax.local_device_count(), iteration, np.float32)
    float(total(jax.make_array_from_process_local_data(sharding, part, (jax.device_count(),))))
if kind == "skip" and process == odd:
    note(None)
