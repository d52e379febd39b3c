"""What a person sees on a terminal: with one task, all when it is printed; with several, whole lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from harness import PROGRAMS, Cluster, jaxsif_run
from terminal import Terminal

WAYS = {
    "srun": ("--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=1"),
    "srun, one container a task": ("--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=1", "--containers=task"),
    "srun's default": (),
    "local": ("--launcher=local", "--gpus-per-node=1"),
}
LIVE = "/home/user/live.py"


@pytest.fixture(scope="module", autouse=True)
def _program(cluster: Cluster) -> None:
    cluster.write(LIVE, (PROGRAMS / "live.py").read_text())


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    return request.param


@pytest.mark.core
def test_a_progress_bar_moves(cluster: Cluster, way: tuple[str, ...]) -> None:
    terminal = Terminal(jaxsif_run(*way, "--", "python", LIVE, "bar"))
    assert terminal.end() == 0
    seen = [(when, part) for when, data in terminal.pieces for part in re.findall(rb"(\d+)%\|", data)]
    assert len(seen) == 101, terminal.text
    times = sorted({when for when, _ in seen})
    assert times[-1] - times[0] > 2.5  # of three seconds
    assert len(times) > 20  # not in a few lumps
    assert "jaxsif {" not in terminal.text


def test_the_debugger_can_be_used(cluster: Cluster, way: tuple[str, ...]) -> None:
    terminal = Terminal(jaxsif_run(*way, "--", "python", LIVE, "debug"))
    terminal.expect(r"\(Pdb\) $")
    terminal.type("p answer + 1\n")
    terminal.expect(r"43\r\n\(Pdb\) $")
    terminal.type("answer = 1\nc\n")
    assert terminal.end() == 0
    assert "the answer was 1\r\n" in terminal.text


def test_the_size_of_the_terminal_is_known(cluster: Cluster, way: tuple[str, ...]) -> None:
    terminal = Terminal(jaxsif_run(*way, "--", "python", LIVE, "size"))
    assert terminal.end() == 0, terminal.text
    assert "size 100 30 100\r\n" in terminal.text


def test_lines_of_several_tasks_stay_whole(cluster: Cluster) -> None:
    tasks, count = 8, 100_000
    options = ("--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4")
    terminal = Terminal(jaxsif_run(*options, "--", "python", LIVE, "lines", str(count)))
    assert terminal.end() == 0
    found = Counter(re.findall(r"(?m)^task (\d) line (\d{6}) (x*)\.\r$", terminal.text))
    wanted = {(str(task), f"{number:06d}", "x" * (number % 60)) for task in range(tasks) for number in range(count)}
    lines = terminal.text.splitlines()
    cut = [line for line in lines if "task" in line and not re.fullmatch(r"task \d line \d{6} x*\.", line)]
    assert cut == []
    assert found == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("way", [(), ("--launcher=local", "--gpus-per-node=0")], ids=["srun", "local"])
def test_a_full_disk_under_the_output_ends_no_run(cluster: Cluster, folder: str, way: tuple[str, ...]) -> None:
    """What the program prints is lost, as with a bare srun, but not the program, its status, or the reason."""
    text = "import sys\nfor n in range(3): print('lost', n, file=sys.stderr, flush=True)\nopen('done', 'w')\n"
    for status in (0, 3):
        cluster.write(f"{folder}/warn.py", f"{text}sys.exit({status})\n")
        run = jaxsif_run(*way, "--", "python", "warn.py")
        done = cluster.run(f"cd {folder} && rm -f done; {run} 2>/dev/full; status=$?; [ -e done ] && exit $status")
        assert done.returncode == status, done.stderr
        shown = cluster.check("module load jax/sif && jaxsif history show --json")
        assert json.loads(shown)["status"] == status, shown
    lost = cluster.run(f"cd {folder} && {jaxsif_run(*way, '--label', '--', 'python', '-c', 'print(1)')} >/dev/full")
    assert "standard output is written to is full, and the end of the output may be lost" in lost.stderr
    if way:  # else srun itself writes there, and says nothing
        assert "jaxsif: warning: not all of standard output could be written: No space left" in lost.stderr
    assert lost.returncode == 0, lost.stderr
