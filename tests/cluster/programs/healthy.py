"""All tasks sum in a loop. One of them, or all, do something else for a while, and then go on: nothing is wrong.

    healthy.py KIND SEED TIMEOUT

The functions below are the kinds. Who works, does so for ten timeouts; who is idle, for three. The seed draws the task
and the iteration.
"""

import asyncio
import fcntl
import gzip
import http.server
import itertools
import multiprocessing
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time

kind, seed, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
drawn = random.Random(seed)
task, tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
odd, at = drawn.randrange(tasks), drawn.randrange(5, 20)
WORK, IDLE = 10 * timeout, 3 * timeout
BURN = "import sys, time; end = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: sum(range(1000))"


def burn(seconds=WORK):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def burn_in_library():
    """Compute for long in one call of C, which lets other threads run."""
    end = time.monotonic() + WORK
    for _ in itertools.takewhile(
        lambda _: time.monotonic() < end, (gzip.compress(bytes(1 << 22)) for _ in itertools.count())
    ):
        pass


def asleep():
    time.sleep(IDLE)


def in_python():
    burn()


def in_c():
    burn_in_library()


def holds_the_interpreter():
    end = time.monotonic() + WORK
    while time.monotonic() < end:
        max(range(60_000_000))


def on_devices():
    own, begin = jnp.ones((300, 300)), time.monotonic()
    while time.monotonic() < begin + WORK:
        own = (own @ own / 300).block_until_ready()


def in_one_jitted_loop():
    """One program for the task's own device, which takes long."""
    matrix = jnp.ones((200, 200))
    run = jax.jit(lambda x, turns: jax.lax.fori_loop(0, turns, lambda _, y: y @ matrix / 200, x))
    begin = time.monotonic()
    run(matrix, 200).block_until_ready()
    run(matrix, 2000).block_until_ready()
    begin, turns = time.monotonic(), 2000
    run(matrix, turns).block_until_ready()
    run(matrix, int(turns * WORK / (time.monotonic() - begin))).block_until_ready()


def dispatches_ahead():
    value, begin = jnp.ones((300, 300)), time.monotonic()
    while time.monotonic() < begin + WORK:
        for _ in range(30):
            value = value @ value / 300
        value.block_until_ready()


def writes_and_syncs():
    end = time.monotonic() + WORK
    with open(f"checkpoint-{seed}", "wb") as file:
        while time.monotonic() < end:
            file.write(bytes(1 << 18))
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            time.sleep(0.05)


def saves_arrays():
    end = time.monotonic() + WORK
    while time.monotonic() < end:
        np.savez(f"arrays-{seed}.npz", *[np.ones(100_000)] * 3)
        time.sleep(0.2)


def reads_slowly():
    end = time.monotonic() + WORK
    with open("/dev/zero", "rb", buffering=0) as file:
        while time.monotonic() < end:
            file.read(1 << 16)
            time.sleep(0.3)


SERVE = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
end = time.monotonic() + float(sys.argv[1])
one, _ = server.accept()
while time.monotonic() < end:
    one.sendall(bytes(8192))
    time.sleep(0.2)
"""


def downloads():
    """At 40 kB a second."""
    with subprocess.Popen([sys.executable, "-c", SERVE, str(WORK)], stdout=subprocess.PIPE, text=True) as server:
        one = socket.create_connection(("127.0.0.1", int(server.stdout.readline())))
        while one.recv(1 << 16):
            pass


def downloads_in_a_thread():
    thread = threading.Thread(target=downloads)
    thread.start()
    thread.join()


ASK = """
import sys, time, urllib.request
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/").read()
    time.sleep(0.7)
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serves_requests():
    server = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    child = subprocess.Popen([sys.executable, "-c", ASK, str(server.server_port), str(WORK)])
    threading.Thread(target=lambda: child.wait() or server.shutdown(), daemon=True).start()
    server.serve_forever(poll_interval=1)


def child_computes():
    subprocess.run([sys.executable, "-c", BURN, str(WORK)], check=True)


def child_sleeps():
    subprocess.run(["sleep", str(IDLE)], check=True)


def pipe_from_a_child():
    """A reader of data that needs its time, and then says it all."""
    with subprocess.Popen([sys.executable, "-c", f"{BURN}\nprint(1)", str(WORK)], stdout=subprocess.PIPE) as child:
        child.stdout.read()


def pool():
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        workers.map(time_out, [WORK])


def time_out(seconds):
    burn(seconds)


def thread_computes():
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()


def lock_of_a_thread():
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lambda: burn() or lock.release()).start()
    lock.acquire()


def queue_of_a_thread():
    done = queue.Queue()
    threading.Thread(target=lambda: reads_slowly() or done.put(1)).start()
    done.get()


def file_lock():
    """Of another process, which computes."""
    with open(f"lock-{task}", "w") as file:
        hold = f"import fcntl, sys\nfcntl.flock(open({file.name!r}), fcntl.LOCK_EX)\nprint(flush=True)\n{BURN}"
        with subprocess.Popen([sys.executable, "-c", hold, str(WORK)], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            fcntl.flock(file, fcntl.LOCK_EX)


def polls_a_file():
    end = time.monotonic() + WORK
    while not os.path.exists("never") and time.monotonic() < end:
        time.sleep(0.5)


def sleeps_often():
    for _ in range(int(WORK / 0.9)):
        time.sleep(0.9)


async def count(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(0.3)


def in_asyncio():
    asyncio.run(count(WORK))


def compiles():
    jax.jit(lambda x: sum(jnp.sin(x @ x + number + time.time_ns() % 1000).sum() for number in range(500)))(
        jnp.ones((9, 9))
    )


def all_are_slow():
    time.sleep(IDLE)


def last():
    """The others wait at their end."""


def late():
    """Before jax.distributed.initialize, idle."""


def late_data():
    """Before jax.distributed.initialize, at work."""


def late_import():
    """Before jax.distributed.initialize, in an import."""


KINDS = (
    *(
        asleep,
        in_python,
        in_c,
        holds_the_interpreter,
        on_devices,
        in_one_jitted_loop,
        dispatches_ahead,
        writes_and_syncs,
    ),
    *(saves_arrays, reads_slowly, downloads, downloads_in_a_thread, serves_requests, child_computes, child_sleeps),
    *(pipe_from_a_child, pool, thread_computes, lock_of_a_thread, queue_of_a_thread, file_lock, polls_a_file),
    *(sleeps_often, in_asyncio, compiles, all_are_slow, last, late, late_data, late_import),
)


def main():
    global jax, jnp, np
    if task == odd:
        if kind == "late":
            time.sleep(IDLE)
        if kind == "late_data":
            burn()
        if kind == "late_import":
            with open(f"slow_{seed}.py", "w") as file:
                file.write(f"import sys\nsys.argv[1:] = ['{WORK}']\n{BURN}\n")
            sys.path.insert(0, os.getcwd())
            __import__(f"slow_{seed}")
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    jax.distributed.initialize()
    split = NamedSharding(jax.make_mesh((jax.device_count(),), ("d",)), PartitionSpec("d"))
    total = jax.jit(jnp.sum)
    for iteration in range(40):
        if iteration == at and (task == odd or kind == "all_are_slow"):
            next(one for one in KINDS if one.__name__ == kind)()
        part = np.full(jax.local_device_count(), iteration, np.float32)
        float(total(jax.make_array_from_process_local_data(split, part)))
        time.sleep(0.05)
    if kind == "last" and task == odd:
        burn()
    print("done", flush=True)


if __name__ == "__main__":
    main()
