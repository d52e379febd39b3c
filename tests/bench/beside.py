"""Two revisions of jaxsif side by side in the cluster in a box: is the second one slower?

    build/venv/bin/python tests/bench/beside.py FIRST [SECOND] [--only NAME] [--pairs N]

FIRST and SECOND are commits; SECOND is the working tree unless given. Both are installed below /sw/beside, each by
its own Makefile and installer, with one image. `beside.py HEAD HEAD` shows the noise of this machine. What is
measured, in one job:

    launch     `jaxsif run -- true` in one task, 100 pairs
    start      `import jax` and initialize() in 4 tasks on 2 nodes, 20 pairs
    training   a step of slurm/train in 2 processes on 2 nodes, as the program itself measures it, 20 pairs

Pairs are run in the order first, second, second, first, so that a drift of the machine favours neither. Printed are
the median of the ratios of the pairs, second over first, and its interval, which holds the true median in at least 95
of 100 measurements, whatever the noise looks like. "Not slower": the interval begins at 1.03 or below.

exit status: 0 not slower, 1 slower in one measure at least, 2 something failed
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

BOUND = 1.03
CONFIDENCE = 0.95
PREFIX = "/sw/beside"
SIDES = ("first", "second")
ORDER = ("first", "second", "second", "first")
# For bash in the sandbox: each revision by its own installer, with the image that is there already.
PYTHON = "/usr/bin/python3"  # of the nodes, which runs both
# What makes the libraries that an installer copies; the newest Makefile has the first of these targets, older ones the
# second, and the oldest installer needs none.
LIBRARIES = ("build/launcher-lib/{}", "build/launcher-lib")
INSTALL = f"""\
set -e
for side in {" ".join(SIDES)}; do
    prefix={PREFIX}/$side
    rm -rf $prefix && mkdir -p $prefix/jaxsif/images
    ln -s /sw/jaxsif/images/*-cpu.sif $prefix/jaxsif/images
    build/beside/$side/modulefiles/install $prefix cpu {PYTHON}
done
"""


class Measure(NamedTuple):
    """What is run, and how its time is found."""

    words: str  # behind `jaxsif run`
    pairs: int
    read: Callable[[str], float] | None = None  # seconds, from what it prints; None: those of the whole command


def read_step(said: str) -> float:
    """Return the seconds of a step that slurm/train prints, among lines of Gloo."""
    line = next(line for line in said.splitlines() if line.endswith("}"))
    return float(json.loads(line[line.index("{") :])["step_seconds"])


MEASURES = {
    "launch": Measure("--nodes=1 --ntasks=1 -- true", 100),
    "start": Measure("--nodes=2 --ntasks=4 -- python start.py", 20),
    "training": Measure(
        "--nodes=2 --ntasks=2 --layer=train -- "
        "python train/train.py --json --width 512 --depth 4 --batch 512 --steps 20",
        20,
        read_step,
    ),
}


def main() -> int:
    """Install both revisions, and measure in the cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", metavar="FIRST", help="a commit")
    parser.add_argument("second", metavar="SECOND", nargs="?", help="another one (the working tree)")
    parser.add_argument("--only", metavar="NAME", choices=MEASURES, help="only this measure: launch, start or training")
    parser.add_argument("--pairs", metavar="N", type=int, help="so many pairs of each, 6 or more")
    arguments = parser.parse_args()
    pairs = {
        name: arguments.pairs or measure.pairs for name, measure in MEASURES.items() if arguments.only in (None, name)
    }
    if min(pairs.values()) < 6:
        parser.error("fewer than 6 pairs have no interval of 95 %")
    root = Path(__file__).resolve().parents[2]
    for side, revision in zip(SIDES, (arguments.first, arguments.second)):
        tree = f"{revision}^{{tree}}" if revision else write_working_tree(root)
        extract(root, tree, root / "build/beside" / side)
    minicluster = str(root / "tests/cluster/minicluster")
    sandbox = [minicluster, "sandbox", "--"]
    version = check([*sandbox, PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], cwd=root).strip()
    for side in SIDES:
        prepare(root / "build/beside" / side, version)
    # By the older revision, usually the first: it may not know what a newer one writes.
    first = f"rm -rf /sw/bench\nJAXSIF=$(ls {PREFIX}/{SIDES[0]}/jaxsif/*/bin/jaxsif)\n"
    layer = first + (root / "tests/bench/layer.sh").read_text() if "training" in pairs else ""
    check([*sandbox, "bash", "-c", INSTALL + layer], cwd=root)
    print(f"first: {arguments.first}   second: {arguments.second or 'the working tree'}", flush=True)
    job = "exec salloc --quiet --nodes=2 --ntasks-per-node=2 python3 - inside " + "'" + json.dumps(pairs) + "'"
    argv = [minicluster, "exec", "--", "bash", "-lc", job]
    return subprocess.run(argv, input=Path(__file__).read_bytes(), check=False).returncode


def write_working_tree(root: Path) -> str:
    """Return the tree object of all files that git would add, without touching the index."""
    index = root / "build/beside.index"
    environ = {**os.environ, "GIT_INDEX_FILE": str(index)}
    index.unlink(missing_ok=True)
    check(["git", "read-tree", "HEAD"], cwd=root, env=environ)
    check(["git", "add", "--all"], cwd=root, env=environ)
    tree = check(["git", "write-tree"], cwd=root, env=environ).strip()
    index.unlink()
    return tree


def extract(root: Path, tree: str, folder: Path) -> None:
    """Put the files of a tree into `folder`, with the environment and the images of this checkout."""
    check(["rm", "-rf", str(folder)])
    folder.mkdir(parents=True)
    check(["git", "archive", f"--output={folder}.tar", tree], cwd=root)
    # -m and touch: older than all that is built, so that make does not build it again.
    check(["tar", "-xmf", f"{folder}.tar", "-C", str(folder)])
    check(["find", str(folder), "-exec", "touch", "-d", "2000-01-01", "{}", "+"])
    Path(f"{folder}.tar").unlink()
    (folder / "build").mkdir()
    for name in ("venv", "images"):
        (folder / "build" / name).symlink_to(f"../../../{name}")


def prepare(folder: Path, version: str) -> None:
    """Make the libraries of a tree's launcher, where its Makefile knows how, for this version of Python."""
    for target in (name.format(version) for name in LIBRARIES):
        # With --question, 2 stands for a target that it does not know.
        if subprocess.run(["make", "--question", target], cwd=folder, capture_output=True, check=False).returncode != 2:
            check(["make", "--silent", target], cwd=folder)
            return


def inside(pairs: Mapping[str, int]) -> int:
    """In the job: measure, print, and return the exit status."""
    environs = {side: load_module(side) for side in SIDES}
    home = environs["second"]["JAXSIF_HOME"]
    slower = False
    with tempfile.TemporaryDirectory(dir=os.environ["HOME"]) as folder:
        os.chdir(folder)
        check(["cp", "-r", f"{home}/slurm/train", folder])
        Path("start.py").write_text("import jax\njax.distributed.initialize()\n")
        for name, number in pairs.items():
            slower |= report(name, take_turns(MEASURES[name], environs, number // 2))
    return int(slower)


def load_module(side: str) -> dict[str, str]:
    """Return the environment in which a revision runs."""
    script = f"module use {PREFIX}/{side}/modulefiles && module load jax/sif && exec env -0"
    lines = check(["bash", "-lc", script]).split("\0")
    # The layer `train` is in /sw/bench.
    return {**dict(line.split("=", 1) for line in lines if "=" in line), "XDG_DATA_HOME": "/sw/bench"}


def take_turns(
    measure: Measure, environs: Mapping[str, Mapping[str, str]], turns: int
) -> list[dict[str, tuple[float, float]]]:
    """Return the two times of each side in each turn."""
    found = []
    for number in range(turns + 1):
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for side in ORDER if number else SIDES:
            times[side].append(take(measure, environs[side]))
        if number:  # the first turn fills caches
            found.append({side: (times[side][0], times[side][1]) for side in SIDES})
    return found


def take(measure: Measure, environ: Mapping[str, str]) -> float:
    """Return the seconds of one run."""
    begin = time.perf_counter()
    said = check([f"{environ['JAXSIF_HOME']}/bin/jaxsif", "run", *measure.words.split()], env=environ)
    return measure.read(said) if measure.read else time.perf_counter() - begin


def report(name: str, turns: Sequence[Mapping[str, Sequence[float]]]) -> bool:
    """Print a line; return whether the second side is slower."""
    ratio, low, high = summarize(turns)
    medians = (
        f"{side} {statistics.median(time for times in turns for time in times[side]) * 1e3:.1f} ms" for side in SIDES
    )
    slower = low > BOUND
    interval = f"ratio {ratio:.3f}, from {low:.3f} to {high:.3f}"
    verdict = f"{2 * len(turns)} pairs: {'slower' if slower else 'not slower'}"
    print("   ".join((f"{name:7}", *medians, interval, verdict)), flush=True)
    return slower


def summarize(turns: Sequence[Mapping[str, Sequence[float]]]) -> tuple[float, float, float]:
    """Return the median of the ratios, second over first, and its interval."""
    return find_interval([b / a for times in turns for a, b in zip(times["first"], times["second"])])


def find_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of at least 6 values, and its interval by order statistics: the noise may have any shape."""
    ordered, number = sorted(values), len(values)
    cut, tail = 0, 0.5**number  # tail: the chance that the true median is below ordered[cut]
    while tail <= (1 - CONFIDENCE) / 2:
        cut += 1
        tail += math.comb(number, cut) * 0.5**number
    return statistics.median(ordered), ordered[cut - 1], ordered[number - cut]


def check(argv: Sequence[str], **where: Any) -> str:
    """Return what a command prints that must succeed."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **where)
    if done.returncode:
        print(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
        sys.exit(2)
    return str(done.stdout)


if __name__ == "__main__":
    sys.exit(inside(json.loads(sys.argv[2])) if sys.argv[1:2] == ["inside"] else main())
