"""Act when the program imports a module, without importing it from here; report missing JAX
internals, and save work while JAX is imported.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache, partial, wraps
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

# Executes a module, or does something else with it.
Step = Callable[[ModuleType], None]

# OpenBLAS, in NumPy and SciPy, makes a thread for each core. Each spins for 2 to this power ticks
# of the processor's clock before it sleeps. The default is 28: `import numpy` keeps all cores busy
# for 0.1 s, in each process. With 20, half a millisecond, threads still bridge the time between the
# operations of a loop.
_BLAS_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "20")
_MOST_WRAPPERS = 16  # nested decorators around a function
# JAX names that this package only reads, long after the import. Modules that patch JAX look up
# their names themselves, with `find`.
_READ = {
    "jax._src.distributed": ("global_state.client", "global_state.coordinator_address"),
    "jax._src.api": ("clean_up",),
    "jax._src.xla_bridge": ("_backends",),
}


def around(name: str, step: Callable[[ModuleType, Step], None]) -> None:
    """When module `name` is imported, call `step` with the module and its executor."""
    sys.meta_path.insert(0, _Finder(name, step))


def after(name: str, change: Step) -> None:
    """When module `name` has been imported, call `change` with it.

    A module that lacks names that `change` needs is from another JAX version, and is left
    unchanged; `report_missing` reports it.
    """

    def execute_and_change(module: ModuleType, execute: Step) -> None:
        execute(module)
        try:
            change(module)
        except MissingError as missing:
            _report(str(missing))
        # A difference in another JAX version must not reach the program.
        except Exception as error:
            _report(f"{name} ({type(error).__name__}: {error})")

    around(name, execute_and_change)


class MissingError(AttributeError):
    """The function that this text names, or a parameter that it lists, does not exist in a
    module.
    """


def find(module: Any, name: str, *parameters: str) -> Any:
    """Find an attribute of a module by a name such as 'State.initialize'; raise MissingError if the
    attribute does not exist, or does not take parameters with these names, in this order.
    """
    text = f"{module.__name__}.{name}"
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise MissingError(text) from None
    code = None
    for inner in unwrap(found):  # another module of this package may have wrapped it
        code = getattr(inner, "__code__", code)
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    if tuple(filter(parameters.__contains__, known)) != parameters:
        raise MissingError(f"{text}({', '.join(parameters)})")
    return found


def unwrap(value: Any) -> Iterator[Any]:
    """Yield a value, and the functions that its decorators wrap, the outermost first.

    The number is limited: __wrapped__, set by functools.wraps, may lead back to the value.
    """
    for _ in range(_MOST_WRAPPERS):
        value = value.__func__ if type(value) in _METHODS else value
        yield value
        if type(value) not in _WRAPPERS:
            return
        value = vars(value).get("__wrapped__")


_METHODS = (staticmethod, classmethod)
_WRAPPERS = (FunctionType, type(lru_cache(len)))  # their only attributes are those set on them


def before_initialize(module: Any, look: Callable[[Mapping[str, Any]], None]) -> None:
    """Call `look` with the arguments, by name, before each jax.distributed.initialize; `module` is
    jax._src.distributed. Raise MissingError.
    """
    from inspect import signature  # which JAX has imported

    original = find(module, "State.initialize")
    parameters = signature(original)

    @wraps(original)
    def initialize(*arguments: Any, **named: Any) -> Any:
        try:
            given = parameters.bind(*arguments, **named).arguments
        except TypeError:  # JAX reports it itself
            return original(*arguments, **named)
        look(given)
        return original(*arguments, **named)

    module.State.initialize = initialize


_emits: list[Callable[[Mapping[str, Any]], None]] = []


def report_missing(environ: Mapping[str, str], emit: Callable[[Mapping[str, Any]], None]) -> None:
    """Report, in the first task, the names that this JAX lacks; all tasks have the same JAX."""
    if environ["SLURM_PROCID"] != "0":
        return
    _emits.append(emit)
    for module, names in _READ.items():
        after(module, partial(_find_all, names))


def _find_all(names: Sequence[str], module: ModuleType) -> None:
    for name in names:
        find(module, name)


def _report(text: str) -> None:
    for emit in _emits:
        emit({"event": "missing", "text": text})


def speed_up(environ: MutableMapping[str, str]) -> None:
    """Make NumPy's idle threads go to sleep sooner, and import JAX without garbage collection."""
    environ.setdefault(*_BLAS_SPIN)
    around("jax", _import_without_collections)


def _import_without_collections(module: ModuleType, execute: Step) -> None:
    """Import without garbage collection: nearly all of the 150,000 objects that JAX creates
    stay.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # not gc.disable(), which is for the program to use
    try:
        execute(module)
        if not gc.get_freeze_count():
            # Both together move all objects to the oldest generation without examining them.
            gc.freeze()
            gc.unfreeze()
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*thresholds)


class _Finder:
    """Finds one module, using the finders after it in sys.meta_path.

    It stays in the list: other threads may be iterating over the list, and programs look for a
    module, or fail to import it, before they actually import it.
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
            loader = copy.copy(spec.loader)  # other modules may use it, too
            loader.exec_module = lambda module: self._step(module, execute)
            spec.loader = loader
        return spec
