"""The command jaxsif: parse, dispatch, print errors once, return the exit code.

argparse, because a run must start fast and the alternatives take 20 ms more to import; each command imports what it
needs when it is called.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from jaxsif import __version__
from jaxsif.errors import HostError, JaxsifError

_DESCRIPTION = """\
JAX in Singularity/Apptainer images on Slurm clusters.

  jaxsif run -- python train.py         one process per GPU, over the allocation or over this machine
  jaxsif image build --flavour cuda12   build an image
"""

_RUN = """\
Run COMMAND as a distributed JAX program: one task per GPU, each in the container.

Inside an allocation it uses the allocation; outside, srun makes one from the options below; on a machine without
Slurm it starts local processes.

examples:
  jaxsif run -- python train.py
        in a job: on all its nodes, one task per GPU
  jaxsif run --nodes=2 --gpus-per-node=4 -- python allreduce.py
        from a login node: 2 nodes x 4 tasks
  jaxsif run --ntasks-per-node=1 -- python train.py
        one process per node, with all its GPUs
  jaxsif run --nodes=1 --gpus-per-node=1 --srun-args='--qos=debug --mem=0' -- python -c 'import jax'
        with further options of srun
  jaxsif run --launcher local --gpus-per-node=4 -- python query.py
        4 processes here; on CPUs, with a CPU image
"""

_RUN_EPILOG = """\
The image is that of --image, of JAX_IMAGE, or ./jax.sif; the runtime is apptainer or singularity on the PATH, or
JAXSIF_RUNTIME.

exit status:
  the program's own, 128 + N for signal N; of the process that failed first
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""

_BUILD = """\
Build an image, unless it is there and was made of the same inputs.

examples:
  jaxsif image build
  jaxsif image build --flavour cpu --base docker://python:3.13-slim
"""


class _Parser(argparse.ArgumentParser):
    """Errors as jaxsif's own, help as it is written here."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)  # type: ignore[arg-type]

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        # argparse would hand what a command does not know up to the program's own parser, which then complains in its
        # own name and points to its own help.
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        raise JaxsifError(message, self.prog, f"{self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxsif", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"jaxsif {__version__}")
    # prog given, because argparse would import a formatter of help texts to find it out.
    commands = parser.add_subparsers(metavar="COMMAND", required=True, prog="jaxsif")
    _add_run(commands.add_parser("run", help="run a program, one task per GPU", description=_RUN, epilog=_RUN_EPILOG))
    image = commands.add_parser("image", help="build images", description="Images.")
    verbs = image.add_subparsers(metavar="VERB", required=True, prog="jaxsif image")
    _add_image_build(verbs.add_parser("build", help="build an image", description=_BUILD))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "jaxsif run [OPTIONS] -- COMMAND [ARGUMENT...]"
    job = parser.add_argument_group("what to ask Slurm for")
    job.add_argument("--nodes", type=_count, metavar="N", help="number of nodes")
    job.add_argument("--ntasks-per-node", type=_count, metavar="N", help="JAX processes on each node")
    job.add_argument("--gpus-per-node", metavar="[TYPE:]N", help="GPUs on each node")
    job.add_argument("--time", metavar="LIMIT", help="time limit, as for srun")
    job.add_argument("--partition", metavar="NAME", help="partition")
    job.add_argument("--account", metavar="NAME", help="account")
    job.add_argument("--constraint", metavar="LIST", help="node features")
    job.add_argument(
        "--srun-args",
        action="append",
        default=[],
        metavar="ARGS",
        help="further options of srun, quoted as for a shell; behind '=', for they begin with a dash themselves",
    )
    container = parser.add_argument_group("the container")
    container.add_argument("--image", metavar="PATH", help="the image")
    container.add_argument(
        "--bind", action="append", default=[], dest="binds", metavar="SRC[:DEST[:OPTS]]", help="show a path in it"
    )
    container.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="set a variable in it")
    output = parser.add_argument_group("how to run")
    output.add_argument("--launcher", choices=["srun", "local"], help="srun where there is one, local otherwise")
    output.add_argument("--label", action="store_true", help="begin each line of output with its task's number")
    output.add_argument("--dry-run", action="store_true", help="print the command line, and run nothing")
    output.add_argument("-v", "--verbose", action="store_true", help="tell on standard error what is started and why")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(call=_run)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    from jaxsif import host as hosts
    from jaxsif import launch, plan, render
    from jaxsif.apptainer import parse_env
    from jaxsif.slurm import Allocation

    options = vars(arguments)
    del options["call"]
    image, dry_run, verbose = options.pop("image"), options.pop("dry_run"), options.pop("verbose")
    environ = dict(os.environ)
    command = options.pop("command")
    if not command:
        raise JaxsifError("no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py")
    options["command"] = tuple(command)
    options["binds"] = tuple(options["binds"])
    options["env"] = parse_env(options["env"], environ)
    options["srun_args"] = tuple(word for words in options["srun_args"] for word in _split(words))
    request = plan.RunOptions(**options)
    allocation = Allocation.from_environ(environ)
    host, image_source = hosts.probe(request, image, allocation, environ)
    launch_plan = plan.build(request, host, allocation, environ)
    if dry_run:
        _print_bytes(render.render_command(launch_plan))
        return 0
    for line in render.render_notes(request, launch_plan, host, allocation):
        print(f"jaxsif: {line}", file=sys.stderr, flush=True)
    if verbose:
        print(render.render_summary(launch_plan, image_source), file=sys.stderr, flush=True)
    return launch.launch(launch_plan, environ)


def _print_bytes(line: str) -> None:
    """Print a line as the bytes that it came from: values may have some that are no UTF-8."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # standard output is closed, or replaced by an object without bytes
        print(line)
    else:
        stream.write(os.fsencode(line + "\n"))


def _split(words: str) -> list[str]:
    import shlex

    try:
        return shlex.split(words)
    except ValueError as error:
        raise JaxsifError(f"cannot read {words!r}: {error}", "--srun-args", "quote it as for a shell") from error


def _add_image_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flavour", default="cuda12", help="a file of containers/flavours, without .args (cuda12)")
    parser.add_argument("--source", default=".", metavar="FOLDER", help="the checkout that has containers/ (.)")
    parser.add_argument("--output", default="build/images", metavar="FOLDER", help="finished images (build/images)")
    parser.add_argument(
        "--cache", default="build/cache", metavar="FOLDER", help="base systems and downloaded wheels (build/cache)"
    )
    parser.add_argument("--base", metavar="ADDRESS", help="docker://… or a local image with apt, to build on")
    parser.add_argument("--force", action="store_true", help="build also when nothing changed")
    parser.set_defaults(call=_image_build)


def _image_build(arguments: argparse.Namespace) -> int:
    import signal
    from pathlib import Path

    from jaxsif.host import require_runtime
    from jaxsif.images.build import BuildOptions, build_image
    from jaxsif.images.recipe import read_recipe

    def show(line: str) -> None:
        print(line, flush=True)

    # As Ctrl-C does: by an exception, so that everything half made is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    recipe = read_recipe(Path(arguments.source).resolve(), arguments.flavour)
    options = BuildOptions(
        runtime=require_runtime(os.environ).command,
        output=Path(arguments.output).resolve(),
        cache=Path(arguments.cache).resolve(),
        base=arguments.base,
        force=arguments.force,
    )
    build_image(recipe, options, os.environ, show)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options up to the first '--', the program behind it, untouched: argparse would drop any '--' of the program's."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    parser = _parser()
    arguments = parser.parse_args(argv[:end])
    if hasattr(arguments, "command"):
        arguments.command += argv[end:] if arguments.command else argv[end + 1 :]
    elif end < len(argv):
        parser.parse_args(argv)  # there is no program here: let it refuse what stands behind the '--'
    return arguments


def _call(argv: Sequence[str]) -> int:
    try:
        arguments = _parse(argv)
    except SystemExit:  # how argparse ends after --help and --version; its errors are JaxsifErrors
        return 0
    status: int = arguments.call(arguments)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; each command's help documents its exit status."""
    try:
        status = _call(sys.argv[1:] if argv is None else argv)
        _flush()  # here, where an error can still be told in our own words
        return status
    except JaxsifError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141  # whoever read our output went away, as SIGPIPE would say
    except OSError as error:  # a full disk, a folder that cannot be written
        _complain(HostError(error.strerror or str(error), error.filename or ""))
        return HostError.exit_code
    finally:
        _give_up_broken_streams()


def _complain(error: JaxsifError) -> None:
    with suppress(OSError):  # nobody can be told that standard error is closed
        print(error.render(), file=sys.stderr, flush=True)


def _flush() -> None:
    if sys.stdout is not None:  # as it is when we are started with standard output closed
        sys.stdout.flush()


def _give_up_broken_streams() -> None:
    """Lest Python tries again when it ends, complains, and makes the exit status its own."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
