"""The nodes on which a run starts again."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from jaxsif.errors import HostError
from jaxsif.launch import nodes as module
from jaxsif.launch.nodes import (
    SlurmJob,
    check_nodes,
    choose_nodes,
    find_unfit,
    is_listed,
    judge_answer,
    query_job,
    query_unfit,
)
from jaxsif.watch.sample import Answer

NAMES = ("node1", "node2", "node3", "node4")


@pytest.mark.parametrize(
    ("state", "is_fit"),
    [
        *(
            (state, True)
            for state in ("allocated", "mixed", "idle", "completing", "mixed-", "allocated+", "mixed$", "mixed@")
        ),
        *(
            (state, False)
            for state in ("draining", "drained", "down", "down*", "mixed*", "fail", "unknown", "maint", "draining@")
        ),
    ],
)
def test_a_draining_node_is_not_fit_nor_one_that_does_not_answer(state: str, is_fit: bool) -> None:
    found = find_unfit(["node1"], f"node1|{state}\nnode1|{state}\n")
    assert found == ({} if is_fit else {"node1": state})


def test_a_node_that_slurm_does_not_list_is_not_fit() -> None:
    assert find_unfit(["node1", "node2"], "node1|mixed\n") == {"node2": "unknown to Slurm"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "no answer"),
        (Answer("node1", 0), ""),
        (Answer("node1", 2), "processes left over from an earlier attempt"),
        (Answer("node1", 0, 512), ""),
        (Answer("node1", 0, 70_000), "70000 MiB of GPU memory in use"),
    ],
)
def test_what_is_wrong_with_a_node(answer: Answer | None, problem: str) -> None:
    assert judge_answer(answer) == problem


@pytest.mark.parametrize(
    ("unusable", "suspects", "size", "segment", "chosen"),
    [
        ("", "", 2, 1, "node1 node2"),
        ("node1", "", 2, 1, "node2 node3"),
        ("", "node2", 3, 1, "node1 node3 node4"),
        ("", "node2 node3 node4", 2, 1, "node1 node2"),
        ("node1 node4", "node3", 2, 1, "node2 node3"),
        ("node1 node2 node3", "", 2, 1, ""),
        ("node1", "", 2, 2, "node3 node4"),
        ("", "node2", 2, 2, "node3 node4"),
        ("node1 node4", "", 2, 2, ""),
    ],
)
def test_the_nodes_of_the_next_start(unusable: str, suspects: str, size: int, segment: int, chosen: str) -> None:
    found = choose_nodes(NAMES, unusable.split(), suspects.split(), size, segment)
    assert found == tuple(chosen.split())


def test_only_nodes_that_were_asked_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the job's other nodes nothing is known; one that Slurm has taken from the job is not asked."""
    monkeypatch.setattr(module, "query_job", lambda *_: SlurmJob("RUNNING", ("node1", "node2")))
    monkeypatch.setattr(module, "query_unfit", lambda *_: {})
    monkeypatch.setattr(module, "_inspect", lambda *_: {"node1": Answer("node1", 0)})
    found = check_nodes("12", ["node1", "node3"], ["0a1b"], False, {})
    assert found == {"node1": "", "node3": "no longer in the job"}


def squeue(monkeypatch: pytest.MonkeyPatch, out: str, status: int = 0) -> None:
    """What squeue prints, and its exit status."""
    monkeypatch.setattr(module, "ask_slurm", lambda *_: CompletedProcess((), status, out, ""))


def test_a_job_with_the_number_of_its_array_is_not_another_job_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(monkeypatch, "15|PENDING|\n14|RUNNING|node[3-4]\n12|SUSPENDED|node[1-2]\n")
    assert query_job("12", {}) == SlurmJob("SUSPENDED", ("node1", "node2"))
    assert query_job("1", {}) == SlurmJob("", ())


@pytest.mark.parametrize(
    ("state", "over"),
    [("RUNNING", False), ("SUSPENDED", False), ("CONFIGURING", False), ("COMPLETING", True), ("", True)],
)
def test_a_suspended_job_is_not_over(state: str, over: bool) -> None:
    assert SlurmJob(state, ()).is_over is over


def test_a_step_of_the_last_start_is_found_in_an_array_too(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(monkeypatch, "12_3.0\n12_4.1\n")
    array = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert is_listed({"14.0"}, "14", array)
    assert not is_listed({"14.1"}, "14", array)
    assert not is_listed({"14.0"}, "14", {})
    squeue(monkeypatch, "14.0\n14.batch\n")
    assert is_listed({"14.0"}, "14", {})


def test_no_answer_does_not_show_that_a_step_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(monkeypatch, "", 1)
    assert is_listed({"14.0"}, "14", {})


def test_options_that_the_user_keeps_in_variables_do_not_hide_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr("jaxsif.process.captured", lambda _, environ: given.append(environ))
    kept = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    query_unfit(["node1"], {**kept, "SLURM_JOB_ID": "12", "SINFO_PARTITION": "gpu", "SQUEUE_STATES": "pending"})
    assert given == [kept]


def await_slurm(monkeypatch: pytest.MonkeyPatch, *states: str) -> dict[str, str]:
    """What is known of node1 while Slurm names these states of its job in turn, '?' for no answer."""
    answers = iter(states)

    def query(*_: object) -> SlurmJob | None:
        state = next(answers)
        return None if state == "?" else SlurmJob(state, ("node1",))

    monkeypatch.setattr(module, "query_job", query)
    monkeypatch.setattr(module, "query_unfit", lambda *_: {})
    monkeypatch.setattr(module, "_PAUSE", 0.02)
    monkeypatch.setattr(module, "_SLURM_PATIENCE", 0.05)
    return module._await_slurm("12", ["node1"], {})


def test_a_suspended_job_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than for an answer from Slurm; so is one whose launcher was suspended, too."""
    assert await_slurm(monkeypatch, *["SUSPENDED"] * 5, "RUNNING") == {"node1": ""}
    assert await_slurm(monkeypatch, "CONFIGURING", "RUNNING") == {"node1": ""}


def test_a_failed_query_does_not_count_as_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match="Slurm does not say which nodes of job 12 are up"):
        await_slurm(monkeypatch, *"?" * 9)
    with pytest.raises(HostError, match="job 12 is over"):
        await_slurm(monkeypatch, "COMPLETING")


def inspected(monkeypatch: pytest.MonkeyPatch, *answers: Answer | None, patience: float = 60.0) -> dict[str, str]:
    """What is found wrong with node1 while it gives these answers in turn, the last one for ever."""
    rest = list(answers)

    def inspect(*_: object) -> dict[str, Answer]:
        answer = rest.pop(0) if len(rest) > 1 else rest[0]
        return {"node1": answer} if answer else {}

    monkeypatch.setattr(module, "query_job", lambda *_: SlurmJob("RUNNING", ("node1",)))
    monkeypatch.setattr(module, "query_unfit", lambda *_: {})
    monkeypatch.setattr(module, "_inspect", inspect)
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    monkeypatch.setattr(module, "_PATIENCE", patience)
    return check_nodes("12", ["node1"], ["0a1b"], True, {})


BUSY, FREE = Answer("node1", 0, 70_000), Answer("node1", 0)


def test_the_memory_of_gpus_that_is_not_free_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspected(monkeypatch, BUSY, BUSY, BUSY, FREE) == {"node1": ""}
    assert inspected(monkeypatch, Answer("node1", 2), BUSY, FREE) == {"node1": ""}
    assert inspected(monkeypatch, BUSY, patience=0.05) == {"node1": "70000 MiB of GPU memory in use"}


def test_a_node_may_leave_one_question_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspected(monkeypatch, None, FREE) == {"node1": ""}
    assert inspected(monkeypatch, None, None, FREE) == {"node1": "no answer"}
