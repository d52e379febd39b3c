"""Commands in the image, for a layer that is being made: uv and the image's Python, with a scratch
folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxsif import process
from jaxsif.builds.build import find_uv
from jaxsif.builds.host_settings import host_variables
from jaxsif.errors import HostError
from jaxsif.runtime import Runtime

SEEN_AS = "/mnt"  # where commands in the container see the scratch folder
NO_SPACE = ("No space left on device", "Disk quota exceeded")


class Container:
    """The image, with a scratch folder to write in; nothing else of the host reaches it but
    settings of its network.
    """

    def __init__(
        self, runtime: Runtime, image: str, scratch: Path, environ: Mapping[str, str]
    ) -> None:
        self.scratch = scratch
        variables = host_variables(environ)
        if "SSL_CERT_FILE" in variables:
            shutil.copyfile(variables["SSL_CERT_FILE"], scratch / "ca.pem")
            variables["SSL_CERT_FILE"] = f"{SEEN_AS}/ca.pem"
        variables["UV_CACHE_DIR"] = f"{SEEN_AS}/cache"
        self._environ = {**environ, **runtime.environ(variables.items())}
        uv = find_uv(environ)
        shutil.copyfile(Path(__file__).with_name("inside.py"), scratch / "inside.py")
        binds = [f"{scratch}:{SEEN_AS}", f"{uv}:{SEEN_AS}/uv:ro"]
        (scratch / "uv").touch()  # what is bound needs something to be bound over
        if "UV_CACHE_DIR" in environ:  # else downloads are kept as long as the scratch folder
            binds.append(f"{environ['UV_CACHE_DIR']}:{SEEN_AS}/cache")
            (scratch / "cache").mkdir()
            Path(environ["UV_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
        self._argv = runtime.exec_argv(image, binds, ())

    def run(self, *argv: str) -> tuple[int, list[str]]:
        """The exit status of a command and the lines that it said; raises HostError when the disk
        is full.
        """
        lines: list[str] = []
        log = str(self.scratch / "log")
        status = process.run_logged(
            [*self._argv, *argv], self._environ, log, str(self.scratch), lines.append
        )
        if status and any(word in line for word in NO_SPACE for line in lines):
            raise no_space(self.scratch.parent, "set TMPDIR to a larger folder")
        return status, lines

    def check(self, what: str, *argv: str) -> list[str]:
        """As `run`, for a command that must succeed."""
        status, lines = self.run(*argv)
        if status:
            raise HostError(f"{what} failed:", "in the container", "see its messages", tail(lines))
        return lines

    def ask(self, *argv: str, python: str = "python3") -> dict[str, Any]:
        """The answer of inside.py."""
        self.check(
            "Python of the image",
            python,
            "-I",
            f"{SEEN_AS}/inside.py",
            *argv,
            f"{SEEN_AS}/answer.json",
        )
        answer: dict[str, Any] = json.loads((self.scratch / "answer.json").read_text())
        return answer


def no_space(folder: Path, hint: str) -> HostError:
    """The error of a full disk."""
    return HostError(f"no space left in {folder}", "making the layer", hint)


def tail(lines: Sequence[str]) -> str:
    """The last lines that say something, of a program's error if it has one."""
    said = [line for line in lines if line.strip()]
    begin = next((index for index, line in enumerate(said) if line.startswith("error:")), 0)
    return "\n".join(said[begin:][-12:])
