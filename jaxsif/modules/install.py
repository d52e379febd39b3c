"""The modules of images, for Lmod and for Environment Modules, and which of them is the default.

Both systems read one tree: Lmod takes NAME.lua and leaves NAME beside it alone, Environment Modules
sees only files that begin with #%Module. The default is one file in Tcl, which both read, so that
it moves for both at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxsif import __version__
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.file import digest
from jaxsif.images.labels import read_labels
from jaxsif.installation import PACKAGE, find_home
from jaxsif.modules.modulefile import (
    Module,
    modules_folder,
    read_module,
    render_default,
    render_module,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_STANDS_FOR_DEFAULT = ("sif", "default")
_DEFAULT = re.compile(r"^module-version jax/(\S+) sif default$", re.MULTILINE)
# What Lmod or Environment Modules would obey instead of .modulerc, or beside it.
_OTHER_DEFAULTS = ("default", ".modulerc.lua", ".version")


def find_prefix(option: str | None) -> Path:
    """The folder that --prefix names, or the one below which this launcher is installed; raises
    JaxsifError.
    """
    if option:
        return Path(os.path.abspath(option))
    home = find_home()
    if home is None:
        raise JaxsifError(
            "this launcher is not an installed one", PACKAGE, "--prefix FOLDER, as for make install"
        )
    return Path(home).parents[1]


def list_modules(prefix: Path) -> list[Module]:
    """The modules of images below `prefix`, by name."""
    found = [read_module(path) for path in sorted(modules_folder(prefix).glob("*.lua"))]
    return [module for module in found if module]


def find_module(prefix: Path, name: str) -> Module:
    """The module of that name, with or without 'jax/'; raises JaxsifError where there is none."""
    modules = list_modules(prefix)
    wanted = name[len("jax/") :] if name.startswith("jax/") else name
    for module in modules:
        if module.name == wanted:
            return module
    known = ", ".join(module.name for module in modules)
    hint = f"one of {known}" if known else "jaxsif module add IMAGE"
    raise JaxsifError(f"no module jax/{wanted} in {modules_folder(prefix).parent}", "NAME", hint)


def find_default(prefix: Path) -> str | None:
    """The name of the default; None where there is none yet. Raises JaxsifError where others have
    set one.
    """
    folder = modules_folder(prefix)
    for other in _OTHER_DEFAULTS:
        if os.path.lexists(folder / other):
            raise _not_ours(folder / other)
    try:
        found = _DEFAULT.search((folder / ".modulerc").read_text(errors="replace"))
    except FileNotFoundError:
        return None
    if not found:
        raise _not_ours(folder / ".modulerc")
    return found[1]


def set_default(prefix: Path, name: str) -> Module:
    """Let jax/sif and plain jax stand for this module from now on."""
    module = find_module(prefix, name)
    find_default(prefix)  # refuses the files of others
    _write({modules_folder(prefix) / ".modulerc": render_default(list_modules(prefix), module)})
    return module


def add_module(
    prefix: Path, image: str, name: str | None, default: bool, show: Callable[[str], None]
) -> Module:
    """Write the modulefiles of an image, named after its labels unless `name` is given; the first
    is the default.
    """
    image = os.path.abspath(image)
    _check_path(image, "IMAGE")
    _check_path(str(prefix), "--prefix")
    home = prefix / "jaxsif" / __version__
    if not (home / "modulefiles").is_dir():
        raise HostError(f"no launcher in {home}", "--prefix", f"make install PREFIX={prefix}")
    if not os.path.exists(image) or os.path.isdir(image):
        raise HostError(f"image not found: {image}", "IMAGE", "give the path of a .sif file")
    version, flavour = _read_version(image)
    name = _choose_name(image, name, version, flavour)
    _check_place(prefix, name, image)
    former = find_default(prefix)
    show(f"reading {image}, {os.path.getsize(image) / 1e6:.0f} MB")
    module = Module(name, image, digest(image, "IMAGE"), str(home), version, flavour)
    modules = [*(other for other in list_modules(prefix) if other.name != name), module]
    chosen = next((one for one in modules if one.name == former and not default), module)
    _write(
        {
            **render_module(prefix, module),
            modules_folder(prefix) / ".modulerc": render_default(modules, chosen),
        }
    )
    return module


def remove_module(prefix: Path, name: str) -> Module:
    """Take the modulefiles away, and nothing else; raises JaxsifError for the default one of
    several.
    """
    module = find_module(prefix, name)
    default = find_default(prefix)
    others = [other for other in list_modules(prefix) if other != module]
    if module.name == default and others:
        hint = "name another one first: jaxsif module default NAME"
        raise JaxsifError(f"jax/{module.name} is the default", "NAME", hint)
    modulerc = modules_folder(prefix) / ".modulerc"
    if others:
        _write(
            {
                modulerc: render_default(
                    others, next((one for one in others if one.name == default), others[0])
                )
            }
        )
    files = [modules_folder(prefix) / f"{module.name}.lua", modules_folder(prefix) / module.name]
    for path in files if others else [modulerc, *files]:
        _remove(path)
    return module


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        hint = "correct the permissions of its folder"
        raise HostError(f"cannot remove {path}: {error.strerror}", "jaxsif module", hint) from error


def _check_path(path: str, source: str) -> None:
    """Raise JaxsifError for a path that no modulefile can name: a line of it ends where the path
    has a new line.
    """
    if any(ord(letter) < ord(" ") or letter == "\x7f" for letter in path):
        raise JaxsifError(
            f"path has control characters: {path}", source, "rename the file or the folder"
        )


def _not_ours(path: Path) -> JaxsifError:
    return JaxsifError(
        f"not written by jaxsif: {path}", str(path.parent), "move it away, or use another --prefix"
    )


def _check_place(prefix: Path, name: str, image: str) -> None:
    """Raise JaxsifError if the name is that of another image's module, or of a modulefile that
    others wrote.
    """
    for path in (modules_folder(prefix) / name, modules_folder(prefix) / f"{name}.lua"):
        if path.exists():
            module = read_module(path)
            if module is None:
                raise _not_ours(path)
            if module.image != image:
                raise JaxsifError(
                    f"jax/{name} is the module of another image: {module.image}",
                    "--name",
                    "give another name",
                )


def _choose_name(image: str, name: str | None, version: str, flavour: str) -> str:
    """`name` without 'jax/', or else one after the labels; a foreign image has none of ours and
    needs a name.
    """
    if not name and not version:
        raise JaxsifError(
            f"no name for the module: {image} is not labelled with one", "IMAGE", "--name NAME"
        )
    name = name or f"{version}-{flavour}-sif"
    name = name[len("jax/") :] if name.startswith("jax/") else name
    if not _NAME.fullmatch(name) or name in _STANDS_FOR_DEFAULT or name.endswith(".lua"):
        raise JaxsifError(
            f"not a name for a module: {name!r}", "--name", "such as 0.13.0-cuda12-sif"
        )
    return name


def _read_version(image: str) -> tuple[str, str]:
    """Version of JAX and flavour, by the image's labels; '' and '' where they do not make a name."""
    labels = read_labels(image)
    version, flavour = (labels.get(f"io.jaxsif.{name}", "") for name in ("jax", "flavour"))
    return (version, flavour) if _NAME.fullmatch(version) and _NAME.fullmatch(flavour) else ("", "")


def _write(texts: Mapping[Path, str]) -> None:
    """All of these files, readable by everybody, or none: each beside its place first, then
    renamed.
    """
    partials: dict[Path, Path] = {}
    mask = os.umask(0o022)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            partials[path] = path.with_name(f".{path.name}.{os.getpid()}")
            partials[path].write_text(text, encoding="utf-8", errors="surrogateescape")
        for path, partial in partials.items():
            os.replace(partial, path)
    except OSError as error:
        hint = "free some space there, or correct its permissions"
        raise HostError(f"cannot write {path}: {error.strerror}", "jaxsif module", hint) from error
    finally:
        os.umask(mask)
        for partial in partials.values():
            partial.unlink(missing_ok=True)
