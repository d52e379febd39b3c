"""What jaxsif promises, on this machine's GPU: each part is run, judged, and a row of a table.

    make gpu [PYTHON=PATH]
    PATH tests/bench/gpu.py [--only PART] [--output FILE] [--platform cpu]

It needs a GPU and a Python with JAX, and neither Slurm nor a container: `python -m jaxsif` of this tree starts the
programs by its local launcher, in that Python, on one GPU. The part `train` also needs Flax and optax. All parts take
ten minutes at most. FILE (build/gpu.json) has the table, and the facts from which each row was judged.

    doctor   `jaxsif doctor` finds no failure, sees the GPU, and JAX computes on it
    train    a step of slurm/train takes as long as without jaxsif
    watch    a step of 1 ms takes as long as without --hang-timeout and --check-programs
    census   two starts of one Pallas kernel, from other files and lines, have one digest
    hang     a program that computes on the device for ever is named: task and line
    memory   a program that asks for too much memory is named: task, line and remedy
    cache    a second start finds each program of the first one in the compile cache

In `train` and `watch` the two ways take turns. Their rows have the median of the ratios of the pairs and its interval,
see beside.py. `ok`: the median is in the bound, and the interval narrow. `not ok`: the whole interval is above the
bound. `unknown`: the noise of this machine hides which of them holds; in other rows, a fact could not be had here.

`--platform cpu` runs all parts on CPUs, to develop them. Its rows say nothing about a GPU.

exit status: 0 all parts are ok, 1 one at least is not ok or unknown, 3 no GPU, or no JAX
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bare import read_lines
from beside import BOUND, find_interval
from watch import BOUNDS, UNWATCHED, WATCHED

from jaxsif.files import write_file
from jaxsif.job.task_env import identify
from jaxsif.text import align

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().with_name("gpu_programs")
GPU, CPU = "gpu", "cpu"  # JAX's names
OK, NOT_OK, UNKNOWN = "ok", "not ok", "unknown"
RUNTIMES = ("apptainer", "singularity")
# Variables of a job or a site's module that would choose another launcher, layout or image.
FOREIGN = re.compile("SLURM|SRUN|JAXSIF_|JAX_COORDINATOR_|JAX_COMPILATION_CACHE|OMPI_|PMI")
START = 40  # seconds for JAX to name its devices
GRACE = 10  # seconds for jaxsif to end its tasks
FEWEST_PAIRS, MOST_PAIRS = 6, 20  # fewer have no interval of 95 %
WIDEST = 0.05  # of an interval; a wider one proves neither
HANG_TIMEOUT = 8  # seconds
WATCH_BOUND = 1 + BOUNDS["step"].most / BOUNDS["step"].unit
# A step of several milliseconds; on CPUs, one that ends soon.
TRAIN = {
    GPU: "--width 1024 --depth 4 --batch 1024 --steps 200",
    CPU: "--width 256 --depth 2 --batch 256 --steps 40",
}
STEPS = 3000  # of `watch`: the observer looks once a second
PROBE = """
import json, jax
device = jax.devices()[0]
print(json.dumps({"jax": jax.__version__, "platform": jax.default_backend(), "device": device.device_kind}))
"""

Facts = Mapping[str, Any]
Judgement = tuple[str, str]  # what was found, and one of OK, NOT_OK, UNKNOWN


class FailedError(Exception):
    """A program of a part has failed."""


class LateError(Exception):
    """A part has used up its time."""


class Done(NamedTuple):
    """A process that has ended."""

    status: int
    stdout: str
    stderr: str

    def check(self) -> str:
        """Return the standard output of a process that must succeed."""
        if self.status:
            lines = [line for line in self.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("jaxsif: error: ")]
            raise FailedError(f"exit status {self.status}: {(errors or lines or ['no message'])[-1]}")
        return self.stdout

    def read(self) -> Any:
        """Return the last line of JSON that a program has printed, among others."""
        found = read_lines(self.check())
        if not found:
            raise FailedError("the program printed no result")
        return found[-1]


class Machine(NamedTuple):
    """This machine, for one part."""

    platform: str
    folder: Path  # for this part's files
    environ: Mapping[str, str]
    end: float  # of the part's time

    def run(self, argv: Sequence[str], **variables: str) -> Done:
        """Run a process to its end; raise LateError when the part's time is over."""
        process = self.start(argv, **variables)
        try:
            out, err = process.communicate(timeout=max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise LateError from None
        finally:
            stop(process)
        return Done(process.returncode, out, err)

    def start(
        self, argv: Sequence[str], stderr: int | IO[str] = subprocess.PIPE, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a process."""
        environ = {**self.environ, **variables}
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def jaxsif(self, verb: str, *options: str, tasks: int = 1) -> list[str]:
        """Return the command line of jaxsif for so many tasks on one device."""
        layout = ["--launcher=local", f"--ntasks-per-node={tasks}"]
        if self.platform == GPU:
            layout += ["--gpus-per-node=1", *(["--share-gpus"] if tasks > 1 else [])]
        return [sys.executable, "-m", "jaxsif", verb, *layout, *options]

    def program(self, name: str, *words: str, options: Sequence[str] = (), tasks: int = 1) -> list[str]:
        """Return the command line of a program by jaxsif; a name is one of gpu_programs."""
        argv = self.jaxsif("run", "--no-history", *options, tasks=tasks)
        return [*argv, "--", sys.executable, str(PROGRAMS / name), *words]


def stop(process: subprocess.Popen[str]) -> None:
    """End a process that runs, and with it jaxsif's tasks."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# --- The parts: each produces facts, which are judged alone


def produce_doctor(machine: Machine) -> Facts:
    done = machine.run(machine.jaxsif("doctor", "--json"))
    try:
        results = json.loads(done.stdout)
    except ValueError:
        done.check()
        raise FailedError("jaxsif doctor printed no JSON") from None
    keys = ("check", "state", "evidence")
    return {"status": done.status, "results": [{key: result[key] for key in keys} for result in results]}


def judge_doctor(facts: Facts) -> Judgement:
    results = facts["results"]
    by_state = {state: [one for one in results if one["state"] == state] for state in ("ok", "warning", "unknown")}
    failures = [one for one in results if one["state"] == "failure"]
    if failures or facts["status"]:
        first = failures[0] if failures else {"check": "exit status", "evidence": str(facts["status"])}
        return f"{first['check']}: {first['evidence']}", NOT_OK
    found = f"{len(by_state['ok'])} checks ok"
    for state in ("warning", "unknown"):
        if by_state[state]:
            found += f"; {state}: {', '.join(sorted(one['check'] for one in by_state[state]))}"
    proven = {one["check"] for one in by_state["ok"]}
    return found, OK if {"gpus", "sum"} <= proven else UNKNOWN


def produce_train(machine: Machine) -> Facts:
    needs = machine.run([sys.executable, "-c", "import flax, optax"])
    if needs.status:
        return {"pairs": [], "lacks": f"no Flax or optax: {sys.executable} -m pip install flax optax"}
    words = (str(ROOT / "slurm/train/train.py"), "--json", *TRAIN[machine.platform].split())
    ways = {
        "without": [sys.executable, *words],
        "with": [*machine.jaxsif("run", "--no-history"), "--", sys.executable, *words],
    }
    # JAX needs these to be the only process of a step; jaxsif sets them itself.
    alone = identify(0, 1, ["localhost"], "1")
    platforms: list[str] = []

    def measure(way: str) -> float:
        found = machine.run(ways[way], **(alone if way == "without" else {})).read()
        platforms.append(found["platform"])
        return float(found["step_seconds"])

    return {"pairs": take_pairs(measure, machine.end), "platforms": sorted(set(platforms))}


def produce_watch(machine: Machine) -> Facts:
    first = machine.run([sys.executable, str(PROGRAMS / "step.py")]).read()
    ways = {"without": UNWATCHED, "with": WATCHED}
    platforms = [first["platform"]]

    def measure(way: str) -> float:
        argv = machine.program("step.py", str(first["size"]), str(STEPS), options=ways[way])
        found = machine.run(argv).read()
        platforms.append(found["platform"])
        return float(found["seconds"])

    pairs = take_pairs(measure, machine.end)
    return {"pairs": pairs, "size": first["size"], "platforms": sorted(set(platforms))}


def take_pairs(measure: Callable[[str], float], end: float) -> list[tuple[float, float]]:
    """Return pairs of seconds, without and with; as many as fit into the time. Who is first changes."""
    pairs = []
    for number in range(MOST_PAIRS + 1):
        begin = time.monotonic()
        order = ("without", "with") if number % 2 else ("with", "without")
        try:
            times = {way: measure(way) for way in order}
        except LateError:
            break
        if number:  # the first pair fills caches
            pairs.append((times["without"], times["with"]))
        if 2 * time.monotonic() - begin > end:  # no time for another one
            break
    return pairs


def judge_pairs(facts: Facts, bound: float) -> Judgement:
    """Judge the ratios of times with jaxsif to those without."""
    if "lacks" in facts:
        return facts["lacks"], UNKNOWN
    pairs = facts["pairs"]
    if len(pairs) < FEWEST_PAIRS:
        return f"time for {len(pairs)} pairs only", UNKNOWN
    ratio, low, high = find_interval([after / before for before, after in pairs])
    step = statistics.median(before for before, _ in pairs)
    found = f"ratio {ratio:.4f}, from {low:.4f} to {high:.4f}; {len(pairs)} pairs, step {step * 1e3:.2f} ms"
    if low > bound:
        return found, NOT_OK
    return found, OK if ratio <= bound and high - low <= WIDEST else UNKNOWN


def judge_train(facts: Facts) -> Judgement:
    return judge_pairs(facts, BOUND)


def judge_watch(facts: Facts) -> Judgement:
    return judge_pairs(facts, WATCH_BOUND)


def produce_census(machine: Machine) -> Facts:
    text = (PROGRAMS / "kernel.py").read_text()
    runs = []
    for name in ("first", "second"):
        folder = machine.folder / name
        folder.mkdir()
        # Other paths and other lines, which a kernel keeps.
        copy = folder / f"{name}.py"
        copy.write_text("\n" * len(runs) + text)
        runs.append(machine.run(machine.program(str(copy))).read())
    return {"runs": runs, "platforms": sorted({run["platform"] for run in runs})}


def judge_census(facts: Facts) -> Judgement:
    first, second = facts["runs"]
    if not (first["right"] and second["right"]):
        return "the kernel computes wrong numbers", NOT_OK
    if first["refused"] or not first["kernels"]:
        return f"no Pallas kernel here: {first['refused'] or 'JAX compiled it as other operations'}", UNKNOWN
    if first["digest"] == first["other"]:
        return f"another program has the same digest {first['digest']}", NOT_OK
    if first["digest"] != second["digest"]:
        return f"{first['digest']} and {second['digest']}, of {first['kernels'][0]}", NOT_OK
    differ = "are equal" if first["text"] == second["text"] else "differ"
    return f"{first['digest']} twice, of {first['kernels'][0]}; the texts {differ}", OK


def produce_hang(machine: Machine) -> Facts:
    """Follow standard error until the report of a wait is whole, or the time is over."""
    argv = machine.program("spin.py", options=[f"--hang-timeout={HANG_TIMEOUT}"], tasks=2)
    path, begin = machine.folder / "stderr", time.monotonic()
    with path.open("w") as file:
        process = machine.start(argv, file)
    try:
        while process.poll() is None and time.monotonic() < machine.end:
            if read_report(path.read_text()):
                break
            time.sleep(0.2)
        seconds, status = time.monotonic() - begin, process.poll()
        time.sleep(0.5)  # it has several lines
        lines = path.read_text().splitlines()
    finally:
        stop(process)
    if status is not None:
        raise FailedError(f"the program ended with status {status}: {lines[-1:]}")
    assert process.stdout
    platforms = read_platforms(process.stdout.read())
    report = read_report("\n".join(lines))
    return {"report": report, "seconds": seconds, "place": find_line("spin.py", "# spins"), "platforms": platforms}


def read_platforms(said: str) -> list[str]:
    """Return the platforms that programs have printed, among other lines."""
    return sorted(set(re.findall(r"(?m)^platform (\w+)$", said)))


def read_report(text: str) -> list[str]:
    """Return the groups of tasks of the last report of a wait, and whom it blames."""
    _, title, rest = text.rpartition("tasks have been waiting ")
    return re.findall("(?m)^jaxsif:   (.+)", rest) if title else []


def judge_hang(facts: Facts) -> Judgement:
    if not facts["report"]:
        return f"no report within {facts['seconds']:.0f} s", NOT_OK
    *groups, last = facts["report"]
    blamed = last.partition("likely: ")[2]
    groups += [] if blamed else [last]
    named = [line for line in groups if f" {facts['place']} " in line and re.search(r"\btask 1 on ", line)]
    found = re.sub(" {2,}", "; ", named[0]) if named else "; ".join(facts["report"])
    if not named or (blamed and not blamed.startswith("task 1 ")):
        return f"{found} (blamed: {blamed or 'none'})", NOT_OK
    return f"{found}, after {facts['seconds']:.0f} s", OK


def produce_memory(machine: Machine) -> Facts:
    done = machine.run(machine.program("full.py"))
    error = [line for line in done.stderr.splitlines() if line.startswith(("jaxsif: error:", "  from: ", "  try:  "))]
    return {
        "status": done.status,
        "error": error,
        "allocated": "allocated" in done.stdout.splitlines(),
        "place": find_line("full.py", "# too large"),
        "platforms": read_platforms(done.stdout),
    }


def judge_memory(facts: Facts) -> Judgement:
    if facts["allocated"]:
        return "the device gave four times its memory", UNKNOWN
    text, where, remedy = (
        next((line[len(begin) :] for line in facts["error"] if line.startswith(begin)), "")
        for begin in ("jaxsif: error: ", "  from: ", "  try:  ")
    )
    if "RESOURCE_EXHAUSTED" not in text:
        return f"status {facts['status']}: {text or 'no error'}", NOT_OK
    lacks = [
        name
        for name, holds in (
            ("the task", text.startswith("task 0 on ")),
            ("the line", where.endswith(f"/{facts['place']}")),
            ("a remedy", bool(remedy)),
        )
        if not holds
    ]
    if lacks:
        return f"the error lacks {', '.join(lacks)}: {text} ({where or 'nowhere'})", NOT_OK
    return f"{' '.join(text.split()[:4])} at {facts['place']}: {remedy}", OK


def produce_cache(machine: Machine) -> Facts:
    folder = machine.folder / "cache"
    starts = []
    for _ in range(2):
        found = machine.run(
            machine.program("cached.py"),
            JAX_COMPILATION_CACHE_DIR=str(folder),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        ).read()
        starts.append({**found, "keys": sorted(path.name for path in folder.glob("*-cache"))})
    return {"starts": starts, "platforms": sorted({start["platform"] for start in starts})}


def judge_cache(facts: Facts) -> Judgement:
    first, second = facts["starts"]
    if not first["keys"]:
        return "the first start kept no program", NOT_OK
    new = len(set(second["keys"]) - set(first["keys"]))
    found = f"{second['hits']} of {first['asked']} programs found, {new} new keys"
    return found, OK if second["hits"] == second["asked"] == first["asked"] and not new else NOT_OK


def find_line(program: str, mark: str) -> str:
    """Return FILE:LINE of the line of a program that has a mark."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return f"{program}:{next(number for number, line in enumerate(lines, 1) if mark in line)}"


class Part(NamedTuple):
    """A part: what is run, how it is judged, and the seconds that it may take."""

    name: str
    limit: int
    bound: str
    needs: Sequence[str]  # the facts without which nothing is known
    produce: Callable[[Machine], Facts]
    judge: Callable[[Facts], Judgement]


PARTS = (
    Part("doctor", 55, "no failure; gpus, sum ok", ("status", "results"), produce_doctor, judge_doctor),
    Part("train", 160, f"ratio {BOUND}", ("pairs",), produce_train, judge_train),
    Part("watch", 150, f"ratio {WATCH_BOUND:g}", ("pairs",), produce_watch, judge_watch),
    Part("census", 40, "one digest", ("runs",), produce_census, judge_census),
    Part("hang", 60, "task 1, line", ("report", "seconds", "place"), produce_hang, judge_hang),
    Part("memory", 40, "task, line, remedy", ("status", "error", "allocated", "place"), produce_memory, judge_memory),
    Part("cache", 35, "all found", ("starts",), produce_cache, judge_cache),
)


class Row(NamedTuple):
    """A row of the table."""

    part: str
    found: str
    bound: str
    result: str


def judge(part: Part, facts: Facts, platform: str) -> Row:
    """Return the row of a part's facts, for a machine of this platform."""

    def row(found: str, result: str) -> Row:
        return Row(part.name, found, part.bound, result)

    if "failed" in facts:
        return row(f"failed: {facts['failed']}", NOT_OK)
    if "late" in facts:
        return row(f"not done in {part.limit} s", UNKNOWN)
    missing = [name for name in part.needs if name not in facts]
    if missing:
        return row(f"no facts: {', '.join(missing)}", UNKNOWN)
    others = sorted(set(facts.get("platforms", ())) - {platform})
    if others:
        return row(f"JAX computed on {', '.join(others)}", NOT_OK)
    return row(*part.judge(facts))


def collect(part: Part, machine: Machine) -> Facts:
    """Return the facts of a part, whatever happens in it: the other parts follow."""
    try:
        return part.produce(machine)
    except LateError:
        return {"late": True}
    except Exception as error:
        return {"failed": str(error) if isinstance(error, FailedError) else repr(error)}


def run_part(part: Part, folder: Path, environ: Mapping[str, str], platform: str) -> tuple[Row, Facts]:
    """Run a part in a folder of its own; return its row, and how it was judged."""
    print(f"{part.name}: {part.limit} s at most", file=sys.stderr, flush=True)
    begin = time.monotonic()
    place = folder / part.name
    place.mkdir()
    facts = collect(part, Machine(platform, place, environ, begin + part.limit))
    return judge(part, facts, platform), {"seconds": round(time.monotonic() - begin, 1), "facts": facts}


def main() -> int:
    """Run all parts, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FILE", type=Path, default=ROOT / "build/gpu.json", help="for the results")
    parser.add_argument("--only", choices=[part.name for part in PARTS], help="only this part")
    parser.add_argument("--platform", choices=(GPU, CPU), default=GPU, help="cpu: to develop the parts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jaxsif-gpu-") as folder:
        environ = make_environ(arguments.platform, Path(folder))
        found = probe(environ)
        refusal = explain_refusal(found, arguments.platform)
        if refusal:
            print(refusal, file=sys.stderr)
            return 3
        parts = [part for part in PARTS if arguments.only in (None, part.name)]
        results = [run_part(part, Path(folder), environ, arguments.platform) for part in parts]
    rows = [row for row, _ in results]
    kept = [{**row._asdict(), **known} for row, known in results]
    record = {**found, "python": sys.executable, "parts": kept}
    write_file(str(arguments.output), (json.dumps(record, indent=1) + "\n").encode())
    print(render(found, rows))
    return int(any(row.result != OK for row in rows))


def make_environ(platform: str, folder: Path) -> dict[str, str]:
    """Return the variables of all programs: one device, this Python, no container, nothing of a job."""
    environ = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    if platform == GPU:
        visible = environ.get("CUDA_VISIBLE_DEVICES", "0")
        environ["CUDA_VISIBLE_DEVICES"] = visible.partition(",")[0]
    else:
        environ["JAX_PLATFORMS"] = CPU
    # `jaxsif doctor` starts `python3`. A link would leave a virtual environment.
    tools = folder / "bin"
    tools.mkdir()
    python = tools / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    places = [tools, *hide_runtimes(environ.get("PATH", os.defpath).split(os.pathsep), folder)]
    environ["PATH"] = os.pathsep.join(map(str, places))
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH"))))
    environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    return environ


def hide_runtimes(places: Sequence[str], folder: Path) -> list[Path]:
    """Return the folders of a PATH, without container runtimes: with one, jaxsif would want an image."""
    shown = []
    for number, place in enumerate(map(Path, map(os.path.abspath, places))):
        if any((place / name).exists() for name in RUNTIMES):
            others = [entry for entry in place.iterdir() if entry.name not in RUNTIMES]
            place = folder / f"path{number}"
            place.mkdir()
            for entry in others:
                (place / entry.name).symlink_to(entry)
        shown.append(place)
    return shown


def probe(environ: Mapping[str, str]) -> dict[str, str]:
    """Return JAX's version, its platform and device; or the reason for which there is none."""
    try:
        argv = [sys.executable, "-c", PROBE]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=START)
    except subprocess.TimeoutExpired:
        return {"problem": f"JAX named no device within {START} s"}
    if done.returncode:
        return {"problem": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def explain_refusal(found: Mapping[str, str], platform: str) -> str:
    """Return an error where JAX does not compute on this platform, else ''."""
    if found.get("platform") == platform:
        return ""
    problem = found.get("problem") or f"JAX {found['jax']} computes on {found['platform']}"
    wanted = "no GPU" if platform == GPU else "no JAX"
    return (
        f"make gpu: error: {wanted}: {problem}\n"
        f"  from: {sys.executable}\n"
        "  try:  make gpu PYTHON=PATH, of a Python whose JAX computes on a GPU"
    )


def render(found: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Return the table, with what it was measured on."""
    title = f"{found['device']}, JAX {found['jax']}, {found['platform']}"
    if found["platform"] == CPU:
        title += ": a rehearsal, which says nothing about a GPU"
    heading = [name.upper() for name in Row._fields]
    return "\n".join([title, *align([heading, *rows])])


if __name__ == "__main__":
    sys.exit(main())
