"""One container a node: who is there, and what the tasks are told of the container's variables."""

from __future__ import annotations

import pytest

from jaxsif.node.keeper import compare
from jaxsif.node.share import address, pack, parse, parse_variables, tasks_here, unpack


@pytest.mark.parametrize(
    ("counts", "node", "tasks"),
    [("8", "0", 8), ("4(x2),1", "1", 4), ("4(x2),1", "2", 1), ("3,1(x3)", "0", 3), ("3,1(x3)", "3", 1)],
)
def test_tasks_of_this_node(counts: str, node: str, tasks: int) -> None:
    assert tasks_here({"SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_NODEID": node}) == tasks


@pytest.mark.parametrize("environ", [{}, {"SLURM_STEP_TASKS_PER_NODE": "x"}, {"SLURM_STEP_TASKS_PER_NODE": "2"}])
def test_where_nothing_tells_there_is_one_task(environ: dict[str, str]) -> None:
    assert tasks_here(environ) == 1
    assert tasks_here({**environ, "SLURM_NODEID": "1"}) == 1


def test_a_list_of_many_nodes_takes_no_room() -> None:
    assert tasks_here({"SLURM_STEP_TASKS_PER_NODE": "2(x99999999999),1", "SLURM_NODEID": "99999999998"}) == 2


def test_each_step_and_node_has_a_name() -> None:
    step = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_NODEID": "0"}
    names = {address(step), address({**step, "SLURM_STEP_ID": "4"}), address({**step, "SLURM_NODEID": "1"})}
    assert len(names) == 3
    assert all(name.startswith("\0jaxsif-") for name in names)


@pytest.mark.parametrize("variables", [([], []), ([b"A", b"B"], []), ([], [b"C=1=2"]), ([b"A"], [b"C=", b"D=x\ny"])])
def test_answer_comes_back_as_it_was(variables: tuple[list[bytes], list[bytes]]) -> None:
    assert unpack(pack(4711, *variables)) == (4711, *variables)


def test_what_the_runtime_changed_is_told_and_what_it_left_is_not() -> None:
    host = {b"PATH": b"/usr/bin", b"SLURM_PROCID": b"0", b"APPTAINERENV_X": b"1", b"_": b"/usr/bin/sh"}
    container = {b"PATH": b"/opt/jax/bin", b"SLURM_PROCID": b"0", b"X": b"1", b"_": b"/bin/cat"}
    pid, unset, changed = unpack(compare(host, container, 7))
    assert (pid, unset, changed) == (7, [b"APPTAINERENV_X"], [b"PATH=/opt/jax/bin", b"X=1"])


def test_what_is_set_for_all_is_told_even_if_the_first_task_has_it() -> None:
    host = {b"SLURM_LOCALID": b"0", b"APPTAINERENV_SLURM_LOCALID": b"0"}
    assert unpack(compare(host, {b"SLURM_LOCALID": b"0"}, 7))[2] == [b"SLURM_LOCALID=0"]


def test_variables_as_the_kernel_lists_them() -> None:
    assert parse_variables([b"A=1", b"B=x=y\nz", b"C=", b""]) == {b"A": b"1", b"B": b"x=y\nz", b"C": b""}


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--alone", {"--alone": []}),
        ("--staged a b c", {"--staged": ["a", "b", "c"]}),
        ("--alone --allowed a b c", {"--alone": [], "--allowed": ["a", "b", "c"]}),
    ],
)
def test_options_end_at_the_runtime(words: str, options: dict[str, list[str]]) -> None:
    argv = [*words.split(), "apptainer", "run", "--alone", "a.sif", "--", "python", "--", "--staged"]
    assert parse(argv) == (options, ["apptainer", "run", "--alone", "a.sif"], ["python", "--", "--staged"])
