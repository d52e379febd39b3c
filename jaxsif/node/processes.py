"""Read about this user's processes in /proc, see proc(5).

A process can end while it is being read, and the kernel may refuse access: then there is nothing to
read, and functions here return b'' or ''.
"""

from __future__ import annotations

import os
import re
import signal
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jaxsif.node.share import parse_variables
from jaxsif.node.syscalls import OF_A_DESCRIPTOR, OF_A_LIST, RESTARTED, name_call

_LARGEST = 4 << 20  # bytes of one file
_MOST_DESCRIPTORS = 4096  # of one process, to look at
_TICKS = os.sysconf("SC_CLK_TCK")  # a second
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
# The beginning of a link in /proc/PID/fd -> the kind of its target.
_KINDS = {
    "pipe:": "pipe",
    "socket:": "socket",
    "anon_inode:": "",  # the rest of the link, such as [eventpoll]
    "/dev/pts/": "terminal",
    "/dev/tty": "terminal",
    "/dev/console": "terminal",
}


class Stat(NamedTuple):
    """The contents of /proc/PID/stat."""

    state: str  # a letter: R runs, S sleeps, D waits for a device, T is stopped, Z has ended, ...
    parent: int
    cpu: float  # seconds that it has computed, with all its threads
    waited: float  # seconds that children it has waited for had computed
    begun: int  # clock ticks between the start of the machine and that of the process


class Thread(NamedTuple):
    """The state of one thread of a process."""

    state: str  # as for a process; '' if it has ended
    cpu: float  # seconds that it has computed
    runs: int  # how often the kernel has let it run; -1 if unknown


class Call(NamedTuple):
    """The system call that a thread is in."""

    name: str  # 'futex'; or the kernel's function, such as 'futex_do_wait'; '' while it runs
    descriptor: int = -1  # that the call is about, or -1
    file: str = ""  # the kind of the descriptor: pipe, socket, terminal, or a path


def read(path: str, most: int = _LARGEST) -> bytes:
    """Return the first `most` bytes of a file in /proc, or b'' if there is nothing to read."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def read_link(path: str) -> str:
    """Return where a link in /proc leads, or '' if there is nothing to read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def list_own() -> Iterator[int]:
    """Yield the ids of this user's processes, except for this process."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            is_own = os.stat(f"/proc/{name}").st_uid == os.getuid()
        except FileNotFoundError:  # it has ended
            continue
        if is_own and int(name) != os.getpid():
            yield int(name)


def read_environ(pid: int) -> Mapping[bytes, bytes]:
    """Return the variables that the program of a process was started with."""
    return parse_variables(read(f"/proc/{pid}/environ").split(b"\0"))


def parse_stat(text: bytes) -> Stat | None:
    """Parse a line of /proc/PID/stat; return None for anything else.

    The second field, the name in parentheses, may contain anything.
    """
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    own, children = (sum(map(int, fields[at : at + 2])) / _TICKS for at in (11, 13))
    return Stat(fields[0].decode(), int(fields[1]), own, children, int(fields[19]))


def read_stat(pid: int) -> Stat | None:
    """Return the state of a process, or None if it has ended."""
    return parse_stat(read(f"/proc/{pid}/stat"))


def find_thread(pid: int, number: int) -> int:
    """Return the thread that has this number in its container, or the main thread if there is none
    or the number is 0.
    """
    folder = f"{pid}/task"
    if not number or _read_status(f"{folder}/{number}", b"NSpid", 10, 0) == number:
        return number or pid
    with suppress(OSError):
        for name in os.listdir(f"/proc/{folder}"):
            if _read_status(f"{folder}/{name}", b"NSpid", 10, 0) == number:
                return int(name)
    return pid


def read_thread(pid: int, thread: int) -> Thread:
    """Read the state of a thread of a process."""
    stat = parse_stat(read(f"/proc/{pid}/task/{thread}/stat"))
    spent = read(f"/proc/{pid}/task/{thread}/schedstat").split()  # in nanoseconds
    state, cpu = (stat.state, stat.cpu) if stat else ("", 0.0)
    return Thread(state, int(spent[0]) / 1e9, int(spent[2])) if spent else Thread(state, cpu, -1)


def sum_cpu(pids: Sequence[int]) -> float:
    """Return the CPU seconds of these processes and of their children that have ended."""
    return sum(stat.cpu + stat.waited for stat in map(read_stat, pids) if stat)


def sum_io(pids: Sequence[int]) -> tuple[int, int] | None:
    """Return the bytes that these processes have read and written, or None if the kernel reports
    none.
    """
    known = list(filter(None, map(read_io, pids)))
    return (sum(read for read, _ in known), sum(written for _, written in known)) if known else None


def read_io(pid: int) -> tuple[int, int] | None:
    """Return the bytes that a process has read and written, or None if unknown."""
    found = dict(re.findall(rb"(?m)^([rw]char): (\d+)$", read(f"/proc/{pid}/io")))
    return (int(found[b"rchar"]), int(found[b"wchar"])) if len(found) == 2 else None


def count_threads(pid: int) -> int:
    """Return the number of threads besides the main one."""
    return _read_status(pid, b"Threads", 10, 1) - 1


def catches(pid: int, number: int) -> bool:
    """Return whether a process has its own handler for a signal."""
    return bool(_read_status(pid, b"SigCgt", 16, 0) & 1 << (number - 1))


def number_inside(pid: int) -> int:
    """Return the process ID that a process itself sees, which may be the one in its container."""
    return _read_status(pid, b"NSpid", 10, pid)


def _read_status(task: int | str, name: bytes, base: int, missing: int) -> int:
    """Return the last number in a line of /proc/PID/status, or `missing`."""
    status = read(f"/proc/{task}/status")
    found = re.search(rb"(?m)^%s:(?:\s*[0-9a-f]+)*?\s*([0-9a-f]+)$" % name, status)
    return int(found[1], base) if found else missing


def read_name(pid: int) -> str:
    """Return the short name of a process, of up to 15 bytes."""
    return read(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n")


def is_python(pid: int) -> bool:
    """Return whether a process runs Python."""
    return os.path.basename(read_link(f"/proc/{pid}/exe")).startswith(("python", "pypy"))


def find_descriptors(pid: int) -> Mapping[int, str]:
    """Return where the open descriptors of a process lead."""
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)[:_MOST_DESCRIPTORS]
    except OSError:
        return {}
    return {int(number): read_link(f"{folder}/{number}") for number in numbers}


def uses_gpu(descriptors: Mapping[int, str]) -> bool:
    """Return whether one of the descriptors is a GPU's."""
    return any(link.startswith(_GPUS) for link in descriptors.values())


def name_file(link: str) -> str:
    """Return the target of a link in /proc/PID/fd: pipe, socket, terminal, or a path."""
    kind = next((begin for begin in _KINDS if link.startswith(begin)), None)
    return link if kind is None else _KINDS[kind] or link[len(kind) :].strip("[]")


def read_call(pid: int, thread: int, descriptors: Mapping[int, str]) -> Call:
    """Return the system call that a thread of a process is in.

    The kernel gives its number only to those who may trace the process; others get at most the
    function in which the thread waits.
    """
    words = read(f"/proc/{pid}/task/{thread}/syscall").split()
    in_call = len(words) == 9 and words[0].isdigit()  # else 'running', '-1 …' or nothing
    name = name_call(int(words[0])) if in_call else RESTARTED
    if name == RESTARTED:
        waits_in = read(f"/proc/{pid}/task/{thread}/wchan").decode(errors="replace")
        return Call("" if waits_in == "0" else waits_in)
    argument = int(words[1], 16)
    descriptor = -1
    if OF_A_DESCRIPTOR.match(name):
        # A signed 32-bit number.
        descriptor = max((argument & 0xFFFFFFFF ^ 1 << 31) - (1 << 31), -1)
    elif name in OF_A_LIST:
        descriptor = _read_number(pid, argument)
    return Call(name, descriptor, name_file(descriptors.get(descriptor, "")))


def _read_number(pid: int, address: int) -> int:
    """Return the 32-bit number at an address of a process, or -1 if it cannot be read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            return int(struct.unpack("=i", os.pread(memory.fileno(), 4, address))[0])
    except (OSError, OverflowError, ValueError, struct.error):
        return -1


def request_stack(pid: int) -> bool:
    """Send a process the signal that makes Python write where its threads are; return whether it
    was sent.

    A process without a handler for it cannot answer.
    """
    with suppress(ProcessLookupError):  # it has ended
        if catches(pid, signal.SIGWINCH):
            os.kill(pid, signal.SIGWINCH)
            return True
    return False
