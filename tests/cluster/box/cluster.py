"""up, down, reset, status: the cluster as a whole."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import conf
from .errors import BoxError
from .namespaces import Box, enter_argv, find_status_file, kill_box, start_box
from .rootfs import build_rootfs, remove_tree
from .settings import GPUS_PER_NODE, Settings

_READY_TIMEOUT = 60.0  # seconds until every node must be idle; 3 to 5 is usual


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One changer of a cluster at a time; a second one waits. The kernel drops a dead holder's lock."""
    settings.home.mkdir(parents=True, exist_ok=True)
    with (settings.home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def up(settings: Settings) -> None:
    """Bring the cluster up, from whatever state it is in; nothing to do when every node answers."""
    begin = time.monotonic()
    box = find_status_file(settings)
    if box and _same_shape(settings) and not _absent(settings, box):
        print(f"cluster is up: {_summary(settings)}")
        return
    if kill_box(settings):
        print("clearing away a cluster that was not whole or had another shape", flush=True)
    build_rootfs(settings)
    _write_configuration(settings)
    print("starting " + ", ".join((conf.LOGIN, *settings.node_names)), flush=True)
    box = start_box(settings)
    _wait_until_ready(settings, box)
    print(f"cluster is up after {time.monotonic() - begin:.1f} s: {_summary(settings)}")


def down(settings: Settings) -> None:
    """Stop the cluster; homes, installed software and logs stay."""
    print("cluster is down" if kill_box(settings) else "cluster was not up")


def reset(settings: Settings, everything: bool) -> None:
    """Stop the cluster and forget homes, installed software and logs; with `everything`, the root file systems too."""
    kill_box(settings)
    gone = ["shared", "nodes", "log", "etc", "run"]
    if everything:
        gone += [path.name for path in settings.home.glob("rootfs-*")]
    for name in gone:
        remove_tree(settings.home / name)
    print(f"cluster is reset: {settings.home}")


def status(settings: Settings) -> int:
    """Print what runs and where its logs are; 0 when every node is usable, otherwise 3, as service scripts have it."""
    box = find_status_file(settings)
    print(f"folder   {settings.home}")
    print(f"logs     {settings.logs}/NODE/{{slurmctld,slurmd,munged,node}}.log")
    if not box:
        print("state    down   (minicluster up)")
        return 3
    absent = _absent(settings, box)
    print(f"state    {'not answering: ' + ', '.join(absent) if absent else 'up'}   first process {box.pid}")
    print(f"system   Debian {settings.suite}; " + _on_login(settings, box, "sinfo", "--version").strip())
    print(_on_login(settings, box, "sinfo", "--Node", "--format=%10N %8T %5c %14G %b").rstrip())
    print(_on_login(settings, box, "squeue").rstrip())
    return 3 if absent else 0


def _summary(settings: Settings) -> str:
    return f"{len(settings.node_names)} nodes with {GPUS_PER_NODE} made-up GPUs each, {settings.suite}"


def _write_configuration(settings: Settings) -> None:
    """Fresh files for a fresh start; the nodes' own disks are emptied, shared folders are kept."""
    remove_tree(settings.home / "nodes")
    slurm = settings.home / "etc" / "slurm"
    for folder in (slurm, settings.home / "run", settings.home / "shared/home", settings.home / "shared/sw"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in (conf.LOGIN, *settings.node_names):
        (settings.logs / name).mkdir(parents=True, exist_ok=True)
    (slurm / "slurm.conf").write_text(conf.render_slurm_conf(settings))
    (slurm / "gres.conf").write_text(conf.render_gres_conf())
    (slurm / "cgroup.conf").write_text(conf.render_cgroup_conf(settings))
    (slurm.parent / "hosts").write_text(conf.render_hosts(settings))
    key = slurm.parent / "munge.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))


def _same_shape(settings: Settings) -> bool:
    """True when the running cluster was started with these settings."""
    return (settings.home / "etc/slurm/slurm.conf").read_text() == conf.render_slurm_conf(settings)


def _absent(settings: Settings, box: Box) -> list[str]:
    """The nodes that Slurm cannot use now; all of them when slurmctld does not answer."""
    found = subprocess.run(
        [*enter_argv(settings, box, conf.LOGIN), "sinfo", "--noheader", "--Node", "--format=%N %T"],
        capture_output=True,
        text=True,
        check=False,
    )
    states = dict(line.split() for line in found.stdout.splitlines())
    # A node that somebody drained or reserved answers all the same; one that does not has a '*' behind its state.
    lost = [name for name, state in states.items() if state.startswith(("down", "unknown")) or state.endswith("*")]
    return [name for name in settings.node_names if name not in states or name in lost]


def _wait_until_ready(settings: Settings, box: Box) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT
    while absent := _absent(settings, box):
        if not find_status_file(settings):
            raise BoxError(f"the box ended while it started; {_log_tail(settings.logs / 'box.log')}")
        if time.monotonic() > deadline:
            log = settings.logs / absent[0] / "slurmd.log"
            raise BoxError(f"not up after {_READY_TIMEOUT:.0f} s: {', '.join(absent)}; {_log_tail(log)}")
        time.sleep(0.1)


def _log_tail(log: Path) -> str:
    text = log.read_text() if log.exists() else "(no such file: the node did not start; see node.log beside it)"
    return f"the end of {log}:\n" + "\n".join(text.splitlines()[-8:])


def _on_login(settings: Settings, box: Box, *command: str) -> str:
    argv = [*enter_argv(settings, box, conf.LOGIN), *command]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout
