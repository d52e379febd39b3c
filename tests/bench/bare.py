"""JAX by jaxsif run beside bare processes: the packages of the same image and layer, unpacked on the node's own disk.

    build/venv/bin/python tests/bench/bare.py start ROUNDS
    build/venv/bin/python tests/bench/bare.py steps ROUNDS

The ways take turns, ROUNDS times each, in one job of the cluster in a box. `start`: `import jax` in all tasks of one
node, and of 4; also by the plain way, which is the image of plain.def (gzip) and one container a task. `steps`: an
all-reduce of 64 MiB and a training step in 2 processes on 2 nodes, as the programs themselves measure them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Measured = TypeVar("Measured")

PLAIN = "/sw/bench-plain.sif"
LOCAL = "/var/tmp/bench"  # on each node
DATA = "/sw/bench"  # has the layer, see layer.sh
UNPACK = f"""\
rm -rf {LOCAL}
offset=$(apptainer sif list "$JAX_IMAGE" | sed -n 's/.*|\\([0-9]*\\)-[0-9]* *|FS.*/\\1/p')
unsquashfs -quiet -no-progress -no-xattrs -dest {LOCAL} -offset "$offset" "$JAX_IMAGE"
rm {LOCAL}/opt/jax/lib/python3.*/site-packages/jaxsif.pth
for layer in {DATA}/jaxsif/layers/*.sqfs; do
    [ -e "$layer" ] || continue # none was made
    unsquashfs -quiet -no-progress -no-xattrs -force -dest {LOCAL} "$layer"
done
"""
PYTHON = f"{LOCAL}/opt/jax/bin/python"
# Nodes -> what `jaxsif run --stage` may take until the last task has JAX, beside another way.
START_BOUNDS = {1: (1.10, "no container"), 4: (1 / 2.5, "plain way")}
BOUND = 1.03
# Program -> its words, and what it says of its time.
PROGRAMS: dict[str, tuple[str, Callable[[str], float]]] = {
    "all-reduce of 64 MiB": (
        f"inside/collectives.py all-reduce {64 << 20} 30 1 1024",
        lambda said: next(one["time"] for one in read_lines(said) if one["record"] == "operation"),
    ),
    "training step": (
        "train/train.py --json --width 512 --depth 4 --batch 512 --steps 40",
        lambda said: read_lines(said)[0]["step_seconds"],
    ),
}


def outside(kind: str, rounds: str) -> None:
    """On this machine: make what the cluster needs, and measure in it."""
    minicluster = str(Path(__file__).resolve().parents[2] / "tests/cluster/minicluster")
    if kind == "start":
        subprocess.run([minicluster, "sandbox", "--", "cp", str(build_plain()), PLAIN], check=True)
        layout = "--nodes=4 --ntasks-per-node=8"
    else:
        layer = Path(__file__).with_name("layer.sh").read_text()
        subprocess.run([minicluster, "sandbox", "--", "bash", "-c", layer], check=True)
        layout = "--nodes=2 --ntasks-per-node=1"
    job = f"module load jax/sif && exec salloc --quiet {layout} python3 - inside {kind} {rounds}"
    program = Path(__file__).read_bytes()
    sys.exit(subprocess.run([minicluster, "exec", "--", "bash", "-lc", job], input=program, check=False).returncode)


def build_plain() -> Path:
    """The image of plain.def, unless it is there."""
    from image import plain_argv

    source = Path(__file__).resolve().parents[2]
    image = source / "build/bench-plain/cpu.sif"
    if not image.exists():
        print("building the plain image", flush=True)
        image.parent.mkdir(parents=True, exist_ok=True)
        argv, variables = plain_argv("cpu", "apptainer", image, os.environ)
        subprocess.run(argv, env={**os.environ, **variables}, check=True, cwd=source)
    return image


def inside(kind: str, rounds: int) -> int:
    """In the job."""
    nodes = os.environ["SLURM_JOB_NUM_NODES"]
    done = run(["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "bash", "-c", UNPACK])
    print(done, end="")
    return measure_steps(rounds) if kind == "steps" else measure_start(rounds)


def measure_start(rounds: int) -> int:
    """`import jax`: until it is done in all tasks, and until they have ended, too; returns 1 where it is too slow."""
    slow = False
    program = ("python", "-c", "import jax, time; print(time.time())")
    for nodes in (1, 4):
        srun = ["srun", f"--nodes={nodes}", f"--ntasks={8 * nodes}"]
        ours = ["jaxsif", "run", f"--nodes={nodes}", "--ntasks-per-node=8"]
        ways = {
            "no container": [*srun, PYTHON, *program[1:]],
            "jaxsif run": [*ours, "--", *program],
            "jaxsif run --stage": [*ours, "--stage", "--", *program],
            "a container a task": [*srun, "apptainer", "--quiet", "run", os.environ["JAX_IMAGE"], *program],
            "plain way": [*srun, "apptainer", "--quiet", "exec", PLAIN, *program],
        }
        turns = take_turns(ways, rounds, start_times)
        for number, until in enumerate(("until the last task has it", "until all have ended")):
            medians = {name: statistics.median(times[number] for times in all_) for name, all_ in turns.items()}
            print(f"import jax in {8 * nodes} tasks on {nodes} node(s), {until}; median of {rounds} turns")
            for name, middle in medians.items():
                bare, plain = middle / medians["no container"], medians["plain way"] / middle
                print(f"  {name:20} {middle:6.2f} s   {bare:5.2f} x no container   1/{plain:.2f} of plain", flush=True)
            bound, other = START_BOUNDS[nodes]
            slow |= number == 0 and medians["jaxsif run --stage"] > bound * medians[other]
    return slow


def start_times(argv: Sequence[str]) -> tuple[float, float]:
    """Seconds from the start of a command to the last time that a task prints, and to the end."""
    begin = time.time()
    said = run(argv)
    return max(map(float, said.split())) - begin, time.time() - begin


def measure_steps(rounds: int) -> int:
    """Steps of programs that run as they would without us; returns 1 when one is slower than the bound."""
    folder = subprocess.check_output(["mktemp", "-d", "-p", os.environ["HOME"]], text=True).strip()
    home = os.environ["JAXSIF_HOME"]
    run(["cp", "-r", f"{home}/lib/jaxsif/bench/inside", f"{home}/slurm/train", folder])
    os.chdir(folder)
    os.environ["XDG_DATA_HOME"] = DATA
    worst = 0.0
    for name, (words, read) in PROGRAMS.items():
        ways = {
            "jaxsif run": ["jaxsif", "run", "--layer=train", "--", "python", *words.split()],
            "bare": ["srun", "--ntasks=2", PYTHON, *words.split()],
        }
        turns = take_turns(ways, rounds, lambda argv, read=read: read(run(argv)))
        medians = {way: statistics.median(times) for way, times in turns.items()}
        ratio = medians["jaxsif run"] / medians["bare"]
        worst = max(worst, ratio)
        times = "   ".join(f"{way} {middle * 1e3:.2f} ms" for way, middle in medians.items())
        print(f"{name:22} {times}   ratio {ratio:.3f} (bound: {BOUND})   {rounds} turns", flush=True)
    run(["rm", "-r", folder])
    return worst > BOUND


def take_turns(
    ways: Mapping[str, Sequence[str]], rounds: int, measure: Callable[[Sequence[str]], Measured]
) -> dict[str, list[Measured]]:
    """What is measured of each way, by turns; who is first changes: a drift of the machine favours none."""
    found: dict[str, list[Measured]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            measured = measure(ways[name])
            if number:  # the first round fills the caches
                found[name].append(measured)
    return found


def run(argv: Sequence[str]) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{argv}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def read_lines(said: str) -> list[dict]:
    """The lines of JSON, among those of Gloo."""
    return [json.loads(line[line.index("{") :]) for line in said.splitlines() if line.endswith("}")]


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        sys.exit(inside(sys.argv[2], int(sys.argv[3])))
    outside(*sys.argv[1:])
