"""What is kept of a run, and that it fails none."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.hosts import CONTAINER, NONCES, WORKSTATION, plan_for
from kit.reporting import STARTED, report_line
from kit.samples import sample

from jaxsif.diagnose.reports import ReportFilter
from jaxsif.errors import Cause, Fault, RunError
from jaxsif.history.folder import RUN, STDERR, list_runs, read_run
from jaxsif.history.recorder import Recorder, hide_in_command, read_slurm_version
from jaxsif.history.render import Listed
from jaxsif.history.run import MOST_ALARMS, MOST_BYTES, Attempt, Complaint, RunRecord, TaskEnd
from jaxsif.images.file import Allowed
from jaxsif.layout.layout import Group, Layout
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import RunOptions
from jaxsif.watch.rule import Level, Verdict
from jaxsif.watch.snapshot import make_snapshot


def plan_in(folder: Path, *command: str) -> Plan:
    environ = {"XDG_STATE_HOME": str(folder), "HF_TOKEN": "s3cret", "SLURM_CLUSTER_NAME": "box"}
    container = CONTAINER._replace(allowed=Allowed("sha256:01", "state"))
    plan = plan_for(RunOptions(command or ("python", "a.py")), WORKSTATION, container)
    return plan._replace(host=plan.host._replace(environ=environ))


def kept(folder: Path) -> RunRecord:
    runs = str(folder / "jaxsif/runs")
    return read_run(runs, list_runs(runs)[-1])


def said(folder: Path) -> bytes:
    runs = folder / "jaxsif/runs"
    return (runs / list_runs(str(runs))[-1] / STDERR).read_bytes()


def test_the_begin_is_kept_at_once(tmp_path: Path) -> None:
    Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    run = kept(tmp_path)
    assert (run.end, run.status, run.tasks, run.command) == (None, None, 2, ("python", "a.py"))
    assert (run.image, run.digest) == ("/sw/containers/jax.sif", "sha256:01")
    assert run.variables == {"SLURM_CLUSTER_NAME": "box"}


def test_the_end_is_kept(tmp_path: Path) -> None:
    seen = ReportFilter(NONCES)
    recorder = Recorder(plan_in(tmp_path), seen, pytest.fail)
    raised = report_line(NONCES[1], event="exception", text="ValueError: boom", where="a.py:7", task=1)
    seen.feed(report_line(NONCES[0], event="started", step="12.0", nodes="node1"))
    seen.feed(report_line(NONCES[0], event="exit", status=0))
    seen.feed(raised + report_line(NONCES[0], event="exit", status=1, task=1))
    recorder.write(b"a word\n")
    recorder.note("a \x1b word of ours")
    recorder.end(1, RunError("task 1 failed", "a.py:7", "look", 1))
    run = kept(tmp_path)
    assert (run.status, run.error) == (1, Complaint("task 1 failed", "a.py:7", "look"))
    assert (run.step, run.nodes, run.ended) == ("12.0", "node1", 2)
    assert run.exits == (TaskEnd(1, "node1", 1, "a.py:7", "ValueError: boom", ""), TaskEnd(0, "node1", 0, "", "", ""))
    assert run.seconds is not None
    assert said(tmp_path) == (
        b"a word\njaxsif: a \\x1b word of ours\njaxsif: error: task 1 failed\n  from: a.py:7\n  try:  look\n"
    )


def test_an_end_that_is_foreseen_is_kept_until_the_end_is_known(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.write(b"a word\n")
    limit = RunError("job 12 reached its time limit", "", "look", 143)
    limit.cause = Cause(Fault.OUTSIDE)
    recorder.foresee(143, limit, "")
    run = kept(tmp_path)
    assert (run.status, run.error, run.outside) == (143, Complaint(limit.what, "", "look"), True)
    assert said(tmp_path) == b"a word\njaxsif: error: job 12 reached its time limit\n  try:  look\n"
    recorder.end(0)  # the tasks have saved, and ended well
    run = kept(tmp_path)
    assert (run.status, run.error, run.outside, said(tmp_path)) == (0, None, False, b"a word\n")


def test_a_run_that_starts_again_has_not_ended(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.foresee(143, RunError("the job lost node2", "", "", 143), "")
    recorder.start_again(ReportFilter(NONCES))
    run = kept(tmp_path)
    assert (run.end, run.status, run.error) == (None, None, None)


def test_the_output_of_the_last_attempt(tmp_path: Path) -> None:
    """That of earlier ones explains nothing of the run's error."""
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.write(b"first\n")
    assert recorder.output == b"first\n"
    recorder.start_again(ReportFilter(NONCES))
    recorder.write(b"second\n")
    assert recorder.output == b"second\n"
    recorder.write(b"x" * (3 << 20))
    assert recorder.output == b"x" * (1 << 20)
    recorder.end(0)
    assert said(tmp_path) == b"x" * (1 << 20)


def test_tasks_that_slurm_has_chosen_are_counted_at_the_end(tmp_path: Path) -> None:
    seen = ReportFilter(NONCES)
    plan = plan_in(tmp_path)
    recorder = Recorder(plan._replace(layout=Layout((Group(None, None, None),), "")), seen, pytest.fail)
    assert kept(tmp_path).tasks is None
    seen.feed(b"".join(report_line(NONCES[0], event="exit", status=0, task=task) for task in range(3)))
    recorder.end(0)
    assert kept(tmp_path).tasks == 3


def test_a_start_that_failed_is_kept_at_once(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    failed = Attempt(1.79e9, 135, "task 2 on node2 was killed by SIGBUS", "a.py:7", {"node2": "SIGBUS"})
    recorder.attempt(failed)
    assert kept(tmp_path).attempts == (failed,)
    recorder.attempt(failed)
    recorder.end(0)
    assert kept(tmp_path).attempts == (failed, failed)


def test_an_alarm_is_kept_at_once(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.alarm(Verdict(Level.HANG, 61.23), make_snapshot([sample(), sample(task=1, file="\x1b")]))
    (alarm,) = kept(tmp_path).alarms
    assert (alarm.level, alarm.seconds) == ("hang", 61.2)
    assert alarm.lines[0].startswith("the program hangs")
    assert len(alarm.picture["groups"][0]["members"]) == 2


def test_of_a_large_step_no_task_is_kept_by_itself(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.alarm(Verdict(Level.HANG, 60), make_snapshot(sample(task=task) for task in range(1001)))
    (group,) = kept(tmp_path).alarms[0].picture["groups"]
    assert (group["count"], group["members"]) == (1001, [])


def test_alarms_of_tasks_that_all_differ_can_be_read_again(tmp_path: Path) -> None:
    """Without a bound, they would have 80 MB, more than `read_run` takes."""
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    frames = [["/home/ada/experiments/models/transformer.py", number, "forward_block"] for number in range(20)]
    picture = make_snapshot(
        sample(task=task, frames=[["/home/ada/a.py", task, "step"], *frames]) for task in range(1000)
    )
    for _ in range(MOST_ALARMS):
        recorder.alarm(Verdict(Level.HANG, 60), picture)
    alarms = kept(tmp_path).alarms
    assert len(alarms) == MOST_ALARMS
    (path,) = (tmp_path / "jaxsif/runs").glob(f"*/{RUN}")
    assert path.stat().st_size < MOST_BYTES / 2
    for alarm in alarms:
        first, *others = alarm.picture["groups"]
        assert (alarm.picture["tasks"], first["count"], first["tasks"]) == (1000, 1, "0")
        assert 20 < len(others) < 999


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    for number in range(100):
        recorder.write(b"%06d " % number * 10_000)
    recorder.end(0)
    assert len(said(tmp_path)) == 1 << 20
    assert said(tmp_path).endswith(b"000099 ")


def test_nothing_long_is_written_while_tasks_run(tmp_path: Path) -> None:
    """The launcher passes on their output, and the disk may be slow."""
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail)
    recorder.write(b"word\n" * 100_000)
    recorder.alarm(Verdict(Level.WAIT, 61.23), make_snapshot([sample()]))
    (folder,) = (tmp_path / "jaxsif/runs").iterdir()
    assert [file.name for file in folder.iterdir()] == ["run.json"]
    recorder.end(0)
    assert len(said(tmp_path)) == 500_000


@pytest.mark.starts_processes
def test_slurms_version(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho slurm-wlm 24.11.5\n")
    srun.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert read_slurm_version(environ) == "24.11.5"
    srun.unlink()
    assert read_slurm_version({"PATH": str(tmp_path)}) == ""


def test_a_second_start_tells_of_its_own_tasks(tmp_path: Path) -> None:
    recorder, second = Recorder(plan_in(tmp_path), ReportFilter(NONCES), pytest.fail), ReportFilter(NONCES)
    recorder.start_again(second)
    second.feed(STARTED.replace(b"2c3d", NONCES[0].encode()) + report_line(NONCES[0], event="exit", status=0))
    recorder.end(0)
    assert kept(tmp_path).ended == 1


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "jaxsif").write_text("a file")
    lines: list[str] = []
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), lines.append)
    recorder.write(b"a word\n")
    recorder.alarm(Verdict(Level.WAIT, 60), make_snapshot([sample()]))
    recorder.end(0)
    assert lines == [f"warning: no history of this run: File exists ({tmp_path}/jaxsif)"]


def test_the_warning_of_an_open_folder_has_a_remedy(tmp_path: Path) -> None:
    runs = tmp_path / "jaxsif/runs"
    runs.mkdir(parents=True)
    runs.chmod(0o755)
    lines: list[str] = []
    Recorder(plan_in(tmp_path), ReportFilter(NONCES), lines.append)
    assert lines == [f"warning: no history of this run: others may read or write its folder: chmod 700 {runs}"]


def test_a_folder_that_goes_meanwhile_is_told_once(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder = Recorder(plan_in(tmp_path), ReportFilter(NONCES), lines.append)
    (tmp_path / "jaxsif").rename(tmp_path / "moved")
    recorder.end(0)
    recorder.end(0)
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python a.py --lr=3 --tokens 100", "python a.py --lr=3 --tokens 100"),
        ("python a.py --token s3cret --lr 3", "python a.py --token … --lr 3"),
        ("python a.py --token=s3cret", "python a.py --token=…"),
        ("env HF_TOKEN=s3cret python a.py", "env HF_TOKEN=… python a.py"),
        ("python a.py hf_abcdefghijklmnop", "python a.py …"),
        ("python a.py --token-file /home/ada/token", "python a.py --token-file /home/ada/token"),
        ("python a.py --password= word", "python a.py --password= word"),
        (
            "python a.py --api-key 0123abcd --wandb-api-key=0123 --access-key=X1",
            "python a.py --api-key … --wandb-api-key=0123 --access-key=…",
        ),
        ("python a.py --password 12345678 --max-tokens 8", "python a.py --password … --max-tokens 8"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(command: str, expected: str) -> None:
    assert " ".join(hide_in_command(command.split())) == expected


def test_secrets_within_a_word_are_hidden() -> None:
    script = "LR=1 HF_TOKEN=s3cret wget https://ada:word@example.org/x --header='Bearer hf_abcdefghijklmnop'"
    hidden = "LR=1 HF_TOKEN=… wget https://…@example.org/x --header='Bearer …'"
    assert hide_in_command(["bash", "-c", script]) == ("bash", "-c", hidden)
    script = (
        "export API_KEY='0a b' SECRET=\"0a b\"; python a.py --token abc --verbose --password --lr 3 --use-token true"
    )
    hidden = "export API_KEY=… SECRET=…; python a.py --token … --verbose --password --lr 3 --use-token true"
    assert hide_in_command(["bash", "-c", script]) == ("bash", "-c", hidden)


@pytest.mark.parametrize(
    "words", ["--env K_API_KEY={}", "--wrap 'HF_TOKEN={} a.py'", "--set a.api_key={}", "A='B_TOKEN={}'"]
)
def test_secrets_within_a_value_are_hidden(words: str) -> None:
    (hidden,) = hide_in_command([f"run {words.format('abc123')} x"])
    assert hidden == f"run {words.format('…')} x"


def test_a_failure_behind_exit_status_0_is_kept(tmp_path: Path) -> None:
    seen = ReportFilter(NONCES)
    recorder = Recorder(plan_in(tmp_path), seen, pytest.fail)
    seen.feed(report_line(NONCES[1], event="exception", text="ValueError: boom", where="a.py:7", jax=True))
    seen.feed(report_line(NONCES[0], event="exit", status=0))
    recorder.end(0)
    run = kept(tmp_path)
    assert (run.status, run.error.where, Listed(run, running=False).ended) == (0, "a.py:7", "done*")
