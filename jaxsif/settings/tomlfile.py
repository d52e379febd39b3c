"""Reads any TOML file in bounded time and memory: its tables, or an error with file and line."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any

from jaxsif.errors import JaxsifError
from jaxsif.text import shorten

_MANUAL = "see https://toml.io"
# Of what the readers say, and of the line below that -> the remedy; the first that matches counts.
_HINTS = {
    "\n.*[\u2018-\u201f]": "put texts in straight quotes",  # curly ones
    "^.*(?:overwrite|twice|[Dd]uplicate)": "write each name once",  # a value, or a table
    "^Unclosed array": "put commas between the values of that list, and ] at its end",
    '^(?:Expected "\'"|Unterminated string)': "close a text with the quotes that begin it",
    "^Unescaped": r"write \\ for \, or put the text in single quotes",
    "^.*table declaration": "end the table's name with ]; it has letters, digits, - and _",
    "(?i)^Invalid value.*\n.*=\\s*(?:true|yes|on|false|no|off)\\s*(?:#|$)": (
        "write true or false, in lower case"
    ),
    "": "correct that line, such as by quotes around a text",
}
# Python's own reader, if it has one; imported late, since most runs have no file to read.
_READER = "tomllib" if sys.version_info >= (3, 11) else "tomli"
MOST_BYTES = 1 << 16  # a page of settings has 2 kB; the readers take a second for a few hundred
_MOST_DOTS = 16  # in a line, outside strings: the readers take quadratic time for keys
# In a row, outside strings: Python takes quadratic time for long integers.
_MOST_DIGITS = 100
# Strings and comments, as the readers see them from left to right; one without an end extends
# to where they complain.
_QUOTED = (
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)'
    + r"|'''.*?(?:'{3,5}|\Z)"
    + r'|"(?:\\.|[^"\\\n])*"?'
    + r"|'[^'\n]*'?|#[^\n]*"
)


def parse_toml(content: bytes, path: str) -> dict[str, Any]:
    """Return the tables of a file; raise JaxsifError if the file is not TOML, or is larger than any
    real settings file.
    """
    if len(content) > MOST_BYTES:
        raise _error(path, f"it has more than {MOST_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")  # Windows may write a mark first
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(path, f"line {line} is not UTF-8", f"save it as UTF-8; {_MANUAL}") from error
    _check_lines(text, path)
    toml = import_module(_READER)
    try:
        tables: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        wrong = text.split("\n")[int(place[1]) - 1] if place else ""
        told = f"{error}\n{wrong}"
        hint = next(hint for pattern, hint in _HINTS.items() if re.search(pattern, told))
        raise _error(path, shorten(str(error)), f"{hint}; {_MANUAL}") from error
    except RecursionError as error:
        raise _error(path, "brackets are nested too deeply") from error
    return tables


def _check_lines(text: str, path: str) -> None:
    """Raise JaxsifError for a line that would take the readers, Python's and tomli, more than
    linear time.
    """
    bare = re.sub(_QUOTED, lambda found: "s" + "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(bare.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise _error(path, f"line {number} has a key of more than {_MOST_DOTS} parts")
        if re.search(rf"[\d_]{{{_MOST_DIGITS + 1}}}", line):
            raise _error(path, f"line {number} has a number of more than {_MOST_DIGITS} digits")


def _error(path: str, reason: str, hint: str = _MANUAL) -> JaxsifError:
    return JaxsifError(f"cannot read {path}: {reason}", path, hint)
