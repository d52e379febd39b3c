"""What the launcher and the tasks agree on: written once, and spoken alike by those who must spell it themselves."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.job.counts import fold
from jaxsif.job.task_env import identify
from jaxsif.node.share import tasks_here
from jaxsif.settings.options import read_seconds
from jaxsif.task import contract
from jaxsif.task.contract import Expectation, MisfitError, render_report, share, tasks_on_node, visible_gpus

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "jaxsif"
START = (PACKAGE / "task/start.sh").read_text()
SITE = (PACKAGE / "task/site/sitecustomize.py").read_text()
DEFINITION = (ROOT / "containers/jaxsif.def").read_text()
VARIABLES = {
    value
    for name, value in vars(contract).items()
    if name.isupper() and isinstance(value, str) and value.startswith("JAXSIF_")
}
SHAPES = st.tuples(*2 * [st.none() | st.integers(0, 9)])


@given(
    st.lists(st.tuples(SHAPES, st.integers(1, 5)), min_size=1, max_size=5),
    st.none() | st.integers(1, 9),
    *3 * [st.booleans()],
)
def test_an_expectation_is_read_back(
    shapes: list[tuple[tuple[int | None, ...], int]], each: int | None, bound: bool, uneven: bool, share: bool
) -> None:
    expectation = Expectation(shapes, each, bound, uneven, share)
    read = Expectation.parse(expectation.render())
    assert vars(read) == vars(expectation)
    one_by_one = [shape for shape, times in shapes for _ in range(times)]
    assert [read.find_shape(node) for node in range(len(one_by_one))] == one_by_one
    assert read.find_shape(len(one_by_one) + 7) == one_by_one[-1]


@pytest.mark.parametrize("text", ["", "4", "4:", "4:4(x", "4:4(x2", "4:4)", "4:4(x)", "4:4, 2:2", "4:4 per-task="])
def test_what_is_no_expectation(text: str) -> None:
    with pytest.raises(MisfitError, match=r"^JAXSIF_LAYOUT is not a number: '"):
        Expectation.parse(text)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=6), st.data())
def test_a_task_and_what_starts_it_count_alike(runs: Sequence[tuple[int, int]], data: st.DataObject) -> None:
    counts = fold(runs)
    text = ",".join(str(tasks) + (f"(x{nodes})" if nodes > 1 else "") for tasks, nodes in counts)
    each = [tasks for tasks, nodes in counts for _ in range(nodes)]
    node = data.draw(st.integers(0, len(each) - 1))
    gtids = data.draw(st.sampled_from(["", "7", "0,1,2"]))
    environ = {"SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": str(node), "SLURM_GTIDS": gtids}
    assert tasks_here(environ) == tasks_on_node(environ) == (len(gtids.split(",")) if gtids else each[node])


@given(nodes=st.integers(1, 4), tasks=st.integers(1, 8))
def test_a_task_of_mpirun_is_counted_alike(nodes: int, tasks: int) -> None:
    environ = identify(nodes * tasks - 1, tasks, [f"n{number}" for number in range(nodes)], "1")
    del environ["SLURM_GTIDS"]
    assert tasks_here(environ) == tasks_on_node(environ) == tasks
    assert tasks_here({}) == tasks_on_node({}) == 1


@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        ("", []),
        ("0", ["0"]),
        ("2,3", ["2", "3"]),
        ("GPU-5ac1,MIG-77b0", ["GPU-5ac1", "MIG-77b0"]),
        ("NoDevFiles", []),
        ("-1", []),
    ],
)
def test_visible_gpus(value: str, gpus: list[str]) -> None:
    assert visible_gpus(value) == gpus


@given(gpus=st.integers(1, 64), data=st.data())
def test_shares_of_gpus_are_equal_disjoint_and_exist(gpus: int, data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, gpus))
    shares = [share(local_id, tasks, gpus, uneven=False) for local_id in range(tasks)]
    used = [index for one in shares for index in one]
    assert len({len(one) for one in shares}) == 1
    assert len(used) == len(set(used)) > gpus - tasks  # fewer than one GPU a task is left idle
    assert set(used) <= set(range(gpus))


@given(gpus=st.integers(1, 16), tasks=st.integers(1, 200))
def test_every_task_has_a_gpu_that_exists(gpus: int, tasks: int) -> None:
    shares = [share(local_id, tasks, gpus, uneven=False) for local_id in range(tasks)]
    assert all(one and set(one) <= set(range(gpus)) for one in shares)
    if tasks >= gpus:
        assert {index for one in shares for index in one} == set(range(gpus))  # none is idle


def test_report_of_a_name_that_is_no_text() -> None:
    line = render_report("4e5f", {"where": "/tmp/\udc80.py:1", "text": "größer"})
    assert line.startswith(b"\x1ejaxsif 4e5f {")
    assert line.endswith(b"}\n")
    assert json.loads(line[len(contract.render_marker("4e5f")) :]) == {"where": "/tmp/\udc80.py:1", "text": "größer"}


def strings(path: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_name_of_a_variable_is_written_once() -> None:
    found = {path: strings(path) & VARIABLES for path in PACKAGE.rglob("*.py")}
    assert {path.relative_to(PACKAGE).as_posix(): names for path, names in found.items() if names} == {
        "task/contract.py": VARIABLES,
        "node/share.py": {contract.STEP},
    }


def test_the_shell_speaks_of_the_same_variables() -> None:
    in_shell = set(re.findall(r"JAXSIF_[A-Z_]+", START))
    assert in_shell <= VARIABLES
    assert {contract.REPORT, contract.FABRIC, contract.FABRIC_NEEDS, contract.FABRIC_LIBRARIES} < in_shell
    assert {contract.OWN_CACHE, contract.CRASH} < in_shell
    assert re.findall(r"JAXSIF_[A-Z_]+", DEFINITION) == [contract.FLAVOUR]


def test_the_shell_marks_its_reports_alike() -> None:
    [form] = re.findall(r"printf '(.*)\\n' \"\$nonce\"", START)
    assert form.encode().decode("unicode_escape").startswith(contract.render_marker("%s").decode())


def test_the_shell_reports_events_with_their_fields() -> None:
    told = {
        event: tuple(re.findall(r'"(\w+)":', fields))
        for event, fields in re.findall(r"report '\"event\": \"(\w+)\"(.*)", START)
    }
    assert {**told, "refused": ("text", "hint")} == contract.START_EVENTS  # that one is stage.py's


def told_events(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The events that a module reports, each with its fields, as far as they are literals."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values)
            texts = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
            if isinstance(texts.get("event"), ast.Constant):
                yield texts["event"].value, set(texts) - {"event", "task", "node"}


def test_tasks_report_events_with_their_fields() -> None:
    told = [event for path in (PACKAGE / "task").rglob("*.py") for event in told_events(path)]
    assert {event for event, _ in told} == set(contract.PROGRAM_EVENTS) - {"refused", "port-taken"}  # of a MisfitError
    assert all(fields <= set(contract.PROGRAM_EVENTS[event]) for event, fields in told)
    assert list(told_events(PACKAGE / "node/stage.py")) == [("refused", {"text", "hint"})]
    assert set(contract.PROGRAM_EVENTS) >= {MisfitError("").event, "port-taken"}


@pytest.mark.parametrize(
    ("text", "split"), [("5m", ("5", 60)), ("5", ("5", 1)), ("5sm", ("5s", 60)), ("h", ("", 3600)), ("", ("", 1))]
)
def test_units_of_timeouts(text: str, split: tuple[str, int]) -> None:
    """A wrong number is left to those who report it."""
    assert contract.split_unit(text) == split
    if split[0] != "5":
        assert read_seconds(text) is None
        with pytest.raises(MisfitError, match="NAME is not a number"):
            contract.parse_seconds(text, "NAME")


def test_images_import_the_task_by_the_name_under_which_it_installs() -> None:
    assert "echo 'import jaxsif_task' >" in DEFINITION
    assert 'ln -s /opt/jaxsif/task "$site/jaxsif_task"' in DEFINITION
    assert 'spec_from_file_location(\n        "jaxsif_task",' in SITE
    assert 'if __name__ == "jaxsif_task":\n    install(os.environ)\n' in (PACKAGE / "task/__init__.py").read_text()


@pytest.mark.starts_processes
@pytest.mark.parametrize("name", ["jaxsif.task.contract", "jaxsif.launch.pipeline"])
def test_the_launcher_installs_nothing(name: str) -> None:
    program = f"""
import sys, threading
sys.path.insert(0, {str(ROOT)!r})
before = [*sys.meta_path], threading._shutdown
import {name}
assert ([*sys.meta_path], threading._shutdown) == before
print(*(name for name in sys.modules if name.startswith("jaxsif.task.")))
"""
    environ = {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "a", contract.REPORT: "4e5f", contract.LAYOUT: "9:9"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["jaxsif.task.contract"], "")
