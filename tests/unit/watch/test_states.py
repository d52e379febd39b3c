"""What a task does, by what was seen of it."""

from __future__ import annotations

from typing import Any

import pytest
from kit.samples import MAIN, USER, sample

from jaxsif.task.watch import census
from jaxsif.watch.sample import Frame
from jaxsif.watch.snapshot import make_snapshot
from jaxsif.watch.states import State, describe_state, own_frames

SITE = "/opt/venv/lib/python3.13/site-packages"
LIBRARY = "/usr/lib/python3.13"


COLLECTIVE = State("collective", "is waiting in a collective")
LOCK = State("lock", "is waiting for a lock")
DEADLOCK = State("deadlock", "is waiting for a lock that no other thread can release")
NOT_TOLD = State("unknown", "is waiting, but has not reported where")
SHUTDOWN = State("shutdown", "has ended, and is waiting for the others")
COMPUTES = State("computing", "is computing")


def library(file: str, function: str) -> dict[str, Any]:
    """Frames of a task whose line of the user has called a library."""
    return {"frames": [["/x/inner.py", 1, "inner"], [f"{SITE}/{file}", 7, function], USER, MAIN]}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"call": "", "state": "R"}, COMPUTES),
        ({"call": "", "main_cpu": 0.9}, COMPUTES),
        ({}, COLLECTIVE),
        ({"status": {"call": "block_until_ready"}}, COLLECTIVE),
        ({"status": {"call": "lock.acquire()"}}, LOCK),
        ({"status": {"call": "worker.join()"}}, LOCK),
        ({"frames": [[f"{LIBRARY}/threading.py", 3, "wait"], USER, MAIN]}, LOCK),
        ({"status": {"deadlock": True, "call": "lock.acquire()"}}, DEADLOCK),
        ({"status": {"deadlock": True}, "frames": []}, DEADLOCK),
        ({"status": {"deadlock": True, "call": "lock.acquire()"}, "cpu": 0.3}, LOCK),
        ({"cpu": 1.9}, State("computing", "is waiting for local devices, which are computing")),
        ({"cpu": 1.0, "gpu": True}, COLLECTIVE),
        ({"frames": [], "answered": None}, NOT_TOLD),
        ({"status": {"call": 'float(found.get("loss"))'}}, COLLECTIVE),
        ({"status": {"call": 'found.get("loss").block_until_ready()'}}, COLLECTIVE),
        (
            {
                "frames": [[f"{SITE}/jax/_src/array.py", 7, "_value"], USER],
                "status": {"call": "jax.tree.map(f, found)"},
            },
            COLLECTIVE,
        ),
        ({"frames": [], "answered": False}, NOT_TOLD),
        ({"frames": [], "answered": False, "call": "clock_nanosleep"}, State("sleep", "is sleeping")),
        ({"frames": [], "call": "futex_do_wait", "answered": None, "status": None}, NOT_TOLD),
        (
            library("jax/_src/distributed.py", "initialize"),
            State("initialize", "is waiting in jax.distributed.initialize"),
        ),
        (library("jax/_src/distributed.py", "shutdown"), SHUTDOWN),
        (library("jax/_src/api.py", "clean_up"), SHUTDOWN),
        (
            {"frames": [["/usr/lib/python3.13/threading.py", 1542, "_shutdown"]], "status": {"call": ""}},
            State("threads", "has reached its end, and is waiting for its threads"),
        ),
        (library("jax/_src/compiler.py", "backend_compile_and_load"), State("compiling", "is compiling")),
        (
            {"status": {"compiling": "jit_step", "since": 213.7}},
            State("compiling", "has been compiling jit_step for 214 s"),
        ),
        (
            {"status": {"compiling": "jit_step", "since": 9.0, "aside": True, "call": "pool.submit(f).result()"}},
            State("compiling", "has been compiling jit_step for 10 s"),
        ),
        ({"status": {"compiling": "jit_step", "aside": True}}, COLLECTIVE),
        (library("orbax/checkpoint/handler.py", "save"), State("checkpoint", "is in a checkpoint")),
        (library("grain/_src/python/loader.py", "__next__"), State("input", "is waiting for input")),
        ({"frames": [["/home/ada/grain/train.py", 7, "step"]]}, COLLECTIVE),
        ({"frames": [["/home/ada/orbax/train.py", 7, "step"]]}, COLLECTIVE),
        ({"frames": [["/home/ada/fold/pdb.py", 7, "fold"]]}, COLLECTIVE),
        ({"frames": [["/home/ada/queue.py", 7, "step"]]}, COLLECTIVE),
        (library("torch/utils/data/dataloader.py", "_next"), State("input", "is waiting for input")),
        (library("jax/experimental/multihost_utils.py", "sync"), COLLECTIVE),
        (
            {"frames": [[f"{LIBRARY}/pdb.py", 1, "interaction"], USER], "call": "read", "descriptor": 0},
            State("debugger", "is in a debugger"),
        ),
        ({"call": "read", "descriptor": 0, "file": "pipe"}, State("input", "is reading standard input")),
        ({"call": "read", "descriptor": 5, "file": "pipe"}, State("pipe", "is reading from a pipe")),
        ({"call": "anon_pipe_read"}, State("pipe", "is reading from a pipe")),
        ({"call": "write", "descriptor": 1, "file": "pipe"}, State("pipe", "is writing to a pipe")),
        ({"call": "read", "descriptor": 5, "file": "/a/b"}, State("file", "is reading /a/b")),
        ({"call": "fsync", "descriptor": 5, "file": "/a/b"}, State("file", "is waiting for /a/b")),
        ({"call": "pwrite64", "descriptor": 5, "file": "/a/b"}, State("file", "is writing /a/b")),
        ({"call": "openat"}, State("file", "is waiting for a file")),
        ({"call": "recvfrom", "descriptor": 5, "file": "socket"}, State("socket", "is waiting for a socket")),
        ({"call": "read", "descriptor": 5, "file": "socket"}, State("socket", "is reading from a socket")),
        (
            {"call": "epoll_wait", "descriptor": 5, "file": "eventpoll"},
            State("socket", "is waiting for a socket or a pipe"),
        ),
        ({"call": "poll", "descriptor": 5, "file": "pipe"}, State("pipe", "is waiting for a pipe")),
        ({"call": "clock_nanosleep"}, State("sleep", "is sleeping")),
        ({"call": "hrtimer_nanosleep"}, State("sleep", "is sleeping")),
        ({"call": "wait4"}, State("child", "is waiting for a child process")),
        ({"state": "T"}, State("stopped", "is stopped (SIGSTOP)")),
        ({"state": "t"}, State("debugger", "is stopped by a debugger")),
        ({"state": "Z"}, State("ended", "has ended")),
        (
            {"state": "R", "call": "", "main_cpu": 1.0, "age": 9.0},
            State("held", "is computing in C, and holds the interpreter lock"),
        ),
        ({"state": "R", "call": "", "status": None, "age": 0}, COMPUTES),
        ({"state": "D", "call": ""}, State("file", "is waiting for a disk or a file system")),
        ({"call": "call 999"}, State("unknown", "is waiting")),
    ],
    ids=str,
)
def test_states(fields: dict[str, Any], state: State) -> None:
    assert describe_state(sample(**fields)) == state


@pytest.mark.parametrize(
    ("file", "of_a_library"),
    [
        ("/home/ada/train.py", False),
        ("/home/ada/lib/data.py", False),
        ("<string>", False),
        ("<stdin>", False),
        ("<frozen runpy>", True),
        ("/usr/lib/python3.13/threading.py", True),
        ("/opt/venv/lib/python3.13/site-packages/jax/_src/api.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", True),
        ("/opt/jaxsif/jaxsif_task/watch/observer.py", True),
    ],
)
def test_files_of_the_user(file: str, of_a_library: bool) -> None:
    frame = Frame(file, 1, "f")
    assert own_frames((frame,)) == (() if of_a_library else (frame,))


def test_own_frames() -> None:
    frames = sample(**library("jax/_src/api.py", "f")).frames
    assert own_frames(frames) == (Frame("/x/inner.py", 1, "inner"), Frame(*USER), Frame(*MAIN))


def test_own_frames_in_a_layer() -> None:
    """A project of the user's own is in site-packages, and its console script outside of it."""
    layer = "/opt/jaxsif/layers/0/lib/python3.13/site-packages"
    files = (f"{layer}/jax/_src/api.py", f"{layer}/swarm/data.py", f"{layer}/one.py", "/opt/jaxsif/bin/swarm-train")
    frames = tuple(Frame(file, 1, "f") for file in files)
    assert own_frames(frames, ("one.py", "swarm")) == frames[1:]
    assert own_frames(frames) == frames[3:]
    waits = sample(frames=[[frame.file, 1, "f"] for frame in frames], status={"own": ["swarm"]})
    assert make_snapshot([waits]).groups[0].frames == (frames[1], frames[3])


def test_a_task_that_waits_for_the_program_of_another_one() -> None:
    """Its frames are those of the census in it, which an image has by another name."""
    compare = census._Comparison.compare.__code__
    path = compare.co_filename.replace("/jaxsif/task/", "/jaxsif_task/")
    for file in (compare.co_filename, path):
        assert describe_state(sample(frames=[[file, 1, "read"], [file, 9, compare.co_name]])).kind == "programs"
