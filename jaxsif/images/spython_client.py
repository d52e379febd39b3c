"""spython's client for this host's container engine, and the metadata of an image."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import spython.main  # adds the commands to the class Client
from spython.image import Image
from spython.instance import Instance
from spython.main.base import Client

from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.foreign import MOST_TEXT, find, parse_json
from jaxsif.images.execute import MOST_OUTPUT, collect
from jaxsif.images.file import read_parts
from jaxsif.images.sif import check_field
from jaxsif.runtime import require_runtime

assert spython.main.Client
_LIMIT = ("timeout", "120")  # seconds, for engine commands that answer immediately
# The engine's commands that start a container, and so take the client's options.
_STARTING = (["exec"], ["run"], ["shell"], ["instance", "start"])
_METADATA = "inspect-metadata.json"  # the part of a SIF file that the engine reads
_FOLDER = ".singularity.d"  # the same data in an unpacked image


class RuntimeClient(Client):  # type: ignore[misc]
    """spython's Client with this host's engine, an image, and options for each container.

    It raises HostError for failures that spython only prints or ignores.
    """

    def __init__(self, head: Sequence[str], image: str = "", options: Sequence[str] = ()) -> None:
        super().__init__()
        self.head = tuple(head)  # the words that start the engine
        self.options = tuple(options)  # of each container
        self.quiet = True
        self.simage = Image(image)
        self.instance = type("RuntimeInstance", (_Instance,), {"client": self})

    def _init_command(
        self, action: str | list[str], flags: Sequence[str] | None = None
    ) -> list[str]:
        """Return the start of the engine's command line; spython calls this before each command."""
        words = [action] if isinstance(action, str) else action
        options = self.options if words in _STARTING else ()
        return [*self.head, "--quiet", *(flags or ()), *words, *options]

    def run_engine(self, action: list[str], *words: str) -> str:
        """Run an engine command and return its output; raise HostError if the command fails, prints
        too much, or does not end.
        """
        answer = collect([*_LIMIT, *self._init_command(action), *words])
        if answer.status or len(answer.printed) > MOST_OUTPUT:
            what = f"{self.head[-1]} {' '.join(action)} failed with exit status {answer.status}"
            raise HostError(what, " ".join(words), "see its message", answer.stderr)
        return answer.printed.decode(errors="replace")

    def execute(self, image: Any = None, command: Any = None, **options: Any) -> Any:
        """Run a command, a list of words or a string as for a shell, in the client's image, or in
        `image`, which may be an instance: `execute("hostname")`, `execute(instance, ["hostname"])`.

        Return the printed text, or a list of two texts if there is both standard output and
        standard error; if the command fails, or with `return_result`, a dictionary with the text as
        'message' and the exit status as 'return_code'; with `stream`, an iterator over lines. Raise
        JaxsifError without a command.
        """
        if command is None:
            image, command = None, image
        words = shlex.split(command) if isinstance(command, str) else command
        if not words or not isinstance(words, (list, tuple)):
            example = 'client.execute(["python", "train.py"])'
            raise JaxsifError("no command to execute", "client.execute", example)
        printed = super().execute(image or self.simage.image, list(words), **options)
        if isinstance(printed, dict):
            return {**printed, "message": printed["message"] or ""}
        return printed or ""

    def version(self) -> str:
        """Return the engine and its version."""
        return self.run_engine(["--version"]).strip()

    def inspect(self, image: str | None = None, **options: Any) -> dict[str, Any]:
        """Return the metadata of an image, under 'attributes'; raise HostError if the engine cannot
        read it.
        """
        found: dict[str, Any] = super().inspect(image, **options)
        if "return_code" in found:
            what = f"cannot inspect {image or self.simage}"
            raise HostError(what, self.head[-1], "see its message", "".join(found["message"]))
        return found

    def instance_stopall(self, **_: Any) -> int:
        """Stop all instances of this user on this host; return 0."""
        self.run_engine(["instance", "stop"], "--all")
        return 0


class _Instance(Instance):  # type: ignore[misc]
    """A container that outlives the process that started it."""

    client: RuntimeClient  # the client that made this class

    def __init__(self, image: str | None = None, **options: Any) -> None:
        super().__init__(image or self.client.simage.image, **options)

    def _init_command(self, *words: Any) -> list[str]:
        return self.client._init_command(*words)

    def start(self, **keywords: Any) -> _Instance:
        """Start the instance; its program gets `args`."""
        options, args = (list(keywords.get(key) or ()) for key in ("options", "args"))
        self.client.run_engine(["instance", "start"], *options, self._image, self.name, *args)
        self._update_metadata()
        return self

    def stop(self, name: str | None = None, timeout: int | None = None, **_: Any) -> int:
        """Stop the instance; return 0. After `timeout` seconds its processes are killed."""
        limit = ("--timeout", str(timeout)) if timeout else ()
        self.client.run_engine(["instance", "stop"], *limit, name or self.name)
        return 0


class ImageMetadata(NamedTuple):
    """How an image was made, and what it runs; '' for a field that is not recorded."""

    definition: str  # the definition file
    runscript: str  # what runs if no command is given
    environment: Mapping[str, str]  # file in the image -> what it sets
    help: str
    test: str
    labels: Mapping[str, str]


# Field -> the engine's word for it.
_KEYS = dict(zip(ImageMetadata._fields, ImageMetadata._fields))
_KEYS.update(definition="deffile", help="helpfile")
_TABLES = {"environment", "labels"}


def read_metadata(image: str, environ: Mapping[str, str]) -> ImageMetadata:
    """Read the metadata of an image: for a SIF file from the part that the engine wrote, for a
    folder through the engine, which runs nothing from the image. Raise HostError for metadata that
    cannot be found or parsed, and OSError for an image that cannot be read.
    """
    folder = os.path.isdir(image)
    if folder:
        _check_folder(image)
    broken = HostError(f"cannot parse the metadata of {image}", "", "copy or build it again")
    with raise_as(broken, ValueError, LookupError, TypeError):
        if folder:
            client = RuntimeClient([*_LIMIT, require_runtime(environ).command])
            return parse_metadata(client.inspect(image))
        return parse_metadata(parse_json(_find_metadata(image))["data"])


def _find_metadata(image: str) -> str:
    """Find the metadata in a SIF file; raise HostError if only the image's own shell could print
    the metadata, and for large parts.
    """
    for part, data in read_parts(image, "json"):
        if part.name == _METADATA:
            return data.decode()
    raise HostError(
        f"image has no {_METADATA}, so finding out more means running it: {image}",
        hint=f"apptainer inspect --deffile {image}, if you trust it",
    )


def _check_folder(image: str) -> None:
    """Raise HostError for an unpacked image whose path the engine would parse as shell words, or
    which has large files.
    """
    if not re.fullmatch(r"[\w./+@%,=-]+", image):
        raise HostError(
            f"{image!r} has characters that the runtime's inspect command would pass to a shell",
            hint="rename the folder",
        )
    size = sum(_measure(os.path.join(image, _FOLDER)))
    check_field(size <= 4 * MOST_TEXT, f"size of its {_FOLDER}", size, image, "")


def _measure(folder: str) -> Iterator[int]:
    """Yield the bytes of all files; raise HostError for links and special files, which may never
    end.
    """
    for at, folders, files in os.walk(folder):
        for path in (os.path.join(at, name) for name in (*folders, *files)):
            found = os.lstat(path)
            if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                raise HostError(
                    f"not a regular file: {path}", hint="replace it with what it points to"
                )
            yield found.st_size


def parse_metadata(found: Any) -> ImageMetadata:
    """Convert the engine's JSON; raise ValueError if its form is unknown."""
    values: dict[str, Any] = {}
    for field, key in _KEYS.items():
        kind = dict if field in _TABLES else str
        value = values[field] = find(found, "attributes", key) or kind()
        texts = value.values() if isinstance(value, dict) else [value]
        if not (isinstance(value, kind) and all(isinstance(text, str) for text in texts)):
            raise ValueError(f"invalid {field}")
    return ImageMetadata(**values)
