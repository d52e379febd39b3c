"""Projects among the requirements of a layer: folders and git repositories. Their files are copied;
none of their code is executed here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from jaxsif.errors import DISK_FULL, HostError, JaxsifError, Notify
from jaxsif.layers.workspace import no_space, run, tail
from jaxsif.process import find_executable

SCRATCH = "jaxsif-layer-"  # the start of the names of scratch folders
_MOST_BYTES, _MOST_FILES = 100_000_000, 20_000  # of the sources of a project
# Made by tools; another Python's packages; build and dist have files of older builds.
_SKIPPED = frozenset(
    [
        *(".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", ".eggs"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
    ]
)
_SKIPPED_AT_TOP = frozenset(["build", "dist"])
_REQUIREMENT = re.compile(
    r"(?P<editable>(?:-e|--editable)(?: +|=))?"
    r"(?:(?P<name>[A-Za-z0-9][\w.-]*) *(?P<named_extras>\[[^\]]*\])? *@ *)?"
    r"(?P<address>[^-\s].*?)(?P<extras>\[[\w., -]+\])?(?P<marker> +;.*)?"
)
_GIT = re.compile(
    r"git\+(?P<url>(?P<scheme>https|ssh|file)://(?P<user>[^/@\s]+@)?[^#\s]+?)"
    r"(?:@(?P<revision>\w[^@#\s]*))?(?:#(?P<fragment>\S+))?"
)
_ARCHIVE = re.compile(r"/[^/]+\.(tar(\.\w+)?|tgz|zip)(#.*)?")
_VERSION_CONTROL = re.compile(r"(git|hg|svn|bzr)\+")
# git's messages about a server that cannot be reached, by https and by ssh.
_NO_SERVER = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|timed out)"
    r"|Operation timed out|Operation too slow|unreachable|No route to host"
)
# The user's settings for servers count, but no hooks.
_GIT_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30"),
)
# They would name another repository, where git itself has started jaxsif.
_OF_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Project(NamedTuple):
    """A requirement that names a folder or a git repository."""

    requirement: str  # with an absolute path
    path: str  # the folder, or the address of the repository
    is_git: bool = False
    editable: bool = False
    name: str = ""  # of the package, if the requirement has it
    extras: str = ""  # such as [plots]
    marker: str = ""  # such as ; sys_platform == 'linux'
    revision: str = ""  # branch, tag or commit; '' for the default branch
    subdirectory: str = ""  # of the project in the repository


def parse_project(requirement: str, folder: Path, where: str) -> Project | None:
    """Return the project that a requirement names, relative to `folder`; None for a package from
    the index, a wheel or an option. Raise JaxsifError for an address of another kind.

    The forms are PATH[EXTRAS], NAME[EXTRAS] @ file://PATH, git+URL@REVISION#subdirectory=PATH,
    NAME[EXTRAS] @ git+URL, each optionally after -e.
    """
    parts = _REQUIREMENT.fullmatch(requirement)
    if not parts:
        return None
    named = Project(
        requirement,
        parts["address"],
        editable=bool(parts["editable"]),
        name=parts["name"] or "",
        extras=parts["named_extras"] or parts["extras"] or "",
        marker=parts["marker"] or "",
    )
    if _VERSION_CONTROL.match(named.path):
        return _parse_git(named, where)
    if _ARCHIVE.search(named.path):
        raise _no_folder(named.path, where)
    project = _parse_folder(named, folder)
    if named.editable and not project:
        raise JaxsifError(f"not a project: {named.path}", where, "name a folder, or git+https://…")
    return project


def _no_folder(path: str, where: str) -> JaxsifError:
    hint = "name an existing folder or a wheel; unpack a source archive first"
    return JaxsifError(f"not a project: {path}", where, hint)


def _parse_folder(named: Project, folder: Path) -> Project | None:
    """Return a project with the absolute path of its folder; None if it has none."""
    path = named.path
    if path.startswith("file://"):
        path = unquote(path[len("file://") :])
    elif not path.startswith((".", "/")) and (named.name or "/" not in path or "://" in path):
        return None
    if path.endswith(".whl"):
        return None
    path = str((folder / path).resolve())
    given = (
        f"{named.name}{named.extras} @ file://{quote(path)}" if named.name else path + named.extras
    )
    requirement = f"{'-e ' if named.editable else ''}{given}{named.marker}"
    return named._replace(requirement=requirement, path=path)


def _parse_git(named: Project, where: str) -> Project:
    parts = _GIT.fullmatch(named.path)
    if not parts:
        hint = "use git+https://, git+ssh:// or git+file://, with @REVISION after the path"
        raise JaxsifError(f"not a project: {named.path}", where, hint)
    if parts["user"] and parts["scheme"] != "ssh":
        raise JaxsifError(
            f"password or token in the address {named.path.replace(parts['user'], '')}",
            where,
            "leave it to git's own settings, or use git+ssh://git@HOST/PATH",
        )
    options = dict(parse_qsl(parts["fragment"] or ""))
    return named._replace(
        path=parts["url"],
        is_git=True,
        name=named.name or options.get("egg", ""),
        revision=parts["revision"] or "",
        subdirectory=options.get("subdirectory", "").strip("/"),
    )


WORK = "work"  # of the folder below, what a build may change
SOURCE = f"{WORK}/source"


class Sources(NamedTuple):
    """A copy of a project's files."""

    project: Project
    folder: Path  # all that the container of its build sees; the files are in SOURCE
    state: str  # the commit, or the digest of the files


def fetch_sources(
    requirements: Sequence[str], scratch: Path, environ: Mapping[str, str], notify: Notify
) -> list[Sources]:
    """Copy the files of each project into a folder of its own in `scratch`; raise JaxsifError."""
    named = (parse_project(requirement, Path(), "requirements") for requirement in requirements)
    return [
        _fetch(project, scratch / f"project-{number}", environ, notify)
        for number, project in enumerate(filter(None, named))
    ]


def _fetch(project: Project, folder: Path, environ: Mapping[str, str], notify: Notify) -> Sources:
    (folder / WORK).mkdir(parents=True)
    path, state = Path(project.path), ""
    if project.is_git:
        path = folder.with_name(f"{folder.name}.clone")
        state = f"commit {_clone(project, path, environ)}"
        if (path / ".gitmodules").exists():
            notify(f"note: {project.path} has submodules, which the layer leaves out")
    elif not path.is_dir():
        raise _no_folder(str(path), "requirements")
    digest, links = copy_sources(path, folder / SOURCE, project.path)
    if links:
        notify(
            f"note: {project.path}: links out of the project, such as {links[0]}, are not followed"
        )
    if project.editable:
        notify(_note_editable(project))
    return Sources(project, folder, state or digest)


def _note_editable(project: Project) -> str:
    note = f"note: a layer cannot be changed, so it has a copy of {project.path}"
    if project.is_git:
        return note
    source = os.path.join(project.path, "src")
    importable = source if os.path.isdir(source) else project.path
    return f"{note}; to work on the sources, add --env PYTHONPATH={importable}"


def copy_sources(source: Path, target: Path, shown: str) -> tuple[str, list[str]]:
    """Copy the files of a project, except those made by tools; return their digest, and the links
    that lead out of the project. Raise JaxsifError for a file that cannot be read, and for
    too many files or bytes.
    """
    copy = _Copy(target, shown)
    try:
        # No link is followed, even if somebody exchanges a folder for one in the meantime.
        for folder, names, files, handle in os.fwalk(source, onerror=_fail):
            relative = os.path.relpath(folder, source)
            skipped = _SKIPPED | _SKIPPED_AT_TOP if relative == os.curdir else _SKIPPED
            names[:] = sorted(name for name in names if _is_source(name, skipped))
            if "pyvenv.cfg" in files:  # a virtual environment
                names.clear()
                continue
            (target / relative).mkdir()
            for name in sorted([*names, *files]):
                copy.add(os.path.normpath(os.path.join(relative, name)), name, handle)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        what = f"cannot copy {shown}: {error.filename}: {error.strerror}"
        raise JaxsifError(what, "requirements", "check its permissions") from error
    return f"sha256:{copy.digest.hexdigest()}", copy.links


def _fail(error: OSError) -> None:
    raise error


def _is_source(name: str, skipped: Container[str]) -> bool:
    """Return whether a folder has sources; TMPDIR, and so the copy, may be in the project."""
    return not (name in skipped or name.endswith(".egg-info") or name.startswith(SCRATCH))


class _Copy:
    """A copy of a project while it is being made."""

    def __init__(self, target: Path, shown: str) -> None:
        self.target, self.shown = target, shown
        self.digest = hashlib.sha256()
        self.links: list[str] = []  # those that lead out of the project
        self.sizes: Counter[str] = Counter()  # bytes, by the first part of the path
        self.files = 0

    def add(self, path: str, name: str, folder: int) -> None:
        """Copy a file or a link, `name` in the open `folder`; skip anything else."""
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            self._add_link(path, os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(mode):
            with open(os.open(name, _OPEN, dir_fd=folder), "rb") as file:
                data = file.read(_MOST_BYTES + 1)
            self._check_size(path, len(data))
            (self.target / path).write_bytes(data)
            (self.target / path).chmod(0o700 if mode & 0o100 else 0o600)
            self.digest.update(
                f"{path}\0{mode & 0o100}\0{len(data)}\0".encode(errors="surrogateescape")
            )
            self.digest.update(data)

    def _add_link(self, path: str, link: str) -> None:
        self._check_size(path, 0)
        end = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if os.path.isabs(end) or end.split(os.sep)[0] == os.pardir:
            self.links.append(path)
        else:
            os.symlink(link, self.target / path)
            self.digest.update(f"{path}\0{link}\0".encode(errors="surrogateescape"))

    def _check_size(self, path: str, size: int) -> None:
        self.files += 1
        self.sizes[path.split(os.sep)[0]] += size
        largest, most = self.sizes.most_common(1)[0]
        is_large = sum(self.sizes.values()) > _MOST_BYTES
        if is_large or self.files > _MOST_FILES:
            limit = f"{_MOST_BYTES // 1_000_000} MB" if is_large else f"{_MOST_FILES} files"
            raise JaxsifError(
                f"{self.shown} has more than {limit} of sources",
                f"{largest} in it is at least {most / 1e6:.0f} MB",
                "keep data in another folder, or name only what is committed: git+file://PATH",
            )


def _clone(project: Project, folder: Path, environ: Mapping[str, str]) -> str:
    """Clone a repository into `folder`, and check out the revision; return its commit. Raise
    HostError if there is no git or the server cannot be reached, and JaxsifError if git fails.
    """
    if not find_executable("git", environ):
        hint = "install it or load its module, or name a folder"
        raise HostError(f"git is not on the PATH, and {project.path} needs it", "PATH", hint)
    given = {name: value for name, value in environ.items() if name not in _OF_REPOSITORY}
    quiet = {**given, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "LC_ALL": "C"}
    full = no_space(folder.parents[1], "set TMPDIR to a larger folder")

    def git(problem: str, hint: str, *argv: str) -> str:
        status, lines = run(["git", *_GIT_OPTIONS, *argv], quiet, folder.parent, full)
        reason = tail(lines).replace(str(folder), project.path)
        if status and _NO_SERVER.search(reason):
            hint = "run it on a host with network access; git uses its own proxy settings"
            what = f"cannot reach the server of {project.path}:"
            raise HostError(what, project.requirement, hint, reason)
        if status:
            raise JaxsifError(problem, project.requirement, hint, reason)
        return lines[-1] if lines else ""

    clone = ("clone", "--quiet", "--no-checkout", "--", project.path, str(folder))
    git(f"cannot clone {project.path}:", f"git clone {project.path}", *clone)
    revision = project.revision or "HEAD"
    known = f"git ls-remote {project.path}"
    here = ("-C", str(folder))
    git(f"no {revision} in {project.path}:", known, *here, "checkout", "--quiet", revision, "--")
    return git(f"cannot read {project.path}:", known, *here, "rev-parse", "HEAD")
