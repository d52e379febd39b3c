"""jaxsif run: a program in the container, one task per GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from jaxsif.config import Config, read_config
from jaxsif.errors import JaxsifError
from jaxsif.plan import NODE, SRUN, TASK, Host, choose_launcher
from jaxsif.slurm import Allocation

DESCRIPTION = """\
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

EPILOG = """\
The image is that of --image, of JAX_IMAGE, of run.image in a jaxsif.toml, or ./jax.sif; the runtime is apptainer or
singularity on the PATH, or JAXSIF_RUNTIME.

exit status:
  the program's own, 128 + N for signal N; of the process that failed first
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `jaxsif run`."""
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
    container.add_argument(
        "--layer", action="append", dest="layers", metavar="NAME", help="mount a layer of `jaxsif layer create` over it"
    )
    container.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help="set a variable in it")
    container.add_argument(
        "--containers",
        choices=[NODE, TASK],
        default=NODE,
        help="one container for all tasks of a node, where that is possible (node), or one for each task",
    )
    container.add_argument(
        "--stage", action="store_true", default=None, help="have the image on each node's own disk; in a job"
    )
    output = parser.add_argument_group("how to run")
    output.add_argument("--launcher", choices=["srun", "local"], help="srun where there is one, local otherwise")
    output.add_argument("--label", action="store_true", help="begin each line of output with its task's number")
    output.add_argument("--dry-run", action="store_true", help="print the command line, and run nothing")
    output.add_argument("-v", "--verbose", action="store_true", help="tell on standard error what is started and why")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the program to its end."""
    from jaxsif import host as hosts
    from jaxsif import launch, plan, render
    from jaxsif.apptainer import parse_env

    options = vars(arguments)
    image, dry_run, verbose = options.pop("image"), options.pop("dry_run"), options.pop("verbose")
    staged = options.pop("stage")
    command, layers = options.pop("command"), options.pop("layers")
    if not command:
        raise JaxsifError("no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py")
    options["command"] = tuple(command)
    options["binds"] = tuple(options["binds"])
    options["env"] = parse_env(options["env"], environ)
    options["srun_args"] = tuple(word for words in options["srun_args"] for word in _split(words))
    request = plan.RunOptions(**options)
    allocation = Allocation.from_environ(environ)
    settings = read_config(environ, os.getcwd())
    host, image_source = hosts.probe(request, image, allocation, environ, settings.path("run.image"))
    for line in _check_policies(settings, host, image_source, environ):
        if dry_run or verbose:
            _note(line)
    host = host._replace(layers=_find_layers(layers, settings, host.image, environ))
    if settings.get("run.stage") if staged is None else staged:
        host = _stage(request.launcher, host, allocation, settings.get("run.stage-folder"), dry_run, environ)
    launch_plan = plan.build(request, host, allocation, environ)
    if dry_run:
        _print_bytes(render.render_command(launch_plan))
        return 0
    for line in render.render_notes(request, launch_plan, host, allocation):
        _note(line)
    if verbose:
        print(render.render_summary(launch_plan, image_source), file=sys.stderr, flush=True)
    return launch.launch(launch_plan, environ)


def _stage(
    launcher: str | None,
    host: Host,
    allocation: Allocation | None,
    folder: str | None,
    dry_run: bool,
    environ: Mapping[str, str],
) -> Host:
    """The host, with the image's path on the nodes."""
    from jaxsif import staging
    from jaxsif.imagefile import remembered_digest, staged_path

    if not host.image or choose_launcher(launcher, host.srun, allocation) != SRUN:
        _note("warning: --stage has no effect without Slurm and an image")
        return host
    folder = folder or staging.FOLDER
    if dry_run:
        _note("with --dry-run, nothing is staged")
        return host._replace(image=staged_path(folder, remembered_digest(host.image, environ)))
    return host._replace(image=staging.stage(host.image, folder, allocation, host.package, environ, _note))


def _note(line: str) -> None:
    print(f"jaxsif: {line}", file=sys.stderr, flush=True)


def _check_policies(config: Config, host: Host, image_source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    if not config.policies:  # as most runs have none, spare them the import
        return ()
    from jaxsif.policy import Subject, check_policies

    subject = Subject(host.image, image_source, host.runtime.command if host.runtime else None)
    return check_policies(config, subject, environ)


def _find_layers(
    asked: list[str] | None, settings: Config, image: str | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The files of the layers of --layer, or else of run.layers."""
    names = asked or settings.get("run.layers")
    if not names:
        return ()
    from jaxsif.layers import find_layers

    source = "--layer" if asked else f"run.layers in {settings.source('run.layers')}"
    return find_layers(names, source, image, environ)


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
