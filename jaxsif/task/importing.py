"""Do something around a module that the program will import, and never import it from here."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import Any

# What executes a module, or does something else with it.
Step = Callable[[ModuleType], None]


def around(name: str, step: Callable[[ModuleType, Step], None]) -> None:
    """When module `name` is imported, call `step` with it and with what executes it."""
    sys.meta_path.insert(0, _Finder(name, step))


def after(name: str, change: Step) -> None:
    """When module `name` has been imported, call `change` with it.

    A module that has not what `change` looks for is left alone, and `listen` is told of it: it is
    of another JAX.
    """

    def execute_and_change(module: ModuleType, execute: Step) -> None:
        execute(module)
        try:
            change(module)
        except MissingError as missing:
            _tell(str(missing))
        # Whatever another JAX does otherwise, the program must not learn of it.
        except Exception as error:
            _tell(f"{name} ({type(error).__name__}: {error})")

    around(name, execute_and_change)


class MissingError(AttributeError):
    """A module has not the function, or the function not the parameters, of this text."""


def find(module: Any, name: str, *parameters: str) -> Any:
    """Return what a module has by a name such as 'State.initialize'; raise MissingError where it
    has none, or where that takes no parameters of these names, in this order.
    """
    text = f"{module.__name__}.{name}"
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise MissingError(text) from None
    code = getattr(found, "__code__", None)
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    if tuple(filter(parameters.__contains__, known)) != parameters:
        raise MissingError(f"{text}({', '.join(parameters)})")
    return found


_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Have `listener` told what is missing in the modules that are imported from now on."""
    _listeners.append(listener)


def _tell(text: str) -> None:
    for listener in _listeners:
        listener(text)


class _Finder:
    """Finds one module, by the finders behind it in sys.meta_path.

    It stays there: other threads may be going through that list, and programs look for a module, or
    fail to import it, before they do import it.
    """

    def __init__(self, name: str, step: Callable[[ModuleType, Step], None]) -> None:
        self._name = name
        self._step = step

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else []
        found = (
            finder.find_spec(name, path, target)
            for finder in behind
            if hasattr(finder, "find_spec")
        )
        spec: Any = next(filter(None, found), None)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute:
            loader = copy.copy(spec.loader)  # it may be that of other modules, too
            loader.exec_module = lambda module: self._step(module, execute)
            spec.loader = loader
        return spec
