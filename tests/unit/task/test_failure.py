"""How a process says why it ended: in parts, and as a whole in a Python that starts with the task package."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
from kit.reporting import NONCES, PROGRAM
from kit.tasks import ENVIRON, TASK_FOLDER, EndedTask, run_python, run_task

from jaxsif.diagnose.facts import match_symptoms
from jaxsif.diagnose.reports import Report, ReportFilter
from jaxsif.diagnose.symptoms import EXPLAINED
from jaxsif.layers import inside
from jaxsif.task import failure
from jaxsif.task.contract import ABSENT_GPU_HINT, FULL_GPU_HINT, FULL_NODE_HINT
from jaxsif.task.failure import SPAWNED_HINT, _suggest, describe, exit_status, is_installed, location

since_312 = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells of an uncaught SystemExit from 3.12 on")


@pytest.mark.parametrize(
    ("exception", "status"), [(ValueError("x"), 1), (KeyboardInterrupt(), 130), (SystemExit(), 0)], ids=repr
)
def test_exit_status(exception: BaseException, status: int) -> None:
    assert exit_status(exception) == status


@pytest.mark.starts_processes
@pytest.mark.parametrize("code", ["0", "3", "-1", "256", "True", "None", "'cannot go on'", "300"])
def test_exit_status_is_pythons(code: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-ISc", f"raise SystemExit({code})"], stderr=subprocess.DEVNULL, check=False
    )
    assert exit_status(SystemExit(eval(code))) == ended.returncode


class UnshowableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Outer:
    class InnerError(Exception):
        pass


DESCRIBE = {
    "message": (ValueError("shapes (2,) and (3,)"), "ValueError: shapes (2,) and (3,)"),
    "no message": (ValueError(), "ValueError"),
    "many lines": (ValueError("\n  first\nsecond\n"), "ValueError: first"),
    "a reason in the second line": (ValueError("no step 4:\n  keys: w\nmore"), "ValueError: no step 4: keys: w"),
    "a reason below an empty line": (ValueError("no step 4: \n\n  keys: w"), "ValueError: no step 4: keys: w"),
    "a traceback": (
        ValueError("Traceback (most recent call last):\n  x"),
        "ValueError: Traceback (most recent call last):",
    ),
    "a colon at the end": (ValueError("missing:"), "ValueError: missing:"),
    "a key": (KeyError("a"), "KeyError: 'a'"),
    "exit": (SystemExit(3), "sys.exit(3)"),
    "exit with a truth": (SystemExit(True), "sys.exit(True)"),
    "exit with a text": (SystemExit("cannot go on\nat all"), "SystemExit: cannot go on"),
    "nested": (Outer.InnerError("x"), "Outer.InnerError: x"),
    "unshowable": (UnshowableError(), "UnshowableError: <exception str() failed>"),
    "long": (ValueError("x" * 1000), "ValueError: " + "x" * 287 + "…"),
    "a repeated beginning": (
        RuntimeError("INTERNAL: " + "Error dispatching computation: " * 4 + "Gloo: reset by peer"),
        "RuntimeError: INTERNAL: Error dispatching computation: Gloo: reset by peer",
    ),
    "long exit": (SystemExit("x" * 1000), "SystemExit: " + "x" * 287 + "…"),
}


@pytest.mark.parametrize(("exception", "text"), DESCRIBE.values(), ids=DESCRIBE)
def test_describe(exception: BaseException, text: str) -> None:
    assert describe(exception) == text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of exceptions came with 3.11")
def test_a_group_is_its_first_exception(tmp_path: Path) -> None:
    source = (
        "def fail():\n    raise KeyError('loss')\n"
        "try:\n    fail()\nexcept KeyError as error:\n"
        "    raise ExceptionGroup('2 of them', [ExceptionGroup('1', [error]), ValueError('x')])\n"
    )
    name = str(tmp_path / "train.py")
    group = raised_by(source, name)
    assert (describe(group), location(group)) == ("KeyError: 'loss' (in ExceptionGroup)", f"{name}:2")
    group = raised_by("\nraise ExceptionGroup('shards', [KeyError('loss')])\n", name)
    assert location(group) == f"{name}:2"


def raised_by(source: str, name: str, **names: object) -> BaseException:
    """The exception that `source`, as the file `name`, raises."""
    try:
        exec(compile(source, name, "exec"), names)
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next  # without this frame
        return error
    raise AssertionError("nothing was raised")


def test_location_is_the_innermost_line_of_the_users_code() -> None:
    assert location(raised_by("x = 1\n\nraise ValueError\n", "/home/a/train.py")) == "/home/a/train.py:3"


def test_location_passes_libraries_over_where_there_is_another_one() -> None:
    name = "/opt/venv/lib/python3.12/site-packages/tool/cli.py"
    source = f"exec(compile('1/0', {name!r}, 'exec'))"
    assert location(raised_by(f"\n{source}", "train.py")) == "train.py:2"
    assert location(raised_by("\n\n\n1/0", name)) == f"{name}:4"


def test_location_is_the_line_that_jax_traced() -> None:
    """JAX gives it as a cause without frames of its own; the exception itself came from the call of the function."""
    error = raised_by("raise ValueError\n", "/home/a/train.py")
    traced = type("JaxStackTraceBeforeTransformation", (Exception,), {})
    error.__cause__ = traced().with_traceback(raised_by("\n\n1/0", "/home/a/halo.py").__traceback__)
    assert location(error) == "/home/a/halo.py:3"
    error.__cause__ = traced()
    assert location(error) == "/home/a/train.py:1"


def test_location_of_an_error_in_code_that_jax_calls() -> None:
    """JAX gives the traced line as the cause here, too, such as that of the forward pass of a gradient."""
    rule = compile("\n\nraise ValueError", "/home/a/rule.py", "exec")
    name = "/x/site-packages/jax/_src/custom_derivatives.py"
    error = raised_by(f"exec(compile('exec(rule)', {name!r}, 'exec'))", "/home/a/train.py", rule=rule)
    error.__cause__ = type("JaxStackTraceBeforeTransformation", (Exception,), {})()
    error.__cause__.__traceback__ = raised_by("1/0", "/home/a/train.py").__traceback__
    assert location(error) == "/home/a/rule.py:3"


def test_location_of_an_exception_in_compiled_cython() -> None:
    """Its frames have the path of a source that is not there."""
    name = "numpy/random/_generator.pyx"
    error = raised_by("draw()\n", "/home/a/train.py", draw=eval(compile("lambda: 1 / 0", name, "eval")))
    assert location(error) == "/home/a/train.py:1"


def test_location_of_an_exception_that_was_never_raised() -> None:
    assert location(ValueError("x")) == ""


def run(tmp_path: Path, program: str, **variables: str) -> EndedTask:
    """Execute a script in a task, as a program that its shell has started."""
    script = tmp_path / "train.py"
    script.write_text(program)
    return run_python(sys.executable, script, JAXSIF_REPORT=PROGRAM, **variables)


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("raise ValueError('shapes')", 1, "ValueError: shapes"),
        ("import os; os.environ.clear(); raise ValueError('shapes')", 1, "ValueError: shapes"),
        ("class E(Exception):\n    __str__ = None\nraise E", 1, "E: <exception str() failed>"),
    ],
    ids=["an exception", "in a cleared environment", "an exception that cannot be shown"],
)
def test_exception_is_reported(tmp_path: Path, program: str, status: int, text: str) -> None:
    ended = run(tmp_path, program)
    where = f"{tmp_path}/train.py:{len(program.splitlines())}"
    assert ended.status == status
    assert ended.reports == [Report(5, "node2", "exception", text=text, where=where)]
    assert b"Traceback (most recent call last)" in ended.err


@pytest.mark.starts_processes
def test_the_exception_of_a_thread_is_reported(tmp_path: Path) -> None:
    """After Python's own message; not of each of many, nor the end of a thread by sys.exit()."""
    program = """
import sys, threading
def load(number):
    if number == 0:
        sys.exit("enough")
    raise ValueError(f"corrupt shard {number}")
for number in range(9):
    thread = threading.Thread(target=load, args=(number,))
    thread.start()
    thread.join()
"""
    ended = run(tmp_path, program)
    assert ended.status == 0
    texts = [report.text for report in ended.reports if report.event == "warning"]
    place = f"at {tmp_path}/train.py:6"
    assert texts == [f"an exception ended a thread: ValueError: corrupt shard {n}, {place}" for n in (1, 2, 3)]


@pytest.mark.starts_processes
def test_a_report_fits_into_a_line_of_srun(tmp_path: Path) -> None:
    """srun --label makes several lines of one that is longer than 1024 bytes."""
    folder = tmp_path / ("ä" * 120) / ("漢" * 80) / ("y" * 250) / ("z" * 250)
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("raise ValueError('\\ud800' + 299 * '\\U0001f600')")
    environ = {**ENVIRON, "JAXSIF_REPORT": PROGRAM}
    ended = subprocess.run([sys.executable, folder / "train.py"], env=environ, capture_output=True, check=False)
    (line,) = [line for line in ended.stderr.splitlines(True) if line.startswith(b"\x1e")]
    assert 900 < len(line) <= 1000
    reports = ReportFilter(NONCES)
    reports.feed(line)
    (report,) = reports.reports
    assert report.text.startswith("ValueError: \\ud800\U0001f600")
    assert report.where.endswith("train.py:1")


@pytest.mark.starts_processes
@since_312
def test_sys_exit_is_reported(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys\nsys.exit(3)")
    assert (ended.status, ended.err) == (3, b"")
    assert ended.reports == [Report(5, "node2", "exception", text="sys.exit(3)", where=f"{tmp_path}/train.py:2")]


@pytest.mark.starts_processes
@since_312
@pytest.mark.parametrize(
    ("leave", "text", "line"),
    [
        ("sys.exit(1)", "ZeroDivisionError: division by zero", 4),
        ("sys.exit(3)", "ZeroDivisionError: division by zero (then sys.exit(3))", 4),
        ("sys.exit('no way')", "SystemExit: no way", 6),
        ("raise SystemExit(1) from None", "ZeroDivisionError: division by zero", 4),
    ],
)
def test_sys_exit_after_an_exception_says_less_than_that(tmp_path: Path, leave: str, text: str, line: int) -> None:
    ended = run(tmp_path, f"import sys\n\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    {leave}\n")
    assert [(one.text, one.where) for one in ended.reports] == [(text, f"{tmp_path}/train.py:{line}")]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("cleanup", "hides"),
    [
        ("finally:\n    raise OSError('quota exceeded')", "ValueError: negative, at {}:4"),
        ("except ValueError:\n    raise OSError('quota exceeded') from None", ""),
        (
            "except ValueError as error:\n    raise OSError('quota exceeded') from error",
            "ValueError: negative, at {}:4",
        ),
    ],
)
def test_an_exception_that_hides_another_one(tmp_path: Path, cleanup: str, hides: str) -> None:
    ended = run(tmp_path, f"import sys\n\ntry:\n    raise ValueError('negative')\n{cleanup}\n")
    place = f"{tmp_path}/train.py"
    (said,) = ended.reports
    assert (said.text, said.where, said.hides) == ("OSError: quota exceeded", f"{place}:6", hides.format(place))


@pytest.mark.starts_processes
def test_the_place_of_a_syntax_error(tmp_path: Path) -> None:
    (said,) = run(tmp_path, "\nx = (\n").reports
    assert (said.text, said.where) == ("SyntaxError: '(' was never closed (train.py, line 2)", f"{tmp_path}/train.py:2")
    (tmp_path / "model.py").write_text("\n\ny = )\n")
    (said,) = run(tmp_path, "import model\n").reports
    assert said.where == f"{tmp_path}/model.py:3"
    for place in ("(__file__, None, None, None)", "(b'train.py', 3, 1, 'x')", "(7, 3, 1, 'x')"):
        (said,) = run(tmp_path, f"raise SyntaxError('bad', {place})\n").reports
        assert said.where == f"{tmp_path}/train.py:1"


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "pool", ["multiprocessing.get_context('fork').Pool(1) as pool", "futures.ProcessPoolExecutor(1) as pool"]
)
def test_an_exception_in_a_worker_of_a_pool(tmp_path: Path, pool: str) -> None:
    imports = "import multiprocessing\nfrom concurrent import futures\n"
    ended = run(
        tmp_path, f"{imports}def work(item):\n    return 1 / item\nwith {pool}:\n    list(pool.map(work, [0]))\n"
    )
    said = ended.reports[-1]
    assert (said.text, said.where) == ("ZeroDivisionError: division by zero", f"{tmp_path}/train.py:4")


@pytest.mark.starts_processes
@since_312
def test_sys_exit_of_a_library_is_the_programs(tmp_path: Path) -> None:
    """argparse handles an exception of its own."""
    ended = run(tmp_path, "import argparse\nargparse.ArgumentParser(exit_on_error=True).parse_args(['--x'])\n")
    assert [one.text for one in ended.reports] == ["sys.exit(2): unrecognized arguments: --x"]


@pytest.mark.starts_processes
@since_312
@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("import math; math.sqr(4)", "AttributeError: module 'math' has no attribute 'sqr'. Did you mean: 'sqrt'?"),
        ("rate = 1; print(rat)", "NameError: name 'rat' is not defined. Did you mean: 'rate'?"),
        ("print(qqq)", "NameError: name 'qqq' is not defined"),
        ("class E(NameError):\n    def __str__(self): 1/0\nraise E", "E: <exception str() failed>"),
    ],
)
def test_what_python_adds_to_a_message_is_reported(tmp_path: Path, program: str, text: str) -> None:
    assert [one.text for one in run(tmp_path, program).reports] == [text]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "program",
    [
        "print('done')",
        "import sys\nprint('done'); sys.exit()",
        "try:\n    1/0\nexcept ZeroDivisionError:\n    print('done')",
        "import os\nprint('done', flush=True)\nif os.fork() == 0: raise SystemExit(0)\nos.wait()",
    ],
    ids=["to its end", "sys.exit()", "with a caught exception", "with a child"],
)
def test_success_is_silent(tmp_path: Path, program: str) -> None:
    assert run(tmp_path, program) == (0, b"done\n", b"", [])


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("repeated", "message"),
    [
        ("", "Connection closed by peer [10.0.0.1]:4"),
        ("", "timed out connecting: SO_ERROR: Connection refused"),
        ("Error dispatching computation: ", "Gloo: Connection closed by peer"),
    ],
)
def test_neighbours_exception_is_a_consequence(tmp_path: Path, repeated: str, message: str) -> None:
    reports = run(tmp_path, f"raise RuntimeError('{repeated * 40}{message}')").reports
    text = f"RuntimeError: {repeated}{message}"
    where = f"{tmp_path}/train.py:1"
    assert reports == [Report(5, "node2", "exception", text=text, where=where, consequence=True)]


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("kind", "is_consequence"), [("JaxRuntimeError", True), ("ConnectionError", False)], ids=["JAX's", "of a database"]
)
@pytest.mark.parametrize("wrap", ["raise RuntimeError('step 7') from error", "raise SystemExit('step 7')"])
def test_an_exception_raised_from_a_consequence(tmp_path: Path, kind: str, is_consequence: bool, wrap: str) -> None:
    """Only JAX's own says that a task is gone, perhaps behind another one."""
    define = "class JaxRuntimeError(Exception): pass\n"
    wrapped = f"try:\n    raise {kind}('Connection closed by peer')\nexcept Exception as error:\n    {wrap}\n"
    wrapped = "\n".join(f"    {line}" for line in wrapped.splitlines())
    program = f"{define}try:\n{wrapped}\nfinally:\n    raise OSError('quota')\n"
    (report,) = run(tmp_path, program).reports
    assert (report.text, report.consequence) == ("OSError: quota", is_consequence)


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "handle",
    [
        pytest.param("die('step 7')", marks=since_312),
        pytest.param("die(3)", marks=since_312),
        "raise KeyError('lr')",
        "clean_up()",
    ],
)
def test_what_a_program_does_when_a_neighbour_is_gone(tmp_path: Path, handle: str) -> None:
    program = (
        "import sys\nclass JaxRuntimeError(Exception): pass\n"
        "def die(why): sys.exit(why)\ndef clean_up(): {}['lr']\n"
        f"try:\n    raise JaxRuntimeError('Socket closed')\nexcept JaxRuntimeError:\n    {handle}\n"
    )
    (report,) = run(tmp_path, program).reports
    assert report.consequence


# What the task package knows of JAX: a client when connected, and an exit handler that waits for the neighbours.
CONNECTED = """\
import atexit, sys, time, types
def clean_up():
    print("barrier", flush=True)
    time.sleep(60)
sys.modules["jax._src.distributed"] = types.SimpleNamespace(global_state=types.SimpleNamespace(client=CLIENT))
sys.modules["jax._src.api"] = types.SimpleNamespace(clean_up=clean_up)
atexit.register(clean_up)
atexit.register(print, "saved")
"""
# As Python does at a limit of processes.
NO_THREAD = """\
import threading
def start(self): raise RuntimeError("can't start new thread")
threading.Thread.start = start
"""


ENDS = {
    "failed": ("object()", "raise ValueError", 1, b"saved\n"),
    "failed, with a handler that blocks": ("object()", "atexit.register(time.sleep, 60); raise ValueError", 1, b""),
    "failed without JAX's connection": ("None", "time.sleep = print; raise ValueError", 1, b"saved\nbarrier\n60\n"),
    "succeeded": ("object()", "time.sleep = print", 0, b"saved\nbarrier\n60\n"),
    "failed, and no thread can be started": (
        "object()",
        f"{NO_THREAD}print('unfinished', end=''); raise ValueError",
        1,
        b"unfinished",
    ),
}


@pytest.mark.starts_processes
@pytest.mark.parametrize(("client", "end", "status", "out"), ENDS.values(), ids=ENDS)
def test_only_a_failed_and_connected_process_skips_jaxs_barrier(
    tmp_path: Path, client: str, end: str, status: int, out: bytes
) -> None:
    assert run(tmp_path, CONNECTED.replace("CLIENT", client) + end)[:2] == (status, out)


@pytest.mark.starts_processes
def test_the_first_python_of_task_0_says_once_that_it_holds_the_port(tmp_path: Path) -> None:
    """Before the program's first line; a child has nothing to add."""
    with socket.socket() as one:
        one.bind(("", 0))
        port = str(one.getsockname()[1])
    variables = {"SLURM_PROCID": "0", "JAXSIF_COORDINATOR_PORT": port, "JAXSIF_LAYOUT": "-:-"}
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    held = Report(0, "node2", "port-held", text="node1")
    assert run(tmp_path, program, **variables) == (0, b"", b"", [held])


@pytest.mark.starts_processes
def test_start_sh_keeps_its_nonce(tmp_path: Path) -> None:
    """The program learns the other one, and reports nothing of how it ends."""
    ended = run_task("sh", "-c", "env | grep REPORT; exit 3")
    assert ended == (3, b"JAXSIF_REPORT=4e5f\n", b"", [Report(5, "node2", "exit", 3)])


@pytest.mark.starts_processes
def test_refused_task_does_not_start_its_program(tmp_path: Path) -> None:
    variables = {
        "CUDA_VISIBLE_DEVICES": "0",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "JAXSIF_COORDINATOR_PORT": "61234",
        "JAXSIF_LAYOUT": "-:-",
    }
    problem = "2 tasks share 1 of this node's GPUs: JAX needs at least one GPU for each process"
    reports = [Report(5, "node2", "refused", text=problem, hint="--ntasks-per-node=1, or --share-gpus")]
    assert run(tmp_path, "print('done')", **variables) == (125, b"", b"", reports)


@pytest.mark.starts_processes
def test_images_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('own')\n")
    path = f"{TASK_FOLDER}/site:{tmp_path}/own"
    program = "import sys; print(any('task/site' in entry for entry in sys.path))"
    assert run(tmp_path, program, PYTHONPATH=path) == (0, b"own\nFalse\n", b"", [])


@pytest.mark.starts_processes
def test_nothing_happens_outside_of_a_task(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys; print('jaxsif_task.failure' in sys.modules); 1/0")
    environ = {"PATH": os.defpath, "PYTHONPATH": str(TASK_FOLDER / "site"), "JAXSIF_REPORT": "1"}
    ended = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"False\n")
    assert b"\x1e" not in ended.stderr


CRASH = """\
import os, signal, sys, threading, time
def wait():
    time.sleep(20)
def crash():
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    wait()
if sys.argv[2] == "main":
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    crash()
threading.Timer(0.3, os.abort).start()
wait()
"""
SHELLS = [shell for shell in ("dash", "bash", "busybox sh") if shutil.which(shell.split()[0])]


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("signal_name", "thread", "status", "line"),
    [
        ("SIGABRT", "main", 134, 5),
        ("SIGTERM", "main", 143, 5),
        ("SIGSEGV", "main", 139, 5),
        ("SIGABRT", "other", 134, 3),
    ],
    ids=["abort", "SIGTERM", "SIGSEGV", "abort in a thread of a library"],
)
def test_the_line_where_a_signal_came(
    tmp_path: Path, shell: str, signal_name: str, thread: str, status: int, line: int
) -> None:
    """Through start.sh, which reads what Python has written of its threads, and shows nothing more to the user."""
    script = tmp_path / "train.py"
    script.write_text(CRASH)
    ended = run_task(sys.executable, script, signal_name, thread, shell=shell)
    report = Report(5, "node2", "exit", status, where=f"{script}:{line}", crashed=status == 134 and thread == "main")
    assert ended == (status, b"", b"", [report])


STACK = 'File "{}", line {} in call'


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([("<string>", "3"), ("a.py", "7"), ("b.py", "9")], "a.py:7"),
        ([("<string>", "???"), ("a.py", "???"), ("b.py", "9")], "b.py:9"),
        ([("<string>", "2"), ("<string>", "5")], "<string>:2"),
        ([("/v/site-packages/x/y.py", "1"), ("a,b.py", "4"), ("<string>", "5"), ("c.py", "6")], "a,b.py:4"),
    ],
    ids=["generated", "no line yet", "a program of -c", "called by generated"],
)
def test_generated_code_gives_way_to_the_file_that_called_it(
    tmp_path: Path, shell: str, frames: list[tuple[str, str]], place: str
) -> None:
    """Such as a named tuple's, in which SIGTERM has found tasks."""
    stack = "\n".join(["Current thread 0x1 (most recent call first):", *(STACK.format(*frame) for frame in frames)])
    ended = run_task("sh", "-c", f"printf '%s\n' '{stack}' >&$JAXSIF_CRASH; kill -ABRT $$", shell=shell)
    assert ended.reports == [Report(5, "node2", "exit", 134, where=place, crashed=bool(place))]
    lines = [(file, int(line)) for file, line in frames if line.isdigit()]
    assert failure.find_place(lines[::-1]) == place


LEAVES = """\
import os, signal, sys
import jaxsif_task.watch.status_file
trail = jaxsif_task.watch.status_file.StatusPipe(7)
trail.write({"turns": 39, "quiet": 0.0, "loop": "/a/train.py:16"})
trail.write({"turns": 40, "quiet": 0.1, "loop": "/a/train.py:16"})
os.write(7, sys.argv[1].encode())
"""
LEFT = "40 0.1 /a/train.py:16|"


@pytest.mark.starts_processes
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("end", "status", "more", "box"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "", LEFT),
        ("os._exit(3)", 3, "", LEFT),
        ("os._exit(0)", 0, "", ""),
        ("os._exit(3)", 3, 'Box 1 0.0 ", "status": 0|\n', LEFT),
        ("os._exit(3)", 3, "Box 1 0.0 a|b|2.40\n", "1 0.0 a|b|2.40"),
        ("os._exit(3)", 3, "Box \x1b\n", LEFT),
        ("os._exit(3)", 3, "Box ä\n", LEFT),
        ("os._exit(3)", 3, f"Box 1 0.0 {'x' * 300}|\n", ""),
    ],
    ids=["SIGKILL", "a failure", "no failure", "a lie", "loops around", "an escape", "a letter", "a long text"],
)
def test_what_a_task_did_before_its_end(tmp_path: Path, shell: str, end: str, status: int, more: str, box: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEAVES + end)
    ended = run_task(sys.executable, script, more, shell=shell, LC_ALL="C.UTF-8")
    *own, end = ended.reports
    assert (ended.status, ended.out, ended.err, end) == (
        *(status, b"", b""),
        Report(5, "node2", "exit", status, box=box),
    )
    assert [report.text for report in own] == [f"os._exit({status})"] * (status == 3)


HANDLES = """\
import os
try:
    raise ValueError("boom")
except ValueError:
    os._exit(4)
"""
HANDLES_SIGTERM = """\
import functools, os, signal, sys
sys.modules["jax"] = sys
def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    {leave}
signal.signal(signal.SIGTERM, {handler})
{work}
"""
WORKER = """\
import multiprocessing, os
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=os._exit, args=(9,))
    worker.start()
    worker.join()
    os._exit(worker.exitcode != 9)
"""
HOOKS = """\
import os, sys
sys.excepthook = lambda *_: os._exit(4)
raise ValueError("boom")
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("program", "status", "told"),
    [
        ("import os\nos._exit(4)", 4, ["os._exit(4), 2"]),
        (HANDLES, 4, ["ValueError: boom, 3"]),
        pytest.param(HOOKS, 4, ["ValueError: boom, 3"], marks=since_312),
        ("import os\nos._exit(status=0)", 0, []),
        ("import os, sys\nsys.modules['jax'] = os\nos._exit(0)", 0, ["os._exit(0), at train.py:3, "]),
        pytest.param(
            "import sys\nsys.modules['jax'] = sys\nsys.exit()", 0, ["sys.exit(), at train.py:3, "], marks=since_312
        ),
        ("import os\nif os.fork() == 0:\n    os._exit(4)\nos.wait()", 0, []),
        ("import os\nos._exit('x')", 1, ["TypeError: 'str' object cannot be interpreted as an integer, 2"]),
        ("import atexit, os\natexit.register(os._exit, 7)", 7, ["os._exit(7), "]),
        ("import os, pickle\npickle.loads(pickle.dumps(os._exit))(8)", 8, ["os._exit(8), 2"]),
        (WORKER, 0, []),
    ],
    ids=[
        *("a failure", "handled", "in a hook", "no failure", "no failure with JAX", "sys.exit", "a fork", "a text"),
        *("by C", "by its name", "a worker"),
    ],
)
def test_an_end_without_exit_handlers_is_reported(tmp_path: Path, program: str, status: int, told: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(program)
    ended = run_task(sys.executable, script)
    texts = [(one.text or one.event).replace(f"{tmp_path}/", "") for one in ended.reports[:-1]]
    found = [f"{text}, {one.where.removeprefix(f'{script}:')}" for text, one in zip(texts, ended.reports)]
    assert (ended.status, found) == (status, told)


WRITES = """\
import threading, time
threading.Thread(target=time.sleep, args=({seconds},), name="writer", daemon={daemon}).start()
raise ValueError("boom")
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(("seconds", "daemon"), [(2.5, False), (0.2, False), (2.5, True)])
def test_a_failed_program_that_waits_for_its_thread_is_named(tmp_path: Path, seconds: float, daemon: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(WRITES.format(seconds=seconds, daemon=daemon))
    reports = run_task(sys.executable, script).reports
    told = [report.text.removeprefix(f"ValueError: boom, at {script}:3: ") for report in reports[1:-1]]
    assert told == (["Python waits for its thread writer"] if (seconds, daemon) == (2.5, False) else [])


KILLED = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("leave", "handler", "work", "where"),
    [
        pytest.param("sys.exit(0)", "stop", KILLED, "train.py:7", marks=since_312),
        pytest.param("sys.exit(3)", "functools.partial(stop)", KILLED, "train.py:7", marks=since_312),
        pytest.param(
            *("raise KeyError", "stop", f"try:\n    {KILLED}\nexcept KeyError:\n    sys.exit(3)", "train.py:8"),
            marks=since_312,
        ),
        ("os._exit(0)", "stop", KILLED, "train.py:7"),
        ("pass", "stop", KILLED, None),
        ("sys.exit(3)", "stop", "stop()", None),
        ("sys.exit(3)", "stop", "stop(signal.SIGTERM, None)", None),
    ],
    ids=["leaves", "leaves by a partial", "an exception", "os._exit", "goes on", "a call", "a call like Python's"],
)
def test_where_a_programs_own_handler_of_sigterm_ended_it(
    tmp_path: Path, leave: str, handler: str, work: str, where: str | None
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANDLES_SIGTERM.format(leave=leave, handler=handler, work=work))
    reports = run_task(sys.executable, script).reports
    told = [report.where.removeprefix(f"{tmp_path}/") for report in reports if report.event == "stopped"]
    assert told == ([] if where is None else [where])


POOL = """\
import multiprocessing, os, signal, sys, time
def work(_):
    time.sleep(20)
def train():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
with multiprocessing.get_context("fork").Pool(4) as pool:
    pool.map_async(work, range(4))
    time.sleep(0.3)
train()
"""
TWO = "import os; os.fork() or os.abort(); os.wait()\n" + POOL


@pytest.mark.starts_processes
@pytest.mark.parametrize(("program", "line"), [(POOL, 5), (TWO, 6)], ids=["a pool", "a child that crashed"])
def test_a_fork_is_not_the_task(tmp_path: Path, program: str, line: int) -> None:
    """What its processes were at when they were ended is no place of the task."""
    script = tmp_path / "train.py"
    script.write_text(program)
    where = f"{script}:{line}"
    assert run_task(sys.executable, script).reports == [Report(5, "node2", "exit", 143, where=where)]


@pytest.mark.parametrize("connected", [False, True])
def test_an_end_inside_multiprocessing_is_not_of_the_program(monkeypatch: pytest.MonkeyPatch, connected: bool) -> None:
    """The resource tracker of Python 3.13 ends with status 1 where a process has left anything.

    But a worker that has connected to JAX itself must not wait for the others.
    """
    monkeypatch.setattr(failure, "_connected", lambda: connected)
    left: list[int] = []
    monkeypatch.setattr(failure, "leave", left.append)
    own = os.path.join(os.path.dirname(os.__file__), "multiprocessing", "resource_tracker.py")
    reports: list[object] = []
    for file in (own, "train.py"):
        try:
            exec(compile("import sys; sys.exit(1)", file, "exec"), {})
        except SystemExit as end:
            failure._on_shutdown(end, reports.append)
    assert ("train.py:1" in [report["where"] for report in reports], len(reports)) == (True, 1 + connected)
    assert left == [1, 1] * connected


@pytest.mark.starts_processes
def test_a_descriptor_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    program = f"exec 7>{tmp_path}/results; {sys.executable} -c 'import os; os.abort()'; exit 134"
    assert run_task("sh", "-c", program).status == 134
    assert (tmp_path / "results").read_text() == ""


@pytest.mark.starts_processes
def test_a_trace_that_is_too_long_is_no_hang(tmp_path: Path) -> None:
    """More than a pipe has room for, and more threads than Python shows."""
    program = """\
import os, threading, time
def deep(n):
    time.sleep(20) if n == 0 else deep(n - 1)
for _ in range(300):
    threading.Thread(target=deep, args=(120,), daemon=True).start()
os.abort()
"""
    script = tmp_path / ("x" * 200 + ".py")
    script.write_text(program)
    ended = run_task(sys.executable, script)
    assert ended.status == 134
    assert ended.reports == [Report(5, "node2", "exit", 134)]  # the main thread is not among those shown


def test_a_worker_that_starts_workers_while_it_imports_the_script() -> None:
    """As multiprocessing words it, in lines; a task's hint has the remedy."""
    lines = (
        "An attempt has been made to start a new process before the",
        "current process has finished its bootstrapping phase.",
    )
    told = describe(RuntimeError("".join(f"\n        {line}" for line in (*lines, "", "This probably means"))))
    assert told == f"RuntimeError: {' '.join(lines)}"
    assert _suggest(told) == SPAWNED_HINT


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.", FULL_GPU_HINT),
        ("RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0", FULL_GPU_HINT),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes.", FULL_NODE_HINT),
        ("INTERNAL: Error dispatching computation: Out of memory allocating 17592186044416 bytes.", FULL_NODE_HINT),
        ("RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)", ""),
        ("Unknown backend cuda. Available backends are ['cpu']", ABSENT_GPU_HINT),
        ("Unknown backend: 'gpu' requested, but no platforms that are instances of gpu", ABSENT_GPU_HINT),
    ],
)
def test_a_device_that_is_full_or_absent(text: str, hint: str) -> None:
    """`jaxsif explain` has the same remedy."""
    message = f"JaxRuntimeError: {text}"
    assert _suggest(message) == hint
    assert [match.remedy for match in match_symptoms(EXPLAINED, [message])] == ([hint] if hint else [])


@pytest.mark.parametrize("platform", ["cuda", "gpu"])
def test_a_jax_without_cuda(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the fault of the node, whose GPUs are healthy."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for text in (f"Unable to initialize backend '{platform}': not known", f"no platform in JAX_PLATFORMS={platform}"):
        assert _suggest(text).startswith("the JAX here has no CUDA: use an image with CUDA")
        (tmp_path / "jax_cuda13_plugin.py").touch()
        importlib.invalidate_caches()
        assert _suggest(text) == ""
        (tmp_path / "jax_cuda13_plugin.py").unlink()
        importlib.invalidate_caches()


def test_the_platforms_that_a_program_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's setting has the variable's value, unless the program has changed it."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert failure._wanted_platforms() == "cpu"
    config = types.SimpleNamespace(jax_platforms="cuda")
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(config=config))
    assert failure._wanted_platforms() == "cuda"


def test_a_submodule_that_the_program_did_not_import() -> None:
    import wsgiref

    assert not hasattr(wsgiref, "simple_server")
    hint = _suggest("AttributeError: module 'wsgiref' has no attribute 'simple_server'")
    assert hint == "add `import wsgiref.simple_server` to the program"


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        ("/home/a/train.py", False),
        ("/home/a/jax/examples/mnist.py", False),
        ("/home/a/jax/jax/_src/array.py", True),
        ("/opt/lib/python3.13/site-packages/flax/nnx.py", True),
        ("/usr/local/lib/python3.12/dist-packages/jax/api.py", True),
        (f"{sys.base_prefix}/lib/python3/json/decoder.py", True),
        ("<frozen x>", True),
        (os.__file__, True),
    ],
)
def test_code_that_is_not_the_users(file: str, installed: bool) -> None:
    assert is_installed(file) == installed


def test_code_of_a_project_in_a_layer_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mylab").touch()
    monkeypatch.setattr(failure, "OWN", str(tmp_path))
    failure.list_own.cache_clear()
    site = "/opt/lib/python3.13/site-packages"
    frames = [("/home/a/train.py", 1), (f"{site}/mylab/model.py", 2), (f"{site}/mylab2/model.py", 3)]
    assert failure.find_place(frames) == f"{site}/mylab/model.py:2"
    failure.list_own.cache_clear()


def test_an_end_before_the_program_has_no_place() -> None:
    """As of `python -m` with a misspelt module."""
    runpy = ("<frozen runpy>", 194)
    assert failure.find_place([runpy, ("<frozen runpy>", 88)]) == ""
    assert failure.find_place([("/bin/tool.py", 3), runpy]) == "/bin/tool.py:3"
    assert failure.find_place([runpy, ("/usr/lib/python3.13/site-packages/x/y.py", 3)]) == ""


def test_the_folder_of_own_modules_has_one_path() -> None:
    assert failure.OWN == inside.OWN
    assert f'[ -e "{failure.OWN}/${{module%%/*}}" ]' in (TASK_FOLDER / "start.sh").read_text()
