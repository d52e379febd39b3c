"""Find hazards in the commands of a shell script by looking at their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import chain, takewhile

_DEBIAN_TOOLS = "pip|venv|dev|setuptools|wheel|is-python3"  # packages without a module to import
_JAX = re.compile(r"jax(?:lib)?(?:$|[\[=<>~!])")
_MODULES = re.compile(rf"(?:python3?-(?!{_DEBIAN_TOOLS})\w)")
_ENVIRONMENTS: tuple[tuple[Set[str], ...], ...] = (
    ({"^virtualenv"},),
    ({"-m", "uv"}, {"venv"}),
    ({"uv"}, {"sync"}),
    ({"conda", "mamba", "micromamba"}, {"create"}),
)
_HOME_OF_ROOT = re.compile(r"(?:^|[=:,\[])/root(?![\w.-])")
_TMP = ("/tmp", "/var/tmp")
BELOW_TMP = ("/tmp/", "/var/tmp/")
# Names for all of a folder's content, or for the folder itself.
_ALL = re.compile(r"|\.|\.?\*|\.\[.*|\{.*\*.*")
_VARIABLES = {"${TMPDIR:-/tmp}": "/tmp", "$TMPDIR": "/tmp", "${TMPDIR}": "/tmp"}


def split_commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command, without quotes and comments."""
    for command in re.split(r"[;&|()\n]+", script):
        words = re.sub(r"[\"'\\]", "", command).split()
        kept = list(takewhile(lambda word: not word.startswith("#"), words))
        if kept:
            yield kept


def find_emptied(script: str, folder: str = "/") -> Iterator[tuple[str, list[str]]]:
    """Yield each command that removes everything in /tmp or /var/tmp, and which of these; the
    script starts in `folder`.
    """
    for words in split_commands(script):
        if words[0] == "cd" and len(words) > 1:
            folder = _resolve(words[1], folder)
        else:
            paths = [_resolve(word, folder) for word in _find_removed(words)]
            emptied = [one for one in _TMP if any(_is_all(path, one) for path in paths)]
            if emptied:
                yield " ".join(words), emptied


def _find_removed(words: Sequence[str]) -> Sequence[str]:
    """Find the words after a removing command: its paths and options."""
    names = [word.rpartition("/")[2] for word in words]
    if {"rm", "-delete"}.isdisjoint(names):
        return ()
    first = "find" if "find" in names else "rm"
    return words[names.index(first) + 1 :] if first in names else ()


def _resolve(word: str, folder: str) -> str:
    """Return an absolute path, with known variables replaced by their values."""
    for name, value in {**_VARIABLES, "$PWD": folder, "${PWD}": folder}.items():
        word = word.replace(name, value)
    path = word if word.startswith("/") else f"{folder}/{word}"
    return re.sub(r"/+(?:\./+)*", "/", path)


def _is_all(path: str, folder: str) -> bool:
    above, _, name = path.rpartition("/")
    return path == folder or (above == folder and bool(_ALL.fullmatch(name)))


def keeps_in_tmp(script: str) -> bool:
    """Return whether a script makes a folder below /tmp or /var/tmp that it does not remove."""
    kept = set[str]()
    for words in split_commands(script):
        paths = tuple(word.rstrip("/") for word in words if word.startswith(BELOW_TMP))
        if words[0] == "mkdir":
            kept.update(paths)
        elif words[0] == "rm":
            removed = tuple(f"{path}/" for path in paths)
            kept = {one for one in kept if not f"{one}/".startswith(removed)}
    return bool(kept)


def _says(script: str, *groups: Set[str]) -> bool:
    """Return whether a command has a word from each group; the command's first word also matches
    with ^ before it.
    """
    commands = ({*words, f"^{words[0]}"} for words in split_commands(script))
    return any(all(map(words.intersection, groups)) for words in commands)


def installs_for_one_user(script: str) -> bool:
    """Return whether a script installs Python packages into a home folder."""
    return _says(script, {"pip", "pip3"}, {"--user"})


def installs_apart(script: str) -> bool:
    """Return whether a script installs Python packages below a folder of its own."""
    folders = {word for word in script.split() if re.match(r"--prefix(?:=|$)", word)}
    return bool(folders) and _says(script, {"pip", "pip3"}, {"install"}, folders)


def installs_jax(script: str) -> bool:
    """Return whether a script installs JAX itself, such as jax[cuda12] or jaxlib==0.6."""
    named = set(filter(_JAX.match, script.replace("'", " ").replace('"', " ").split()))
    return bool(named) and _says(script, {"pip", "pip3"}, {"install"})


def installs_modules(script: str) -> bool:
    """Return whether a script installs Debian's packages of Python modules."""
    modules = set(filter(_MODULES.match, script.split()))
    return _says(script, {"apt", "apt-get"}, {"install"}, modules)


def makes_environment(script: str) -> bool:
    """Return whether a script creates a separate Python environment."""
    return any(_says(script, *groups) for groups in _ENVIRONMENTS)


def syncs_poetry(script: str) -> bool:
    """Return whether a script has poetry remove the packages that its lock file lacks."""
    return _says(script, {"poetry"}, {"sync", "--sync"})


def uses_home_of_root(script: str) -> bool:
    """Return whether a script, a list or a value names /root, other than to remove something from
    there.
    """
    used = (words for words in split_commands(script) if "rm" not in words)
    return any(map(_HOME_OF_ROOT.search, chain.from_iterable(used)))
