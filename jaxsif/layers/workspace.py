"""Run commands in the image while a layer is made: uv, the image's Python, builds of projects."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import BUILD_FOLDER, copy_certificates, host_variables
from jaxsif.errors import HostError
from jaxsif.runtime import Runtime

SEEN_AS = BUILD_FOLDER  # the scratch folder in the container
_SEEN_PATH = re.compile(rf"(?:file://)?{SEEN_AS}/([^\s'\"`:,()]*)")
_MOST_LINES = 10_000  # of a command's output that are kept
# The engine would pass on some of these to the container, and bind what others name.
_OF_ENGINE = re.compile(r"(APPTAINER|SINGULARITY)(?!_(TMPDIR|CACHEDIR|CONFIGDIR)$)")
# An image has no git, which setuptools-scm would ask for the version.
VERSION = "SETUPTOOLS_SCM_PRETEND_VERSION"  # also with _FOR_PROJECT
_OF_UV = re.compile("hint: .*`--")  # names an option of uv
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")


class Workspace:
    """The image, with a scratch folder to write in; a process in it sees nothing of the host but
    this folder, its network and the network settings.
    """

    def __init__(
        self, runtime: Runtime, image: str, scratch: Path, environ: Mapping[str, str]
    ) -> None:
        self.scratch = scratch
        # A path in the scratch folder -> the user's name for it.
        self.names = {"requirements.txt": "the requirements", "install.txt": "the requirements"}
        self._runtime, self._image = runtime, image
        self._clean = {name: environ[name] for name in environ if not _OF_ENGINE.match(name)}
        variables = copy_certificates(host_variables(environ), scratch)
        variables["UV_CACHE_DIR"] = f"{SEEN_AS}/cache"
        self._environ = {**self._clean, **runtime.environ(variables.items())}
        uv = find_uv(environ)
        shutil.copyfile(Path(__file__).with_name("inside.py"), scratch / "inside.py")
        binds = [f"{scratch}:{SEEN_AS}", f"{uv}:{SEEN_AS}/uv:ro"]
        (scratch / "uv").touch()  # a bind needs an existing target
        if "UV_CACHE_DIR" in environ:  # otherwise downloads last only as long as the scratch folder
            binds.append(f"{environ['UV_CACHE_DIR']}:{SEEN_AS}/cache")
            (scratch / "cache").mkdir()
            Path(environ["UV_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
        self._argv = runtime.alone_argv(image, (), binds)
        self._full = no_space(scratch.parent, "set TMPDIR to a larger folder")

    def run(self, *argv: str) -> tuple[int, list[str]]:
        """Return the exit status and the output lines of a command; raise HostError if the disk is
        full.
        """
        return run([*self._argv, *argv], self._environ, self.scratch, self._full)

    def run_untrusted(
        self, folder: Path, writable: str, path: str, *argv: str
    ) -> tuple[int, list[str]]:
        """Run a command as `run` does, but without the network and its settings; it sees `folder`
        in place of the scratch folder, and may change only `writable` in it. `path` is PYTHONPATH.
        """
        binds = (f"{folder}:{SEEN_AS}:ro", f"{folder}/{writable}:{SEEN_AS}/{writable}")
        alone = self._runtime.alone_argv(self._image, argv, binds, network=False)
        variables = {name: self._clean[name] for name in self._clean if name.startswith(VERSION)}
        variables.update(TMPDIR=f"{SEEN_AS}/{writable}", PYTHONPATH=path)
        environ = {**self._clean, **self._runtime.environ(variables.items())}
        return run(alone, environ, self.scratch, self._full)

    def check(self, problem: str, *argv: str) -> None:
        """Run a command; raise HostError with this problem unless it succeeds."""
        status, lines = self.run(*argv)
        if status:
            reason = tail(name_paths(lines, self.names))
            raise HostError(f"{problem}:", "in the container", "see the messages", reason)

    def run_inside(self, *argv: str, python: str = "python3") -> dict[str, Any]:
        """Run inside.py, and parse its answer."""
        script = (f"{SEEN_AS}/inside.py", *argv, f"{SEEN_AS}/answer.json")
        self.check("the image's Python failed", python, "-I", *script)
        answer: dict[str, Any] = json.loads((self.scratch / "answer.json").read_text())
        return answer


def run(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, full: HostError
) -> tuple[int, list[str]]:
    """Run a command in `folder`; return its exit status and its last output lines. Raise `full` if
    the command failed for lack of space.
    """
    lines: deque[str] = deque(maxlen=_MOST_LINES)
    status = process.run_logged(argv, environ, str(folder / "log"), str(folder), lines.append)
    if status and _NO_SPACE.search("\n".join(lines)):
        raise full
    return status, list(lines)


def no_space(folder: Path, hint: str) -> HostError:
    """Return the error for a full disk."""
    return HostError(f"no space left in {folder}", "making the layer", hint)


def tail(lines: Sequence[str]) -> str:
    """Return the last non-blank lines, starting at the program's error if there is one."""
    messages = [line for line in lines if line.strip() and not _OF_UV.match(line)]
    errors = list(itertools.dropwhile(lambda line: not line.startswith("error:"), messages))
    return "\n".join((errors or messages)[-12:])


def name_paths(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return messages from the container with the user's names for files in the scratch folder."""

    def name(found: re.Match[str]) -> str:
        path = found[1]
        given = (names[seen] + path[len(seen) :] for seen in names if path.startswith(seen))
        return next(given, path)

    return [_SEEN_PATH.sub(name, line) for line in lines]
