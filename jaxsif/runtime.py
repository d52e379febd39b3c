"""The container engine, Apptainer or SingularityCE: its location, and the argument vectors of its
commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import HostError
from jaxsif.process import find_executable

# Where jaxsif's images keep the task package, and where the launcher's copy is bound.
TASK_FOLDER = "/opt/jaxsif/task"

_RUNTIMES = ("apptainer", "singularity")  # in this order
# Without it a shell would expand `…` and $(…) in the values of variables.
_NO_EVAL = "--no-eval"


class Runtime(NamedTuple):
    """The container engine on this host. Each method that ends in _argv builds a command line."""

    command: str  # the name or path that the nodes run, such as apptainer
    prefix: str  # of variables for the container: APPTAINERENV_ or SINGULARITYENV_

    @classmethod
    def from_executable(cls, command: str, real_path: str) -> Runtime:
        """Return the engine that `command` starts; `real_path` is `command` with all links
        followed, since Apptainer installs itself as singularity too.
        """
        name = real_path.rsplit("/", 1)[-1]
        return cls(
            command, "SINGULARITYENV_" if name.startswith("singularity") else "APPTAINERENV_"
        )

    def environ(self, variables: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the host's variables that become `variables` in the container, overriding those of
        the image.
        """
        return {self.prefix + name: value for name, value in variables}

    @property
    def run_head(self) -> tuple[str, ...]:
        """The words, up to the binds, that run a program with the GPUs; the engine itself prints
        nothing.
        """
        return (self.command, "--quiet", "run", "--nv", _NO_EVAL)

    def alone_argv(
        self, image: str, command: Iterable[str], binds: Iterable[str] = (), network: bool = True
    ) -> tuple[str, ...]:
        """Run a command that sees nothing of the host but the binds and, with `network`, its
        network; its processes end with it. The engine prints nothing.
        """
        alone = ("--containall", "--no-home", "--no-privs", _NO_EVAL, "--pwd", "/")
        offline = () if network else ("--net", "--network", "none")
        options = (*alone, *offline, *_repeat("--bind", binds))
        return (self.command, "--quiet", "exec", *options, image, *command)

    def build_argv(
        self,
        image: str,
        definition: str,
        binds: Iterable[str],
        arguments: Mapping[str, str],
        options: Iterable[str] = (),
    ) -> tuple[str, ...]:
        """Build an image from a definition file with these build arguments."""
        values = _repeat("--build-arg", (f"{name}={value}" for name, value in arguments.items()))
        bound = _repeat("--bind", binds)
        return (self.command, "build", *options, *bound, *values, image, definition)

    def test_argv(self, image: str, *arguments: str) -> tuple[str, ...]:
        """Run the test of an image, which sees nothing of the host."""
        return (self.command, "test", "--cleanenv", "--contain", image, *arguments)

    def sign_argv(self, image: str, key_options: Iterable[str]) -> tuple[str, ...]:
        """Sign an image; the engine asks for a passphrase if the key has one."""
        return (self.command, "--quiet", "sign", *key_options, image)

    def verify_argv(self, image: str, key_options: Iterable[str]) -> tuple[str, ...]:
        """Verify all signatures of an image, and print their signers as JSON."""
        return (self.command, "verify", *key_options, "--json", image)

    def pull_argv(self, image: str, url: str) -> tuple[str, ...]:
        """Download an image from a registry, bypassing the engine's own cache."""
        return (self.command, "pull", "--disable-cache", image, url)


def _repeat(option: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return an option once for each value."""
    return tuple([word for value in values for word in (option, value)])


def find_runtime(environ: Mapping[str, str]) -> Runtime | None:
    """Return the runtime that JAXSIF_RUNTIME names, or else the apptainer or singularity on the
    PATH, or None if there is neither. Raise HostError if JAXSIF_RUNTIME cannot be executed.
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
            "unset it, or correct it; if a module set it, tell site staff",
        )
    return None


def require_runtime(environ: Mapping[str, str]) -> Runtime:
    """Find the runtime as `find_runtime` does; raise HostError if there is none."""
    runtime = find_runtime(environ)
    if runtime is None:
        raise no_runtime()
    return runtime


def no_runtime() -> HostError:
    """Return the error for a machine without a runtime."""
    return HostError(
        "no container runtime: neither apptainer nor singularity is on the PATH",
        "PATH",
        "load its module, or set JAXSIF_RUNTIME to its path on the nodes",
    )
