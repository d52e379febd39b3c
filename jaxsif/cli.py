"""The command jaxsif: parse, dispatch, print errors once, return the exit code."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import click

from jaxsif import __version__
from jaxsif.errors import HostError, JaxsifError

_COMMAND_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

_RUN_HELP = """\
Run COMMAND as a distributed JAX program: one task per GPU, each in the container.

Inside an allocation it uses the allocation; outside, srun makes one from the options below; on a machine without
Slurm it starts local processes.

\b
examples:
  jaxsif run -- python train.py                       in a job: all nodes, one task per GPU
  jaxsif run --nodes=2 --gpus-per-node=4 -- python allreduce.py
                                                      from a login node: 2 x 4 tasks
  jaxsif run --ntasks-per-node=1 -- python train.py   one process per node, with all its GPUs
  jaxsif run --srun-args='--qos=debug --mem=0' --nodes=1 --gpus-per-node=1 -- python -c 'import jax'
  jaxsif run --launcher local --gpus-per-node=4 -- python query.py
                                                      4 processes here; on CPUs, with a CPU image

\b
exit status:
  the program's own (128 + N for signal N): of the process that failed first
  2    a bad request            125  this host, its image or Slurm cannot run it
  127  the program was not found
"""


@click.group(context_settings=_COMMAND_CONTEXT, no_args_is_help=False)
@click.version_option(__version__, prog_name="jaxsif")
def jaxsif() -> None:
    """JAX in Singularity/Apptainer images on Slurm clusters."""


@jaxsif.command(
    help=_RUN_HELP, short_help="Run a program, one task per GPU.", context_settings={"allow_interspersed_args": False}
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", metavar="PATH", help="The image; otherwise JAX_IMAGE, otherwise ./jax.sif.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes.")
@click.option("--ntasks-per-node", type=click.IntRange(min=1), help="JAX processes on each node.")
@click.option("--gpus-per-node", metavar="[TYPE:]N", help="GPUs on each node.")
@click.option("--time", metavar="LIMIT", help="Time limit, as for srun.")
@click.option("--partition", metavar="NAME", help="Slurm partition.")
@click.option("--account", metavar="NAME", help="Slurm account.")
@click.option("--constraint", metavar="LIST", help="Node features.")
@click.option("--srun-args", multiple=True, metavar="ARGS", help="Further arguments of srun, quoted as for a shell.")
@click.option("--bind", "binds", multiple=True, metavar="SRC[:DEST[:OPTS]]", help="Bind a path into the container.")
@click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="Set a variable in the container.")
@click.option("--launcher", type=click.Choice(["srun", "local"]), help="srun where there is one, otherwise local.")
@click.option("--label", is_flag=True, help="Begin each line of output with its task's number.")
@click.option("--dry-run", is_flag=True, help="Print the command line, and run nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Tell what is started and why, on standard error.")
def run(image: str | None, dry_run: bool, verbose: bool, **options: Any) -> int:
    # Here, because `jaxsif --help` needs none of it.
    from jaxsif import host as hosts
    from jaxsif import launch, plan, render
    from jaxsif.apptainer import parse_env
    from jaxsif.slurm import Allocation

    environ = dict(os.environ)
    if not options["command"]:
        raise JaxsifError("no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py")
    options["env"] = parse_env(options["env"], environ)
    options["srun_args"] = tuple(word for words in options["srun_args"] for word in _split(words))
    request = plan.RunOptions(**options)
    allocation = Allocation.from_environ(environ)
    host, image_source = hosts.probe(request, image, allocation, environ)
    launch_plan = plan.build(request, host, allocation, environ)
    if dry_run:
        # As bytes: values may have some that are no UTF-8.
        click.echo(os.fsencode(render.render_command(launch_plan)))
        return 0
    for line in render.render_notes(request, launch_plan, host, allocation):
        click.echo(f"jaxsif: {line}", err=True)
    if verbose:
        click.echo(render.render_summary(launch_plan, image_source), err=True)
    return launch.launch(launch_plan, environ)


@jaxsif.group(no_args_is_help=False)
def image() -> None:
    """Build images."""


_BUILD_HELP = """\
Build an image, unless it is there and was made of the same inputs.

\b
examples:
  jaxsif image build --flavour cpu
  jaxsif image build --flavour cpu --base docker://python:3.13-slim
"""


@image.command("build", help=_BUILD_HELP, short_help="Build an image.")
@click.option("--flavour", default="cpu", show_default=True, help="containers/flavours/NAME.args.")
@click.option("--source", default=".", type=click.Path(file_okay=False), help="The checkout with containers/ [here].")
@click.option("--output", default="build/images", show_default=True, help="Folder of finished images.")
@click.option("--cache", default="build/cache", show_default=True, help="Folder of base systems and downloaded wheels.")
@click.option("--base", metavar="ADDRESS", help="docker://… or a local image to build on, with apt in it.")
@click.option("--force", is_flag=True, help="Build also when nothing changed.")
def image_build(flavour: str, source: str, output: str, cache: str, base: str | None, force: bool) -> None:
    from pathlib import Path

    from jaxsif.host import require_runtime
    from jaxsif.images.build import BuildOptions, build_image
    from jaxsif.images.recipe import read_recipe

    recipe = read_recipe(Path(source).resolve(), flavour)
    runtime = require_runtime(os.environ)
    options = BuildOptions(runtime.command, Path(output).resolve(), Path(cache).resolve(), base, force)
    build_image(recipe, options, os.environ, click.echo)


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise JaxsifError(f"cannot read {words!r}: {error}", "--srun-args", "quote it as for a shell") from error


def main() -> int:
    """Run the command line; the exit status is documented in each command's help."""
    try:
        return jaxsif.main(prog_name="jaxsif", standalone_mode=False) or 0
    except JaxsifError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "jaxsif"
        print(JaxsifError(error.format_message(), where, f"{where} --help").render(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        print(f"jaxsif: error: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:  # a full disk, a folder that cannot be written; of a closed pipe click makes exit status 1
        print(HostError(error.strerror or str(error), error.filename or "").render(), file=sys.stderr)
        return HostError.exit_code
