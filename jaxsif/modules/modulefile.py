"""Writes and reads the texts of modulefiles in Lua and Tcl, including the defaults."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxsif import __version__
from jaxsif.errors import HostError, raise_as
from jaxsif.foreign import parse_json, read_text
from jaxsif.installation import find_data

_RECORD = re.compile(r"^(?:--|#) jaxsif: (\{.*\})$", re.MULTILINE)
# Without the mark, jaxsif wrote it before there was one.
_UMBRELLA = re.compile(
    r"^(?:--|#) (?:jaxsif: umbrella$|Umbrella of the deep-learning modules: )", re.MULTILINE
)

MODULERC = ".modulerc"  # the default is in it
_HEAD = ("#%Module", "# Read by Lmod too. jaxsif module writes it.")  # of the file of the default
_DEFAULT = re.compile(r"module-version jax/(\S+) sif default")
_RIVAL = re.compile(r"\s*module-version\s.*\s(default|sif)(\s|$)")
_HIDE = ("module-hide", "hide-version")  # the second one only for Lmod
_OF_SOME = {"--user", "--group"}  # options of lines that are for these only
_MESSAGE = re.compile(r"--(?:nearly-)?message\s+(\{.*?\}|\".*?\"|\S+)")
_NO_QUOTES = str.maketrans("", "", '"{}')
_SHORT = re.compile(r"module-version jax/(\S+)-\S+-sif \1-sif")


class Module(NamedTuple):
    """The module of one image."""

    name: str  # after jax/, such as 0.12.0.1-cuda12-sif
    image: str  # its path
    digest: str  # of the image when the module was added
    home: str  # the launcher's folder, PREFIX/jaxsif/VERSION
    version: str  # of JAX, as the image is labelled; '' for a foreign image, as is the flavour
    flavour: str

    @property
    def command(self) -> str:
        """The path of the launcher's command."""
        return f"{self.home}/bin/jaxsif"

    @property
    def launcher_files(self) -> list[str]:
        """The files that stand for the whole launcher: its command, and its package unless that is
        in a wheel.
        """
        package = [f"{self.home}/lib/jaxsif/__init__.py"]
        return [self.command, *(package if os.path.isdir(f"{self.home}/lib") else [])]

    @property
    def short(self) -> str:
        """The name that may stand for this module, or others of its version; '' for none."""
        is_usual = self.name == name_module(self.version, self.flavour)
        return f"{self.version}-sif" if is_usual else ""

    @property
    def title(self) -> str:
        """The name of the image in the texts of its modulefiles."""
        return f"JAX {self.version} ({self.flavour})" if self.version else "JAX"


def name_module(version: str, flavour: str) -> str:
    """Return the name, after jax/, of the module of an image with these labels."""
    return f"{version}-{flavour}-sif"


def modules_folder(prefix: Path) -> Path:
    """Return the folder of the modules called jax."""
    return prefix / "modulefiles/jax"


def list_files(prefix: Path, name: str) -> list[Path]:
    """Return the files of a module: that of the default, which all share, and its own, in Lua and
    in Tcl.
    """
    return [modules_folder(prefix) / file for file in (MODULERC, f"{name}.lua", name)]


def umbrella_files(prefix: Path) -> tuple[Path, Path]:
    """Return the files of the module dl, for Environment Modules and for Lmod."""
    return prefix / "modulefiles/dl", prefix / "modulefiles/dl.lua"


def is_umbrella(path: Path) -> bool:
    """Return whether some version of jaxsif wrote this file of the module dl. Raise HostError if it
    is not a file.
    """
    return bool(_UMBRELLA.search(read_text(str(path), "modulefile")))


def read_module(path: Path) -> Module | None:
    """Read the record in a modulefile, whichever version of jaxsif wrote it, or return None if
    there is none. Raise HostError if it is not a file.
    """
    match = _RECORD.search(read_text(str(path), "modulefile"))
    try:
        record = parse_json(match[1] if match else "{}")
    except ValueError:
        return None
    # A copied modulefile has the record of another name; module systems know it by the file's.
    record["name"] = path.name.removesuffix(".lua")
    module = Module(*map(record.get, Module._fields))
    return module if all(isinstance(value, str) for value in module) else None


class DefaultFile(NamedTuple):
    """The contents of the file of the default."""

    default: str | None = None  # the module's name
    kept: tuple[str, ...] = ()  # lines that site staff added, such as module-hide

    @property
    def rival(self) -> str:
        """The line of the staff that sets another default, or ''."""
        return next(filter(_RIVAL.match, self.kept), "")

    def hides(self, name: str) -> bool:
        """Return whether a line of the staff hides this module from `module avail`."""
        return self._names(name, _HIDE)

    def forbids(self, name: str) -> bool:
        """Return whether a line of the staff forbids this module to all users."""
        return self._names(name, ("module-forbid",))

    def _names(self, name: str, commands: Collection[str]) -> bool:
        """Return whether one of the commands is now for this module, or all, and for all users, or
        all but some.
        """
        bare = (_MESSAGE.sub("", line).translate(_NO_QUOTES).split() for line in self.kept)
        lines = (words for words in bare if words and words[0] in commands)
        return any(
            not {"jax", f"jax/{name}"}.isdisjoint(words)
            and _OF_SOME.isdisjoint(words)
            and _is_in_time(words)
            for words in lines
        )


def _is_in_time(words: Sequence[str]) -> bool:
    """Return whether the dates in the options of a line, if there are any, make it apply now."""
    given = dict(zip(words, words[1:]))
    now = time.strftime("%Y-%m-%dT%H:%M")
    after, before = given.get("--after", ""), given.get("--before", "")
    return bool(after and after <= now) or bool(before and now < before) or not (after or before)


def parse_default(text: str) -> DefaultFile | None:
    """Parse the file of the default; None for a text that jaxsif did not write."""
    lines = text.removesuffix("\n").split("\n")
    defaults = [match[1] for match in map(_DEFAULT.fullmatch, lines) if match]
    if not defaults and tuple(lines[: len(_HEAD)]) != _HEAD:
        return None
    kept = [
        line
        for line in lines
        if line not in _HEAD and not _DEFAULT.fullmatch(line) and not _SHORT.fullmatch(line)
    ]
    return DefaultFile(defaults[-1] if defaults else None, tuple(kept))  # as for Lmod


def render_default(
    modules: Collection[Module], default: Module | None, kept: Collection[str] = ()
) -> str:
    """Return the file of the names that stand for modules: jax/sif and plain jax for the default,
    jax/VERSION-sif for each version of JAX. `kept` are the lines of site staff, its last.

    Job scripts written elsewhere use these names. If a version has several flavours, its name
    stands for the default's flavour, or else the first.
    """
    taken = {module.name for module in modules}
    lines = [*_HEAD]
    if default:
        lines.append(f"module-version jax/{default.name} sif default")
    flavour = default.flavour if default else ""
    for module in sorted(modules, key=lambda other: (other.flavour != flavour, other.name)):
        if module.short and module.short not in taken:
            lines.append(f"module-version jax/{module.name} {module.short}")
            taken.add(module.short)
    return "\n".join((*lines, *kept)) + "\n"


def render_module(prefix: Path, module: Module) -> dict[Path, str]:
    """Return path -> text of the image's modules and of the umbrella module, in both languages;
    raise HostError.
    """
    words = {
        "RECORD": json.dumps(module._asdict()),
        "NAME": module.name,
        "TITLE": module.title,
        "VERSION": __version__,
        "DIGEST": module.digest,
    }
    words["HELP"] = _fill("jax.help.in", words).rstrip("\n")
    paths = {
        "HOME": module.home,
        "IMAGE": module.image,
        "IMAGES": str(prefix / "jaxsif/images"),
        "MODULEFILES": str(prefix / "modulefiles"),
    }
    texts = {}
    for kind, suffix, quote in (("lua", ".lua", _quote_lua), ("tcl", "", _quote_tcl)):
        filled = {**words, **{name: quote(path) for name, path in paths.items()}}
        for template, target in (
            ("dl", umbrella_files(prefix)[0]),
            ("jax", modules_folder(prefix) / module.name),
        ):
            text = _fill(f"{template}.{kind}.in", filled)
            texts[target.with_name(target.name + suffix)] = text
    return texts


def _quote_lua(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _quote_tcl(text: str) -> str:
    return re.sub(r"([^\w./:@%+=,-])", r"\\\1", text, flags=re.ASCII)


def _fill(name: str, words: Mapping[str, str]) -> str:
    """Return the template with its words replaced; a site's own, such as help@SITE@, stay."""
    path = os.path.join(find_data("modulefiles"), name)
    hint = "git checkout modulefiles, or install again"
    with raise_as(HostError(f"cannot read {path}", "", hint)):
        template = read_text(path, "modulefile")
    return re.sub("@([A-Z]+)@", lambda match: words.get(match[1], match[0]), template)
