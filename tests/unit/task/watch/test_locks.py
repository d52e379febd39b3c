"""Locks that the main thread waits for, as another thread sees them."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jaxsif.task.watch import locks
from jaxsif.task.watch.locks import find_call

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="no columns before Python 3.11")
REPOSITORY = Path(__file__).resolve().parents[4]

# The thread that looks is the last to start, as the observer is.
PROGRAM = """
import json, os, queue, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

def look():
    sys.path.insert(0, sys.argv[1])
    from jaxsif.task.watch.locks import is_deadlock
    time.sleep(0.3)
    frame = sys._current_frames()[threading.main_thread().ident]
    print(json.dumps(is_deadlock(frame)), flush=True)
    os._exit(0)

class Owner:
    def __init__(self):
        self.lock = held
        self.data = queue.Queue()

class Unhashable:
    __hash__ = None

    def __call__(self, *_):
        pass

held = threading.Lock()
held.acquire()
owner = Owner()

def start():
    threading.Thread(target=look, daemon=True).start()

"""
# jaxsif's own thread and handlers, as with --max-restarts.
NOTICES = "sys.path.insert(0, sys.argv[1]); from jaxsif.task.preemption import Notices; Notices(print, -1)"
# As after an exception in a loader's thread.
LOST = "sys.path.insert(0, sys.argv[1]); from jaxsif.task import failure; failure.lost_threads.append('')"


# Threads that wait, too: for a place in a full queue, for an entry, for a lock, and for work.
def waiting(call: str) -> str:
    return f"threading.Thread(target=lambda: {call}, daemon=True).start()"


FULL = "full = queue.Queue(1); full.put(1)"
OTHER = "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ("start(); held.acquire()", True),
        ("start()\nwith held:\n    pass", True),
        ("start()\nwith owner.lock:\n    pass", True),
        ("start(); owner.lock.acquire()", True),
        ("start(); threading.Event().wait()", False),
        ("start(); owner.data.get()", False),
        (f"{LOST}; start(); owner.data.get()", True),
        (f"{LOST}; start(); owner.data.get(timeout=9)", False),
        (f"{LOST}; start(); threading.Event().wait()", False),
        (f"{LOST}; start(); owner.data.put(1); owner.data.join()", False),
        (f"{LOST}; {OTHER}; start(); owner.data.get()", False),
        ("held = threading.Condition(held); start()\nwith held:\n    pass", True),
        (f"{OTHER}; start(); held.acquire()", False),
        (f"{FULL}; {waiting('full.put(2)')}; start(); held.acquire()", True),
        (f"{FULL}; {waiting('full.put(2, timeout=9)')}; start(); held.acquire()", False),
        (f"{waiting('owner.data.get()')}; {waiting('held.acquire()')}; start(); held.acquire()", True),
        ("pool = ThreadPoolExecutor(1); pool.submit(time.sleep, 9); start(); held.acquire()", False),
        (f"{waiting('threading.Event().wait()')}; start(); held.acquire()", False),
        (f"{waiting('owner.data.get()')}; start(); owner.data.get()", False),
        ("pool = ThreadPoolExecutor(1); pool.submit(print, end='').result(); start(); held.acquire()", True),
        ("start(); held.acquire(timeout=9)", False),
        ("start(); threading.Event().wait(9)", False),
        ("signal.setitimer(signal.ITIMER_REAL, 9); start(); held.acquire()", False),
        ("signal.signal(signal.SIGUSR1, lambda *_: held.release()); start(); held.acquire()", False),
        ("signal.signal(signal.SIGUSR1, Unhashable()); start(); held.acquire()", False),
        ("signal.signal(signal.SIGUSR1, owner.data.put); start(); held.acquire()", False),
        (f"{NOTICES}; start(); held.acquire()", True),
        ("start(); time.sleep(9)", False),
        ("import multiprocessing; held = multiprocessing.Lock(); held.acquire(); start(); held.acquire()", False),
        ("start(); os.read(os.pipe()[0], 1)", False),
    ],
    ids=str,
)
def test_a_lock_that_nobody_can_release(tmp_path: Path, waits: str, expected: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + waits)
    done = subprocess.run([sys.executable, program, REPOSITORY], capture_output=True, text=True, check=False)
    assert (done.stderr, json.loads(done.stdout)) == ("", expected)


class Gate:
    """Keeps the frame that calls it."""

    def __init__(self) -> None:
        self.call = ""

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        pass

    def acquire(self, *_: object) -> None:
        frame = sys._getframe(1)
        self.call = find_call(frame.f_back if frame.f_code.co_name == "__enter__" and frame.f_back else frame)


def test_the_call_is_in_the_users_words() -> None:
    gate = Gate()
    gate.acquire("ä", 1)
    assert gate.call == 'gate.acquire("ä", 1)'
    with gate:
        assert gate.call == "with gate"


def test_a_thread_that_has_just_been_notified_may_go_on() -> None:
    """It still stands in the wait until it gets the interpreter."""
    data: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=data.get)
    thread.start()

    def find_awaited() -> str:
        return locks._find_awaited(sys._current_frames()[thread.ident or 0])

    deadline = time.monotonic() + 10
    while find_awaited() != "get":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with data.mutex:
        data._put(1)
        data.not_empty.notify()
        assert find_awaited() == ""
    thread.join()
