"""The modules for images, for Lmod and Environment Modules, and the default among them.

Both systems read one tree: Lmod takes NAME.lua and ignores NAME next to it; Environment Modules
sees only files that begin with #%Module. The default is one file in Tcl, which both read, so that
it changes for both at the same time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path

from jaxsif import __version__, process
from jaxsif.container.environment import find_cautions
from jaxsif.container.policy import (
    DIGESTS,
    SIGNED_BY,
    RefusedImageError,
    Subject,
    check_policies,
    find_keys,
)
from jaxsif.errors import HostError, JaxsifError, Notify, raise_as
from jaxsif.files import write_file, write_files
from jaxsif.images.file import digest, find_root, unreadable
from jaxsif.images.labels import read_labels
from jaxsif.images.signing import (
    ChangedImageError,
    UnsignedError,
    UnusableKeyError,
    find_flaw,
    find_private,
    is_fingerprint,
)
from jaxsif.installation import LIBRARY, PACKAGE, find_home, use_home, wheel_share
from jaxsif.job.allocation import outside_of_job
from jaxsif.modules.modulefile import (
    MODULERC,
    DefaultFile,
    Module,
    is_umbrella,
    list_files,
    modules_folder,
    name_module,
    parse_default,
    read_module,
    render_default,
    render_module,
    umbrella_files,
)
from jaxsif.runtime import Runtime, find_runtime
from jaxsif.settings.config import Config, Files, parse_files, read_profiles, staff_files
from jaxsif.settings.fabric import resolve_fabric
from jaxsif.settings.options import NOTHING
from jaxsif.settings.read import is_variable, suggest_value
from jaxsif.settings.secret import describe_secrets, describe_secrets_of
from jaxsif.text import enclose
from jaxsif.trust import READ, read_own

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_REMEDIES = {
    SIGNED_BY: "list the public key of its signature in policy.signed-by, or sign it with a key"
    " that is listed: jaxsif image sign --help",
    DIGESTS: "add its digest to policy.digests",
}
_STANDS_FOR_DEFAULT = ("sif", "default")
_NOT_IN_PREFIX = re.compile(r"[^!-~]|[:,'\"`$\\]")
_CONTROL = re.compile(r"[\0-\x1f\x7f]")  # a newline in a path would end a line of the modulefile
_LOCK_TRIES = 50  # one each 0.1 s
# What Lmod or Environment Modules would obey instead of .modulerc, or along with it.
_LUA_DEFAULT = ".modulerc.lua"
_OTHER_DEFAULTS = ("default", _LUA_DEFAULT, ".version")


def find_prefix(option: str | None) -> Path:
    """Return the folder that --prefix names, or the one under which this launcher is installed;
    raise JaxsifError.
    """
    prefix = Path(os.path.abspath(option)) if option else _find_own()
    if prefix is None:
        raise JaxsifError(
            "this launcher is not installed", PACKAGE, "--prefix FOLDER, as for make install"
        )
    return prefix


def _find_own() -> Path | None:
    """Return the PREFIX of this launcher, or None if it is not installed."""
    home = find_home()
    return Path(home).parents[1] if home else None


def list_modules(prefix: Path) -> list[Module]:
    """Return the modules under `prefix`, in the order of their versions; raise HostError."""
    modules = []
    # No folder is a module, as for Lmod.
    files = {file.name: file for file in modules_folder(prefix).glob("[!.]*") if not file.is_dir()}
    for name in {name.removesuffix(".lua") for name in files}:
        file = files.get(f"{name}.lua")
        with suppress(FileNotFoundError):  # another process has just removed it
            modules.append(read_module(file) if file else _read_twin(files[name]))
    return sorted(filter(None, modules), key=lambda module: _split_numbers(module.name))


def _read_twin(file: Path) -> Module | None:
    """Return the module of a file in Tcl that has lost its twin in Lua; None for any other file."""
    with suppress(HostError, OSError):
        return read_module(file) if _NAME.fullmatch(file.name) else None
    return None


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """Return the key that sorts 0.9 before 0.12."""
    return [
        (int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)
    ]


def _by_name(prefix: Path) -> dict[str, Module]:
    return {module.name: module for module in list_modules(prefix)}


def find_module(prefix: Path, name: str) -> Module:
    """Return the module called `name`, which may begin with 'jax/'; raise JaxsifError if there is
    none.
    """
    modules, wanted = _by_name(prefix), name.removeprefix("jax/")
    if wanted not in modules:
        hint = f"one of {', '.join(modules)}" if modules else "jaxsif module add IMAGE"
        folder = modules_folder(prefix).parent
        raise JaxsifError(f"no module jax/{wanted} in {folder}", "NAME", hint)
    return modules[wanted]


def read_default(prefix: Path) -> DefaultFile:
    """Read the default and what site staff added to its file. Raise JaxsifError if something other
    than jaxsif has set a default.
    """
    folder = modules_folder(prefix)
    for other in filter(os.path.lexists, (folder / name for name in _OTHER_DEFAULTS)):
        raise _not_ours(other)
    path = folder / MODULERC
    with suppress(FileNotFoundError, NotADirectoryError):
        parsed = parse_default(path.read_text(errors="surrogateescape"))
        if not parsed:
            raise _not_ours(path)
        if parsed.rival:
            hint = "remove the line; jaxsif module default NAME sets the default"
            raise JaxsifError(f"not written by jaxsif: {parsed.rival}", str(path), hint)
        return parsed
    return DefaultFile()


def set_default(prefix: Path, name: str) -> Module:
    """Make jax/sif and plain jax stand for this module from now on; raise JaxsifError."""
    with _locked(prefix):
        module = find_module(prefix, name)
        if not os.path.isfile(module.image):
            hint = "restore the image, or choose another module from jaxsif module list"
            raise HostError(f"image of jax/{module.name} is missing: {module.image}", "NAME", hint)
        if not os.path.isfile(module.command):
            hint = f"jaxsif module add {shlex.quote(module.image)}, for this launcher"
            what = f"launcher of jax/{module.name} is missing: {module.home}"
            raise HostError(what, "NAME", hint)
        _write(_default_file(prefix, list_modules(prefix), module, read_default(prefix)))
    return module


def _default_file(
    prefix: Path, modules: Collection[Module], default: Module | None, former: DefaultFile
) -> dict[Path, str]:
    path = modules_folder(prefix) / MODULERC
    return {path: render_default(modules, default, former.kept)}


def add_module(prefix: Path, image: str, name: str | None, default: bool, notify: Notify) -> Module:
    """Write the modulefiles for an image, named after its labels unless `name` is given; the first
    module becomes the default. Raise JaxsifError.
    """
    image = os.path.abspath(image)
    _refuse(_CONTROL, image, "IMAGE", "rename the file or the folder")
    check_prefix(prefix)
    home = prefix / "jaxsif" / __version__
    share = wheel_share()
    if not share and not is_installed(home):
        raise HostError(f"no launcher in {home}", "--prefix", _suggest_prefix(prefix))
    if not os.path.exists(image) or os.path.isdir(image):
        raise HostError(f"image not found: {image}", "IMAGE", "give the path of a .sif file")
    version, flavour = read_version(image)
    name = _choose_name(image, name, version, flavour)
    check_place(prefix, name, image)
    notify(f"reading {image}, {os.path.getsize(image) / 1e6:.0f} MB")
    module = Module(name, image, digest(image, "IMAGE"), str(home), version, flavour)
    with _locked(prefix):
        check_place(prefix, name, image)  # again: reading the image took a while
        former = read_default(prefix)
        modules = {**_by_name(prefix), name: module}
        chosen = module if default else modules.get(former.default or "", module)
        if share and not is_installed(home):
            _write_all(lambda: link_launcher(home, share, LIBRARY, sys.executable))
        default_file = _default_file(prefix, modules.values(), chosen, former)
        _write({**render_module(prefix, module), **default_file})
    return module


def _suggest_prefix(prefix: Path) -> str:
    """Return the remedy for a PREFIX without this launcher: it may have another one, be below the
    one that is meant, be a mistake for this launcher's own, or still be empty.
    """
    install = f"make install PREFIX={prefix}"
    others = [str(one) for one in prefix.glob("jaxsif/[0-9]*/bin/jaxsif")]
    if others:
        return f"{install}, or call its own launcher: {max(others, key=_split_numbers)}"
    for above in prefix.parents:
        is_part = prefix.relative_to(above).parts[0] in ("jaxsif", "modulefiles")
        if is_part and is_installed(above / "jaxsif" / __version__):
            return f"--prefix {above}"
    own = _find_own()
    return f"{install}, or --prefix {own}" if own and own != prefix else install


@contextmanager
def _locked(prefix: Path) -> Iterator[None]:
    """Try to keep other changes of the default out during the body of the `with`: it runs unlocked
    after a few seconds, since any user can lock the folder, and where folders cannot be locked, as
    on NFS.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # no modules yet, or no locks on folders here
            folder = os.open(modules_folder(prefix), os.O_RDONLY)
            stack.callback(os.close, folder)
            for _ in range(_LOCK_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.1)
        yield


def _warn_of_closed(files: Mapping[str, str], notify: Notify) -> None:
    """Warn of each file, name -> path, that users may not read for another reason than those
    before.
    """
    told: list[tuple[str, str]] = []
    for name, path in files.items():
        closed = find_closed(path) if os.path.exists(path) else []
        left = [words for words in closed if words not in told]
        if left:
            remedy = " && ".join(shlex.join(["chmod", *words]) for words in left)
            more = ", or move it" if path != name else ""
            notify(f"jaxsif: warning: not all users may read {name}: {remedy}{more}")
        told += left


def check_site(prefix: Path, module: Module, environ: Mapping[str, str], notify: Notify) -> None:
    """Raise JaxsifError if the settings of the site's staff are wrong, or their policies refuse a
    module's image; they are those that its launcher reads. Warn of files that users cannot read.
    """
    folder = modules_folder(prefix)
    files_of_lmod = (*list_files(prefix, module.name), *umbrella_files(prefix))
    names = {"the image": module.image}
    names.update({} if _is_launcher_closed(module, notify) else {module.command: module.command})
    images = prefix / "jaxsif/images"
    read = map(str, (images, folder, folder.parent, *files_of_lmod))  # folders are listed
    _warn_of_closed({**names, **{path: path for path in read}}, notify)
    _warn_of_interpreter(module.command, notify)
    _check_files(folder, module)
    use_home(module.home)
    files = tuple(map(read_own, staff_files()))
    config = parse_files(Files(files, ()))
    _warn_of_folders(config, notify)
    _warn_of_variables(config, notify)
    runtime = find_runtime(environ)
    keys = list(_check_keys(config, runtime, environ, notify))
    paths = [file.path for file in files if file.state == READ]
    read_by_all = (module.image, *module.launcher_files, *map(str, files_of_lmod), *paths, *keys)
    _warn_of_open(read_by_all, notify)
    copied = {f"the key {key}": key for key in keys}  # not to be opened in somebody's home
    _warn_of_closed({**{path: path for path in paths}, **copied}, notify)
    _warn_of_fabric(config, notify)
    if config.policies and runtime:
        _check_image_policy(config, module, runtime, environ)
    if runtime and os.access(module.command, os.X_OK):
        _try_run(module, environ, notify)


def _check_image_policy(
    config: Config, module: Module, runtime: Runtime, environ: Mapping[str, str]
) -> None:
    """Raise HostError, with a remedy for the staff, if their policies refuse a module's image."""
    subject = Subject(os.path.realpath(module.image), f"jax/{module.name}", runtime)
    try:
        check_policies(config, subject, environ)
    except RefusedImageError as error:  # users get another remedy: run another image
        if isinstance(error.__cause__, ChangedImageError):
            error.hint = error.__cause__.hint
        elif isinstance(error.__cause__, UnsignedError):
            error.hint = "sign it with a key of policy.signed-by: jaxsif image sign --help"
        elif not isinstance(error.__cause__, UnusableKeyError):
            error.hint = _REMEDIES[error.setting]
        raise


def _is_launcher_closed(module: Module, notify: Notify) -> bool:
    """Return whether not all users may read the launcher's own folder, and warn of it."""
    there = [file for file in module.launcher_files if os.path.exists(file)]
    closed = [path for file in there for _, path in find_closed(file)]
    is_closed = module.command in there and not os.stat(module.command).st_mode & stat.S_IXOTH
    if is_closed or any(f"{path}/".startswith(f"{module.home}/") for path in closed):
        remedy = shlex.join(["chmod", "-R", "a+rX", module.home])
        if is_closed:  # chmod's X needs a file that somebody may run
            remedy += " && " + shlex.join(["chmod", "a+x", module.command])
        notify(f"jaxsif: warning: not all users may run {module.command}: {remedy}")
        return True
    return False


def _check_files(folder: Path, module: Module) -> None:
    """Raise JaxsifError for modules in a folder below this one, and HostError for an image that is
    missing or damaged: the staff have another remedy than users, and no setting is wrong.
    """
    for file in folder.glob("[!.]*/[!.]*"):
        hint = "move it out of this folder: with modules below it, Lmod does not find jax/sif"
        raise JaxsifError(f"not written by jaxsif: {file.parent}", str(folder), hint)
    source = f"jax/{module.name}"
    if not os.path.exists(module.image):
        hint = "restore it, or choose another module from jaxsif module list"
        raise HostError(f"image not found: {module.image}", source, hint)
    with raise_as(unreadable(module.image, source)):
        find_root(module.image, source)


def _warn_of_folders(config: Config, notify: Notify) -> None:
    """Warn if not all users may write, safe from others, to the site's folder of caches, or if
    their log files would get into one folder.
    """
    home = os.path.expanduser("~/")  # below it, each user has a separate folder
    caches = config.settings.get("run.compile-cache-folder", NOTHING)
    if caches.value and not caches.value.startswith(home):
        for flaw in _find_folder_flaws(caches.value, caches.source):
            notify(f"jaxsif: warning: {flaw}")
    logs = config.settings.get("run.log-dir", NOTHING)
    if logs.value and not logs.value.startswith(home):
        what = f"the log files of all users get into {logs.value} ({logs.source})"
        notify(f'jaxsif: warning: {what}: write log-dir = "~/logs", a folder for each user')


def _find_folder_flaws(path: str, source: str) -> Iterator[str]:
    """Yield what keeps users from writing to a folder of the site's settings, with its remedy."""
    there = next(filter(os.path.lexists, (path, *_list_above(path))))
    closed, users = _list_closed_above(path), _find_users(path)
    if users == "group":
        group = os.stat(path).st_gid
        closed = [folder for folder in closed if not _may_enter(group, folder)]
    if closed:
        remedy = shlex.join(["chmod", "a+x", *closed])
        yield f"not all users can enter {path} ({source}): {remedy}"
    if not os.path.isdir(there):
        yield f"not a folder: {there} ({source}): move it away, or name another folder"
    elif there != path or not users:
        remedy = shlex.join(["install", "-d", "-m", "1777", path])
        what = f"not all users can write to {path} ({source}), safe from others"
        yield f"{what}; on a disk that all nodes see: {remedy}"


def _find_users(path: str) -> str:
    """Return who may write to a folder, safe from others: 'all' users, those of a 'group', which is
    not root's, or ''.
    """
    if not os.path.isdir(path):
        return ""
    found = os.stat(path)
    if found.st_mode & stat.S_IWOTH:
        return "all" if found.st_mode & stat.S_ISVTX else ""
    return "group" if found.st_mode & stat.S_IWGRP and found.st_gid else ""


def _may_enter(group: int, folder: str) -> bool:
    """Return whether a folder is of this group, and its users may enter it."""
    found = os.stat(folder)
    return found.st_gid == group and bool(found.st_mode & stat.S_IXGRP)


def _warn_of_open(files: Iterable[str], notify: Notify) -> None:
    """Warn of files that every user's run reads and that any user may change or replace."""
    paths = chain.from_iterable((file, *_list_above(file)) for file in files)
    for path in dict.fromkeys(filter(os.path.exists, paths)):
        mode = os.stat(path).st_mode
        if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX and stat.S_ISDIR(mode)):
            remedy = shlex.join(["chmod", "o-w", path])
            notify(f"jaxsif: warning: all users may change {path}: {remedy}")


def _warn_of_variables(config: Config, notify: Notify) -> None:
    """Show the warnings of every run about variables that the site's settings give to programs."""
    env = config.settings.get("run.env", NOTHING)
    pairs = [pair.partition("=") for pair in env.value or ()]
    given = {name: value for name, equals, value in pairs if equals}
    for name in (name for name, equals, _ in pairs if not equals and is_variable(name)):
        what = f"a run is refused if its user has not set {name} ({env.source})"
        notify(f"jaxsif: warning: {what}: {suggest_value(name)}")
    for warning in describe_secrets(env) if pairs else ():
        notify(f"jaxsif: {warning}")
    for caution in find_cautions({}, given, clean=False, gpus=None, tasks=None):
        notify(f"jaxsif: warning: {caution}; set by {env.source}")


def _warn_of_fabric(config: Config, notify: Notify) -> None:
    """Warn of secrets in the fabric's profile; raise JaxsifError if it is missing or invalid."""
    if "run.fabric" in config.settings:
        fabric = resolve_fabric(config.settings["run.fabric"], read_profiles(config))
        for warning in describe_secrets_of(fabric):
            notify(f"jaxsif: {warning}")


def _warn_of_interpreter(script: str, notify: Notify) -> None:
    """Warn if not all users may run the Python in the first line of a script."""
    with suppress(OSError), open(script, errors="surrogateescape") as file:
        python = [*file.readline()[2:].split(), ""][0]
        real = os.path.realpath(python)
        if not os.path.basename(python).startswith("python") or not os.path.isabs(python):
            return
        above = [path for _, path in find_closed(real) if path != real]
        if above or not os.stat(real).st_mode & stat.S_IXOTH:
            remedy = "install the launcher with another one"
            what = f"not all users may run the launcher's Python, {python}"
            notify(f"jaxsif: warning: {what}: {remedy}")


def _try_run(module: Module, environ: Mapping[str, str], notify: Notify) -> None:
    """Warn if the launcher would refuse a run with the staff's settings and no others."""
    own = {
        name: value
        for name, value in outside_of_job(environ).items()
        if not name.startswith("JAXSIF_")
    }
    own["XDG_CONFIG_HOME"] = "/nonexistent"
    # In a folder without a project's file. Without a job, nothing can be staged; and no folder of
    # a compile cache is to be made.
    run = ("run", "--dry-run", "--no-stage", "--no-compile-cache", f"--image={module.image}")
    argv = ("sh", "-c", 'cd / && exec "$0" "$@" -- true', module.command, *run)
    done = process.captured(argv, own)
    if done.returncode:
        words = done.stderr.strip()
        error = words.partition("jaxsif: error: ")[2] or words.rpartition("\n")[2]
        error = error or f"exit status {done.returncode}"
        notify(f"jaxsif: warning: a run with the site's settings is refused: {error}")


def _check_keys(
    config: Config, runtime: Runtime | None, environ: Mapping[str, str], notify: Notify
) -> Iterator[str]:
    """Yield the files of the policies' keys; warn of keys that users do not have, or nobody can
    use.
    """
    policies = [policy for name, policy in config.policies if name == SIGNED_BY]
    keys = list(chain(*(zip(policy.value, find_keys(policy)) for policy in policies)))
    fingerprints = [key for key, _ in keys if is_fingerprint(key)]
    for key, path in keys:
        flaw = "" if key in fingerprints else _find_flaw(key, path)
        if flaw:
            notify(f"jaxsif: warning: {flaw}")
        elif key not in fingerprints:
            yield path
    for key in find_private(runtime, fingerprints, environ) if runtime and fingerprints else ():
        remedy = "call apptainer key import --global FILE as root on each host"
        notify(f"jaxsif: warning: not all users have the key {key}: {remedy}")


def _find_flaw(key: str, path: str) -> str:
    """Return what is wrong with a policy's key in a file, or ''."""
    if key.startswith("~/"):
        return f"{key} is in each user's own home: name a path that all users can read"
    return enclose(f"cannot use the key {path}: ", find_flaw(path))


def find_rivals(
    prefix: Path, name: str, is_default: bool, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the other folders on MODULEPATH that have a module of this name, or a default, too;
    each with the name that is in both.
    """
    own = os.path.realpath(prefix / "modulefiles")
    folders = filter(None, environ.get("MODULEPATH", "").split(":"))
    for folder in (one for one in folders if os.path.realpath(one) != own):
        if any(os.path.exists(f"{folder}/jax/{file}") for file in (name, f"{name}.lua")):
            yield folder, name
        elif is_default and _has_default(Path(folder, "jax", MODULERC)):
            yield folder, "sif"


def _has_default(file: Path) -> bool:
    with suppress(OSError):
        found = parse_default(file.read_text(errors="surrogateescape"))
        return bool(found and found.default)
    return False


def find_closed(file: str) -> list[tuple[str, str]]:
    """Return the mode for chmod and the path of all that is to be opened so that everybody may read
    the file: itself, and folders above it.
    """
    mode, needed = "a+r", stat.S_IROTH
    if os.path.isdir(file):
        mode, needed = "a+rx", stat.S_IROTH | stat.S_IXOTH
    is_closed = os.stat(file).st_mode & needed != needed
    return [(mode, file)] * is_closed + [("a+x", folder) for folder in _list_closed_above(file)]


def _list_closed_above(path: str) -> list[str]:
    """Return the folders above a path, and above that to which it links, that not all users may
    enter.
    """
    above = filter(os.path.isdir, _list_above(path))
    return [folder for folder in above if not os.stat(folder).st_mode & stat.S_IXOTH]


def _list_above(file: str) -> list[str]:
    """Return all folders above a file, and above that to which it links."""
    above = (*Path(file).parents, *Path(os.path.realpath(file)).parents)
    return list(map(str, dict.fromkeys(above)))


def remove_module(prefix: Path, name: str) -> Module:
    """Remove only the modulefiles; raise JaxsifError for the default one of several."""
    with _locked(prefix):
        module = find_module(prefix, name)
        former = read_default(prefix)
        others = _by_name(prefix)
        del others[module.name]
        default_file, *files = list_files(prefix, module.name)
        if not others and former.kept:
            _write(_default_file(prefix, (), None, former))
        elif not others:
            files = [default_file, *files]
        elif module.name == former.default:
            hint = "set another default first: jaxsif module default NAME"
            raise JaxsifError(f"jax/{module.name} is the default", "NAME", hint)
        else:
            first = next(iter(others.values()))
            default = others.get(former.default or "", first)
            _write(_default_file(prefix, others.values(), default, former))
        for file in files:
            file.unlink(missing_ok=True)
    return module


def check_prefix(prefix: Path) -> None:
    """Raise JaxsifError for a prefix below which no module or no run works: Lmod reads .modulerc
    without quotes, and as ASCII; a colon separates the folders of MODULEPATH, a comma the binds.
    """
    hint = "use a folder whose path is ASCII without blanks, commas, colons, quotes, $, backslashes"
    _refuse(_NOT_IN_PREFIX, str(prefix), "PREFIX", hint)


def _refuse(letters: re.Pattern[str], path: str, source: str, hint: str) -> None:
    if letters.search(path):
        raise JaxsifError(f"path has characters that no module can name: {path}", source, hint)


def _not_ours(path: Path) -> JaxsifError:
    remedy = "move it away, or use another PREFIX"
    if path.name == _LUA_DEFAULT:  # Lmod reads only one of the two
        remedy += f"; then write its lines into {MODULERC}, in Tcl"
    return JaxsifError(f"not written by jaxsif: {path}", str(path.parent), remedy)


def check_place(prefix: Path, name: str, image: str, has_option: bool = True) -> None:
    """Raise JaxsifError if the name is that of another image's module, or if jaxsif did not write
    the modulefile, the module dl or the default that are there. `has_option` tells whether the
    caller has an option --name.
    """
    other_name = "give another --name" if has_option else ""
    read_default(prefix)
    for path in filter(os.path.exists, umbrella_files(prefix)):
        if not is_umbrella(path):
            raise _not_ours(path)
    folder = modules_folder(prefix)
    files = list(filter(os.path.exists, (folder / name, folder / f"{name}.lua")))
    for path in files:
        module = read_module(path)
        if module is None:
            raise _not_ours(path)
        ways = (other_name, _render_removal(prefix, name))
        _check_image(name, module, image, str(path), ", or ".join(filter(None, ways)))
    if files:
        return
    for module in list_modules(prefix):
        if name == module.short:
            _check_image(name, module, image, str(folder / MODULERC), other_name)


def _render_removal(prefix: Path, name: str) -> str:
    """Return the command that removes a module; a launcher installed elsewhere needs --prefix."""
    option = [] if _find_own() == prefix else ["--prefix", str(prefix)]
    return shlex.join(["jaxsif", "module", "remove", *option, name])


def _check_image(name: str, module: Module, image: str, source: str, hint: str) -> None:
    """Raise JaxsifError if a module that `name` stands for has another image."""
    if not _leads_to(module.image, image):
        what = f"jax/{name} already is the module of another image: {module.image}"
        raise JaxsifError(what, source, hint)


def _leads_to(former: str, image: str) -> bool:
    """Return whether a module's former path is another path of the image, or is gone, as after a
    move of the whole PREFIX.
    """
    is_moved = not os.path.lexists(former) and os.path.basename(former) == os.path.basename(image)
    return is_moved or os.path.realpath(former) == os.path.realpath(image)


def _choose_name(image: str, name: str | None, version: str, flavour: str) -> str:
    """Return `name` without 'jax/', or else a name from the labels; raise JaxsifError for a bad
    name, and if neither gives one.
    """
    if name is None and not version:
        raise JaxsifError(
            f"no name for the module: {image} is not labelled with one", "IMAGE", "--name NAME"
        )
    name = (name_module(version, flavour) if name is None else name).removeprefix("jax/")
    if not _NAME.fullmatch(name) or name in _STANDS_FOR_DEFAULT or name.endswith(".lua"):
        raise JaxsifError(
            f"not a valid module name: {name!r}",
            "--name",
            "choose a name such as 0.13.0-cuda12-sif",
        )
    return name


def read_version(image: str) -> tuple[str, str]:
    """Return JAX's version and the flavour, from the image's labels; '' and '' if they do not make
    a name.
    """
    labels = read_labels(image)
    version, flavour = labels.get("io.jaxsif.jax", ""), labels.get("io.jaxsif.flavour", "")
    if _NAME.fullmatch(version) and _NAME.fullmatch(flavour):
        return version, flavour
    return "", ""


def _write(texts: Mapping[Path, str]) -> None:
    """Write all of these files, readable by everybody, or none; raise OSError."""
    contents = {str(path): text.encode(errors="surrogateescape") for path, text in texts.items()}
    _write_all(lambda: write_files(contents))


def _write_all(write: Callable[[], None]) -> None:
    """Call `write` so that everybody may read its files; raise OSError."""
    mask = os.umask(0o022)
    try:
        write()
    finally:
        os.umask(mask)


# As `make install` writes it: no variable and no ~/.local of a user changes the launcher.
_COMMAND = """\
#!{python} -IS
import sys

sys.path.insert(0, {library!r})
import jaxsif.installation
jaxsif.installation.use_home({home!r})  # its site's jaxsif.toml counts
import jaxsif.__main__
"""


def is_installed(home: Path) -> bool:
    """Return whether `make install` has put a launcher into this folder."""
    return (home / "modulefiles").is_dir()


def link_launcher(home: Path, share: str, library: str, python: str) -> None:
    """Set `home` up for a wheel: `library` has the package, `share` the rest, and `python` runs it.
    Raise OSError.

    The folders are copied, not linked: a user's `cp -r` would copy a link as a link.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("slurm", "docs"):
        shutil.copytree(f"{share}/{name}", home / name, ignore=ignored, dirs_exist_ok=True)
    for page in (*Path(share).glob("*.md"), Path(share) / "LICENSE"):  # as `make install` does
        shutil.copy(page, home)
    command = _COMMAND.format(python=python, library=library, home=str(home))
    (home.parent / "images").mkdir(exist_ok=True)  # the modules' JAXSIF_IMAGES
    write_file(str(home / "bin/jaxsif"), command.encode(), 0o777)
