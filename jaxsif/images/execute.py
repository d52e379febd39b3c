"""Run a process in the image to list its packages and its system. The process sees nothing of this
host.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, raise_as
from jaxsif.foreign import find, parse_json
from jaxsif.installation import find_data
from jaxsif.runtime import Runtime

# Bytes of the output of a program in an image; the bill of materials of jaxsif's images has 0.3
# million.
MOST_OUTPUT = 32 << 20


def read_sbom(runtime: Runtime, image: str) -> str:
    """Return the bill of materials of an image, made by containers/sbom.py with the image's Python;
    raise HostError.

    It is made again even if the image already contains one: packages may have been added since.
    """
    program = Path(find_data("containers/sbom.py")).read_bytes()
    printed = _capture(runtime, image, ("python3", "-I", "-"), program)
    if not printed.startswith("{"):
        stderr = (printed.splitlines() or ["nothing"])[0]
        raise HostError(
            f"python3 in {image} prints more than the bill of materials: {stderr}",
            "its sitecustomize, most likely",
        )
    return printed


def read_components(runtime: Runtime, image: str) -> list[dict[str, Any]]:
    """Return the components of the image's bill of materials; raise HostError."""
    what = f"cannot parse the bill of materials of {image}"
    with raise_as(HostError(what, "python3 in it", "jaxsif image sbom"), ValueError):
        components = find(parse_json(read_sbom(runtime, image)), "components")
        if not isinstance(components, list) or not all(map(_is_component, components)):
            raise ValueError("it has no list of components")
    return components


def _is_component(component: object) -> bool:
    """Return whether an entry has a name, a purl, and a version; the version is null for a Python
    package that was only partly removed.
    """
    named = all(isinstance(find(component, key), str) for key in ("name", "purl"))
    return named and isinstance(find(component, "version"), (str, type(None)))


_SYSTEM = """set -e
PATH=$PATH:/usr/sbin:/sbin
version=$(getconf GNU_LIBC_VERSION)
echo "${version#glibc }"
ldconfig -p | sed -n 's/^[[:space:]]*\\([^ ]*\\) .*/\\1/p'"""


def read_system(runtime: Runtime, image: str) -> str:
    """Return the version of the image's glibc, such as 2.41, and a line for each library known to
    its loader; raise HostError.
    """
    return _capture(runtime, image, ("sh", "-c", _SYSTEM))


def _capture(runtime: Runtime, image: str, command: Sequence[str], given: bytes = b"") -> str:
    """Run a command in the image with `given` as its input; return its output. Raise HostError."""
    program, engine = command[0], runtime.command
    answer = collect(runtime.alone_argv(image, command), given)
    if answer.status:
        raise HostError(
            f"cannot run {program} in {image}: {answer.reason}",
            engine,
            f"apptainer exec IMAGE {program}",
        )
    if len(answer.printed) > MOST_OUTPUT:
        raise HostError(
            f"{program} in {image} prints more than {MOST_OUTPUT} bytes",
            engine,
            f"look at {program} there",
        )
    return answer.printed.decode(errors="replace")


class Collected(NamedTuple):
    """The output and the exit status of a command."""

    status: int
    printed: bytes  # at most MOST_OUTPUT bytes and one more
    stderr: str  # its messages

    @property
    def reason(self) -> str:
        """The last line of the command's messages."""
        return (self.stderr.strip().splitlines() or [f"exit status {self.status}"])[-1]


def collect(argv: Sequence[str], given: bytes = b"") -> Collected:
    """Run a command with `given` as its input, and collect its output, even if processes that it
    leaves behind keep the output open.
    """
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        status = process.run_plain(argv, stdin, stdout, stderr)
        return Collected(status, _read_start(stdout), _read_start(stderr).decode(errors="replace"))


def _read_start(file: IO[bytes]) -> bytes:
    """Read the output, up to one byte more than the limit."""
    return os.pread(file.fileno(), MOST_OUTPUT + 1, 0)
