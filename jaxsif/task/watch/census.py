"""Report each program that JAX compiles for the devices of several processes, before it first runs.

All of these processes must compile the same program. Where they do not, collectives pair operations
that do not belong together: the numbers are wrong, and often nothing fails. A report has a digest
of the program, and the launcher compares the digests of the tasks (jaxsif/watch/programs.py).
JAXSIF_CHECK_PROGRAMS=stop has the tasks compare them, too, and ends those that differ.

Not reported is a program that waits for no other process: one whose arguments each process has
whole, and in which nothing communicates, such as the first row of the parameters that process 0
prints. A program that is compiled again, as after jax.clear_caches(), is reported once; one that
is compiled ahead of time, by lower().compile(), when it first runs, if ever.

JAX is changed when the program imports it, and only where it is as JAX 0.10 to 0.12 are.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

from .. import failure, importing
from ..contract import REPORT, STOP

_TIMEOUT = 60  # seconds to wait for another task, where `jaxsif run` does not judge the wait
_LONGEST_NAME, _LONGEST_TYPES = 100, 300  # characters
_MOST_SHOWN = 80  # characters of the types in the text of an error, which has two of them
_FOLDER = "jaxsif/programs"  # of JAX's key-value store
_LATE = "DEADLINE_EXCEEDED"  # in JAX's error when a key is not there in time
_PARAMETERS = ("backend", "computation", "devices")  # the first ones of what is wrapped
# Custom calls that hold addresses of Python objects, which differ between processes. Callbacks of
# newer JAX, xla_ffi_python_cpu_callback, hold the callback's number in the program.
_ADDRESSED = (
    "CustomSPMDPartitioning",
    "InspectSharding",
    "xla_python_cpu_callback",
    "xla_python_gpu_callback",
)
# Custom calls of Pallas, Triton and Mosaic. They hold a serialized kernel, in which the places in
# source code are out of reach.
_KERNELS = (
    "__gpu$xla.gpu.triton",
    "mosaic_gpu",
    "mosaic_gpu_v2",
    "tpu_custom_call",
    "triton_kernel_call",
    "triton_kernel_call_ffi",
)
_OPAQUE = (*_ADDRESSED, *_KERNELS)
# Of the names of operations in which processes wait for each other, or after which XLA may have
# them do so.
_COMMUNICATE = (
    *(b"all_gather", b"all_reduce", b"all_to_all", b"collective", b"reduce_scatter", b"reshard"),
    *(b"recv", b"send", b"custom_call", b"manual_computation", b"sharding_constraint"),
)
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")  # the attributes of an argument or a result
# What is compiled ahead of time is compiled by this function.
_AHEAD = ("/jax/_src/stages.py", "compile")
_PAYLOADS = ("backend_config", "mhlo.backend_config")  # the attributes


class CompiledProgram(NamedTuple):
    """One program, as it is reported."""

    # Its number among the programs of the same devices that the main thread compiles, from 1; 0 of
    # one that another thread compiles: these may come in another order in each process.
    order: int
    group: str  # digest of the devices
    processes: Sequence[int]  # which have the devices
    name: str  # of the module, such as jit_loss
    types: str  # of the arguments, such as 'tensor<8xf32>, tensor<f32>'
    digest: str
    where: str  # FILE:LINE
    at: str = ""  # the loops of the main thread around the call, see Loops.locate()


def take_over(
    module: Any,
    environ: Mapping[str, str],
    emit: failure.Emit,
    check: str,
    locate: Callable[[], str] = str,
) -> None:
    """Have `emit` told of each program that jax._src.compiler compiles; `check` is WARN or STOP,
    `locate` tells the loops around the main thread's frames.
    """
    output = _Output(emit, bool(environ.get(REPORT)))
    comparison = _Comparison(environ, output) if check == STOP else None
    census = _Census(output, comparison, locate)
    original = importing.find(module, "compile_or_get_cached", *_PARAMETERS)
    # The frame below is none of the user's: JAX leaves it out of tracebacks.
    module.traceback_util.register_exclusion(__file__)

    @wraps(original)
    def compile_or_get_cached(
        backend: Any, computation: Any, devices: Any, *arguments: Any, **more: Any
    ) -> Any:
        program = census.guard(census.take, computation, devices)
        executable = original(backend, computation, devices, *arguments, **more)
        census.guard(census.hold, executable, program)
        return executable

    module.compile_or_get_cached = compile_or_get_cached


class _Census:
    """Reports programs in the order in which this process first runs them."""

    def __init__(
        self, output: _Output, comparison: _Comparison | None, locate: Callable[[], str]
    ) -> None:
        self._output = output
        self._comparison = comparison
        self._locate = locate
        self._orders: Counter[str] = Counter()
        self._reported: set[tuple[str, bool]] = set()  # digests, and whether of the main thread
        # Compiled ahead of time, by the executable's id: those that have not run.
        self._held: dict[int, CompiledProgram] = {}
        self._lock = threading.Lock()  # programs may be compiled by several threads
        # After an error, nothing more is reported: without that program, those that follow would
        # seem to differ.
        self.guard = _Guard(output, "program check stopped")
        self._guard_comparison = _Guard(output, "program comparison stopped")

    def take(self, computation: Any, devices: Any) -> CompiledProgram | None:
        """Report a program of several processes; return it where it is compiled ahead of time."""
        processes = {device.process_index for device in devices.flat}
        if len(processes) < 2:
            return None
        numbers = [device.id for device in devices.flat]
        program = describe_program(computation, numbers, sorted(processes))
        if program is None or _is_ahead():
            return program
        self._report(program)
        return None

    def hold(self, executable: object, program: CompiledProgram | None) -> None:
        """Note an executable that has been compiled ahead of time, if it is one."""
        self._held.pop(id(executable), None)  # of one that is gone
        if program is None:
            return
        self._held[id(executable)] = program
        owner = sys.modules["jax._src.interpreters.pxla"].ExecuteReplicated
        if not hasattr(owner.__call__, "jaxsif"):
            self._follow_runs(owner)

    def _follow_runs(self, owner: Any) -> None:
        """Report programs that were compiled ahead of time when they first run.

        JAX comes here for the first run of a program, and not again, unless it has callbacks.
        """
        original = importing.find(owner, "__call__")

        @wraps(original)
        def run(replicated: Any, *arguments: Any) -> Any:
            program = self._held.pop(id(replicated.xla_executable), None)
            if program:
                self.guard(self._report, program)
            return original(replicated, *arguments)

        run.jaxsif = True  # type: ignore[attr-defined]
        owner.__call__ = run

    def _report(self, program: CompiledProgram) -> None:
        """Report a program that is about to run; compare it, where that is asked for."""
        is_main = threading.current_thread() is threading.main_thread()
        with self._lock:  # reports are written in the order of their numbers
            if (program.digest, is_main) in self._reported:
                return
            self._reported.add((program.digest, is_main))
            at = self._locate()
            if is_main:
                self._orders[program.group] += 1
                program = program._replace(order=self._orders[program.group], at=at)
            fields = {**program._asdict(), "processes": len(program.processes)}
            self._output.emit({"event": "program", **fields})
        if self._comparison and program.order:
            self._guard_comparison(self._comparison.compare, program)


def _is_ahead() -> bool:
    """Return whether the program of the caller is compiled ahead of time."""
    codes = (frame.f_code for frame in failure.walk_stack(sys._getframe(1)))
    return any(one.co_name == _AHEAD[1] and one.co_filename.endswith(_AHEAD[0]) for one in codes)


class _Output(NamedTuple):
    """Tells the launcher; the user, where none listens."""

    emit: failure.Emit
    is_heard: bool

    def warn(self, text: str) -> None:
        """Tell what the user should know."""
        self._say("warning", text)
        self.emit({"event": "warning", "text": text})

    def end(self, text: str, where: str) -> None:
        """Tell what is wrong at FILE:LINE, and end this process with status 1."""
        self._say("error", f"{text}\n  from: {where}")
        self.emit(
            {"event": "exception", "text": text, "where": where, "consequence": False, "hint": ""}
        )
        failure.leave(1)

    def _say(self, kind: str, text: str) -> None:
        if not self.is_heard:  # jaxsif run would say it
            with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or gone
                sys.stderr.write(f"jaxsif: {kind}: {text}\n")


class _Guard:
    """Keeps errors out of the program: after the first one it warns, and calls nothing more."""

    def __init__(self, output: _Output, warning: str) -> None:
        self._output = output
        self._warning = warning
        self._open = True

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._open:
            try:
                return function(*arguments)
            # Whatever another JAX does otherwise, the program must not learn of it.
            except Exception as error:
                self._open = False
                self._output.warn(f"{self._warning}: {failure.describe(error)}")
        return None


class _Comparison:
    """Compares the programs of this process's main thread with those of the process before it, by
    JAX's key-value store.

    The processes of a program form a ring, so one that differs finds it, and so does the next one.
    Each process reads one value for each program, and removes it from the store.
    """

    def __init__(self, environ: Mapping[str, str], output: _Output) -> None:
        self._task = int(environ["SLURM_PROCID"])
        self._output = output
        self._late: set[int] = set()  # processes not to wait for

    def compare(self, program: CompiledProgram) -> None:
        """End this process, with status 1, if the process before it in the ring has another
        program.

        It waits for that one: `jaxsif run` ends it where the others go on without this program.
        Where nobody listens, warn if it has none in time.
        """
        state = sys.modules["jax._src.distributed"].global_state
        ring = program.processes
        before = ring[ring.index(state.process_id) - 1]
        folder = f"{_FOLDER}/{program.group}/{program.order}"
        own = {**program._asdict(), "task": self._task}
        state.client.key_value_set(f"{folder}/{state.process_id}", json.dumps(own))
        if before in self._late:
            return
        theirs = f"{folder}/{before}"
        found = self._read(state.client, theirs)
        while found is None and self._output.is_heard:
            found = self._read(state.client, theirs)
        if found is None:
            self._late.add(before)
            self._output.warn(
                f"process {before} has compiled no {program.name} within {_TIMEOUT} s, as"
                f" {program.where} has: programs are not compared with its any more, and this one"
                f" may wait for process {before}"
            )
            return
        state.client.key_value_delete(theirs)
        other = json.loads(found)
        if other["digest"] != program.digest:
            self._output.end(describe_mismatch(program, other), program.where)

    def _read(self, client: Any, key: str) -> Any:
        """Return the value of a key of another process; None where it has not come in time."""
        try:
            return client.blocking_key_value_get(key, _TIMEOUT * 1000)
        except RuntimeError as error:
            if _LATE not in str(error):
                raise
            return None


def describe_mismatch(program: CompiledProgram, other: Mapping[str, Any]) -> str:
    """Return what is wrong with the program of this task, as it is not that of `other`."""
    own, theirs = (
        f"{str(name)[:_LONGEST_NAME]} for ({str(types)[:_MOST_SHOWN]})"
        for name, types in ((program.name, program.types), (other["name"], other["types"]))
    )
    found = f"another {theirs}" if own == theirs else theirs
    return (
        f"{own} is not what task {other['task']} compiled: {found} at {other['where']};"
        " the results would be wrong"
    )


def describe_program(
    computation: Any, devices: Sequence[int], processes: Sequence[int]
) -> CompiledProgram | None:
    """Return the program, of order 0, of an MLIR module for the devices with these numbers; None
    where it waits for no other process.
    """
    from hashlib import sha256  # here: it takes a millisecond, and many programs have one process

    written = canonicalize(computation)
    main = sys.modules["jaxlib.mlir.ir"].SymbolTable(computation.operation)["main"]
    if not any(name in written for name in _COMMUNICATE) and _is_replicated(main):
        return None
    found = sha256(written)
    found.update(repr([*devices]).encode())  # the same devices in another order are another program
    return CompiledProgram(
        order=0,
        group=sha256(repr(sorted(devices)).encode()).hexdigest()[:8],
        processes=processes,
        name=str(computation.operation.attributes["sym_name"].value)[:_LONGEST_NAME],
        types=_argument_types(main),
        digest=found.hexdigest()[:16],
        where=failure.find_user(sys._getframe(1)),
    )


def _is_replicated(main: Any) -> bool:
    """Return whether each process has all arguments whole, and shall have all results so."""
    known = {name: [*main.attributes[name]] for name in _LISTS if name in main.attributes}
    arguments, results = (known.get(name, []) for name in _LISTS)
    return len(arguments) == len(main.type.inputs) and (
        # The last one first: batches come after parameters.
        all(_find_sharding(one) == _WHOLE for one in reversed(arguments))
        and all(_find_sharding(one) in ("", _WHOLE) for one in results)
    )


_WHOLE = "replicated"
_LISTS = ("arg_attrs", "res_attrs")


def _find_sharding(attributes: Any) -> str:
    """Return _WHOLE of what is replicated, the sharding of what is not, '' where none is given."""
    text = next((str(attributes[name]) for name in _SHARDINGS if name in attributes), "")
    # sdy.sharding has the names of mesh axes in quotes; mhlo.sharding is a text itself.
    is_whole = text == '"{replicated}"' or (text.startswith("#sdy.") and '"' not in text)
    return _WHOLE if is_whole else text


def canonicalize(module: Any) -> bytes:
    """Return an MLIR module as bytes, without what may differ between processes that run the same
    program: places in source code, addresses of Python objects and kernels, which hold such places.
    """
    passes = sys.modules["jaxlib.mlir.passmanager"].PassManager
    with module.context:
        copy = module.operation.clone(ip=False)  # nowhere: JAX may be writing another module
        strip = passes.parse("builtin.module(strip-debuginfo)")
        strip.enable_verifier(False)  # it would take longer than all the rest
        strip.run(copy)
        written = _write(copy)
        if any(name.encode() in written for name in _OPAQUE):
            copy.walk(_remove_payload)
            written = _write(copy)
    return written


def _remove_payload(operation: Any) -> Any:
    if operation.name == "stablehlo.custom_call":  # the name first: attributes take longer
        attributes = operation.attributes
        if attributes["call_target_name"].value in _OPAQUE:
            for payload in filter(attributes.__contains__, _PAYLOADS):
                del attributes[payload]
    return sys.modules["jaxlib.mlir.ir"].WalkResult.ADVANCE


def _write(operation: Any) -> bytes:
    written = io.BytesIO()
    operation.write_bytecode(file=written)
    return written.getvalue()


def _argument_types(main: Any) -> str:
    """Return the types of the program's arguments, cut to _LONGEST_TYPES."""
    # The shortest type has three letters, such as i32.
    return ", ".join(map(str, main.type.inputs[: _LONGEST_TYPES // 3]))[:_LONGEST_TYPES]
