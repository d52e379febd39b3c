"""Report each program that JAX compiles for the devices of several processes, before it first runs.

All of these processes must compile the same program. If they do not, collectives pair operations
that do not belong together: the numbers are wrong, and often nothing fails. A report contains a
digest of the program, and the launcher compares the digests of the tasks
(jaxsif/watch/programs.py). With JAXSIF_CHECK_PROGRAMS=stop, the tasks compare the programs, too,
and tasks that differ end.

Programs that wait for no other process are not reported: each process has all arguments in full,
and nothing communicates, as when process 0 prints the first row of the parameters. A program that
is compiled again, for example after jax.clear_caches(), is reported once; a program that is
compiled ahead of time, by lower().compile(), is reported when it first runs, if ever.

JAX is patched when the program imports it, and only if its code matches JAX 0.10 to 0.12.
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
from ..contract import OTHER_PROGRAM, REPORT, STOP, focus_types

_TIMEOUT = 60  # seconds to wait for another task, if `jaxsif run` does not watch the wait
_LONGEST_NAME, _LONGEST_TYPES = 100, 300  # characters
_FOLDER = "jaxsif/programs"  # in JAX's key-value store
_LATE = "DEADLINE_EXCEEDED"  # in JAX's error when a key does not arrive in time
_PARAMETERS = ("backend", "computation", "devices")  # the first parameters of the wrapped function
# Custom calls that hold addresses of Python objects, which differ between processes. Callbacks of
# newer JAX, xla_ffi_python_cpu_callback, hold the callback's number in the program.
_ADDRESSED = (
    "CustomSPMDPartitioning",
    "InspectSharding",
    "xla_python_cpu_callback",
    "xla_python_gpu_callback",
)
# Custom calls of Pallas, Triton and Mosaic. They hold a serialized kernel, whose source positions
# cannot be removed.
_KERNELS = (
    "__gpu$xla.gpu.triton",
    "mosaic_gpu",
    "mosaic_gpu_v2",
    "tpu_custom_call",
    "triton_kernel_call",
    "triton_kernel_call_ffi",
)
_OPAQUE = (*_ADDRESSED, *_KERNELS)
# Parts of the names of operations in which processes wait for each other, or for which XLA may
# insert such a wait.
_COMMUNICATE = (
    *(b"all_gather", b"all_reduce", b"all_to_all", b"collective", b"reduce_scatter", b"reshard"),
    *(b"recv", b"send", b"custom_call", b"manual_computation"),
)
# This operation communicates, too, but for values that are whole in each process, as JAX writes it
# for meshes whose axes are explicit.
_CONSTRAINT = "sdy.sharding_constraint"
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")  # the attributes of an argument or a result
# This function compiles ahead of time.
_AHEAD = ("/jax/_src/stages.py", "compile")
_PAYLOADS = ("backend_config", "mhlo.backend_config")  # the attributes


class CompiledProgram(NamedTuple):
    """One program, as in its report."""

    # Its number among the programs of the same devices that the main thread compiles, from 1; 0 for
    # a program from another thread: the order of these may differ between processes.
    order: int
    group: str  # digest of the devices
    processes: Sequence[int]  # the processes that have the devices
    name: str  # of the module, such as jit_loss
    types: str  # of the arguments, such as 'tensor<8xf32>, tensor<f32>'
    digest: str
    where: str  # FILE:LINE
    at: str = ""  # the loops of the main thread around the call, see Observer.locate()


def take_over(
    module: Any,
    environ: Mapping[str, str],
    emit: failure.Emit,
    check: str,
    locate: Callable[[], str] = str,
) -> None:
    """Call `emit` for each program that jax._src.compiler compiles; `check` is WARN or STOP, and
    `locate` returns the loops around the main thread's frames.
    """
    output = _Output(emit, bool(environ.get(REPORT)))
    comparison = _Comparison(environ, output) if check == STOP else None
    census = _Census(output, comparison, locate)
    original = importing.find(module, "compile_or_get_cached", *_PARAMETERS)
    # The frame below is not the user's: JAX leaves it out of tracebacks.
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
        self._reported: set[tuple[str, bool]] = set()  # digests, and whether from the main thread
        # Programs compiled ahead of time that have not run, by the executable's id.
        self._held: dict[int, CompiledProgram] = {}
        self._lock = threading.Lock()  # several threads may compile programs
        # After an error, nothing more is reported: without that program, later ones would seem to
        # differ.
        self.guard = _Guard(output, "program check stopped")
        self._guard_comparison = _Guard(output, "program comparison stopped")

    def take(self, computation: Any, devices: Any) -> CompiledProgram | None:
        """Report a program of several processes, unless it is being compiled ahead of time: then
        return it instead.
        """
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
        """Record an executable that was compiled ahead of time; `program` is None for any other."""
        self._held.pop(id(executable), None)  # of a deleted executable
        if program is None:
            return
        self._held[id(executable)] = program
        owner = sys.modules["jax._src.interpreters.pxla"].ExecuteReplicated
        if not hasattr(owner.__call__, "jaxsif"):
            self._follow_runs(owner)

    def _follow_runs(self, owner: Any) -> None:
        """When programs that were compiled ahead of time first run, report them.

        JAX calls this for the first run of a program, and not again unless the program has
        callbacks.
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
        """Report a program that is about to run; compare it with other tasks' programs, if
        requested.
        """
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
    """Return whether the caller's program is being compiled ahead of time."""
    codes = (frame.f_code for frame in failure.walk_stack(sys._getframe(1)))
    return any(one.co_name == _AHEAD[1] and one.co_filename.endswith(_AHEAD[0]) for one in codes)


class _Output(NamedTuple):
    """Reports to the launcher, or to the user if no launcher is listening."""

    emit: failure.Emit
    is_heard: bool

    def warn(self, text: str) -> None:
        """Report a warning."""
        self._say("warning", text)
        self.emit({"event": "warning", "text": text})

    def end(self, text: str, where: str) -> None:
        """Report an error at FILE:LINE, and end this process with status 1."""
        self._say("error", f"{text}\n  from: {where}")
        self.emit(
            {"event": "exception", "text": text, "where": where, "consequence": False, "hint": ""}
        )
        failure.leave(1)

    def _say(self, kind: str, text: str) -> None:
        if not self.is_heard:  # otherwise jaxsif run prints it
            with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or gone
                sys.stderr.write(f"jaxsif: {kind}: {text}\n")


class _Guard:
    """Keeps errors out of the program: after the first error it warns, and makes no more calls."""

    def __init__(self, output: _Output, warning: str) -> None:
        self._output = output
        self._warning = warning
        self._open = True

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._open:
            try:
                return function(*arguments)
            # A difference in another JAX version must not reach the program.
            except Exception as error:
                self._open = False
                self._output.warn(f"{self._warning}: {failure.describe(error)}")
        return None


class _Comparison:
    """Compares the programs of this process's main thread with those of the process before it,
    through JAX's key-value store.

    The processes of a program form a ring, so a process that differs notices the difference, and so
    does the next one. Each process reads one value for each program, and removes it from the store.
    """

    def __init__(self, environ: Mapping[str, str], output: _Output) -> None:
        self._task = int(environ["SLURM_PROCID"])
        self._output = output
        self._late: set[int] = set()  # processes that are no longer waited for

    def compare(self, program: CompiledProgram) -> None:
        """End this process, with status 1, if the process before it in the ring has a different
        program.

        It waits for that process; if the others continue without this program, `jaxsif run` ends
        the run. If no launcher is listening, warn if the other process does not report the program
        in time.
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
                f"process {before} did not compile {program.name} within {_TIMEOUT} s, although"
                f" {program.where} did: programs are no longer compared with those of process"
                f" {before}, and this process may be waiting for it"
            )
            return
        state.client.key_value_delete(theirs)
        other = json.loads(found)
        if other["digest"] != program.digest:
            self._output.end(describe_mismatch(program, other), program.where)

    def _read(self, client: Any, key: str) -> Any:
        """Return the value of another process's key, or None if it does not arrive in time."""
        try:
            return client.blocking_key_value_get(key, _TIMEOUT * 1000)
        except RuntimeError as error:
            if _LATE not in str(error):
                raise
            return None


def describe_mismatch(program: CompiledProgram, other: Mapping[str, Any]) -> str:
    """Describe how the program of this task differs from `other`."""
    name, types = str(other["name"])[:_LONGEST_NAME], str(other["types"])
    own = f"{program.name} for ({focus_types(program.types, types)})"
    theirs = f"{name} for ({focus_types(types, program.types)})"
    found = f"another {theirs}" if own == theirs else theirs
    return (
        f"{own}{OTHER_PROGRAM}{other['task']} compiled: {found} at {other['where']};"
        " the results may be wrong"
    )


def describe_program(
    computation: Any, devices: Sequence[int], processes: Sequence[int]
) -> CompiledProgram | None:
    """Describe an MLIR module for the devices with these numbers as a program of order 0; return
    None if it waits for no other process.
    """
    from hashlib import sha256  # here: it takes a millisecond, and many programs have one process

    written = canonicalize(computation)
    main = sys.modules["jaxlib.mlir.ir"].SymbolTable(computation.operation)["main"]
    is_silent = not any(name in written for name in _COMMUNICATE)
    if is_silent and _is_replicated(main) and _keeps_whole(computation, written):
        return None
    found = sha256(written)
    found.update(repr([*devices]).encode())  # another order makes another program
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
    """Return whether each process has all arguments in full, and is to have all results in full."""
    known = {name: [*main.attributes[name]] for name in _LISTS if name in main.attributes}
    arguments, results = (known.get(name, []) for name in _LISTS)
    return len(arguments) == len(main.type.inputs) and (
        # The last one first: batches come after parameters.
        # Without a sharding, as NumPy's arrays are, each process has its own, whole.
        all(_find_sharding(one) in ("", _WHOLE) for one in (*reversed(arguments), *results))
    )


def _keeps_whole(module: Any, written: bytes) -> bool:
    """Return whether all constraints on shardings in a module keep values whole in each process."""
    if _CONSTRAINT.partition(".")[2].encode() not in written:
        return True
    shardings: list[str] = []

    def visit(operation: Any) -> Any:
        if operation.name == _CONSTRAINT:
            shardings.append(str(operation.attributes["sharding"]))
        return sys.modules["jaxlib.mlir.ir"].WalkResult.ADVANCE

    module.operation.walk(visit)
    return bool(shardings) and all(map(_is_whole, shardings))


_WHOLE = "replicated"
_LISTS = ("arg_attrs", "res_attrs")


def _find_sharding(attributes: Any) -> str:
    """Return _WHOLE for a replicated value, else its sharding, or '' if none is given."""
    text = next((str(attributes[name]) for name in _SHARDINGS if name in attributes), "")
    return _WHOLE if _is_whole(text) else text


def _is_whole(sharding: str) -> bool:
    # sdy.sharding has the names of mesh axes in quotes; mhlo.sharding is a string.
    return sharding == '"{replicated}"' or (sharding.startswith("#sdy.") and '"' not in sharding)


def canonicalize(module: Any) -> bytes:
    """Return an MLIR module as bytes, without the parts that may differ between processes that run
    the same program: source positions, addresses of Python objects, and kernels, which contain such
    positions.
    """
    passes = sys.modules["jaxlib.mlir.passmanager"].PassManager
    with module.context:
        copy = module.operation.clone(ip=False)  # not inserted: JAX may be writing another module
        strip = passes.parse("builtin.module(strip-debuginfo)")
        strip.enable_verifier(False)  # it would take longer than everything else
        strip.run(copy)
        written = _write(copy)
        if any(name.encode() in written for name in _OPAQUE):
            copy.walk(_remove_payload)
            written = _write(copy)
    return written


def _remove_payload(operation: Any) -> Any:
    if operation.name == "stablehlo.custom_call":  # check the name first: attributes take longer
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
    """Return the types of the program's arguments, at most _LONGEST_TYPES characters: of many, the
    first ones and the last, since batches come after parameters.
    """
    inputs, most = main.type.inputs, _LONGEST_TYPES // 3  # the shortest has three characters: i32
    text = ", ".join(map(str, inputs[:most]))
    if len(text) <= _LONGEST_TYPES and len(inputs) <= most:
        return text
    half = _LONGEST_TYPES // 2
    last = ", ".join(map(str, inputs[-most:]))[3 - half :]
    return f"{text[: half - 3].rpartition(' ')[0]} ... {last.partition(' ')[2]}"
