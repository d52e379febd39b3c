"""How far a request walks through the package: the files and functions that it enters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import NamedTuple

import jaxsif

_INLINED = ("<listcomp>", "<setcomp>", "<dictcomp>")  # no functions from Python 3.12 on
_PACKAGE = os.path.dirname(jaxsif.__file__) + os.sep


class Walk(NamedTuple):
    """The way of one call through the files of jaxsif."""

    files: set[str]  # below jaxsif/
    functions: set[str]  # FILE:LINE NAME; lambdas and generators too
    moves: list[str]  # the file after each move

    def check(self, **most: int) -> None:
        """Check that it enters at most so many `files` and `functions`, with at most so many `moves`."""
        counts = {name: len(getattr(self, name)) for name in most}
        sizes = ", ".join(f"{counts[name]} {name} (at most {most[name]})" for name in most)
        advice = "shorten the walk, or raise the bound in the commit that needs it, with the reason"
        assert all(counts[name] <= most[name] for name in most), "\n".join(
            [f"{sizes}: {advice}", *sorted(self.functions), " ".join(self.moves)]
        )


def trace(call: Callable[[], object]) -> Walk:
    """Call, and follow the functions of jaxsif that run; not those that run while a module is imported."""
    walk = Walk(set(), set(), [])
    imports = 0  # modules whose bodies are being executed

    def enter(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal imports
        code = frame.f_code
        if code.co_name == "<module>":
            imports += {"call": 1, "return": -1}.get(event, 0)
        is_call = event == "call" and code.co_flags & CO_OPTIMIZED  # bodies of modules and classes are none
        is_function = is_call and code.co_name not in _INLINED
        if is_function and not imports and code.co_filename.startswith(_PACKAGE):
            file = code.co_filename[len(_PACKAGE) :]
            walk.files.add(file)
            walk.functions.add(f"{file}:{code.co_firstlineno} {code.co_name}")
            _move(walk.moves, file)

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(before)
    return walk


def _move(moves: list[str], file: str) -> None:
    """Add a file, unless it is the last one. Of a b a b a, a b a is kept: a loop counts once."""
    if moves[-1:] == [file]:
        return
    if moves[-2:-1] == [file] and moves[-3:-2] == moves[-1:]:
        moves.pop()
    else:
        moves.append(file)
