"""Find out facts of this node, outside of the container (`NodeFacts` in jaxsif/doctor/facts.py)."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from glob import glob
from itertools import cycle
from typing import TYPE_CHECKING, Any

from jaxsif.job.nodelist import expand
from jaxsif.limits import LONGEST_LINE
from jaxsif.node import nvml
from jaxsif.node.site_checks import run_checks
from jaxsif.task import contract
from jaxsif.task.contract import LONGEST_TEXT, STEP, count_gpus, first_host
from jaxsif.text import printable

if TYPE_CHECKING:
    from io import BufferedRWPair

_PATIENCE = 6.0  # seconds for all probes, such as of a folder whose server does not answer
_CONNECT = 4.0  # seconds until the first node must be reached, and until it waits for no others
_ENDS = 1 << 20  # bytes of an image, at its begin and its end, that are read
_SENT = 1 << 18  # bytes to the first node and back
_MOST_RATES = 128  # nodes; the first one would be the bottleneck of more
_MOST_NAMES = 32  # of nodes that each node looks up
_MOST_ADDRESSES = 5  # of a name; their texts fit into a line
_MOST_LINES = 20  # of the kernel's log
# What the kernel says of a broken GPU, and of a process that it has killed for its memory.
_NOTABLE = re.compile(r"NVRM: Xid|Out of memory: Killed|oom-kill:")
_USER = re.compile(r"\buid[:= ](\d{1,10})\b", re.IGNORECASE)
_OLDEST = 86400.0  # seconds; the log goes back to the boot of the node

Facts = dict[str, Any]


def shorten(value: object) -> str:
    """Return a text that fits into a line."""
    return printable(str(value))[:LONGEST_TEXT]


def collect(text: str, environ: Mapping[str, str]) -> Facts:
    """Return the facts of this node; a probe that hangs does not stop others."""
    request: Mapping[str, Any] = json.loads(text)
    node = environ.get("SLURMD_NODENAME") or socket.gethostname()
    number = int(environ.get("SLURM_NODEID", "0"))
    nodelist = environ.get("SLURM_STEP_NODELIST") or node
    # Slurm sorts the full node list of a heterogeneous step.
    first = first_host(environ.get("SLURM_JOB_NODELIST_HET_GROUP_0") or nodelist)
    names = expand(nodelist)
    look_up = partial(find_addresses, request["address"] or "%N")
    mark = f".jaxsif-doctor-{environ.get(STEP, '')}"
    probes: Mapping[str, Callable[[], Facts]] = {
        contract.DRIVER: partial(find_driver, environ),
        "names": lambda: {
            "addresses": {
                # Sorted: DNS may rotate them.
                name: ",".join(sorted(look_up(name))[:_MOST_ADDRESSES])
                for name in {*names[:_MOST_NAMES], node}
            }
        },
        contract.NETWORK: lambda: probe_network(
            look_up(first), number, len(names), request["port"], mark, request["folders"]
        ),
        contract.IMAGE: lambda: {"image": digest_ends(request["image"])},
        "disks": lambda: {"spaces": list(measure_spaces(environ))},
        "InfiniBand": lambda: {"ports": read_ports()},
        "containers": find_container_support,
        contract.KERNEL_LOG: lambda: {"kernel": read_kernel_log()},
        contract.SITE_CHECKS: lambda: {"site": run_checks(request["checks"], environ)},
    }
    found: Facts = {
        "node": node,
        "began": time.time(),
        "number": number,
        "nodelist": nodelist if node in names and len(nodelist) <= LONGEST_LINE else "",
    }
    return {**found, **run_probes(probes)}


def run_probes(probes: Mapping[str, Callable[[], Facts]]) -> Facts:
    """Run probes at the same time; return their facts, and as `failed` those without any."""
    found: dict[str, Facts] = {}
    failed = dict.fromkeys(probes, f"no answer within {_PATIENCE:.0f} s")

    def run(name: str, probe: Callable[[], Facts]) -> None:
        try:
            found[name] = probe()
        except Exception as error:  # whatever it is, it must not hide what the others find
            failed[name] = shorten(error)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in probes.items()]
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    facts = {name: value for part in list(found.values()) for name, value in part.items()}
    missing = [[name, why] for name, why in failed.items() if name not in found]
    return {**facts, "failed": missing}


def find_driver(environ: Mapping[str, str]) -> Facts:
    """Return the facts of NVIDIA's driver, if this node has one."""
    imex = len(glob("/dev/nvidia-caps-imex-channels/channel*"))
    found: Facts = {"devices": count_gpus(), "imex": imex}
    try:
        known = nvml.read_driver()
        return {**found, **known, "gpus": nvml.select_gpus(known["gpus"], environ)}
    except OSError as error:  # usually: there is no driver
        return {**found, "trouble": shorten(error) if found["devices"] else ""}


def find_addresses(pattern: str, node: str) -> list[str]:
    """Return the addresses of a node, the preferred one first; [] if there is none."""
    with suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(pattern.replace("%N", node), None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(row[4][0]) for row in found))
    return []


def digest_ends(image: str) -> str:
    """Return a digest of the size, the begin and the end of an image; '' for a folder or none."""
    if not os.path.isfile(image):
        return "" if os.path.isdir(image) or not image else "missing"
    with open(image, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        ends = [os.pread(file.fileno(), _ENDS, at) for at in (0, max(0, size - _ENDS))]
    return hashlib.sha256(b"%d" % size + b"".join(ends)).hexdigest()


def measure_spaces(environ: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """Yield each folder for scratch files with its free MiB and files."""
    for path in {"/dev/shm", "/tmp", environ.get("TMPDIR", "/tmp"), environ.get("HOME", "/tmp")}:
        if os.path.isdir(path):
            state = os.statvfs(path)
            files = state.f_favail if state.f_files else -1  # some file systems do not count
            yield shorten(path), state.f_bavail * state.f_frsize >> 20, min(files, 1 << 60)


def read_ports() -> list[list[str]]:
    """Return the ports of InfiniBand: name, state, rate."""
    root = "/sys/class/infiniband/"
    return [
        [shorten(port[len(root) :]), read(f"{port}/state"), read(f"{port}/rate")]
        for port in sorted(glob(f"{root}*/ports/*"))[:64]
    ]


def read(path: str) -> str:
    """Return the first line of a small file, or ''."""
    with suppress(OSError), open(path, errors="replace") as file:
        return shorten(file.readline(LONGEST_TEXT).strip())
    return ""


def find_container_support() -> Facts:
    """Return what the container runtime needs of the kernel."""
    most = read("/proc/sys/user/max_user_namespaces")
    namespaces = min(int(most), 1 << 60) if most.isdecimal() else -1
    return {"namespaces": namespaces, "fuse": os.path.exists("/dev/fuse")}


def find_notable(line: str) -> str:
    """Return the text of a recent line of the kernel's log if it is evidence against this node, or
    concerns this user's own processes, or else ''.

    Such as '4,1234,5678901,-;oom-kill:constraint=CONSTRAINT_NONE,task=python,pid=7,uid=1000'.
    """
    head, _, text = line.partition(";")
    if not _NOTABLE.search(text):
        return ""
    time_of, user = head.split(",")[2:3], _USER.search(text)
    age = time.monotonic() - int(time_of[0]) / 1e6 if time_of and time_of[0].isdecimal() else 0.0
    return "" if age > _OLDEST or (user and int(user[1]) != os.getuid()) else text


def read_kernel_log() -> list[str] | None:
    """Return the lines of the kernel's log that speak against this node, or None if users may not
    read the log.
    """
    lines: list[str] = []

    def open_now(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK)  # all that is there, without waiting for more

    try:
        # A pipe is broken when the kernel has overwritten the next line.
        with (
            suppress(BrokenPipeError),
            open("/dev/kmsg", "rb", buffering=0, opener=open_now) as log,
        ):
            while data := log.read(1 << 16):
                text = data.decode(errors="replace")
                lines += filter(None, map(find_notable, text.split("\n")))
    except OSError:
        return None
    return list(map(shorten, lines[-_MOST_LINES:]))


# --- The network


def probe_network(
    addresses: Sequence[str], number: int, nodes: int, port: int, mark: str, folders: Sequence[str]
) -> Facts:
    """Connect to the first node, at one of its addresses; on that node, wait for all others.

    The first node leaves a file in each shared folder meanwhile, which the others look for.
    """
    if number == 0:
        with marked(folders, mark) as problems:
            return {"folders": problems, "reason": serve(port, mark, nodes - 1)}
    try:
        with connect(addresses, port) as client, client.makefile("rwb") as stream:
            found = measure(stream, mark, nodes <= _MOST_RATES)
            found["folders"] = [
                [shorten(path), find_problem(find_there(path), mark)] for path in folders
            ]
            return found
    except OSError as error:
        place = ",".join(addresses) or "no address"
        reason = f"{place}:{port}: {error.strerror or error}"
        return {"reason": shorten(reason)}


@contextmanager
def marked(folders: Sequence[str], mark: str) -> Iterator[list[list[str]]]:
    """Leave a file in each folder during the body of the `with`; yield each folder with what is
    wrong there.
    """
    paths = [os.path.join(find_there(folder), mark) for folder in folders]
    try:
        yield [[shorten(folder), leave_mark(path)] for folder, path in zip(folders, paths)]
    finally:
        for name in [f"{path}{ending}" for path in paths for ending in ("", ".new")]:
            with suppress(OSError):
                os.unlink(name)


def find_there(folder: str) -> str:
    """Return a folder or, since programs make their own, the nearest one above it that exists."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def leave_mark(path: str) -> str:
    """Make a file, lock it and rename it, as checkpoints and the compile cache need; return what is
    wrong, or ''.
    """
    try:
        with open(f"{path}.new", "x") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(f"{path}.new", path)
    except OSError as error:
        return f"cannot write in {os.path.dirname(path)}: {error.strerror}"
    return ""


def find_problem(folder: str, mark: str) -> str:
    """Return what is wrong with a shared folder on another node than the first, or ''."""
    if not os.path.exists(os.path.join(folder, mark)):
        return "not the same folder as on the first node"
    return "" if os.access(folder, os.W_OK) else "cannot write there"


def serve(port: int, mark: str, others: int) -> str:
    """Wait for all other nodes for a few seconds; return why that is impossible, or ''."""
    if not others:
        return ""
    try:
        server = listen(port, min(others, 4096))
    except OSError as error:
        return f"port {port}, for JAX's coordinator, is not free: {os.strerror(error.errno or 0)}"
    threads: list[threading.Thread] = []
    met: list[bool] = []  # true for each of the others, and nothing for a stranger
    deadline = time.monotonic() + _CONNECT + 1
    with server:
        server.settimeout(0.05)
        while len(met) < others and time.monotonic() < deadline:
            try:
                client = server.accept()[0]
            except OSError as error:
                if error.errno not in (None, errno.EMFILE):  # None: nobody connects
                    raise
                time.sleep(0.01)  # until others have been answered
                continue
            threads.append(threading.Thread(target=answer, args=(client, mark, met), daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return ""


def listen(port: int, backlog: int) -> socket.socket:
    """Listen on all networks, as JAX's coordinator does; raise OSError."""
    with suppress(OSError):  # without IPv6
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
        )
    return socket.create_server(("", port), backlog=backlog)


def answer(client: socket.socket, mark: str, met: list[bool]) -> None:
    """Answer each line from another node with the time and the line itself; record that it came."""
    client.settimeout(_CONNECT)
    with client, client.makefile("rwb") as stream, suppress(OSError):
        if stream.readline(len(mark) + 1) != f"{mark}\n".encode():
            return  # a stranger
        met.append(True)
        while line := stream.readline(_SENT):
            stream.write(f"{time.time()}\n".encode() + line)
            stream.flush()


def connect(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to the first node, which may need a moment, at each of its addresses in turn; raise
    OSError.
    """
    deadline, turn = time.monotonic() + _CONNECT, cycle(addresses or ["no address"])
    while True:
        try:
            client = socket.create_connection((next(turn), port), timeout=1.0)
            client.settimeout(_CONNECT)  # the first node may have a thousand others to answer
            return client
        except OSError:
            if time.monotonic() > deadline or not addresses:
                raise
            time.sleep(0.05)


def measure(stream: BufferedRWPair, mark: str, with_rate: bool = True) -> Facts:
    """Return the skew of the clocks and the rate, each from the fastest of three exchanges; raise
    OSError if the first node does not answer. An exchange lost while measuring the rate proves
    nothing: by then, the node was reached.
    """

    def exchange(line: bytes) -> tuple[float, float]:
        before = time.time()
        stream.write(line)
        stream.flush()
        there = stream.readline(64)
        if stream.readline(_SENT) != line:
            raise OSError(errno.ECONNRESET, "connected, but another program answers, or none")
        after = time.time()
        return after - before, (before + after) / 2 - float(there)

    stream.write(f"{mark}\n".encode())
    skew = min(exchange(b"\n") for _ in range(3))[1]
    found = {"skew": round(skew, 3)}
    if not with_rate:
        return found
    with suppress(OSError):
        took = min(exchange(b"." * (_SENT - 1) + b"\n") for _ in range(3))[0]
        found["rate"] = round(2 * _SENT / max(took, 1e-6))
    return found
