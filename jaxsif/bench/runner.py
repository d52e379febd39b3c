"""A benchmark, from its options to its results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jaxsif import __version__
from jaxsif.bench import plots
from jaxsif.bench.compare import check_benchmark, render_comparison
from jaxsif.bench.execute import prepare_program, run_program
from jaxsif.bench.kinds import KINDS, NOT_PRINTED, render_heading, render_row
from jaxsif.bench.results import Record, Results, read_results, recording
from jaxsif.errors import HostError
from jaxsif.images.file import remembered_digest
from jaxsif.plan.container import Container
from jaxsif.screen import find_width, note


class Bench:
    """A benchmark in progress."""

    container: Container | None = None  # of the last run; its image draws the plots

    def __init__(
        self, results: Results, options: Mapping[str, Any], environ: Mapping[str, str]
    ) -> None:
        self.header = results.header
        self.options = options  # the options of `jaxsif run`
        self.environ = environ
        self.records = results.records
        self._printed = ""  # the kind of the last record
        self._notes: set[str] = set()

    def run(
        self,
        program: str,
        *arguments: str,
        refine: Callable[[Record], Record] = dict,
        modules: Path | None = None,
        **changes: Any,
    ) -> int:
        """Run a program from the folder `inside` to its end, and collect its records; return 0, or
        128 + N for a signal.

        `refine` completes each record; `modules` is a folder that the program imports from, and is
        also its first argument; `changes` replace options of `jaxsif run`. Raise JaxsifError if the
        program fails.
        """
        options = {**self.options, "label": False, **changes}
        plan = prepare_program(options, (program, *arguments), self.environ, self.note, modules)
        self.container = plan.container
        image = plan.container.image if plan.container else None
        self.header.update(
            launcher=plan.launcher.name, image=image, digest=_find_digest(image, self.environ)
        )

        def take(record: Record) -> None:
            kind = record["record"]
            if kind == "system":
                del record["record"]
                self.header.update(record)
            elif kind == "note":
                note(str(record["text"]))
            else:
                self.add(refine(record))

        return run_program(plan, take, note)

    def note(self, line: str) -> None:
        """Print each note on a run only once: later runs repeat it."""
        if line not in self._notes:
            self._notes.add(line)
            note(line)

    def add(self, record: Record) -> None:
        """Keep a record, and print it as a row of a table."""
        self.records.append(record)
        name = record["record"]
        if name in NOT_PRINTED:
            return
        kind, width = KINDS[self.header["bench"]][name], find_width()
        if name != self._printed:
            print(("\n" if self._printed else "") + render_heading(kind, width))
            self._printed = name
        print(render_row(record, kind, width), flush=True)


def run_bench(
    name: str,
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    measure: Callable[[Bench], int],
) -> int:
    """Measure, keep the results, draw them, and compare them; return the exit status."""
    options = vars(arguments)
    output, against, tolerance, fail = (
        options.pop(key) for key in ("output", "against", "tolerance", "fail")
    )
    folder = Path(output or f"bench-{name}-{datetime.now():%Y%m%d-%H%M%S}")
    old = read_results(against, "--against") if against else None
    if old:
        check_benchmark(old, name, "--against")
    header: Record = {
        "bench": name,
        "jaxsif": __version__,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "options": _describe_options(options),
    }
    with recording(folder, header, note) as results:
        bench = Bench(results, options, environ)
        status = measure(bench)
        results.header["complete"] = status == 0
    if status:
        return status
    _draw(folder, bench.container, environ)
    return show_comparison(old, results, tolerance, fail) if old else 0


def _draw(folder: Path, container: Container | None, environ: Mapping[str, str]) -> None:
    try:
        names = plots.draw(folder, container, environ)
        if names:
            note(f"drawn: {' '.join(names)}")
    except HostError as error:  # the results are complete and can still be compared
        note(f"no plots: {error.what}; try {error.hint}")


def show_comparison(old: Results, new: Results, tolerance: float, fail: bool) -> int:
    """Print the comparison; return the exit status. `tolerance` is in percent."""
    lines, worse = render_comparison(old, new, tolerance / 100)
    print("\n".join(lines), flush=True)
    return int(worse and fail)


def _describe_options(options: Mapping[str, Any]) -> Record:
    """Return the options for the header, but only the names of --env: its values may be secret."""
    described = {key: value for key, value in options.items() if value is not None}
    if "env" in described:
        described["env"] = [pair.partition("=")[0] for pair in described["env"]]
    return described


def _find_digest(image: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the digest of an image's file, or None for an unpacked image or no image."""
    return remembered_digest(image, environ) if image and os.path.isfile(image) else None
