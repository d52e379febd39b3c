"""Scripts that stay, and how jobs ended."""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from jaxsif.cli import build_parsers
from jaxsif.commands.submit import (
    EndedJob,
    _find_run,
    add_options,
    call,
    check_slurm,
    find_first_failure,
    keep_script,
    name_jobs,
    parse_ends,
    submit,
    wait_job,
)
from jaxsif.errors import HostError, JaxsifError
from jaxsif.settings.options import Rank, RunOptions, Setting


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_scripts_do_not_replace_each_other(tmp_path: Path) -> None:
    paths = [keep_script(text, "train", None) for text in ("one\n", "one\n", "\udcff\n")]
    assert paths == [f"jaxsif-jobs/{name}" for name in ("train.sbatch", "train-2.sbatch", "train-3.sbatch")]
    assert [(tmp_path / path).read_bytes() for path in paths] == [b"one\n", b"one\n", b"\xff\n"]


def test_what_somebody_else_writes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a loop in a shell submits several at once."""

    def link(new: str, path: str) -> None:
        monkeypatch.undo()
        (tmp_path / path).write_text("theirs\n")
        os.link(tmp_path / new, tmp_path / path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.link", link)
    path = tmp_path / keep_script("ours\n", str(tmp_path / "train"), None)
    assert (path.name, path.read_text()) == ("train-2.sbatch", "ours\n")
    assert (tmp_path / "train.sbatch").read_text() == "theirs\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", ["file", "fifo", "link to nothing"])
def test_a_named_script_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "job.sh"
    {
        "file": lambda: path.write_text("one\n"),
        "fifo": lambda: os.mkfifo(path),
        "link to nothing": lambda: path.symlink_to("nothing"),
    }[kind]()
    with pytest.raises(JaxsifError, match=r"job\.sh already exists"):
        keep_script("one\n", "", "job.sh")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", [None, "job.sh"])
def test_a_script_is_for_its_user_alone(path: str | None) -> None:
    """The values of --env stand in it."""
    previous = os.umask(0)
    try:
        written = keep_script("export TOKEN=s3cret\n", "train", path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(os.stat(written).st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "file"])
def test_nobody_can_make_the_new_file_before_us(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where somebody guesses its name."""
    monkeypatch.setattr("os.urandom", bytes)
    planted = Path(f".job.sh.{bytes(8).hex()}")
    Path("target").write_text("")
    if kind == "link":
        planted.symlink_to("target")
    else:
        planted.write_text("")
    with pytest.raises(OSError, match="File exists"):
        keep_script("export TOKEN=s3cret\n", "", "job.sh")
    assert [path.read_text() for path in (planted, Path("target"))] == ["", ""]


def record(job: str, state: str, code: str) -> str:
    files = "WorkDir=/w StdErr=/w/my a.out StdIn=/dev/null StdOut=/w/my a.out"
    return f"JobId={job} JobName=a UserId=u(1) JobState={state} Reason=None ExitCode={code} RunTime=0 {files}\n"


def ended(name: str, state: str, status: int, number: str = "7") -> EndedJob:
    return EndedJob(name, state, status, number, "/w/my a.out")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ("", []),
        (record("7", "PENDING", "0:0"), None),
        (record("7", "COMPLETED", "0:0"), [ended("7", "COMPLETED", 0)]),
        (record("7", "FAILED", "3:0"), [ended("7", "FAILED", 3)]),
        (record("7", "FAILED", "0:9"), [ended("7", "FAILED", 137)]),
        (record("7", "TIMEOUT", "0:15"), [ended("7", "TIMEOUT", 143)]),
        (record("7", "CANCELLED", "0:0"), [ended("7", "CANCELLED", 1)]),
        (record("7 ArrayJobId=7 ArrayTaskId=2-9", "PENDING", "0:0") + record("8", "COMPLETED", "0:0"), None),
        (
            record("9 ArrayJobId=7 ArrayTaskId=2", "FAILED", "1:0")
            + record("8 ArrayJobId=7 ArrayTaskId=1", "COMPLETED", "0:0"),
            [ended("7_1", "COMPLETED", 0, "8"), ended("7_2", "FAILED", 1, "9")],
        ),
    ],
    ids=["none", "waits", "good", "bad", "killed", "time over", "cancelled", "half an array", "array"],
)
def test_parse_ends(records: str, expected: list[EndedJob] | None) -> None:
    found, going_on = parse_ends(records)
    assert (None if going_on else found) == expected


SAID = """\
srun: error: node1: task 3: Exited with exit code 9
step 1
srun: error: {first}
half a line of task 0srun: Terminating StepId=7.0
slurmstepd-node1: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-24T06:02:16 ***
srun: error: node1: tasks 0-1: Terminated
srun: Force Terminated StepId=7.0
"""


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ("node2: task 2: Exited with exit code 1", 1),
        ("node2: tasks 2,4-5: Exited with exit code 77", 77),
        ("node2: task 2: Killed", 137),
        ("node2: task 2: Segmentation fault (core dumped)", 139),
        ("node2: task 2: a signal that no libc knows", 143),
    ],
)
def test_the_status_of_the_task_that_failed_first(tmp_path: Path, first: str, status: int) -> None:
    """Not of the tasks that srun ended; after a requeue, of the last start."""
    output = tmp_path / "a.out"
    output.write_text(SAID.format(first="node2: task 2: Exited with exit code 4") + SAID.format(first=first))
    job = EndedJob("7", "FAILED", 143, "7", str(output))
    assert find_first_failure(job) == job._replace(status=status)
    assert find_first_failure(job._replace(state="TIMEOUT")).status == 143
    assert find_first_failure(job._replace(number="8")).status == 143


@pytest.mark.parametrize("kind", ["missing", "fifo", "other text"])
def test_a_job_without_readable_output_keeps_its_status(tmp_path: Path, kind: str) -> None:
    output = tmp_path / "a.out"
    {"missing": bool, "fifo": lambda: os.mkfifo(output), "other text": lambda: output.write_text("hello\n")}[kind]()
    job = EndedJob("7", "FAILED", 143, "7", str(output))
    assert find_first_failure(job) == job


def test_words_that_sbatch_cannot_read_are_a_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    site = {"time": Setting("1 hour", "run.time in /sw/x.toml", Rank.SITE)}
    for words, kind in (
        ("sbatch: error: Invalid --time specification", 2),
        ("sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information", 2),
        ("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed", 125),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", 125),
    ):
        monkeypatch.setattr(
            "jaxsif.process.captured", lambda *_, said=words: subprocess.CompletedProcess((), 1, "", said)
        )
        with pytest.raises(JaxsifError) as caught:
            submit("job.sh", RunOptions(("x",), sources=site), {}, print)
        assert caught.value.exit_code == kind
        assert caught.value.where == ("sbatch; run.time in /sw/x.toml" if "--time" in words else "sbatch")
        assert "sbatch:" not in caught.value.what
        assert caught.value.hint.startswith("`scontrol ping`") == ("controller" in words)


def test_a_job_of_an_array_that_slurm_forgets_while_others_go_on_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = "8 ArrayJobId=7 ArrayTaskId=1", "9 ArrayJobId=7 ArrayTaskId=2"
    looks = [
        record(first, "FAILED", "3:0") + record(second, "RUNNING", "0:0"),
        record(second, "RUNNING", "0:0"),
        record(second, "COMPLETED", "0:0"),
    ]
    answers = (subprocess.CompletedProcess((), 0, look, "") for look in looks)
    monkeypatch.setattr("jaxsif.process.captured", lambda _argv, _environ: next(answers))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    assert wait_job("7", {}) == [ended("7_1", "FAILED", 3, "8"), ended("7_2", "COMPLETED", 0, "9")]


def test_a_job_from_within_a_job_takes_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def sbatch(_argv: object, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        seen.update(environ)
        return subprocess.CompletedProcess((), 0, "4712\n", "")

    monkeypatch.setattr("jaxsif.process.captured", sbatch)
    ours = {"PATH": "/bin", "SLURM_CONF": "/etc/s.conf", "SBATCH_QOS": "debug"}
    job = {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "8", "SRUN_CPUS_PER_TASK": "8", "SLURMD_NODENAME": "n1"}
    assert submit("job.sh", RunOptions(("x",)), {**ours, **job}, print) == "4712"
    assert seen == ours


def test_where_there_is_no_slurm(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"^sbatch is not on the PATH$"):
        check_slurm("sbatch", {"PATH": str(tmp_path)})
    (tmp_path / "sbatch").touch(0o755)
    check_slurm("sbatch", {"PATH": str(tmp_path)})


def test_a_job_is_named_though_standard_output_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jaxsif.commands.submit.check_slurm", lambda *_: None)
    monkeypatch.setattr("jaxsif.commands.submit._render", lambda *_: ("text\n", RunOptions(("x",))))
    monkeypatch.setattr("jaxsif.commands.submit.submit", lambda *_: "4711")
    parser = argparse.ArgumentParser()
    add_options(parser)
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="No space left on device"):
            call(parser.parse_args(["python", "train.py"]), {})
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # for what is left in its buffer
    first = "jaxsif: submitted jaxsif-jobs/train.sbatch as job 4711; its output: train-4711.out\n"
    assert capsys.readouterr().err.startswith(first)


def test_the_output_is_in_the_folder_of_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxsif.commands.submit.check_slurm", lambda *_: None)
    monkeypatch.setattr("jaxsif.commands.submit._render", lambda *_: ("text\n", RunOptions(("x",))))
    monkeypatch.setattr("jaxsif.commands.submit.submit", lambda *_: "4711")
    arguments = build_parsers(("submit",))[()].parse_args(["submit", "--chdir", "pbt", "x"])
    call(arguments, {})
    assert capsys.readouterr().err.splitlines()[0].endswith("its output: pbt/x-4711.out")


@pytest.mark.parametrize(
    ("output", "warning"),
    [
        ("gone/x.out", "no folder gone here: unless Slurm can make it, the job ends without a message"),
        ("here", "here is a folder, and the job ends without a message: name a file in it, such as here/%j.out"),
        ("here/", "here/ is a folder, and the job ends without a message: name a file in it, such as here/%j.out"),
        ("here/x.out", ""),
        ("x.out", ""),
        ("%j/x.out", ""),
    ],
)
def test_a_wrong_folder_of_the_output_is_told(
    output: str, warning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("jaxsif.commands.submit.check_slurm", lambda *_: None)
    monkeypatch.setattr("jaxsif.commands.submit._render", lambda *_: ("text\n", RunOptions(("x",))))
    monkeypatch.setattr("jaxsif.commands.submit.submit", lambda *_: "4711")
    parser = argparse.ArgumentParser()
    add_options(parser)
    call(parser.parse_args(["-o", output, "python", "train.py"]), {})
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert told == ([f"jaxsif: warning: {warning}"] if warning else [])


@pytest.mark.parametrize(
    ("words", "output", "files"),
    [
        ([], "train-{}.out", "train-48.out, train-49.out, train-50.out"),
        (["--output=o-%A"], "o-{}", "o-48, o-49, o-50"),
        (["-o", "o"], "o", "o"),
    ],
)
def test_all_jobs_of_a_chain_are_named(
    words: list[str], output: str, files: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jaxsif.commands.submit.check_slurm", lambda *_: None)
    monkeypatch.setattr("jaxsif.commands.submit._render", lambda *_: ("text\n", RunOptions(("x",))))
    monkeypatch.setattr("jaxsif.commands.submit.draw_name", lambda: "abcdef")
    parser = argparse.ArgumentParser()
    add_options(parser)
    for as_json in ([], ["--json"]):
        ids = iter(("48", "49", "50"))
        monkeypatch.setattr("jaxsif.commands.submit.submit", lambda *_, ids=ids: next(ids))
        call(parser.parse_args(["--chain=3", *as_json, *words, "python", "train.py"]), {})
        done = capsys.readouterr()
        script = f"jaxsif-jobs/train-abcdef{'-2' if as_json else ''}.sbatch"
        lines = done.err.replace("train-abcdef-", "train-").splitlines()
        assert lines[-1] == "jaxsif: its state: squeue --job=48,49,50; to end it: scancel 48 49 50"
        assert lines[-2].endswith(f" as jobs 48, 49, 50; its output: {files}")
        if not as_json:
            assert done.out == "50\n"
            continue
        jobs = [
            {"job": job, "output": output.replace("train-", "train-abcdef-").format(job)} for job in ("48", "49", "50")
        ]
        assert json.loads(done.out) == {**jobs[-1], "script": script, "jobs": jobs}


def find_run(*words: str) -> tuple[list[str], bool]:
    """The command that a script calls, in words, and whether Slurm may requeue its job."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = vars(parser.parse_args([*words, "python", "train.py"]))
    lines = _find_run(options)
    return [word for line in lines for word in line], options["requeue"]


@pytest.mark.parametrize(
    ("words", "passed", "requeue"),
    [
        (["--nodes=2"], [], False),
        (["--requeue"], ["--max-requeues=100"], True),
        (["--max-requeues=3", "--nodes=2", "--time=1:00"], ["--max-requeues=3"], True),
        (["--chain=3"], ["--max-requeues=0"], False),
        (["--max-restarts=2", "--on-hang=restart"], ["--on-hang=restart", "--max-restarts=2"], False),
        (["--requeue", "--no-stage", "--label"], ["--no-stage", "--max-requeues=100", "--label"], True),
        (["--requeue", "--env=MY_TOKEN=s3cr3t", "--env=B"], ["--env=MY_TOKEN", "--env=B", "--max-requeues=100"], True),
        (["--requeue", "--env=A=1", "--env=B"], ["--env=A=1", "--env=B", "--max-requeues=100"], True),
    ],
)
def test_what_a_script_calls_that_goes_on(words: list[str], passed: list[str], requeue: bool) -> None:
    found, may_requeue = find_run(*words)
    assert (found[found.index("run") + 1 :] if passed else found) == passed
    assert may_requeue is requeue


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--on-hang=stop"], "--on-hang needs jaxsif run in the job"),
        (["--checkpoints=ck"], "--checkpoints needs jaxsif run in the job"),
        (["--chain=2", "--requeue"], "--chain excludes arrays and requeues"),
        (["--requeue", "--task-output=%t"], "--task-output is for scripts without jaxsif"),
        (["--chain=2", "--array=0-1"], "--chain excludes arrays and requeues"),
        (
            ["--max-restarts=2", "--spare-nodes=1", "--ntasks=8"],
            "--ntasks does not say how many tasks a node gets",
        ),
    ],
)
def test_options_that_a_script_cannot_have(words: list[str], what: str) -> None:
    with pytest.raises(JaxsifError, match=f"^{what}$"):
        find_run(*words)


def test_names_of_jobs() -> None:
    assert [name_jobs(["1"]), name_jobs(["1", "2"])] == ["job 1", "jobs 1, 2"]
