"""What is told of the programs that JAX compiles, in modules that are built like JAX's."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kit.caught import catch

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.task import failure
from jaxsif.task.contract import MisfitError, render_report
from jaxsif.task.watch import census
from jaxsif.task.watch import install as watching

COMPILER = """
from jax._src import traceback_util
def compile_or_get_cached(backend, computation, devices, compile_options, host_callbacks=()):
    return backend, compile_options, host_callbacks
"""
TRACEBACK_UTIL = """
excluded = []
register_exclusion = excluded.append
"""
ADVANCE = object()


class Attribute(SimpleNamespace):
    """An attribute of an operation; only texts have a value."""

    def __str__(self) -> str:
        return str(self.value)


class Operation:
    """An operation of MLIR: its name, its attributes, and the operations inside."""

    def __init__(self, inside: tuple[Operation, ...] = (), place: str = "", name: str = "", **attributes: str) -> None:
        self.inside, self.place, self.name = inside, place, name
        self.attributes = {key: Attribute(value=value) for key, value in attributes.items()}

    def clone(self, ip: bool) -> Operation:
        assert ip is False
        copies = tuple(one.clone(ip=False) for one in self.inside)
        values = {key: attribute.value for key, attribute in self.attributes.items()}
        return Operation(copies, self.place, self.name, **values)

    def walk(self, visit: Callable[[Operation], object]) -> None:
        assert visit(self) is ADVANCE
        for one in self.inside:
            one.walk(visit)

    def write_bytecode(self, file: Any) -> None:
        values = {key: attribute.value for key, attribute in self.attributes.items()}
        file.write(json.dumps([self.place, self.name, values]).encode())
        for one in self.inside:
            one.write_bytecode(file)


class PassManager:
    """Strips places, unlike JAX's in Python."""

    verifies = True

    @classmethod
    def parse(cls, text: str) -> PassManager:
        assert text == "builtin.module(strip-debuginfo)"
        return cls()

    def enable_verifier(self, enable: bool) -> None:
        self.verifies = enable

    def run(self, operation: Operation) -> None:
        assert not self.verifies
        operation.place = ""
        for one in operation.inside:
            self.run(one)


class Context:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


SPLIT, WHOLE = {"sdy.sharding": '#sdy.sharding<@mesh, [{"d"}]>'}, {"sdy.sharding": "#sdy.sharding<@mesh, [{}]>"}
KEEPS, SPLITS = (Operation(name="sdy.sharding_constraint", sharding=one["sdy.sharding"]) for one in (WHOLE, SPLIT))
OLD_WHOLE = {"mhlo.sharding": '"{replicated}"'}


def module(
    *inside: Operation,
    name: str = "jit_loss",
    types: tuple[str, ...] = ("tensor<8xf32>",),
    place: str = "",
    arguments: Sequence[Mapping[str, str]] = (SPLIT,),
    results: Sequence[Mapping[str, str]] = ({},),
) -> Any:
    """A module of MLIR as JAX hands it to its compiler."""
    main = Operation(types=repr(types), arg_attrs=repr(arguments), res_attrs=repr(results))
    return SimpleNamespace(context=Context(), operation=Operation((*inside, main), place, sym_name=name), types=types)


def symbols(operation: Operation) -> Mapping[str, Any]:
    texts = {key: eval(one.value) for key, one in operation.inside[-1].attributes.items()}
    types = texts.pop("types")
    return {"main": SimpleNamespace(type=SimpleNamespace(inputs=types), attributes=texts)}


def devices(*numbers: int) -> Any:
    """Two of each process."""
    return SimpleNamespace(flat=[SimpleNamespace(id=number, process_index=number // 2) for number in numbers])


class Client:
    """JAX's key-value store; what is not there never comes."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.waited: list[int] = []

    def key_value_set(self, key: str, value: str) -> None:
        self.values[key] = value

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        self.waited.append(milliseconds)
        if key not in self.values:
            raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
        return self.values[key]

    def key_value_delete(self, key: str) -> None:
        del self.values[key]


@pytest.fixture
def jax(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of modules that have the names of JAX's."""
    (packages / "jax/_src").mkdir(parents=True)
    (packages / "jax/_src/compiler.py").write_text(COMPILER)
    (packages / "jax/_src/traceback_util.py").write_text(TRACEBACK_UTIL)
    ir = SimpleNamespace(SymbolTable=symbols, WalkResult=SimpleNamespace(ADVANCE=ADVANCE))
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.ir", ir)
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.passmanager", SimpleNamespace(PassManager=PassManager))
    return packages / "jax/_src"


@pytest.fixture
def told() -> list[Any]:
    """What a task reports."""
    return []


def start(told: list[Any], mode: str = "warn", task: int = 1, **environ: str) -> ModuleType:
    """JAX's compiler in a task, which adds to `told` what it reports."""
    environ = {"SLURM_PROCID": str(task), "JAXSIF_CHECK_PROGRAMS": mode, "JAXSIF_REPORT": "4e5f", **environ}
    watching.install(environ, told.append, -1, *watching.read_wishes(environ))
    return importlib.import_module("jax._src.compiler")


def share(process: int, values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Client:
    """Connect to the other processes, of which one has the number `process`."""
    client = Client(values)
    state = SimpleNamespace(client=client, process_id=process)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    return client


def test_a_program_of_several_processes_is_reported(jax: Path, told: list[Any]) -> None:
    compiler = start(told)
    backend, options = object(), object()
    assert compiler.compile_or_get_cached(backend, module(), devices(0, 2), options, host_callbacks=(1,)) == (
        backend,
        options,
        (1,),
    )
    compiler.compile_or_get_cached(backend, module(), devices(0, 1), options)
    compiler.compile_or_get_cached(
        computation=module(name="jit_g"), backend=backend, devices=devices(0, 2), compile_options=options
    )
    assert [(one["order"], one["name"], one["processes"]) for one in told] == [(1, "jit_loss", 2), (2, "jit_g", 2)]
    assert {one["event"] for one in told} == {"program"}
    assert told[0]["types"] == "tensor<8xf32>"
    assert told[0]["where"].startswith(f"{__file__}:")
    assert told[0]["group"] == told[1]["group"]
    assert told[0]["digest"] != told[1]["digest"]
    assert sys.modules["jax._src.traceback_util"].excluded == [census.__file__]


@pytest.mark.parametrize("whole", [WHOLE, OLD_WHOLE], ids=["sdy", "mhlo"])
def test_a_program_that_waits_for_nobody_is_not_reported(jax: Path, whole: Mapping[str, str]) -> None:
    """Process 0 may run it alone, as where it prints a part of the parameters."""
    two, told = ("tensor<8xf32>", "tensor<i32>"), list[Any]()
    start(told).compile_or_get_cached(None, module(types=two, arguments=(whole, whole)), devices(0, 2), None)
    start(told).compile_or_get_cached(None, module(KEEPS, types=two, arguments=(whole, whole)), devices(0, 2), None)
    start(told).compile_or_get_cached(None, module(types=two, arguments=(whole, {})), devices(0, 2), None)
    assert told == []
    others = [
        module(KEEPS, SPLITS, types=two, arguments=(whole, whole)),
        module(types=two, arguments=(whole, SPLIT)),
        module(types=two, arguments=(whole, whole), results=(SPLIT,)),
        module(Operation(name="stablehlo.all_reduce"), types=two, arguments=(whole, whole)),
        module(types=two, arguments=()),
    ]
    for computation in others:
        start(told).compile_or_get_cached(None, computation, devices(0, 2), None)
    assert len(told) == len(others)


def test_a_program_that_is_compiled_again_is_reported_once(jax: Path, told: list[Any]) -> None:
    compiler = start(told)
    for name in ("jit_f", "jit_g", "jit_f"):
        compiler.compile_or_get_cached(None, module(name=name), devices(0, 2), None)
    assert [(one["order"], one["name"]) for one in told] == [(1, "jit_f"), (2, "jit_g")]


STAGES = "def compile(call, *arguments):\n    return call(*arguments)\n"
PXLA = """
class ExecuteReplicated:
    def __init__(self, executable):
        self.xla_executable = executable

    def __call__(self, *arguments):
        return arguments
"""


def test_a_program_that_is_compiled_ahead_of_time_is_reported_when_it_runs(jax: Path, told: list[Any]) -> None:
    compiler = start(told)
    (jax / "stages.py").write_text(STAGES)
    (jax / "interpreters").mkdir()
    (jax / "interpreters/pxla.py").write_text(PXLA)
    stages, pxla = map(importlib.import_module, ("jax._src.stages", "jax._src.interpreters.pxla"))
    ahead, never = (
        stages.compile(compiler.compile_or_get_cached, None, module(name=name), devices(0, 2), [])
        for name in ("jit_ahead", "jit_never")
    )
    compiler.compile_or_get_cached(None, module(), devices(0, 2), None)
    for _ in range(2):
        assert pxla.ExecuteReplicated(ahead)(3) == (3,)
    assert [(one["order"], one["name"]) for one in told] == [(1, "jit_loss"), (2, "jit_ahead")]
    assert never


def test_the_launcher_reads_the_report(jax: Path, told: list[Any]) -> None:
    start(told).compile_or_get_cached(None, module(), devices(0, 2), None)
    line = render_report("4e5f", {"task": 1, "node": "a", **told[0]})
    reports, heard = ReportFilter(("2c3d", "4e5f"), 4), []
    reports.listen(heard.append)
    assert reports.feed(line) == b""
    [report] = heard
    assert {**report._asdict(), **told[0]} == report._asdict()
    assert reports.reports == []


def describe(computation: Any, *numbers: int) -> census.CompiledProgram:
    program = census.describe_program(computation, numbers or (0, 2), (0, 1))
    assert program is not None
    return program


def digest(computation: Any, *numbers: int) -> str:
    return describe(computation, *numbers).digest


def call(target: str, configuration: str) -> Operation:
    return Operation(name="stablehlo.custom_call", call_target_name=target, backend_config=configuration)


@pytest.mark.parametrize(
    "target", ["CustomSPMDPartitioning", "InspectSharding", "xla_python_cpu_callback", "xla_python_gpu_callback"]
)
def test_addresses_make_no_difference(jax: Path, target: str) -> None:
    assert digest(module(call(target, "139649552960880"))) == digest(module(call(target, "94")))
    assert digest(module(call("cudnn", "a"), call(target, "1"))) != digest(
        module(call("cudnn", "b"), call(target, "2"))
    )


KERNELS = ("mosaic_gpu", "mosaic_gpu_v2", "tpu_custom_call", "triton_kernel_call", "triton_kernel_call_ffi")


@pytest.mark.parametrize("target", ["__gpu$xla.gpu.triton", *KERNELS])
@pytest.mark.parametrize("payload", ["backend_config", "mhlo.backend_config"])
def test_places_in_kernels_make_no_difference(jax: Path, target: str, payload: str) -> None:
    def kernel(place: str, name: str = target, **more: str) -> Any:
        own = {"call_target_name": name, "backend_config": "", payload: f"add at {place}"}
        return module(Operation((), "", "stablehlo.custom_call", **own, **more))

    assert digest(kernel("a.py:1")) == digest(kernel("a.py:2"))
    assert digest(kernel("a.py:1", api_version="1")) != digest(kernel("a.py:1", api_version="4"))
    assert digest(kernel("a.py:1", "cudnn")) != digest(kernel("a.py:2", "cudnn"))


def test_what_makes_a_difference(jax: Path) -> None:
    assert digest(module(place="a.py:1")) == digest(module(place="b.py:2"))
    assert digest(module()) != digest(module(types=("tensor<6xf32>",)))
    assert digest(module(), 0, 2) != digest(module(), 2, 0)
    assert digest(module(Operation(value="1"))) != digest(module(Operation(value="2")))
    groups = [describe(module(), *numbers).group for numbers in ((0, 2), (2, 0), (0, 4))]
    assert groups[0] == groups[1] != groups[2]  # whatever the order of the devices


def test_the_program_itself_is_not_changed(jax: Path) -> None:
    own = module(call("CustomSPMDPartitioning", "139649552960880"), place="a.py:1")
    census.canonicalize(own)
    assert own.operation.place == "a.py:1"
    assert own.operation.inside[0].attributes["backend_config"].value == "139649552960880"


def test_long_texts_are_cut(jax: Path) -> None:
    program = describe(module(name="f" * 999, types=("i32",) * 5000))
    assert (len(program.name), len(program.types)) == (100, 292)
    types = tuple(f"tensor<{number}xf32>" for number in range(99))
    assert describe(module(types=types)).types == f"{', '.join(types[:9])}, ... {', '.join(types[-9:])}"


@pytest.mark.parametrize(
    "source",
    [
        "answer = 42\n",
        "def compile_or_get_cached(backend, module, devices):\n    return 42\n",
        "from functools import partial\ncompile_or_get_cached = partial(int)\n",
        "def compile_or_get_cached(backend, computation, devices):\n    return 42\n",  # no traceback_util
    ],
    ids=["nothing", "other parameters", "no function", "another module"],
)
def test_another_jax_is_left_alone(jax: Path, source: str) -> None:
    (jax / "compiler.py").write_text(source)
    compiler = start([])
    assert not hasattr(getattr(compiler, "compile_or_get_cached", None), "__wrapped__")


def test_a_program_that_cannot_be_described_is_compiled(jax: Path, told: list[Any]) -> None:
    """Nothing is told of the next ones: without the first, they would seem to differ."""
    compiler = start(told)
    for computation in (object(), module()):
        assert compiler.compile_or_get_cached(1, computation, devices(0, 2), 2) == (1, 2, ())
    text = "program check stopped: AttributeError: 'object' object has no attribute 'context'"
    assert told == [{"event": "warning", "text": text}]


def test_who_starts_a_task_alone_reads_why_nothing_is_checked(jax: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiler = start([], "stop", JAXSIF_REPORT="")
    compiler.compile_or_get_cached(1, object(), devices(0, 2), 2)
    assert capsys.readouterr().err.startswith("jaxsif: warning: program check stopped: AttributeError: ")


def test_a_closed_standard_error_is_no_error_of_the_program(jax: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = start([], "stop", JAXSIF_REPORT="")
    monkeypatch.setattr(sys, "stderr", None)
    assert compiler.compile_or_get_cached(1, object(), devices(0, 2), 2) == (1, 2, ())


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"JAXSIF_CHECK_PROGRAMS": "yes"}, "JAXSIF_CHECK_PROGRAMS is neither warn nor stop: 'yes'"),
        ({"JAXSIF_CHECK_PROGRAMS": "stop", "JAXSIF_HANG_TIMEOUT": "1x"}, "JAXSIF_HANG_TIMEOUT is not a number: '1x'"),
    ],
)
def test_values_that_the_launcher_does_not_set(environ: dict[str, str], text: str) -> None:
    error = catch(MisfitError, watching.read_wishes, {"SLURM_PROCID": "0", **environ})
    assert str(error) == text
    assert error.hint.endswith("; jaxsif sets it")


@pytest.mark.parametrize(
    ("timeout", "check", "wishes"),
    [("5m", "off", (300, "")), ("off", "warn", (0, "warn")), ("60", "stop", (60, "stop")), ("", "", (0, ""))],
)
def test_a_users_settings_for_runs_reach_tasks_of_a_bare_srun(
    timeout: str, check: str, wishes: tuple[int, str]
) -> None:
    environ = {"SLURM_PROCID": "0", "JAXSIF_HANG_TIMEOUT": timeout, "JAXSIF_CHECK_PROGRAMS": check}
    assert watching.read_wishes(environ) == wishes


def stored(computation: Any, task: int, *numbers: int) -> str:
    return json.dumps({**describe(computation, *numbers)._asdict(), "task": task})


NAMES = {1: "jit_f", 2: "jit_g"}


def test_tasks_with_the_same_program_go_on(jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = start(told, "stop", JAXSIF_HANG_TIMEOUT="5")
    group = describe(module()).group
    client = share(
        1,
        {f"jaxsif/programs/{group}/{order}/0": stored(module(name=name), 0, 0, 2) for order, name in NAMES.items()},
        monkeypatch,
    )
    for name in NAMES.values():
        compiler.compile_or_get_cached(None, module(name=name), devices(0, 2), None)
    # What the other one has written is removed; it removes what this one has.
    assert list(client.values) == [f"jaxsif/programs/{group}/{order}/1" for order in (1, 2)]
    assert client.waited == [60_000, 60_000]
    assert [one["event"] for one in told] == ["program", "program"]


class LeftError(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("nonce", ["4e5f", ""])
def test_a_task_with_another_program_ends(
    jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], nonce: str
) -> None:
    def leave(status: int) -> None:
        raise LeftError(status)

    monkeypatch.setattr(failure, "leave", leave)
    compiler = start(told, "stop", JAXSIF_REPORT=nonce)
    group = describe(module()).group
    other = module(types=("tensor<6xf32>",))
    share(1, {f"jaxsif/programs/{group}/1/0": stored(other, 0, 0, 2)}, monkeypatch)
    with pytest.raises(LeftError, match="1"):
        compiler.compile_or_get_cached(None, module(), devices(0, 2), None)
    program, end = told
    assert (end["event"], end["where"]) == ("exception", program["where"])
    assert end["text"].startswith(
        "jit_loss for (tensor<8xf32>) is not what task 0 compiled: jit_loss for (tensor<6xf32>) at "
    )
    assert capsys.readouterr().err == ("" if nonce else f"jaxsif: error: {end['text']}\n  from: {end['where']}\n")


def test_a_difference_that_the_types_do_not_show() -> None:
    program = census.CompiledProgram(0, "a1", (0, 1), "jit_f", "i32", "00", "a.py:1")
    other = {**program._asdict(), "digest": "01", "task": 3, "where": "a.py:2"}
    assert census.describe_mismatch(program, other) == (
        "jit_f for (i32) is not what task 3 compiled: another jit_f for (i32) at a.py:2; the results may be wrong"
    )


def test_who_does_not_come_in_time_is_named(jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = start(told, "stop", JAXSIF_REPORT="")
    client = share(0, {}, monkeypatch)
    assert compiler.compile_or_get_cached(1, module(), devices(0, 2, 4), 2) == (1, 2, ())
    program, warning = told
    assert client.waited == [60_000]
    assert (program["event"], warning["event"]) == ("program", "warning")
    assert warning["text"].startswith("process 2 did not compile jit_loss within 60 s, although ")


def test_who_did_not_come_in_time_is_not_waited_for_again(
    jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = start(told, "stop", JAXSIF_REPORT="")
    client = share(0, {}, monkeypatch)
    for number in range(3):
        compiler.compile_or_get_cached(1, module(name=f"jit_{number}"), devices(0, 2, 4), 2)
    compiler.compile_or_get_cached(1, module(), devices(0, 2), 2)
    assert [one["event"] for one in told] == ["program", "warning", *["program"] * 3, "warning"]
    assert client.waited == [60_000, 60_000]  # for process 2, and for process 1
    assert len(client.values) == 4  # the others compare theirs with each


def test_a_store_that_fails_is_not_used_again(jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = start(told, "stop")
    share(7, {}, monkeypatch)  # a process that has none of these devices
    for name in NAMES.values():
        assert compiler.compile_or_get_cached(1, module(name=name), devices(0, 2), 2) == (1, 2, ())
    assert [one["event"] for one in told] == ["program", "warning", "program"]
    assert told[1]["text"] == "program comparison stopped: ValueError: 7 is not in list"


def test_another_thread_compares_nothing(jax: Path, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs come in another order in each process."""
    compiler = start(told, "stop")
    client = share(1, {}, monkeypatch)
    thread = threading.Thread(target=compiler.compile_or_get_cached, args=(None, module(), devices(0, 2), None))
    thread.start()
    thread.join()
    assert ([(one["event"], one["order"]) for one in told], client.waited) == ([("program", 0)], [])
