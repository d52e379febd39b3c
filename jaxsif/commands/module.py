"""jaxsif module …: modules for images, for Lmod and Environment Modules."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jaxsif.commands import JSON, CommandGroup, argument
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.file import known
from jaxsif.modules.install import (
    add_module,
    check_site,
    find_closed,
    find_prefix,
    find_rivals,
    list_modules,
    read_default,
    read_version,
    remove_module,
    set_default,
)
from jaxsif.modules.modulefile import DefaultFile, Module, list_files, modules_folder, name_module
from jaxsif.runtime import find_runtime, no_runtime
from jaxsif.screen import print_json, print_table
from jaxsif.text import enclose

VERBS = CommandGroup()

_OTHER_IMAGE = "a different image from the module's"
_NAME = argument(
    "name", metavar="NAME", help="a name from jaxsif module list, with or without jax/"
)
_PREFIX = argument(
    "--prefix", metavar="FOLDER", help="the PREFIX of the installed launcher (this one's)"
)


@VERBS.verb(
    "add",
    """\
Write the modulefiles for an image under PREFIX/modulefiles, for Lmod and
Environment Modules, and print the module's name. The first module is the
default.

examples:
  jaxsif module add /sw/jaxsif/images/jax-0.12.0.1-cuda12.sif
  jaxsif module add --name 0.13.0-ours-sif /scratch/our.sif
""",
    argument(
        "image", metavar="IMAGE", help="the image, a .sif file that all nodes see at this path"
    ),
    argument(
        "--name", help="the module's name after jax/; needed for an image without jaxsif's labels"
    ),
    argument("--default", action="store_true", help="make this module the default"),
    _PREFIX,
)
def _add(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    prefix = find_prefix(arguments.prefix)
    module = add_module(prefix, arguments.image, arguments.name, arguments.default, _show)
    _report(prefix, module, environ)


@VERBS.verb(
    "default",
    """\
Choose the module that jax/sif and plain jax load.

examples:
  jaxsif module default jax/0.12.0.1-cuda12-sif
  jaxsif module default 0.12.0.1-cuda12-sif
""",
    _NAME,
    _PREFIX,
)
def _default(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    prefix = _require_prefix(arguments)
    _report(prefix, set_default(prefix, arguments.name), environ)


def _require_prefix(arguments: argparse.Namespace) -> Path:
    """Return the folder of the modules; raise JaxsifError if --prefix names none."""
    prefix = find_prefix(arguments.prefix)
    if not prefix.is_dir():
        hint = "give the PREFIX of make install"
        raise HostError(f"folder not found: {prefix}", "--prefix", hint)
    return prefix


def _report(prefix: Path, module: Module, environ: Mapping[str, str]) -> None:
    """Print the module's folder and name, and a warning if users do not see it or cannot run its
    image.
    """
    _show(f"changed {modules_folder(prefix)}")
    print(f"jax/{module.name}", flush=True)
    default = read_default(prefix)
    for verb, applies in (("hides", default.hides), ("forbids", default.forbids)):
        if applies(module.name):
            file = modules_folder(prefix) / ".modulerc"
            _show(f"jaxsif: warning: {file} {verb} jax/{module.name}")
    is_default = module.name == default.default
    for folder, name in find_rivals(prefix, module.name, is_default, environ):
        what = f"the folder {folder} on MODULEPATH has a module jax/{name}, too"
        _show(f"jaxsif: warning: {what}, and Lmod may load that one: module unuse {folder}")
    if _find_problem(module, environ) == _OTHER_IMAGE:
        _show(f"jaxsif: warning: {_OTHER_IMAGE}: {module.image}: {_find_remedy(prefix, module)}")
    _warn(prefix, module, environ)


def _find_remedy(prefix: Path, module: Module) -> str:
    """Return the remedy for an image that has taken the place of the module's."""
    name = module.name
    with suppress(HostError, OSError):  # for damaged labels
        version, flavour = read_version(module.image)
        name = name_module(version, flavour) if version else name
    if name == module.name:
        return "call jaxsif module add again"
    restore = f"it is of jax/{name} by its labels: restore the former one"
    if name in [one.name for one in list_modules(prefix)]:
        return restore
    return f"{restore}, or call jaxsif module add, and then jaxsif module remove {module.name}"


def _warn(prefix: Path, module: Module, environ: Mapping[str, str]) -> None:
    """Warn of all that keeps users from running a module's image."""
    if not find_runtime(environ):
        _show(f"jaxsif: warning: not all settings are checked: {no_runtime().what}")
    try:
        check_site(prefix, module, environ, _show)
    except JaxsifError as error:
        _show(error.render("jaxsif: warning: users cannot run this image: "))


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@VERBS.verb(
    "list",
    """\
List the modules for images under PREFIX: name, launcher, image. A star marks
the default.

examples:
  jaxsif module list
  jaxsif module list --json
""",
    JSON,
    _PREFIX,
)
def _list(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    prefix = _require_prefix(arguments)
    default = read_default(prefix)
    modules = list_modules(prefix)
    rows = [_describe(prefix, module, default, environ) for module in modules]
    if arguments.json:
        print_json(rows)
    else:
        print_table(list(map(_render_row, rows)), environ)
    if not rows:
        print(f"no jaxsif modules under {modules_folder(prefix)}", file=sys.stderr)
    loaded = next((module for module in modules if module.name == default.default), None)
    if default.default and not loaded:
        what = f"the default jax/{default.default} is missing"
        _show(f"jaxsif: warning: {what}: jaxsif module default NAME chooses another")
    if loaded and os.access(modules_folder(prefix), os.W_OK):  # staff; most users load it
        _warn(prefix, loaded, environ)


def _render_row(row: Mapping[str, object]) -> tuple[str, ...]:
    mark = "*" if row["default"] else " "
    remarks = ", ".join(filter(None, (str(row["problem"]), "hidden" if row["hidden"] else "")))
    return (mark, *map(str, (row["name"], f"jaxsif {row['launcher']}", row["image"], remarks)))


def _describe(
    prefix: Path, module: Module, default: DefaultFile, environ: Mapping[str, str]
) -> dict[str, object]:
    problem = next(filter(None, map(_judge_file, module.launcher_files)), "")
    launcher = enclose("launcher ", problem)
    own = list_files(prefix, module.name)
    lost = [f"no file {file.name}" for file in own if not file.exists()]
    problems = [*filter(None, (_find_problem(module, environ), launcher, *lost))]
    if not problems:  # else a folder above all of them may be closed
        closed = (enclose(f"{file.name} ", _judge_file(str(file))) for file in own)
        problems = [*filter(None, closed)][:1]
    problems += ["forbidden"] * default.forbids(module.name)
    return {
        "name": f"jax/{module.name}",
        "default": module.name == default.default,
        "hidden": default.hides(module.name),
        "image": module.image,
        "digest": module.digest,
        "exists": os.path.isfile(module.image),
        "launcher": os.path.basename(module.home),
        "problem": ", ".join(problems),
    }


def _find_problem(module: Module, environ: Mapping[str, str]) -> str:
    """Return what is wrong with a module's image, as far as this user sees it, or ''."""
    problem = _judge_file(module.image)
    if problem:
        return problem
    is_other = known(module.image, "digest", environ) not in (None, module.digest)
    return _OTHER_IMAGE if is_other else ""


def _judge_file(path: str) -> str:
    """Return 'missing', 'not readable' or 'not readable by all users', or ''."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except PermissionError:
        return "not readable"
    except OSError:
        return "missing"
    if not is_file:
        return "missing"
    if not os.access(path, os.R_OK):
        return "not readable"
    return "not readable by all users" if find_closed(path) else ""


@VERBS.verb(
    "remove",
    """\
Remove the modulefiles of an image; the image and the launcher stay. Before you
remove the default, make another module the default.

examples:
  jaxsif module remove jax/0.12.0.1-cuda12-sif
""",
    _NAME,
    _PREFIX,
)
def _remove(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    prefix = _require_prefix(arguments)
    module = remove_module(prefix, arguments.name)
    stays = f"; its image stays: {module.image}" if os.path.lexists(module.image) else ""
    _show(f"removed jax/{module.name} from {modules_folder(prefix)}{stays}")
