"""Apptainer's and SingularityCE's side: what an image is, the argument vector of `run`, variables for the container."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.errors import HostError, JaxsifError

TASK_FOLDER = "/opt/jaxsif/task"  # where jaxsif's images keep the task package, and where the launcher's copy is bound

# The header of a SIF file, little endian: https://github.com/apptainer/sif, pkg/sif/sif.go.
#   launch script[32] magic[10] version[3] architecture[3] id[16] created modified
#   descriptors free, total, offset, size; data offset, size
_SIF_HEADER = struct.Struct("<32s10s3s3s16s8q")
SIF_HEADER_SIZE = _SIF_HEADER.size
_SIF_MAGIC = b"SIF_MAGIC\x00"


class Runtime(NamedTuple):
    """The container engine on this host."""

    command: str  # the name or path that the nodes run, such as apptainer
    prefix: str  # of variables for the container: APPTAINERENV_ or SINGULARITYENV_

    @classmethod
    def from_executable(cls, command: str, real_path: str) -> Runtime:
        """`real_path` is `command` with all links followed: Apptainer installs itself as singularity too."""
        name = real_path.rsplit("/", 1)[-1]
        return cls(command, "SINGULARITYENV_" if name.startswith("singularity") else "APPTAINERENV_")

    def environ(self, variables: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The host's variables that become `variables` in the container, over anything that the image sets."""
        return {self.prefix + name: value for name, value in variables}

    def run_argv(self, image: str, binds: Iterable[str], command: Iterable[str]) -> tuple[str, ...]:
        """The engine's `run`; it must say nothing itself and see the GPUs."""
        options = [option for bind in binds for option in ("--bind", bind)]
        # Without --no-eval a shell would expand `…` and $(…) in the values of variables.
        return (self.command, "--quiet", "run", "--nv", "--no-eval", *options, image, *command)


def check_sif(header: bytes, size: int, image: str, source: str) -> None:
    """Raise HostError unless `header`, the first bytes of a file of `size` bytes, is that of a whole SIF image."""
    if len(header) < SIF_HEADER_SIZE or not header[32:42] == _SIF_MAGIC:
        raise HostError(f"not a SIF image: {image}", source, "make image, or pass --image PATH to a .sif file")
    data_offset, data_size = _SIF_HEADER.unpack(header[:SIF_HEADER_SIZE])[-2:]
    if size < data_offset + data_size:
        missing = data_offset + data_size - size
        raise HostError(
            f"image is truncated, {missing} of {data_offset + data_size} bytes are missing: {image}",
            source,
            "copy or build it again",
        )


def parse_env(pairs: Iterable[str], environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The values of --env: 'NAME=VALUE', or 'NAME' for the value that it has here; raises JaxsifError."""
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        # A shell, and so --dry-run and the runtime, knows no other letters in names.
        if not (name.isascii() and name.isidentifier()):
            raise JaxsifError(f"not a variable: {pair!r}", "--env", "--env NAME=VALUE, or --env NAME to pass it on")
        if not equals:
            if name not in environ:
                raise JaxsifError(f"variable {name} is not set", "--env", f"export {name}, or --env {name}=VALUE")
            value = environ[name]
        parsed.append((name, value))
    return tuple(parsed)
