"""Rules for Dockerfile instructions: refuse those that would change their meaning, and those
without a counterpart in a definition file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from glob import has_magic
from typing import NamedTuple

from jaxsif.builds.definition import find_invisible
from jaxsif.builds.shell_words import (
    installs_apart,
    installs_for_one_user,
    installs_jax,
    installs_modules,
    keeps_in_tmp,
    makes_environment,
    syncs_poetry,
    uses_home_of_root,
)
from jaxsif.foreign import parse_json

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LETTER = r"[^\s\"'\\`$]"  # characters of a value that no shell changes in double quotes
_WORD = r"[^\s\"'\\`${}]"  # and of what stands for a variable without a value
_SIMPLE = rf"\${_NAME}(?![A-Za-z0-9_])"  # whole: one part of a text matches in one way
_INNER = rf"(?:{_SIMPLE}|\$\{{{_NAME}(?::?[-+](?:{_WORD}|{_SIMPLE})*)?\}})"
_REFERENCE = rf"(?:{_SIMPLE}|\$\{{{_NAME}(?::?[-+](?:{_WORD}|{_INNER})*)?\}})"
_QUOTED = rf"\"(?:[^\"\\`$]|{_REFERENCE})*\"|'[^'\\`$\"]*'"
_VALUE = rf"(?:{_QUOTED}|(?:{_LETTER}|{_REFERENCE})*(?:[^\s\"'\\`$=]|{_REFERENCE}))"
_KEY = r"[A-Za-z_][A-Za-z0-9_.-]*"  # of a label
_PAIRS = rf"{_NAME}={_VALUE}?(?: +{_NAME}={_VALUE}?)*"
_OLD_PAIR = rf"{_NAME} +(?:{_QUOTED}|(?:[^\s\"'\\`$=]|{_REFERENCE})+)"
# NAME=VALUE, or the old form NAME VALUE, in a text that the guards below accept.
_PAIR = re.compile(rf"({_KEY})(?:=| +)({_VALUE}?)(?= |$)")
_PATH = rf"(?:[\w./+@%,:~-]|{_REFERENCE})+"
_SOURCE = rf"(?:[\w./+@%,*?-]|{_REFERENCE})+"
_ADDRESS = rf"(?:[\w./+@%,:~=&?-]|{_REFERENCE})"
_FILE = rf"(?:[\w.+@,:~=-]|{_REFERENCE})+(?<!\.git)"
# A file on the web; the name is what ADD calls it. Docker clones what ends with .git.
_DOWNLOAD = rf"https?://(?:(?!\?){_ADDRESS})+/{_FILE}(?:\?{_ADDRESS}*)? +{_PATH}"
IMAGE = re.compile(r"[\w./:@-]+")  # or a stage
_ARGUMENT = rf"{_NAME}(?:=(?:{_VALUE})?)?(?= |$)"
_ARGUMENTS = rf"{_ARGUMENT}(?: +{_ARGUMENT})*"
OLD_LABEL = re.compile(rf"({_KEY}) +((?:[^\\`'$]|{_REFERENCE})+)")
# As a separate word, as Docker's builder finds it.
HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[\"']?([A-Za-z_]\w*)")
# In a COPY: packages of a Python that is not ours.
PACKAGES = re.compile(r"(?:^| )(?!/opt/jax/)\S*(?:site-packages|dist-packages|/root/\.local)")
# Also ${NAME:-WORD} and its like, where WORD may have variables of its own.
VARIABLE = re.compile(
    rf"\$(?:({_NAME})|\{{({_NAME})(?:(:?[-+])((?:[^{{}}]|\$\{{[^{{}}]*\}})*))?\}})"
)


class Guard(NamedTuple):
    """A reason to refuse an instruction."""

    fits: Callable[[str], object]  # whether it applies to the text
    reason: str


def _has(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


def _is_not(pattern: str) -> Callable[[str], object]:
    whole = re.compile(pattern)
    return lambda text: not whole.fullmatch(text)


def read_list(text: str) -> list[str] | None:
    """Return the strings of a JSON list, or None for any other text."""
    try:
        found = parse_json(text)
    except ValueError:
        return None
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else None


def split_arguments(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of an ARG, None for a name alone."""
    found = re.match(_ARGUMENTS, text)
    for word in re.findall(_ARGUMENT, found[0] if found else ""):
        name, is_set, value = word.partition("=")
        yield name, _unquote(value) if is_set else None


def split_pairs(text: str) -> list[tuple[str, str]]:
    """Split the names and values of an ENV or LABEL."""
    return [(name, _unquote(value)) for name, value in _PAIR.findall(text)]


def _unquote(value: str) -> str:
    return value[1:-1] if value[:1] in ("'", '"') else value


def _finds_parent(source: str) -> bool:
    """Check whether a path has a pattern such as .*, which also matches .. in a shell."""
    parts = (part for part in source.split("/") if part.startswith(".") and has_magic(part))
    return any(fnmatchcase("..", part) for part in parts)


def _has_unfit_word(text: str) -> bool:
    """Return whether a decoded word of a list could break a line or begin a build argument."""
    return any(find_invisible(word) or "{{" in word for word in read_list(text) or [])


_ANY = _has("")
_UNKNOWN = Guard(_ANY, "is not a Dockerfile instruction")
_HAS_HEREDOC = Guard(HEREDOC.search, "has a here-document: write the commands with && and \\")
_EMPTY = Guard(_is_not(r"(?s).+"), "is empty")
_NO_LIST = Guard(
    lambda text: text.startswith("[") and read_list(text) is None,
    "is not a list of strings: write it as JSON",
)
_OPTIONS_OF_COPY = (
    Guard(_has("^--chmod="), "has a mode that is not three or four octal digits: use RUN chmod"),
    Guard(_has("^--"), "has an option that definition files lack: remove it"),
)
_PAIRS_ALONE = Guard(
    _is_not(_PAIRS),
    "is not NAME=VALUE: put a value that has spaces or ends with = in double quotes, and do not"
    " use \\, `, $(, or $ in single quotes",
)
_TEMPLATE = Guard(
    _has(r"\{\{"), "has {{, which marks a build argument in definition files: write it differently"
)
_MOUNT = r"^(?:--\S+ +)*--mount="
IN_TMP = "what is in /tmp or /var/tmp will not be in the image"
_HOME = r"/root(?:/\S*)?"
_HOME_IS_HIDDEN = "is in root's home, which is hidden in a container: name a folder such as /opt"
_ADDS_URL = "adds a URL that is no plain file: download it with RUN"
_COPIES = (
    Guard(HEREDOC.search, "has a here-document: put its text into a file, and copy that"),
    _NO_LIST,
    Guard(_is_not(r"\S+\s+.*"), "names no place to copy to: write SOURCE... FOLDER"),
    Guard(
        _is_not(rf"{_SOURCE}(?: +{_SOURCE})* +{_PATH}"),
        "has a path with special characters: rename it",
    ),
    Guard(
        _has(r"(?:^|[ /])\*+/\S* |[*?]\S*/\*+ "),
        "in Docker, also copies hidden files: name the folder instead",
    ),
    Guard(
        lambda text: any(map(_finds_parent, text.split())),
        "has a pattern that also matches '..': name the files instead",
    ),
    Guard(
        _has(r"(?:^|[ /])\.\.(?:[ /]|$)"),
        "has .. in a path: Docker sees only the build context",
    ),
    Guard(_has(rf" {_HOME}$"), _HOME_IS_HIDDEN),
)
_WORDS = (
    _NO_LIST,
    Guard(
        _has_unfit_word,
        "has a line break, an invisible character or {{ in a word: put it in a script",
    ),
)
_SHELL = "is not a list with a shell and its options: write it as JSON"
_RULES: dict[str, tuple[Guard, ...]] = {
    "FROM": (
        Guard(_is_not(r"(?:--\S+ +)*[^-\s]\S*(?: +(?i:as) +[A-Za-z][\w.-]*)?"), "names no image"),
    ),
    "RUN": (
        Guard(
            _has(rf"{_MOUNT}\S*type=(?:secret|ssh)\b"),
            "needs a secret, which stays out of images: run it before the build, and COPY its"
            " result",
        ),
        Guard(_has(_MOUNT), "uses --mount: remove it, and COPY what it would bind, if anything"),
        Guard(_has("^--"), "uses an option of Docker's builder: remove it"),
        Guard(read_list, "is a list: write the command as you would in a shell"),
        _HAS_HEREDOC,
        Guard(
            installs_for_one_user,
            "installs for one user, but the image's Python is for everyone: leave --user out",
        ),
        Guard(
            installs_apart,
            "installs where python does not look: leave --prefix out, and install in the last"
            " stage",
        ),
    ),
    "COPY": (
        Guard(PACKAGES.search, "copies packages for another Python: install them in this stage"),
        *_OPTIONS_OF_COPY,
        *_COPIES,
    ),
    "ADD": (
        *_OPTIONS_OF_COPY,
        Guard(_has(r"://|^git@"), _ADDS_URL),
        Guard(
            _has(r"(?i:\.(?:tar|tgz|tbz2?|txz|gz|bz2|xz|zst))[*?]* "),
            "unpacks an archive: use COPY, and unpack it with RUN",
        ),
        *_COPIES,
    ),
    "ARG": (Guard(_is_not(rf"{_ARGUMENTS}(?: +#.*)?"), _PAIRS_ALONE.reason),),
    "ENV": (Guard(_is_not(f"(?:{_PAIRS}|{_OLD_PAIR})"), _PAIRS_ALONE.reason),),
    "LABEL": (
        Guard(
            _is_not(rf"{_KEY}={_VALUE}(?: +{_KEY}={_VALUE})*|{OLD_LABEL.pattern}"),
            _PAIRS_ALONE.reason,
        ),
    ),
    "WORKDIR": (
        Guard(_is_not(_PATH), "has a path with special characters: rename it"),
        Guard(_has(f"^{_HOME}$"), _HOME_IS_HIDDEN),
    ),
    "USER": (),
    "CMD": _WORDS,
    "ENTRYPOINT": _WORDS,
    "SHELL": (Guard(lambda text: not read_list(text), _SHELL), *_WORDS),
    "ONBUILD": (
        Guard(
            _ANY, "runs in what is built on this stage: write it there, after FROM, or remove it"
        ),
    ),
    "HEALTHCHECK": (),
    "EXPOSE": (),
    "VOLUME": (),
    "STOPSIGNAL": (),
    "MAINTAINER": (),
}


class Remark(NamedTuple):
    """A difference from Docker."""

    words: tuple[str, ...]  # of the instructions
    fits: Callable[[str], object]  # whether it applies to their text
    text: str


_REMARKS = (
    Remark(
        ("RUN",),
        installs_modules,
        "python is the image's own, which does not see Debian's python3-NAME: use pip",
    ),
    Remark(
        ("RUN",),
        installs_jax,
        "pip may replace the image's JAX, which matches its CUDA and NCCL: leave out jax and"
        " jaxlib",
    ),
    Remark(("RUN",), makes_environment, "a separate environment does not see the image's JAX"),
    Remark(
        ("RUN",),
        syncs_poetry,
        "poetry removes packages that its lock file lacks, such as the image's JAX: use poetry"
        " install, without --sync",
    ),
    Remark(("RUN",), keeps_in_tmp, IN_TMP),
    Remark(
        ("RUN", "ENV", "CMD", "ENTRYPOINT"),
        uses_home_of_root,
        "/root is hidden by the user's own home when the image runs",
    ),
)


def find_reason(word: str, text: str) -> str:
    """Return why an instruction is refused, or '' if it is not."""
    if word == "ADD" and re.fullmatch(_DOWNLOAD, text):
        return ""
    rules = (_EMPTY, *_RULES[word]) if word in _RULES else (_UNKNOWN,)
    return next((rule.reason for rule in (*rules, _TEMPLATE) if rule.fits(text)), "")


def find_remarks(word: str, text: str) -> Iterator[str]:
    """Yield the differences between an instruction and its effect in Docker."""
    return (one.text for one in _REMARKS if word in one.words and one.fits(text))
