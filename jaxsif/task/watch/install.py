"""Import the watching code only when the program uses JAX: many Pythons of a task never do.

Without compiled files, as when the image's Python version is not the launcher's, importing takes 8
ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import importing
from ..contract import CHECK_PROGRAMS, HANG_TIMEOUT, OFF, STOP, WARN, MisfitError, parse_seconds
from .monitoring import TOOL, claim
from .status_file import open_status_file

if TYPE_CHECKING:
    from ..failure import Emit
    from .observer import Observer

# The first use of JAX is one of these: module, and function in it.
_FIRST_USES: Mapping[str, str] = {
    "jax._src.xla_bridge": "backends",
    "jax._src.distributed": "State.initialize",
}


def read_wishes(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the seconds that the program may hang (0 for no limit), and the check of its compiled
    programs ('' for none); raise MisfitError for any other value.
    """
    check = environ.get(CHECK_PROGRAMS, "")
    check = "" if check == OFF else check
    if check not in ("", WARN, STOP):
        raise MisfitError(
            f"{CHECK_PROGRAMS} is neither {WARN} nor {STOP}: {check[:40]!r}",
            f"do not set {CHECK_PROGRAMS}; jaxsif sets it",
        )
    return parse_seconds(environ.get(HANG_TIMEOUT) or "0", HANG_TIMEOUT), check


def install(
    environ: Mapping[str, str], emit: Emit, pipe: int, hang_timeout: int, check: str
) -> None:
    """Watch this process once it uses JAX; `pipe` is start.sh's, and the other values are from
    `read_wishes`.
    """
    file = open_status_file(pipe)
    variables = dict(environ)  # the program may change its environment

    @cache
    def make_observer() -> Observer:
        from .observer import Observer

        return Observer(file, hang_timeout, emit)

    def take_census(module: Any) -> None:
        from . import census

        def locate() -> str:
            return make_observer().locate() if hang_timeout else ""

        census.take_over(module, variables, emit, check, locate)

    def begin() -> None:
        try:
            make_observer().begin()
        except Exception as error:  # within the program's own call, which must continue
            from ..failure import describe

            emit({"event": "warning", "text": f"hang detection stopped: {describe(error)}"})

    if hang_timeout:
        importing.after("jax._src.monitoring", lambda it: make_observer().follow_compiles(it))
        for name, function in _FIRST_USES.items():
            importing.after(name, _begin_at(function, begin))
    if check:
        importing.after("jax._src.compiler", take_census)


def _begin_at(name: str, begin: Callable[[], None]) -> Callable[[Any], None]:
    """Return a hook that makes the first call of a function in a module call `begin`."""
    return lambda module: _before(importing.find(module, name), begin)


def _before(function: Any, call: Callable[[], None]) -> None:
    """Call `call`, which raises nothing, when `function` first starts, without adding a jaxsif
    frame to tracebacks.

    Before Python 3.12, call it immediately.
    """
    monitoring = claim()
    if monitoring is None:
        call()
        return
    _calls[function.__code__] = call
    monitoring.register_callback(TOOL, monitoring.events.PY_START, _started)
    monitoring.set_local_events(TOOL, function.__code__, monitoring.events.PY_START)


_calls: dict[object, Callable[[], None]] = {}


def _started(code: object, _offset: int) -> Any:
    call = _calls.pop(code, None)
    if call:
        call()
    return sys.monitoring.DISABLE  # type: ignore[attr-defined]
