"""What start.sh does before the program begins: what it tells of the step, and the run's key."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.tasks import run_task

import jaxsif
from jaxsif.diagnose.reports import ReportFilter, find_start
from jaxsif.job.nodelist import expand

pytestmark = pytest.mark.starts_processes

START = Path(jaxsif.__file__).parent / "task/start.sh"
LONG = ",".join(f"rack{number}node[1-{number}]" for number in range(2, 300))


@pytest.mark.parametrize("nodes", ["", "node[1-2]", LONG[:600], LONG[:601], LONG[:1200], LONG], ids=len)
def test_all_nodes_of_the_step_are_told(nodes: str) -> None:
    """In lines that srun --label leaves whole."""
    environ = {"PATH": os.environ["PATH"], "JAXSIF_REPORT": "2c3d:4e5f", "SLURM_STEP_NODELIST": nodes}
    step = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "rack2node1"}
    done = subprocess.run(["sh", START, "true"], env={**environ, **step}, capture_output=True, check=True)
    assert max(map(len, done.stderr.splitlines())) < 1000
    seen = ReportFilter(("2c3d", "4e5f"))
    assert seen.feed(done.stderr) == b""
    found = find_start(seen.reports)
    assert (found.step, found.nodes) == ("12.0", nodes)


def test_such_a_list_is_understood() -> None:
    assert len(expand(LONG)) == sum(range(2, 300))


SHOW = "ls -l /proc/self/fd; echo =; timeout 1 cat $JAXSIF_CREDENTIALS; echo =; env"


def test_a_key_goes_into_a_pipe_and_out_of_the_environment() -> None:
    environ = {"PATH": os.environ["PATH"], "SLURM_PROCID": "3", "JAXSIF_CREDENTIALS": "---BEGIN,MHcC,A/+="}
    done = subprocess.run(["sh", START, "sh", "-c", SHOW], env=environ, capture_output=True, check=True, text=True)
    descriptors, kept, variables = done.stdout.split("=\n", 1)[0], *done.stdout.split("=\n", 1)[1].rsplit("\n=\n", 1)
    assert " 6 -> " not in descriptors
    assert kept == "---BEGIN,MHcC,A/+="
    assert "MHcC" not in variables
    assert "JAXSIF_CREDENTIALS=/proc/" in variables


def test_credentials_of_a_run_around_this_one_are_gone() -> None:
    environ = {"PATH": os.environ["PATH"], "JAXSIF_CREDENTIALS": "/proc/1/fd/6"}
    done = subprocess.run(["sh", START, "env"], env=environ, capture_output=True, check=True, text=True)
    assert "JAXSIF_CREDENTIALS" not in done.stdout


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"SLURM_TASK_PID": "{}"}, True),
        ({"A": "\n\ntwo\n", "SLURM_TASK_PID": "{}", "Z": "0\n"}, True),
        ({"SLURM_TASK_PID": "{}0"}, False),
        ({"SLURM_TASK_PID": "1"}, False),
        ({}, False),
    ],
    ids=["its own", "between lines", "longer", "another task's", "none"],
)
def test_only_processes_of_the_task_are_its_own(shell: str, variables: dict[str, str], found: bool) -> None:
    """As start.sh finds them among those of its process group; here, the task is this process."""
    own = {name: value.format(os.getpid()) for name, value in variables.items()}
    body = START.read_text().partition("\nis_of_task() {")[2].partition("\n}\n")[0]
    environ = {**own, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["cat"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        os.write(child.stdin.fileno(), b"\n")
        child.stdout.read(1)  # while it was being executed, its environment would have been empty
        script = f"is_of_task() {{{body}\n}}\nis_of_task {child.pid}"
        done = subprocess.run([shell, "-c", script], check=False)
        gone = subprocess.run([shell, "-c", f"{script}0000000"], check=False, stderr=subprocess.DEVNULL)
        child.kill()
    assert (done.returncode == 0, gone.returncode == 0) == (found, False)


@pytest.mark.parametrize(("program", "status"), [("exit 3", 3), ("exit 0", 0), ("kill -KILL $$", 137)])
def test_output_is_copied_to_the_last_word(tmp_path: Path, program: str, status: int) -> None:
    environ = {"PATH": os.environ["PATH"], "SLURM_PROCID": "3", "JAXSIF_TASK_LOG": f"{tmp_path}/task-%t.2"}
    script = f"trap '' TERM; kill -TERM 0; printf 'out\\0'; printf err >&2; env | grep TASK_LOG; {program}"
    argv = ["sh", START, "sh", "-c", script]
    done = subprocess.run(argv, env=environ, capture_output=True, check=False, start_new_session=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"out\0", b"err")
    assert (tmp_path / "task-3.2.out").read_bytes() == b"out\0"
    assert (tmp_path / "task-3.2.err").read_bytes() == b"err"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_whole_log_brings_no_warning(tmp_path: Path, shell: str) -> None:
    """In whatever order the copies end."""
    environ = {"PATH": os.environ["PATH"], "JAXSIF_REPORT": "2c3d:4e5f", "JAXSIF_TASK_LOG": f"{tmp_path}/task-%t"}
    for program in (["true"], ["false"], ["sh", "-c", "exec >&-; sleep 0.05"], ["sh", "-c", "exec 2>&-; sleep 0.05"]):
        done = subprocess.run([shell, START, *program], env=environ, capture_output=True, check=False)
        assert b"warning" not in done.stderr


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "task-0.out").symlink_to("/dev/full")
    done = run_task("echo", "shown", JAXSIF_TASK_LOG=f"{tmp_path}/task-%t", SLURM_PROCID="0")
    assert done.err == b"jaxsif: warning: not all output is in the files of --log-dir (task 0 on node2)\n"
    assert done.out == b"shown\n"


def test_what_the_fabric_needs_is_named_with_a_remedy() -> None:
    needs = {"JAXSIF_FABRIC": "ib", "JAXSIF_FABRIC_NEEDS": "/dev/null /dev/no-such*"}
    environ = {"PATH": os.environ["PATH"], "JAXSIF_REPORT": "2c3d:4e5f", "SLURM_PROCID": "3", **needs}
    done = subprocess.run(["sh", START, "echo", "ran"], env=environ, capture_output=True, check=False)
    seen = ReportFilter(("2c3d", "4e5f"))
    assert (done.returncode, done.stdout, seen.feed(done.stderr)) == (125, b"", b"")
    [report] = seen.reports
    assert report.text == "no /dev/no-such* on this node, which the fabric ib needs"
    assert report.hint == "pass another --fabric, such as tcp, or --exclude=NODE; see jaxsif config profile.ib"
