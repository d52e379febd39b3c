"""The facts of a failure, by which a run starts again or not."""

from __future__ import annotations

import pytest
from kit.hosts import SRUN
from kit.reporting import GONE, ended, raised, started

from jaxsif.diagnose.cause import complete_cause, find_turns
from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import Report, ReportFilter
from jaxsif.errors import Cause, Fault

CANCELLED = "slurmstepd-node1: error: *** STEP 12.0 ON node1 CANCELLED AT 2026-11-22T10:39:36"
ABORTED = [started(), Report(-1, "", "cancelled"), ended(0, 143)]


def cause(
    reports: list[Report], errors: tuple[str, ...] = (), status: int = 1, interrupted: int | None = None
) -> Cause:
    end = End(status, SRUN, 4, interrupted)
    failure = find_failure(end, reports, errors)
    assert failure
    seen = ReportFilter()
    seen.reports += reports
    seen.errors += errors
    return complete_cause(failure.cause, end, seen)


def test_an_exception_is_marked_by_type_text_and_line() -> None:
    """Numbers and addresses differ each time."""
    first = cause([started(), raised(1, "ValueError: shapes 3 and 4 at 0x7f00"), ended(1, 1)])
    second = cause([started(), raised(1, "ValueError: shapes 30 and 4 at 0x7FA0"), ended(1, 1)])
    assert first == second == Cause(nodes=("node1",), mark=("1", "ValueError: shapes # and # at #", "train.py:10"))
    assert cause([started(), raised(2, "ValueError: shapes 3 and 4 at 0x7f00"), ended(2, 1)]).mark != first.mark


def test_a_killed_task_is_marked_by_its_iteration() -> None:
    box = "40 0.1 /a/train.py:16|/a/data.py:7|2.40"
    killed = cause([started(), ended(1, 137)._replace(box=box)])
    assert (killed.mark, killed.turns) == (("137", "40", "/a/train.py:16"), (2, 40))
    assert cause([started(), ended(1, 137)]).mark == ()  # nothing is known: never the same


def test_a_lack_of_memory_is_marked_by_slurms_words() -> None:
    words = "slurmstepd-node1: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks"
    for errors in ((words,), ("srun: error: node1: task 1: Out Of Memory",)):
        assert cause([started(), ended(1, 137)], errors) == Cause(nodes=("node1",), mark=("memory",))


def test_a_step_over_its_memory_limit_is_not_ended_from_outside() -> None:
    """Without cgroups, Slurm looks each few seconds; its lines are those that 24.11 writes."""
    errors = (
        "slurmstepd-node1: error: StepId=12.0 exceeded memory limit (1974407168 > 1887436800), being killed",
        f"{CANCELLED} ***",
    )
    reports = [started()._replace(step="12.0"), Report(-1, "", "cancelled"), ended(1, 137)]
    failure = find_failure(End(137, SRUN, 4), reports, errors)
    assert failure
    assert (failure.what, failure.exit_code) == ("step 12.0 exceeded its memory limit", 137)
    assert cause(reports, errors, 137) == Cause(nodes=("node1",), mark=("memory",))
    assert cause(reports[:2], errors, 137) == Cause(mark=("memory",))  # it ends those who would report, too
    other = errors[0].replace("=12.0", "=13.0")  # of another job, in a log that the program prints
    assert cause(reports, (other, errors[1]), 137).fault == Fault.OUTSIDE


def test_a_crash_is_marked_by_its_line_and_a_bus_error_speaks_against_the_node() -> None:
    crash = ended(1, 135)._replace(where="train.py:9")
    assert cause([started(), crash]) == Cause(nodes=("node1",), evidence="SIGBUS", mark=("135", "", "train.py:9"))
    assert cause([started(), crash._replace(status=139)]).evidence == ""


@pytest.mark.parametrize(
    "text", ["XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE", "RuntimeError: NVRM: Xid 79"]
)
def test_a_broken_gpu_speaks_against_the_node(text: str) -> None:
    assert cause([started(), raised(1, text), ended(1, 1)]).evidence == "GPU error"


@pytest.mark.parametrize("text", ["Xid 31", "NVRM: Xid (PCI:0000:01:00): 63, a repair"])
def test_an_xid_of_a_program_does_not_speak_against_the_node(text: str) -> None:
    assert cause([started(), raised(1, text), ended(1, 1)]).evidence == ""


@pytest.mark.parametrize(
    "text", ["OSError: [Errno 28] No space left on device", "MemoryError", "ValueError: Xidane", "Xid"]
)
def test_a_full_disk_and_other_errors_of_the_program_do_not(text: str) -> None:
    assert cause([started(), raised(1, text), ended(1, 1)]).evidence == ""


def test_a_consequence_is_never_the_same() -> None:
    assert cause([started(), raised(1, GONE, consequence=True), ended(1, 1)]) == Cause()
    assert cause([started(), ended(1, 143)]) == Cause()


@pytest.mark.parametrize(
    ("due", "fault"),
    [
        ("", Fault.OUTSIDE),
        (" DUE TO TIME LIMIT", Fault.OUTSIDE),
        (" DUE TO PREEMPTION", Fault.OUTSIDE),
        (" DUE TO JOB REQUEUE", Fault.OUTSIDE),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", Fault.NODE),
    ],
)
def test_what_slurm_ends(due: str, fault: Fault) -> None:
    aborted = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
    assert cause(ABORTED, (aborted, f"{CANCELLED}{due} ***"), 143) == Cause(fault)


def test_a_signal_to_jaxsif_ends_all() -> None:
    reports = [started(), Report(-1, "", "interrupted"), ended(0, 143)]
    assert complete_cause(Cause(Fault.HANG), End(143, SRUN, 4, 15), ReportFilter()).fault == Fault.OUTSIDE
    assert find_failure(End(143, SRUN, 4, 15), reports, ()) is None


def test_a_node_that_srun_cannot_reach_is_lost() -> None:
    line = "srun: error: Task launch for StepId=12.0 failed on node node2: Communication connection failure"
    assert cause([], (line,)) == Cause(Fault.NODE, ("node2",), "lost")


def test_a_request_that_cannot_work() -> None:
    assert cause([], ("srun: error: Invalid --mem specification",)).fault == Fault.REQUEST
    flags = "F1121 10:00:00 1 parse_flags.cc:1] Unknown flag in XLA_FLAGS: --xla_no_such"
    assert cause([started(), ended(0, 1)], (flags,)) == Cause(Fault.REQUEST)
    refused = Report(0, "node1", "refused", text="no /dev/x on this node")
    assert cause([refused, ended(0, 125)]) == Cause(Fault.REQUEST, ("node1",), "refused a task")


@pytest.mark.parametrize(
    ("boxes", "turns"),
    [
        ([], ()),
        ([""], ()),
        (["0 1.0 |"], ()),
        (["40 0.1 a.py:1|"], (40,)),
        (["40 0.1 a.py:1|b.py:2|2.40"], (2, 40)),
        (["40 0.1 a.py:1||1.40", "3 0.1 a.py:1||2.3"], (2, 3)),
    ],
)
def test_how_far_tasks_came(boxes: list[str], turns: tuple[int, ...]) -> None:
    reports = [ended(task, 1)._replace(box=box) for task, box in enumerate(boxes)]
    assert find_turns(reports) == turns


@pytest.mark.parametrize(
    ("ends", "reached"),
    [
        ([(1, 25), (143, 9), (1, 40)], (25,)),  # 40 had only been dispatched; 9 is a second old
        ([(1, None), (143, 40)], ()),
        ([(143, 25), (143, 24)], (24,)),  # nothing is known of a first one
    ],
)
def test_how_far_the_first_task_to_fail_came(ends: list[tuple[int, int | None]], reached: tuple[int, ...]) -> None:
    boxes = [(status, f"{count} 0.1 a.py:1|" if count else "") for status, count in ends]
    reports = [ended(task, status)._replace(box=box) for task, (status, box) in enumerate(boxes)]
    assert cause([started(), *reports]).reached == reached
