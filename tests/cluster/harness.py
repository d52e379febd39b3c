"""What the cluster tests share: commands in the cluster in a box."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
MINICLUSTER = HERE / "minicluster"
PROGRAMS = HERE / "programs"
_PORTS = 20  # of one run
_FIRST_PORTS = itertools.cycle(range(61_000, 65_000, _PORTS))


class Cluster:
    """Runs commands in the cluster in a box, or in another one, which MINICLUSTER_* in `environ` name."""

    def __init__(self, **environ: str) -> None:
        self.environ = {**os.environ, **environ}

    def start(self, command: str | Sequence[str], *, node: str = "login", user: str = "user") -> subprocess.Popen[str]:
        """Start a bash script (a string; with a login shell's functions) or an argument vector on `node` as `user`."""
        argv = ["bash", "-lc", command] if isinstance(command, str) else list(command)
        return subprocess.Popen(
            [MINICLUSTER, "exec", "--node", node, "--user", user, "--", *argv],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, command: str | Sequence[str], *, stdin: str = "", timeout: float = 120, **where: str
    ) -> subprocess.CompletedProcess[str]:
        """As `start`, to its end; raises subprocess.TimeoutExpired."""
        with self.start(command, **where) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except BaseException:
                # The whole group: killing nsenter alone leaves the command behind, which keeps the pipes open.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def check(self, command: str | Sequence[str], **options: object) -> str:
        """As `run`, for a command that must succeed; return its standard output."""
        done = self.run(command, **options)  # type: ignore[arg-type]
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file in the cluster, as the user."""
        self.check(["tee", path], stdin=text)

    def submit(self, folder: str, script: str, log: str) -> str:
        """Submit a job script from `folder`, wait for the job's end, and return its log; the job must succeed.

        Asking is faster than `sbatch --wait`, which looks every few seconds.
        """
        job = self.check(f"cd {folder} && sbatch --parsable --time=2 {script}").strip()
        self.check(f"while squeue --noheader --jobs={job} | grep -q .; do sleep 0.2; done", timeout=200)
        output = self.check(f"cat {folder}/{log}")
        assert "ExitCode=0:0" in self.check(f"scontrol show job {job}"), output
        return output

    def steps(self) -> list[str]:
        """The names of the user's steps that run now, such as 12.0."""
        return self.check("squeue --steps --noheader --format=%i").split()

    def wait_completed(self) -> None:
        """Wait until no node is completing: a job that has ended keeps its nodes for a moment."""
        completing = "sinfo --noheader --states=completing --format=%n | grep -q ."
        self.check(f"for i in $(seq 100); do {completing} || break; sleep 0.2; done")

    def wait_steps(self, number: int, timeout: float = 20) -> float:
        """Wait until `number` steps run; return the seconds that it took. Raises TimeoutError."""
        begin = time.monotonic()
        while len(self.steps()) != number:
            if time.monotonic() > begin + timeout:
                raise TimeoutError(f"{self.steps()} run after {timeout} s, not {number} steps")
            time.sleep(0.05)
        return time.monotonic() - begin


def names_in(program: str, table: str) -> list[str]:
    """The names in a table of functions of a program, which cannot be imported here."""
    tree = ast.parse((PROGRAMS / program).read_text())
    made = (one for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == table)
    return [one.id for one in ast.walk(next(made).value) if isinstance(one, ast.Name)]


def sandbox(script: str) -> None:
    """Execute a bash script in the cluster's own system, on the host's network; /sw can be written there."""
    done = subprocess.run([MINICLUSTER, "sandbox", "--", "bash", "-ec", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def jaxsif_run(*argv: str) -> str:
    """The bash script that loads the module and executes `jaxsif run` with exactly these arguments."""
    return f"module load jax/sif && exec jaxsif run {shlex.join(argv)}"


def own_ports() -> str:
    """The option for a coordinator's port that no run beside this one is given.

    From all ports two runs in some thousand draw the same.
    """
    first = next(_FIRST_PORTS)
    return f"--coordinator-ports={first}-{first + _PORTS - 1}"


def program_lines(text: str) -> list[str]:
    """The lines that programs printed, sorted, without those of Gloo and of the runtime.

    Two threads of Gloo write their lines in pieces, the last of which is the number of peers: a line of its own where
    they mix. Under `srun -u` each task writes to a terminal, so lines may end in CR LF.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    pieces = {"", *re.findall(r"(?:connected to|ranks is :) (\d+)", text)}
    return sorted(line for line in lines if line not in pieces and not re.search(r"Gloo|peer ranks|^INFO: ", line))


def processes_left(cluster: Cluster, program: str) -> str:
    """What is still there of a run: `program`, a pattern that does not match itself, and what serves it.

    Daemons of launchers need a moment to end.
    """
    find = f"pgrep -fa '{program}|[p]rted|[a]pptainer|[s]quashfuse'"
    script = f"for i in $(seq 20); do found=$({find}) || exit 0; sleep 0.1; done; echo $found"
    return "".join(cluster.check(["sh", "-c", script], node=node) for node in ("login", "node1", "node2"))
