"""jaxsif bench image: how long an image takes to build, and how large it is."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jaxsif.bench import image
from jaxsif.bench.runner import Bench, add_result_options, note, run_bench
from jaxsif.runtime import require_runtime
from jaxsif.settings.options import count

DESCRIPTION = """\
Build an image three times, in a clone of jaxsif: with nothing cached; the plain way (debootstrap, pip, the engine's
defaults); and once more after one package of its lock has changed. It takes minutes.

example:
  jaxsif bench image --flavour cpu
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif bench image`."""
    parser.add_argument(
        "--flavour", default="cuda12", help="a file of containers/flavours, without .args (cuda12)"
    )
    parser.add_argument(
        "--package", default="numpy", metavar="NAME", help="the package that changes (numpy)"
    )
    parser.add_argument("--source", default=".", metavar="FOLDER", help="the clone (.)")
    parser.add_argument(
        "--work", default="build", metavar="FOLDER", help="where a folder is made meanwhile (build)"
    )
    what = f"seconds before each build, in which the disk may come to rest ({image.PAUSE})"
    parser.add_argument("--pause", type=count, default=image.PAUSE, metavar="S", help=what)
    add_result_options(parser)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Measure."""
    source, work = Path(arguments.source).resolve(), Path(arguments.work).resolve()
    flavour, package, pause = arguments.flavour, arguments.package, arguments.pause
    image.check_source(source, flavour, package)
    runtime = require_runtime(environ)
    work.mkdir(parents=True, exist_ok=True)

    def measure(bench: Bench) -> int:
        bench.header["flavour"] = flavour
        with tempfile.TemporaryDirectory(prefix="bench-image-", dir=work) as folder:
            builds = image.Builds(
                source, flavour, package, runtime, Path(folder), environ, note, pause
            )
            for way, seconds, size in builds.run():
                bench.add(
                    {
                        "record": "build",
                        "flavour": flavour,
                        "way": way,
                        "time": seconds,
                        "size": size,
                    }
                )
        print("\n".join(image.summarize(bench.records)))
        return 0

    return run_bench("image", arguments, environ, measure)
