"""The container that the tasks run in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from types import MappingProxyType
from typing import NamedTuple

from jaxsif.images.file import Allowed
from jaxsif.plan.host import Host
from jaxsif.runtime import TASK_FOLDER, Runtime
from jaxsif.task import contract


class Staged(NamedTuple):
    """The image on each node's own disk."""

    path: str  # the unpacked image, or the file, on the nodes
    digest: str


# The remedy where an image starts, and its tasks do not.
RUNSCRIPT_HINT = 'end the image\'s %runscript with exec "$@", which runs the program'


class Container(NamedTuple):
    """An image, and the mounts on top of it."""

    runtime: Runtime
    image: str  # the path of the file or folder, which all nodes see
    source: str = ""  # the option, variable or default that named it
    binds: tuple[str, ...] = ()  # SRC[:DEST[:OPTS]], as for the runtime
    variables: Mapping[str, str] = MappingProxyType({})  # of the fabric's profile; --env has more
    layers: tuple[str, ...] = ()  # files to mount over the image
    cache: str = ""  # the folder of JAX's compile cache, which all nodes have; '' for none
    staged: Staged | None = None
    allowed: Allowed | None = None  # under a policy
    alone: bool = False  # one container for each task, and not one for all tasks of a node
    sources: Mapping[str, str] = MappingProxyType({})  # path of a bind -> what names it

    def add_binds(self, binds: tuple[str, ...], source: str) -> Container:
        """Return the container with more binds; `source` is the option or setting with them."""
        each = chain.from_iterable(bind.split(",") for bind in binds)
        named = dict.fromkeys((bind.partition(":")[0].rstrip("/") for bind in each), source)
        return self._replace(binds=(*self.binds, *binds), sources={**self.sources, **named})

    @property
    def path(self) -> str:
        """The path at which the nodes read the image."""
        return self.staged.path if self.staged else self.image

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """The runtime's options for binds and layers, each with its value."""
        overlays = map("{}:ro".format, self.layers)
        return (*zip(repeat("--bind"), self.binds), *zip(repeat("--overlay"), overlays))

    def execute(self, program: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words that run `program` in a container of its own."""
        return (*self.runtime.run_head, *chain.from_iterable(self.mounts), self.path, *program)

    def share(self, host: Host, program: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words that run `program` in the container that jaxsif/node/share.py starts.

        All tasks of a node share that container, unless each is to have its own. Before share.py
        runs an image that is staged, or that a policy allows, it checks the image.
        """
        words = [host.python, "-IS", f"{host.package}/node/share.py"]
        if self.alone:
            words.append("--alone")
        return (*words, *self._check, *self.execute(("--", *program)))

    @property
    def _check(self) -> tuple[str, ...]:
        """The arguments for share.py's check of the image; () for no check."""
        if self.staged:
            return ("--staged", self.staged.path, self.staged.digest, self.image)
        if self.allowed:
            return ("--allowed", self.allowed.digest, self.allowed.state, self.image)
        return ()

    def environ(self, inside: Mapping[str, str], step: str) -> dict[str, str]:
        """Return the variables for the program that starts the container; they set those `inside`
        the container, too.
        """
        return {contract.STEP: step, **self.runtime.environ(inside.items())}  # STEP: for the host

    def start_task(
        self, host: Host, tasks: int | None, command: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the words that each of a node's `tasks` executes to run `command` under the task
        shim.
        """
        task_bind = f"{host.package}/task:{TASK_FOLDER}:ro"
        ours = self._replace(binds=(task_bind, *self.binds))
        program = ("/bin/sh", f"{TASK_FOLDER}/start.sh", *command)
        one_each = self.alone or tasks == 1
        if one_each and not self._check:
            return ours.execute(program)
        return ours.share(host, program)


class OwnPython(NamedTuple):
    """The stand-in for a container when the tasks run in this machine's own Python."""

    source: str = "nowhere (no container)"
    variables: Mapping[str, str] = MappingProxyType({})
    cache: str = ""

    def environ(self, inside: Mapping[str, str], step: str) -> dict[str, str]:
        """Return the variables of a task under their own names."""
        return {contract.STEP: step, **inside}

    def start_task(
        self, host: Host, _tasks: int | None, command: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the words that each task executes to run `command` under the task shim."""
        return ("/bin/sh", f"{host.package}/task/start.sh", *command)
