"""The keeper of a node's container: it starts it, tells each task how to enter it, and ends it behind the last one.

It lives beside the first task. Each task holds a socket to it, and the kernel closes that however the task ends. The
container ends with the keeper, because its one process reads the keeper's pipe.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jaxsif.node.share import PATIENCE, enter_namespaces, pack, peer

_BEGIN, _END = b"\x1ejaxsif ", b"\0jaxsif end\n"
# The container's one process: its number and its variables, then nothing until the pipe is closed.
_HOLD = r"""printf '\036jaxsif %s\n' "$$"; cat /proc/self/environ; printf 'jaxsif end\n'; exec cat >/dev/null"""


def keep(listener: int, container: list[str], expected: int) -> None:
    """Keep a container for `expected` tasks, which connect to the descriptor `listener`."""
    # Slurm sends a step's signals to every process of it; what ends the keeper is the end of the tasks.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.setsid()
    # What serves the image's files serves all tasks: not on the cores of the first one alone.
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    void = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(void, stream)
    hold, said = _start(container)
    answer = _find_entry(said)
    if not answer:
        os.close(hold)
    _serve(socket.socket(fileno=listener), answer, expected, said)


def _start(container: list[str]) -> tuple[int, int]:
    """Start the container; return the ends of the pipes to and from its process."""
    stdin, hold = os.pipe()
    said, stdout = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
    os.posix_spawnp(container[0], [*container, "/bin/sh", "-c", _HOLD], os.environb, file_actions=actions)
    os.close(stdin)
    os.close(stdout)
    return hold, said


def _find_entry(said: int) -> bytes:
    """What to tell the tasks; nothing where the container cannot start, or nobody can enter it."""
    data = b""
    while _END not in data:
        chunk = os.read(said, 65536)
        if not chunk:
            return b""  # each task then starts the runtime itself, which says what is wrong
        data += chunk
    # Before and behind it, the image may have said something.
    pid, _, variables = data.partition(_END)[0].partition(_BEGIN)[2].partition(b"\n")
    answer = compare(os.environb, parse_variables(variables), int(pid))
    return answer if _can_enter(int(pid)) else b""


def parse_variables(data: bytes) -> dict[bytes, bytes]:
    """Variables as in /proc/PID/environ."""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def compare(host: Mapping[bytes, bytes], container: Mapping[bytes, bytes], pid: int) -> bytes:
    """What the runtime did to the variables of the first task: the others' are to be treated alike.

    What it left alone is each task's own, such as SLURM_PROCID, unless --env has set it for all.
    """

    def is_for_all(name: bytes) -> bool:
        told = any(prefix + name in host for prefix in (b"APPTAINERENV_", b"SINGULARITYENV_"))
        return name != b"_" and (told or host.get(name) != container[name])

    unset = [name for name in host if name not in container]
    return pack(pid, unset, [name + b"=" + value for name, value in container.items() if is_for_all(name)])


def _can_enter(pid: int) -> bool:
    """Try it. A setuid runtime makes no user namespace, and then only root may enter."""
    trial = os.fork()
    if trial == 0:
        try:
            enter_namespaces(pid)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(trial, 0)[1] == 0


def _serve(listener: socket.socket, answer: bytes, expected: int, said: int) -> None:
    """Answer `expected` tasks, and wait until they have ended, or the container has."""
    tasks: list[socket.socket] = []
    while expected or tasks:
        watched: list[Any] = [listener, *tasks, *([said] if answer else [])]
        ready = select.select(watched, [], [], PATIENCE)[0]
        if not (ready or tasks) or (said in ready and not os.read(said, 65536)):
            break  # nobody came; or the container is gone
        for task in [task for task in tasks if task in ready]:
            task.close()  # a task says nothing: it has ended
            tasks.remove(task)
        if listener not in ready:
            continue
        task = listener.accept()[0]
        if not expected or peer(task) != os.getuid():
            task.close()  # what the container's variables are is this user's own
            continue
        expected -= 1
        if not answer:
            task.close()
            continue
        tasks.append(task)
        with suppress(OSError):  # it has ended meanwhile, as the next round will see
            task.sendall(answer + b"\0\n")
