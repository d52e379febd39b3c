"""A benchmark, from its options to its results: what all of them share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif import __version__
from jaxsif.bench import plots
from jaxsif.bench.compare import render_comparison
from jaxsif.bench.kinds import KINDS
from jaxsif.bench.program import prepare_program, run_program
from jaxsif.bench.results import Record, Results, read_results, recording
from jaxsif.bench.units import render_heading, render_row
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.file import remembered_digest
from jaxsif.plan.container import Container
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import add_arguments

LEFT_OUT = ("label",)  # options of `jaxsif run` that mean nothing to a benchmark
_OWN = ("output", "against", "tolerance", "fail")


class Asked(NamedTuple):
    """What the command line says of the results."""

    output: Path
    against: Results | None
    tolerance: float
    fail: bool


def add_options(
    parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = ()
) -> argparse._ArgumentGroup:
    """The options of `jaxsif run`, and those of results; returns the group for what the benchmark
    adds.
    """
    add_arguments(parser, leave_out=(*LEFT_OUT, *leave_out))
    group = parser.add_argument_group("what to measure")
    add_result_options(parser)
    return group


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """Those of results."""
    results = parser.add_argument_group("the results")
    results.add_argument("--output", metavar="FOLDER", help="a new folder for them")
    results.add_argument("--against", metavar="FILE", help="compare with older results")
    add_comparison(results)


def add_comparison(group: argparse._ActionsContainer) -> None:
    """The options of comparisons."""
    group.add_argument(
        "--tolerance",
        metavar="PERCENT",
        type=positive,
        default=10.0,
        help="call worse what is worse by more (10)",
    )
    group.add_argument(
        "--fail", action="store_true", help="end with status 1 when something got worse"
    )


def positive(text: str) -> float:
    """For argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"not a number above 0: {text!r}")
    return number


class Bench:
    """A benchmark that is under way."""

    def __init__(
        self, results: Results, said: Mapping[str, Any], environ: Mapping[str, str]
    ) -> None:
        self.header = results.header
        self.said = said  # the options of `jaxsif run`
        self.environ = environ
        self.plan: Plan | None = None  # has the image that draws the plots
        self.records = results.records
        self._kind = ""
        self._told: set[str] = set()

    def run(
        self,
        program: str,
        *arguments: str,
        refine: Callable[[Record], Record] = dict,
        modules: Path | None = None,
        show: bool = True,
        **changes: Any,
    ) -> int:
        """Run a program of the folder `inside` to its end, and take its records; returns 0, or 128 +
        N for a signal.

        `refine` completes each record; `modules` is a folder that the program imports from, and has
        as its first argument; without `show` the records are not printed; `changes` are options of
        `jaxsif run` that differ from those said. Raises JaxsifError when the program fails.
        """
        said = {**self.said, "label": False, **changes}
        plan = prepare_program(said, (program, *arguments), self.environ, self.note, modules)
        self.use(plan)

        def take(record: Record) -> None:
            kind = record.get("record")
            if kind == "system":
                self.header.update(
                    {name: value for name, value in record.items() if name != "record"}
                )
            elif kind == "note":
                note(str(record["text"]))
            else:
                self.add(refine(record), show)

        return run_program(plan, take, note)

    def note(self, line: str) -> None:
        """Tell the user something about a run; once, for the next one has it, too."""
        if line not in self._told:
            self._told.add(line)
            note(line)

    def use(self, plan: Plan) -> None:
        """Say in the header what is measured with."""
        self.plan = plan
        self.header.update(
            launcher=plan.launcher.name, **_describe_image(plan.container, self.environ)
        )

    def add(self, record: Record, show: bool = True) -> None:
        """Keep a record, and print it as a row of a table."""
        self.records.append(record)
        if not show:
            return
        kind = KINDS[self.header["bench"]][record["record"]]
        if self._kind != record["record"]:
            print(("\n" if self._kind else "") + render_heading(kind))
            self._kind = record["record"]
        print(render_row(record, kind), flush=True)


def run_bench(
    name: str,
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    measure: Callable[[Bench], int],
) -> int:
    """Measure, keep the results, draw them, compare them; returns the exit status."""
    said = vars(arguments)
    asked = _take(name, said)
    header: Record = {
        "bench": name,
        "jaxsif": __version__,
        "created": _now(),
        "options": _describe(said),
    }
    results = None
    try:
        with recording(asked.output, header) as results:
            bench = Bench(results, said, environ)
            status = measure(bench)
            results.header["complete"] = status == 0
    finally:
        if results and results.records:
            what = (
                "results"
                if results.header["complete"]
                else f"not complete: {len(results.records)} records"
            )
            note(f"{what} in {asked.output}")
    if status:
        return status
    if bench.plan:
        _draw(asked.output, bench.plan.container, environ)
    return (
        show_comparison(asked.against, results, asked.tolerance, asked.fail) if asked.against else 0
    )


def _draw(folder: Path, container: Container | None, environ: Mapping[str, str]) -> None:
    try:
        names = plots.draw(folder, container, environ)
        if names:
            note(f"drawn: {' '.join(names)}")
    except HostError as error:  # the numbers are there, and may be compared
        note(f"no plots: {error.what}; try {error.hint}")


def show_comparison(old: Results, new: Results, tolerance: float, fail: bool) -> int:
    """Print what got worse; returns the exit status."""
    lines, worse = render_comparison(old, new, tolerance / 100)
    print("\n".join(lines), flush=True)
    return 1 if worse and fail else 0


def _take(name: str, said: dict[str, Any]) -> Asked:
    """What is asked of the results, taken out of `said`."""
    output, against, tolerance, fail = (said.pop(key) for key in _OWN)
    folder = Path(output or f"bench-{name}-{datetime.now():%Y%m%d-%H%M%S}")
    old = read_results(against, "--against") if against else None
    if old and old.header["bench"] != name:
        raise JaxsifError(
            f"results of different benchmarks: {old.header['bench']} and {name}",
            "--against",
            "compare equal ones",
        )
    return Asked(folder, old, tolerance, fail)


def _describe(said: Mapping[str, Any]) -> Record:
    """The options, for the header; of --env the names: values may be secret."""
    told = {key: value for key, value in said.items() if value is not None}
    if "env" in told:
        told["env"] = [pair.partition("=")[0] for pair in told["env"]]
    return told


def _describe_image(container: Container | None, environ: Mapping[str, str]) -> Record:
    image = container.image if container else None
    is_file = image and os.path.isfile(image)
    return {
        "image": image,
        "digest": remembered_digest(image, environ) if image and is_file else None,
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def note(line: str) -> None:
    """Tell the user something, on standard error."""
    print(f"jaxsif: {line}", file=sys.stderr, flush=True)
