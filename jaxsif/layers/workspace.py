"""Run commands in the image while a layer is made: uv and the image's Python, with a scratch
folder.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import BUILD_FOLDER, copy_certificates, host_variables
from jaxsif.errors import HostError
from jaxsif.runtime import Runtime

SEEN_AS = BUILD_FOLDER  # the scratch folder in the container
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")


class Workspace:
    """The image, with a scratch folder to write in; a process in it sees nothing of the host but
    this folder and the network settings.
    """

    def __init__(
        self, runtime: Runtime, image: str, scratch: Path, environ: Mapping[str, str]
    ) -> None:
        self.scratch = scratch
        variables = copy_certificates(host_variables(environ), scratch)
        variables["UV_CACHE_DIR"] = f"{SEEN_AS}/cache"
        self._environ = {**environ, **runtime.environ(variables.items())}
        uv = find_uv(environ)
        shutil.copyfile(Path(__file__).with_name("inside.py"), scratch / "inside.py")
        binds = [f"{scratch}:{SEEN_AS}", f"{uv}:{SEEN_AS}/uv:ro"]
        (scratch / "uv").touch()  # a bind needs an existing target
        if "UV_CACHE_DIR" in environ:  # otherwise downloads last only as long as the scratch folder
            binds.append(f"{environ['UV_CACHE_DIR']}:{SEEN_AS}/cache")
            (scratch / "cache").mkdir()
            Path(environ["UV_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
        self._argv = runtime.exec_argv(image, binds, ())

    def run(self, *argv: str) -> tuple[int, list[str]]:
        """Return the exit status and the output lines of a command; raise HostError if the disk is
        full.
        """
        full = no_space(self.scratch.parent, "set TMPDIR to a larger folder")
        return run([*self._argv, *argv], self._environ, self.scratch, full)

    def check(self, what: str, *argv: str) -> None:
        """Run a command; raise HostError unless it succeeds."""
        status, lines = self.run(*argv)
        if status:
            raise HostError(f"{what} failed:", "in the container", "see its messages", tail(lines))

    def run_inside(self, *argv: str, python: str = "python3") -> dict[str, Any]:
        """Run inside.py, and parse its answer."""
        script = (f"{SEEN_AS}/inside.py", *argv, f"{SEEN_AS}/answer.json")
        self.check("Python of the image", python, "-I", *script)
        answer: dict[str, Any] = json.loads((self.scratch / "answer.json").read_text())
        return answer


def run(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, full: HostError
) -> tuple[int, list[str]]:
    """Run a command in `folder`; return its exit status and its output lines. Raise `full` if the
    command failed for lack of space.
    """
    lines: list[str] = []
    status = process.run_logged(argv, environ, str(folder / "log"), str(folder), lines.append)
    if status and _NO_SPACE.search("\n".join(lines)):
        raise full
    return status, lines


def no_space(folder: Path, hint: str) -> HostError:
    """Return the error for a full disk."""
    return HostError(f"no space left in {folder}", "making the layer", hint)


def tail(lines: Sequence[str]) -> str:
    """Return the last non-blank lines, starting at the program's error if there is one."""
    messages = list(filter(str.strip, lines))
    errors = list(itertools.dropwhile(lambda line: not line.startswith("error:"), messages))
    return "\n".join((errors or messages)[-12:])
