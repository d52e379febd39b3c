"""A task with a box, as jaxsif/task makes one: waiting_task.py WHAT, which it then does for a long time."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time


def make_status_file(**fields: object) -> int:
    """Return the descriptor of a box that is written once."""
    box: dict[str, object] = {"pid": os.getpid(), "time": time.time(), "quiet": 0.0, "loop": "train.py:38", "turns": 12}
    box |= {"compiling": "", "since": 0.0, "aside": False, "call": "", "deadlock": False, "inside": True}
    box["may_be_over"] = False
    box |= {"around": [], "thread": 0, "others": 0, "programs": 0, "own": [], **fields}
    descriptor = os.memfd_create("jaxsif-box")
    os.pwrite(descriptor, json.dumps(box).encode().ljust(4096), 0)
    os.lseek(descriptor, 4096, os.SEEK_SET)
    faulthandler.register(signal.SIGWINCH, descriptor, all_threads=False, chain=False)
    return descriptor


def sleep() -> None:
    while True:
        time.sleep(100)


def sleep_in_c(seconds: int = 100) -> None:
    """A signal ends it."""
    import ctypes

    while True:
        if ctypes.CDLL(None).sleep(seconds):
            os.write(1, b"woken\n")


def spin() -> None:
    while True:
        pass


ENDLESS = re.compile("(a+)+$")


def hold() -> None:
    ENDLESS.match("a" * 60 + "b")


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


def pipe() -> None:
    os.read(os.pipe()[0], 1)


def poll() -> None:
    import select

    waiting = select.poll()
    waiting.register(os.pipe()[0], select.POLLIN)
    waiting.poll()


def child() -> None:
    subprocess.run(["sleep", "100"], check=True)


def stdin() -> None:
    sys.stdin.read()


def fork() -> None:
    """A child has the box and the handler, too."""
    if os.fork():
        sleep()
    spin()


def deep(depth: int = 60) -> None:
    deep(depth - 1) if depth else sleep()


def many() -> None:
    """More threads than faulthandler shows of all, where it is asked for all."""
    for _ in range(120):
        threading.Thread(target=sleep, daemon=True).start()
    sleep()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def bare() -> None:
    """Without the handler, the signal would not be answered."""
    faulthandler.unregister(signal.SIGWINCH)
    sleep()


if __name__ == "__main__":
    make_status_file(**json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    os.write(1, b"ready\n")
    globals()[sys.argv[1]]()
