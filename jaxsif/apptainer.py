"""Apptainer's and SingularityCE's side: the argument vector of `run`, variables for the container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import JaxsifError

# Where jaxsif's images keep the task package, and where the launcher's copy is bound.
TASK_FOLDER = "/opt/jaxsif/task"


class Runtime(NamedTuple):
    """The container engine on this host."""

    command: str  # the name or path that the nodes run, such as apptainer
    prefix: str  # of variables for the container: APPTAINERENV_ or SINGULARITYENV_

    @classmethod
    def from_executable(cls, command: str, real_path: str) -> Runtime:
        """`real_path` is `command` with all links followed: Apptainer installs itself as
        singularity too.
        """
        name = real_path.rsplit("/", 1)[-1]
        return cls(
            command, "SINGULARITYENV_" if name.startswith("singularity") else "APPTAINERENV_"
        )

    def environ(self, variables: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The host's variables that become `variables` in the container, over anything that the
        image sets.
        """
        return {self.prefix + name: value for name, value in variables}

    def run_argv(
        self, image: str, binds: Iterable[str], command: Iterable[str], layers: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """The engine's `run`; it must say nothing itself and see the GPUs."""
        options = [option for bind in binds for option in ("--bind", bind)]
        options += [option for layer in layers for option in ("--overlay", f"{layer}:ro")]
        # Without --no-eval a shell would expand `…` and $(…) in the values of variables.
        return (self.command, "--quiet", "run", "--nv", "--no-eval", *options, image, *command)


def parse_env(
    pairs: Iterable[str], environ: Mapping[str, str], source: str = "--env"
) -> tuple[tuple[str, str], ...]:
    """The values of --env: 'NAME=VALUE', or 'NAME' for the value that it has here; raises
    JaxsifError.
    """
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        # A shell, and so --dry-run and the runtime, knows no other letters in names.
        if not (name.isascii() and name.isidentifier()):
            raise JaxsifError(
                f"not a variable: {pair!r}", source, "--env NAME=VALUE, or --env NAME to pass it on"
            )
        if not equals:
            if name not in environ:
                raise JaxsifError(
                    f"variable {name} is not set", source, f"export {name}, or --env {name}=VALUE"
                )
            value = environ[name]
        parsed.append((name, value))
    return tuple(parsed)
