"""Report each program that JAX compiles for the devices of several processes, before it runs.

All of these processes must compile the same program. Where they do not, collectives pair operations
that do not belong together: the numbers are wrong, and often nothing fails. A report has a digest
of the program, and the launcher compares the digests of the tasks (jaxsif/watch/programs.py).
JAXSIF_CHECK_PROGRAMS=stop has the tasks compare them, too, and ends those that differ.

JAX is changed when the program imports it, and only where it is as JAX 0.10 to 0.12 are.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

from . import failure, importing
from .contract import REPORT, STOP

_TIMEOUT = 60  # seconds to wait for another task
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
_PAYLOADS = ("backend_config", "mhlo.backend_config")  # the attributes


class CompiledProgram(NamedTuple):
    """One program, as it is reported."""

    # Its number among the programs of the same devices that the main thread compiles, from 1; 0 of
    # one that another thread compiles: these may come in another order in each process.
    order: int
    group: str  # digest of the devices
    processes: int  # which have the devices
    name: str  # of the module, such as jit_loss
    types: str  # of the arguments, such as 'tensor<8xf32>, tensor<f32>'
    digest: str
    where: str  # FILE:LINE


def take_over(
    module: Any, environ: Mapping[str, str], emit: failure.Emit, check: str, patience: int
) -> None:
    """Have `emit` told of each program that jax._src.compiler compiles; `check` is WARN or STOP,
    `patience` how many seconds another task may take, 0 for the default.
    """
    voice = _Voice(environ, emit)
    comparison = _Comparison(environ, voice, patience or _TIMEOUT) if check == STOP else None
    census = _Census(voice, comparison)
    original = importing.find(module, "compile_or_get_cached", *_PARAMETERS)
    # The frame below is none of the user's: JAX leaves it out of tracebacks.
    module.traceback_util.register_exclusion(__file__)

    @wraps(original)
    def compile_or_get_cached(
        backend: Any, computation: Any, devices: Any, *arguments: Any, **more: Any
    ) -> Any:
        try:
            census.take(computation, devices)
        # Whatever another JAX does otherwise, the program must not learn of it.
        except Exception as error:
            census.close(error)
        return original(backend, computation, devices, *arguments, **more)

    module.compile_or_get_cached = compile_or_get_cached


class _Census:
    """Reports programs in the order in which this process compiles them."""

    def __init__(self, voice: _Voice, comparison: _Comparison | None) -> None:
        self._voice = voice
        self._comparison = comparison
        self._orders: Counter[str] = Counter()
        self._lock = threading.Lock()  # programs may be compiled by several threads
        self._open = True

    def take(self, computation: Any, devices: Any) -> None:
        """Report a program of several processes; compare it, where that is asked for."""
        if not self._open:
            return
        processes = {device.process_index for device in devices.flat}
        if len(processes) < 2:
            return
        numbers = [device.id for device in devices.flat]
        program = describe_program(computation, numbers, len(processes))
        with self._lock:  # reports are written in the order of their numbers
            if threading.current_thread() is threading.main_thread():
                self._orders[program.group] += 1
                program = program._replace(order=self._orders[program.group])
            self._voice.emit({"event": "program", **program._asdict()})
        if self._comparison and program.order:
            self._comparison.try_compare(program, sorted(processes))

    def close(self, error: Exception) -> None:
        """Report nothing more: without this program, those that follow would seem to differ."""
        self._open = False
        self._voice.warn(f"programs are checked no longer: {failure.describe(error)}")


class _Voice:
    """Tells the launcher; the user, where none listens."""

    def __init__(self, environ: Mapping[str, str], emit: failure.Emit) -> None:
        self.emit = emit
        self._listened = bool(environ.get(REPORT))

    def warn(self, text: str) -> None:
        """Tell what the user should know."""
        self._say("warning", text)
        self.emit({"event": "warning", "text": text})

    def end(self, text: str, where: str) -> None:
        """Tell what is wrong at FILE:LINE, and end this process with status 1."""
        self._say("error", f"{text}\n  from: {where}")
        fields = {"text": text, "where": where, "consequence": False, "hint": ""}
        self.emit({"event": "exception", **fields})
        failure.leave(1)

    def _say(self, kind: str, text: str) -> None:
        if not self._listened:  # jaxsif run would say it
            with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or gone
                sys.stderr.write(f"jaxsif: {kind}: {text}\n")


class _Comparison:
    """Compares the programs of this process's main thread with those of the process before it, by
    JAX's key-value store.

    The processes of a program form a ring, so one that differs finds it, and so does the next one.
    Each process reads one value for each program, and removes it from the store.
    """

    def __init__(self, environ: Mapping[str, str], voice: _Voice, seconds: int) -> None:
        self._task = int(environ["SLURM_PROCID"])
        self._voice = voice
        self._seconds = seconds
        self._late: set[int] = set()  # processes not to wait for
        self._works = True

    def try_compare(self, program: CompiledProgram, ring: Sequence[int]) -> None:
        """Compare the program; after an error, tell it once and compare no more."""
        if not self._works:
            return
        try:
            self._compare(program, ring)
        # As where programs are reported: this one must not learn of it.
        except Exception as error:
            self._works = False
            self._voice.warn(f"programs are compared no longer: {failure.describe(error)}")

    def _compare(self, program: CompiledProgram, ring: Sequence[int]) -> None:
        """End this process, with status 1, if the process before it in the ring has another
        program; warn if that process has none in time.
        """
        state = sys.modules["jax._src.distributed"].global_state
        before = ring[ring.index(state.process_id) - 1]
        folder = f"{_FOLDER}/{program.group}/{program.order}"
        own = {**program._asdict(), "task": self._task}
        state.client.key_value_set(f"{folder}/{state.process_id}", json.dumps(own))
        if before in self._late:
            return
        theirs = f"{folder}/{before}"
        try:
            other = json.loads(state.client.blocking_key_value_get(theirs, self._seconds * 1000))
        except RuntimeError as error:
            if _LATE not in str(error):
                raise
            self._late.add(before)
            self._voice.warn(self._describe_wait(program, before))
            return
        state.client.key_value_delete(theirs)
        if other["digest"] != program.digest:
            self._voice.end(describe_mismatch(program, other), program.where)

    def _describe_wait(self, program: CompiledProgram, before: int) -> str:
        return (
            f"process {before} has compiled no {program.name} within {self._seconds} s, as"
            f" {program.where} has: programs are not compared with its any more, and this one may"
            f" wait for process {before}"
        )


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


def describe_program(computation: Any, devices: Sequence[int], processes: int) -> CompiledProgram:
    """Return the program, of order 0, of an MLIR module for the devices with these numbers."""
    from hashlib import sha256  # here: it takes a millisecond, and many programs have one process

    found = sha256(canonicalize(computation))
    found.update(repr([*devices]).encode())  # the same devices in another order are another program
    return CompiledProgram(
        order=0,
        group=sha256(repr(sorted(devices)).encode()).hexdigest()[:8],
        processes=processes,
        name=str(computation.operation.attributes["sym_name"].value)[:_LONGEST_NAME],
        types=_argument_types(computation),
        digest=found.hexdigest()[:16],
        where=_find_user(sys._getframe(1)),
    )


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


def _argument_types(module: Any) -> str:
    """Return the types of the program's arguments, cut to _LONGEST_TYPES."""
    main = sys.modules["jaxlib.mlir.ir"].SymbolTable(module.operation)["main"]
    # The shortest type has three letters, such as i32.
    return ", ".join(map(str, main.type.inputs[: _LONGEST_TYPES // 3]))[:_LONGEST_TYPES]


def _find_user(frame: FrameType | None) -> str:
    """Return 'FILE:LINE' of the innermost frame that is the user's own code."""
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return failure.find_place(frames[::-1])
