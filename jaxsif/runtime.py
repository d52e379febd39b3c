"""Apptainer's and SingularityCE's side: the argument vector of `run`, container variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import HostError
from jaxsif.process import find_executable

# Where jaxsif's images keep the task package, and where the launcher's copy is bound.
TASK_FOLDER = "/opt/jaxsif/task"
_RUNTIMES = ("apptainer", "singularity")  # in this order


class Runtime(NamedTuple):
    """The container engine on this host."""

    command: str  # the name or path that the nodes run, such as apptainer
    prefix: str  # of variables for the container: APPTAINERENV_ or SINGULARITYENV_

    @classmethod
    def from_executable(cls, command: str, real_path: str) -> Runtime:
        """Return the engine; `real_path` is `command` with all links followed, since Apptainer
        installs itself as singularity too.
        """
        name = real_path.rsplit("/", 1)[-1]
        return cls(
            command, "SINGULARITYENV_" if name.startswith("singularity") else "APPTAINERENV_"
        )

    def environ(self, variables: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the host's variables that become `variables` in the container, over anything that
        the image sets.
        """
        return {self.prefix + name: value for name, value in variables}

    @property
    def run_head(self) -> tuple[str, ...]:
        """The engine's `run`; it must say nothing itself and see the GPUs."""
        # Without --no-eval a shell would expand `…` and $(…) in the values of variables.
        return (self.command, "--quiet", "run", "--nv", "--no-eval")

    def run_argv(
        self, image: str, binds: Iterable[str], command: Iterable[str], layers: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the words that run `command` in `image`."""
        options = [option for bind in binds for option in ("--bind", bind)]
        options += [option for layer in layers for option in ("--overlay", f"{layer}:ro")]
        return (*self.run_head, *options, image, *command)


def find_runtime(environ: Mapping[str, str]) -> Runtime | None:
    """Return JAXSIF_RUNTIME, or apptainer or singularity on the PATH, None without; raise HostError
    for a JAXSIF_RUNTIME that cannot be executed.
    """
    named = environ.get("JAXSIF_RUNTIME")
    for command in (named,) if named else _RUNTIMES:
        found = find_executable(command, environ)
        if found:
            return Runtime.from_executable(command, os.path.realpath(found))
    if named:
        raise HostError(
            f"cannot execute the container runtime {named}",
            "JAXSIF_RUNTIME",
            "unset it, or correct it",
        )
    return None


def require_runtime(environ: Mapping[str, str]) -> Runtime:
    """Return the runtime as `find_runtime` does, where there must be one; raise HostError."""
    runtime = find_runtime(environ)
    if runtime is None:
        raise no_runtime()
    return runtime


def no_runtime() -> HostError:
    """Return the error of a machine without a runtime."""
    return HostError(
        "no container runtime: neither apptainer nor singularity is on the PATH",
        "PATH",
        "load its module, or set JAXSIF_RUNTIME to its path on the nodes",
    )
