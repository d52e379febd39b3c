"""`jaxsif run --stage`: copy the image to each node's own disk, once, before the step."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from jaxsif.errors import FolderTakenError, HostError, JaxsifError, Notify
from jaxsif.images.file import known, remember, remembered_digest, staged_path
from jaxsif.job.allocation import Allocation
from jaxsif.launch.children import Child, Pass, run
from jaxsif.plan.container import Container, Staged
from jaxsif.plan.host import Host
from jaxsif.settings.options import Rank
from jaxsif.settings.read import Settings
from jaxsif.text import count_of, printable

# Settings of the job that srun would inherit, none of which suits one task on each node.
_OF_THE_JOB = (
    "GPUS GPUS_PER_NODE GPUS_PER_TASK GPU_BIND TRES_PER_TASK NTASKS_PER_GPU NTASKS_PER_NODE"
)
# The user's settings for the output and placement of tasks.
_OF_THE_USER = "LABELIO STDOUTMODE STDERRMODE HOSTFILE DISTRIBUTION EXCLUSIVE"
_UNSET = [f"SLURM_{name}" for name in f"{_OF_THE_JOB} {_OF_THE_USER}".split()]
_SRUN = ("srun", "--export=ALL", "--quit-on-interrupt", "--overlap")
_ONE_EACH = (
    *("--ntasks-per-node=1", "--cpus-per-task=1", "--gres=none"),
    *("--input=none", "--job-name=stage"),
)

_NO_STAGE = "pass --no-stage"

Nodes = list[dict[str, Any]]


class Staging(NamedTuple):
    """An image to be placed on the own disks of a job's nodes."""

    image: str  # the path of the file, which all nodes see
    digest: str
    folder: str  # on the nodes
    allocation: Allocation  # the job
    package: str  # this installation's folder jaxsif
    environ: Mapping[str, str]
    source: str  # of the folder's name, or else of the request for staging; for errors

    @property
    def staged(self) -> Staged:
        """The image on the nodes' disks."""
        return Staged(staged_path(self.folder, self.digest), self.digest)

    @property
    def memo(self) -> str:
        """The cache key for the job that staged this image."""
        return f"staged below {self.folder}"

    def script(self, action: str, *words: str) -> tuple[str, ...]:
        """Build the command line of an action of jaxsif/node/stage.py."""
        return (sys.executable, "-IS", f"{self.package}/node/stage.py", action, self.folder, *words)


def stage_container(
    settings: Settings, container: Container, host: Host, notify: Notify, dry_run: bool = False
) -> Container:
    """Return the container with the image on each node's own disk, after copying it there unless
    this is a `dry_run`.

    The container is unchanged if the request for staging is a setting for all runs and either there
    are no nodes yet, or the folder on a node is open to others or belongs to somebody else.
    Raise JaxsifError.
    """
    if host.allocation is None and not settings.is_on_command_line("stage"):
        return container
    staging = _plan(settings, container, host)
    staged = container._replace(staged=staging.staged)
    if dry_run:
        notify("with --dry-run, nothing is staged")
        return staged
    try:
        _stage(staging, notify)
    except FolderTakenError as error:
        if settings.is_on_command_line("stage"):
            raise
        notify(f"warning: {printable(error.what)}; the nodes read the image where it is")
        return container
    return staged


def _plan(settings: Settings, container: Container, host: Host) -> Staging:
    """Plan the staging of the container's image; raise JaxsifError for an image that cannot be
    staged.
    """
    request, folder = settings.values["stage"], settings.values["stage-folder"]
    job = (host.whole or host).allocation  # with spare nodes
    if job is None:
        what = "there are no nodes yet to stage the image on"
        raise JaxsifError(what, "--stage", "salloc or sbatch, then jaxsif run")
    image, allowed = container.image, container.allowed
    if os.path.isdir(image):
        what = f"cannot stage a folder: {image}"
        raise JaxsifError(what, request.source, f"pass a .sif file, or {_NO_STAGE}")
    # Under a policy, the digest is the allowed one, although the file may have changed since.
    digest = allowed.digest if allowed else remembered_digest(image, host.environ)
    source = folder.source if folder.rank > Rank.DEFAULT else request.source
    return Staging(image, digest, folder.value, job, host.package, host.environ, source)


def _stage(staging: Staging, notify: Notify) -> None:
    """Put the image on all nodes of the job.

    If an earlier run of the job has done that, the tasks (node/share.py) check that the image is
    still there. Raise JaxsifError, or SystemExit when interrupted.
    """
    image, job = staging.image, staging.allocation
    if known(image, staging.memo, staging.environ) == job.job_id:
        saved = os.path.getsize(image) * job.nodes / 1e6
        notify(
            f"the image is on {count_of(job.nodes, 'node')}, from an earlier run of this job:"
            f" {saved:.0f} MB not copied"
        )
    else:
        _ensure(staging, notify)
        remember(image, staging.memo, job.job_id, staging.environ)


def _ensure(staging: Staging, notify: Notify) -> None:
    """Check each node's copy, and copy the image to nodes where it is missing or damaged."""
    begin = time.monotonic()
    nodes = _on_each_node(staging, staging.script("check", staging.digest))
    missing = [node for node in nodes if node["damage"]]
    removed = sum(node["removed"] for node in nodes)
    if removed:
        notify(f"removed {count_of(removed, 'staged image')} that nobody has used for 30 days")
    size = os.path.getsize(staging.image)
    if missing:
        _check_missing(missing, size, staging, notify)
        notify(
            f"copying the image, {size / 1e6:.0f} MB, to {len(missing)} of"
            f" {count_of(len(nodes), 'node')}, into {staging.folder}"
        )
        how = _bring(staging, notify)
        notify(f"staged in {time.monotonic() - begin:.1f} s: {how}")
    else:
        seconds, saved = time.monotonic() - begin, size * len(nodes) / 1e6
        notify(
            f"the image is on {count_of(len(nodes), 'node')}, unchanged ({seconds:.1f} s):"
            f" {saved:.0f} MB not copied"
        )


def _check_missing(missing: Nodes, size: int, staging: Staging, notify: Notify) -> None:
    """Print which copies are damaged; raise HostError for the first node without room for a new
    copy.
    """
    for node in missing:
        if node["damage"] != "absent":
            notify(f"the image on {node['node']} is {node['damage']}")
        if node["free"] < size:
            raise HostError(
                f"no room on {node['node']} in {staging.folder}: {size / 1e6:.0f} MB needed,"
                f" {node['free'] / 1e6:.0f} MB free",
                staging.source,
                "set run.stage-folder in jaxsif.toml to another folder on the nodes",
            )


def _bring(staging: Staging, notify: Notify) -> str:
    """Send the image to all nodes, and have each put it in place; return a summary."""
    brought = f"{staging.allocation.job_id}-{os.getpid()}.sif"  # for this run only
    place = staging.script("place", staging.digest, staging.image, brought)
    try:
        copying = _broadcast(staging, brought, notify)
        placed = _on_each_node(staging, place)
    except BaseException:  # Ctrl-C, too
        with suppress(JaxsifError):  # the job may be over
            _on_each_node(staging, staging.script("clean", brought))
        raise
    unpacked = all(node["unpacked"] for node in placed)
    kinds = (
        "unpacked" if unpacked else "placed as a single file where there is no room to unpack it"
    )
    slowest = max(node["seconds"] for node in placed)
    return f"sbcast {copying:.1f} s, checked and {kinds} in {slowest:.1f} s"


def _on_each_node(staging: Staging, script: tuple[str, ...]) -> Nodes:
    """Run the script on each node of the job and return its output, an object for each node; raise
    HostError for the first node that fails.
    """
    import json

    count = staging.allocation.nodes
    argv = (*_SRUN, f"--nodes={count}", f"--ntasks={count}", *_ONE_EACH)
    status, out, err = _run((*argv, *script), staging.environ)
    nodes: Nodes = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    nodes.sort(key=lambda node: str(node["node"]))
    for node in nodes:
        if "error" in node:
            kind = FolderTakenError if node.get("taken") else HostError
            raise kind(
                f"cannot stage the image on {node['node']}: {node['error']}",
                staging.source,
                f"name another --stage-folder, or {_NO_STAGE}",
            )
    if status or len(nodes) != count:
        last = err.strip().rpartition("\n")[2] or f"exit status {status}"
        raise HostError(f"cannot stage the image: {last}", "srun", _NO_STAGE)
    return nodes


def _broadcast(staging: Staging, brought: str, notify: Notify) -> float:
    """Copy the image with sbcast; return the seconds taken. If sbcast fails, nodes read the shared
    disk.
    """
    begin = time.monotonic()
    target = os.path.join(os.path.dirname(staging.staged.path), brought)
    job = f"--jobid={staging.allocation.job_id}"
    status, _, err = _run(("sbcast", "--force", job, staging.image, target), staging.environ)
    if status:
        notify(f"warning: sbcast failed, so the nodes copy the image themselves: {err.strip()}")
    return time.monotonic() - begin


def _run(argv: tuple[str, ...], environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Return a command's exit status, standard output and standard error."""
    output: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}

    def collect(stream: int) -> Pass:
        def take(data: bytes) -> bytes:
            output[stream] += data
            return b""

        return take

    variables = {name: value for name, value in environ.items() if name not in _UNSET}
    ended = run([Child(argv, variables, collect(2), collect(1))])
    if ended.interrupted:
        sys.exit(128 + ended.interrupted)
    return ended.status, output[1].decode(errors="replace"), output[2].decode(errors="replace")
