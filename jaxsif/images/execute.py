"""What only a process in the image can tell: its packages, its environment. It sees nothing of this
host.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.foreign import find, parse_json
from jaxsif.installation import find_data

# What the runtime sets for itself and for the one who runs it.
_RUNTIMES_OWN = ("APPTAINER_", "SINGULARITY_")
# Bytes of what a program in an image prints: a bill of materials of ours has 0.3 million.
_MOST_OUTPUT = 32 << 20


def read_sbom(runtime: str, image: str) -> str:
    """The bill of materials of an image, as containers/sbom.py makes it with the image's Python;
    raises HostError.

    Made anew, also where the image keeps one: packages may have been added since.
    """
    printed = _capture(
        runtime, image, ["python3", "-I", "-"], Path(find_data("containers/sbom.py")).read_bytes()
    ).decode(errors="replace")
    if not printed.startswith("{"):
        said = printed.splitlines()[0] if printed else "nothing"
        raise HostError(
            f"python3 in {image} prints more than it is told to: {said}",
            "its sitecustomize, most likely",
        )
    return printed


def read_components(runtime: str, image: str) -> list[dict[str, Any]]:
    """The components of its bill of materials; raises HostError."""
    try:
        components = find(parse_json(read_sbom(runtime, image)), "components")
    except ValueError as error:
        raise _strange(image, str(error)) from error
    if not isinstance(components, list) or not all(map(_is_component, components)):
        raise _strange(image, "it has no list of components")
    return components


def _is_component(one: object) -> bool:
    version = find(one, "version")  # null for a Python package that was removed by halves
    return all(isinstance(find(one, key), str) for key in ("name", "purl")) and isinstance(
        version, (str, type(None))
    )


def _strange(image: str, reason: str) -> HostError:
    return HostError(
        f"cannot parse the bill of materials of {image}: {reason}",
        "python3 in it",
        "jaxsif image sbom",
    )


def read_environment(runtime: str, image: str) -> dict[str, str]:
    """The variables that the image sets for a program; raises HostError."""
    pairs = (
        line.partition("=")
        for line in _capture(runtime, image, ["env", "-0"]).decode(errors="replace").split("\0")
    )
    return {
        name: value
        for name, equals, value in pairs
        if equals and not name.startswith(_RUNTIMES_OWN)
    }


_SYSTEM = """set -e
PATH=$PATH:/usr/sbin:/sbin
version=$(getconf GNU_LIBC_VERSION)
echo "${version#glibc }"
ldconfig -p | sed -n 's/^[[:space:]]*\\([^ ]*\\) .*/\\1/p'"""


def read_system(runtime: str, image: str) -> str:
    """The version of the image's glibc, such as 2.41, and a line for each library that its loader
    knows.
    """
    return _capture(runtime, image, ["sh", "-c", _SYSTEM]).decode(errors="replace")


def _capture(runtime: str, image: str, command: Sequence[str], given: bytes = b"") -> bytes:
    """Standard output of a command in the image; raises HostError."""
    argv = [
        runtime,
        "--quiet",
        "exec",
        "--cleanenv",
        "--contain",
        "--no-home",
        "--pwd",
        "/",
        image,
        *command,
    ]
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        status = process.run_plain(argv, stdin, stdout, stderr)
        for file in (stdout, stderr):
            file.seek(0)
        if status:
            said = (
                stderr.read(_MOST_OUTPUT).decode(errors="replace").strip().splitlines()
                or [f"exit status {status}"]
            )[-1]
            raise HostError(
                f"cannot run {command[0]} in {image}: {said}",
                runtime,
                "apptainer exec IMAGE " + command[0],
            )
        printed = stdout.read(_MOST_OUTPUT + 1)
        if len(printed) > _MOST_OUTPUT:
            raise HostError(
                f"{command[0]} in {image} prints more than {_MOST_OUTPUT} bytes",
                runtime,
                f"look at {command[0]} there",
            )
        return printed
