"""The box as the host sees it: start it, find it again, enter it, kill it."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .conf import LOGIN, addresses
from .errors import BoxError
from .needs import userns_argv
from .settings import FREEZER, Settings, is_root

_HERE = Path(__file__).resolve().parent
SANDBOX_SCRIPT = _HERE / "sandbox.sh"
_CLONE_NEWUSER = 0x10000000  # linux/sched.h
_NAMESPACES = ("--mount", "--net", "--uts", "--ipc", "--pid")


@dataclass(frozen=True)
class Box:
    """A box that runs now."""

    pid: int  # of its first process, as the host counts


def find_status_file(settings: Settings) -> Box | None:
    """The box that `start_box` left, unless it is gone; a process id that the kernel gave away again does not count."""
    try:
        recorded = _parse_stat((settings.home / "box.stat").read_text())
        current = _parse_stat(Path(f"/proc/{recorded[0]}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Box(current[0]) if current == recorded else None


def _parse_stat(text: str) -> tuple[int, int]:
    """Process id and start time of a line of /proc/PID/stat, see proc(5); the command may hold blanks and ')'."""
    pid, rest = text.split(" ", 1)
    return int(pid), int(rest.rsplit(")", 1)[1].split()[19])


def start_box(settings: Settings) -> Box:
    """Start the box in a session of its own and wait until all nodes have namespaces; raises BoxError."""
    (settings.home / "box.stat").unlink(missing_ok=True)
    nodes = [f"{name}={address}" for name, address in addresses(settings).items()]
    argv = [*userns_argv(), "unshare", *_NAMESPACES, "--fork", str(_HERE / "box-init.sh")]
    log_path = settings.logs / "box.log"
    with log_path.open("w") as log:
        starter = subprocess.Popen(
            [*argv, str(settings.home), str(settings.rootfs), *nodes],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while (box := find_status_file(settings)) is None:
        if starter.poll() is not None:
            raise BoxError(f"the box could not start; {log_path} says:\n{log_path.read_text()}")
        time.sleep(0.01)
    return box


def kill_box(settings: Settings) -> bool:
    """End the box and all in it, and wait until it is gone; False when there was none."""
    box = find_status_file(settings)
    if box is None:
        return False
    os.kill(box.pid, signal.SIGKILL)
    while find_status_file(settings):
        time.sleep(0.01)
    (settings.home / "box.stat").unlink(missing_ok=True)
    _remove_cgroups(FREEZER / f"minicluster-{box.pid}")
    return True


def _remove_cgroups(top: Path) -> None:
    """Remove a cgroup and those below it, from which the kernel is still taking dead processes away."""
    for folder, _, _ in os.walk(top, topdown=False):
        for _ in range(100):
            try:
                os.rmdir(folder)
                break
            except OSError:
                time.sleep(0.01)


def enter_argv(settings: Settings, box: Box, node: str) -> list[str]:
    """The prefix that runs a command as root on `node`: into the box first, then into the node."""
    into_box = ["nsenter", f"--target={box.pid}", *_NAMESPACES]
    if not is_root():
        into_box.insert(1, "--user")
    pid_file = settings.home / "run" / f"{node}.pid"
    # The file is on a mount that only the box sees, and the number is the box's.
    into_node = (
        f'exec nsenter --target="$(cat {shlex.quote(str(pid_file))})" {" ".join(_NAMESPACES)} --root --wd -- "$@"'
    )
    return [*into_box, "--", "sh", "-c", into_node, "sh"]


def user_argv(user: str, command: list[str]) -> list[str]:
    """`command` as `user`, with a login shell's environment, in their home."""
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
    become += ["env", "--default-signal=INT,QUIT"]  # which cli._exec ignores
    return [*become, "bash", "-lc", 'cd && exec "$@"', "bash", *command]


def enter_identity_userns() -> None:
    """Move this process, which must be root's, into a user namespace in which the ids below 65536 are themselves.

    There root has every capability, also those that a container or a virtual machine withholds from its root;
    Apptainer's build asks for all of them. (A map of all ids would be the first namespace's, by which programs tell
    that they are in it.)
    """
    begin, tell = os.pipe()
    outside = os.fork()
    if outside == 0:  # only a process outside may write the maps
        os.close(tell)
        os.read(begin, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{os.getppid()}/{name}").write_text("0 0 65536")
        os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER):
        raise BoxError(f"cannot make a user namespace: {os.strerror(ctypes.get_errno())}")
    os.write(tell, b".")
    os.waitpid(outside, 0)


def check_node(settings: Settings, node: str) -> None:
    """Raise BoxError for a node this cluster lacks."""
    names = (LOGIN, *settings.node_names)
    if node not in names:
        raise BoxError(f"no node {node}: this cluster has {', '.join(names)}")
