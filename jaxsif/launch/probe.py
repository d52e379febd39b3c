"""What this host has: Slurm, a container runtime, the image, a free port, GPUs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.file import check_state, open_image, read_header, unreadable
from jaxsif.installation import PACKAGE
from jaxsif.job.allocation import Allocation, gpus_of, parse_job_gpus
from jaxsif.job.counts import Counts
from jaxsif.job.nodelist import expand
from jaxsif.job.task_env import visible_gpus
from jaxsif.launch.program import check_program
from jaxsif.plan import mpirun
from jaxsif.plan.coordinator import parse_ports
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LAUNCHERS, LOCAL, MPIRUN, SRUN, choose_launcher
from jaxsif.process import find_executable
from jaxsif.runtime import find_runtime, require_runtime
from jaxsif.settings.config import Setting
from jaxsif.settings.request import RunOptions
from jaxsif.trust import find_writers

_DEFAULT_IMAGE = "jax.sif"
_LONGEST_HOSTFILE = 1 << 22  # characters, for as many hosts as there can be


class Image(NamedTuple):
    """An image that was found, and by what."""

    path: str
    source: str  # the option, variable or default that named it


def probe(
    options: RunOptions,
    named: Setting | None,
    allocation: Allocation | None,
    environ: Mapping[str, str],
) -> tuple[Host, str]:
    """The host as a plan needs it, and where its image comes from; raises JaxsifError for what is
    missing.
    """
    has_srun = find_executable(SRUN, environ) is not None
    launcher = choose_launcher(options.launcher, has_srun, allocation)
    if launcher == MPIRUN and not find_executable(MPIRUN, environ):
        raise HostError(
            "mpirun is not on the PATH", options.source("launcher"), "load Open MPI's module"
        )
    runtime = require_runtime(environ) if LAUNCHERS[launcher].spans_nodes else find_runtime(environ)
    hosts, hosts_source = (
        _find_hosts(options, allocation, environ) if launcher == MPIRUN else ((), "")
    )
    image = find_image(named) if runtime else None
    if not any(word.startswith(("--chdir", "-D")) for word in options.srun_args):
        check_program(options.command)
    host = Host(
        srun=has_srun,
        runtime=runtime,
        image=image.path if image else None,
        python=sys.executable,
        package=PACKAGE,
        port=find_port(coordinator_ports(options)),
        step=step_name(),
        nonces=draw_nonces(),
        gpus=_count_gpus(environ) if launcher != SRUN else 0,
        job_gpus=_job_gpus(options, allocation) if launcher != LOCAL else None,
        hosts=hosts,
        hosts_source=hosts_source,
    )
    return host, image.source if image else "nowhere (no container)"


def _find_hosts(
    options: RunOptions, allocation: Allocation | None, environ: Mapping[str, str]
) -> tuple[tuple[mpirun.Host, ...], str]:
    """The hosts for mpirun, and what names them: an option, the job that this is in, or this
    machine alone.
    """
    if options.hosts is not None:
        return mpirun.parse_hosts(options.hosts, options.source("hosts")), options.source("hosts")
    if options.hostfile is not None:
        return _read_hostfile(options.hostfile, options.source("hostfile"))
    if allocation:
        source = "SLURM_JOB_NODELIST (environment)"
        names = expand(environ.get("SLURM_JOB_NODELIST", ""), source)
        return tuple(mpirun.Host(name, None) for name in names), source
    for variable in mpirun.HOSTFILE_VARIABLES:
        if environ.get(variable):
            return _read_hostfile(environ[variable], f"{variable} (environment)")
    return (mpirun.Host(socket.gethostname(), None),), "this host"


def _read_hostfile(path: str, source: str) -> tuple[tuple[mpirun.Host, ...], str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_HOSTFILE + 1)
    except OSError as error:
        raise JaxsifError(
            f"cannot read the hosts of {path}: {error.strerror}", source, "correct the path"
        ) from error
    if len(text) > _LONGEST_HOSTFILE:
        reason = f"more than {_LONGEST_HOSTFILE} characters"
        raise JaxsifError(
            f"cannot read the hosts of {path}: {reason}",
            source,
            "name fewer hosts, each as NAME:SLOTS",
        )
    return mpirun.parse_hostfile(text, f"{path}, of {source}"), source


def find_image(setting: Setting | None) -> Image:
    """The image that was named, or ./jax.sif, checked; raises HostError."""
    named, source = setting or (_DEFAULT_IMAGE, "")
    mode = _mode(named, source)
    if mode is None:
        if not source:
            raise HostError(
                "no image: neither --image nor JAX_IMAGE names one, and there is no ./jax.sif here",
                hint="module load jax/sif, make image, or pass --image PATH",
            )
        raise HostError(
            f"image not found: {named}",
            source,
            "make image, module load jax/sif, or pass --image PATH",
        )
    writers = "" if source else find_writers(named)
    if writers:
        raise HostError(
            "others may have written ./jax.sif, and nothing names it", writers, "--image ./jax.sif"
        )
    source = source or "./jax.sif"
    if not stat.S_ISDIR(mode):
        _check_file(named, source)
    elif _mode(os.path.join(named, ".singularity.d"), source) is None:
        raise HostError(
            f"not an image: {named} is a folder without .singularity.d", source, "pass a .sif file"
        )
    return Image(os.path.abspath(named), source)


def _mode(path: str, source: str) -> int | None:
    """The type and permissions of what is at `path`; None where nothing is."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, source, error) from error


def _check_file(image: str, source: str) -> None:
    try:
        with open_image(image, source) as file:
            read_header(file, image, source)
    except OSError as error:
        raise unreadable(image, source, error) from error


@contextmanager
def unchanged_image(host: Host) -> Iterator[None]:
    """Raise HostError where a policy allowed the image, and its file changes before what runs it
    here has ended.
    """
    states = [(host.image, host.allowed[1])] if host.image and host.allowed else []
    for image, state in states:
        check_state(image, state, "this host")
    yield
    for image, state in states:
        check_state(image, state, "this host")


def step_name() -> str:
    """A name for a step that nobody can guess."""
    return os.urandom(8).hex()


def draw_nonces() -> tuple[str, str]:
    """Two words that no program can guess, for the reports of one run."""
    return os.urandom(8).hex(), os.urandom(8).hex()


def coordinator_ports(options: RunOptions) -> range:
    """The ports to take one from."""
    return parse_ports(options.coordinator_ports, options.source("coordinator-ports"))


def find_port(ports: range) -> int:
    """One of `free_ports`; raises HostError when there is none."""
    port = next(free_ports(ports), None)
    if port is None:
        raise HostError(
            f"none of the ports {ports[0]} to {ports[-1]} is free",
            "this host",
            "--coordinator-ports",
        )
    return port


def free_ports(ports: range) -> Iterator[int]:
    """Those of `ports` that nobody listens on here, from one of them on, another one at each call.

    The first task's node may be another host; the task shim looks there.
    """
    begin = int.from_bytes(os.urandom(4), "little")
    for index in range(len(ports)):
        port = ports[(begin + index) % len(ports)]
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        yield port


def _count_gpus(environ: Mapping[str, str]) -> int:
    """NVIDIA GPUs that this process may use."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return len(visible_gpus(environ["CUDA_VISIBLE_DEVICES"]))
    return len(
        [name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdecimal()]
    )


def _job_gpus(options: RunOptions, allocation: Allocation | None) -> Counts | None:
    """Ask Slurm for the job's GPUs when the number of tasks depends on them and the environment
    does not tell.
    """
    if (
        allocation is None
        or options.gpus_per_node
        or all(map(gpus_of, allocation.components or (allocation,)))
    ):
        return None
    tasks = options.ntasks_per_node or options.ntasks or options.per_node or allocation.ntasks
    if tasks and not allocation.gpus and not options.allow_uneven and not options.gpu_bind:
        return None
    try:
        return parse_job_gpus(
            process.output("scontrol", "--details", "show", "job", allocation.job_id)
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(
            f"scontrol does not tell the GPUs of job {allocation.job_id}",
            "SLURM_JOB_ID (environment)",
            "pass --gpus-per-node=N or --ntasks-per-node=N, or unset SLURM_JOB_ID when that job is over",
        ) from error
