"""jaxsif run: a program in the container, one task per GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.apptainer import parse_env
from jaxsif.config import Config, Setting, read_config, resolve
from jaxsif.errors import JaxsifError
from jaxsif.options import OUTPUT, add_arguments, split_words
from jaxsif.plan import SRUN, Host, RunOptions, choose_launcher
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
    output = add_arguments(parser)[OUTPUT]
    output.add_argument("--dry-run", action="store_true", help="print the command line, and run nothing")
    output.add_argument("-v", "--verbose", action="store_true", help="tell on standard error what is started and why")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the program to its end."""
    from jaxsif import launch, plan, render

    said = vars(arguments)
    dry_run, verbose, command = said.pop("dry_run"), said.pop("verbose"), said.pop("command")
    if not command:
        raise JaxsifError("no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py")
    allocation = Allocation.from_environ(environ)
    request, host, image_source, settings, facts = prepare(said, command, allocation, environ)
    if dry_run or verbose:
        for line in facts:
            note(line)
    if settings["stage"].value:
        host = _stage(request.launcher, host, allocation, settings["stage-folder"].value, dry_run, environ)
    launch_plan = plan.build(request, host, allocation, environ)
    if dry_run:
        print_bytes(render.render_command(launch_plan))
        return 0
    for line in render.render_notes(request, launch_plan, host, allocation):
        note(line)
    if verbose:
        print(render.render_summary(launch_plan, image_source), file=sys.stderr, flush=True)
    others = launch.plans_for_other_ports(request, host, allocation, environ)
    return launch.launch_until_port_is_free(launch_plan, others, environ, note)


class Prepared(NamedTuple):
    """What was asked for and what is there; a plan is made of it."""

    request: RunOptions
    host: Host
    image_source: str  # what named the image
    settings: Mapping[str, Setting]  # all that the command line, variables and files say
    facts: tuple[str, ...]  # what the policies found right


def prepare(
    said: Mapping[str, Any], command: Sequence[str], allocation: Allocation | None, environ: Mapping[str, str]
) -> Prepared:
    """Complete what the command line said, and look at this host; raises JaxsifError for what cannot work."""
    from jaxsif import host as hosts

    config = read_config(environ, os.getcwd())
    settings = resolve(said, environ, config, in_job=allocation is not None)
    request = RunOptions(tuple(command), **_read_options(settings, environ))
    host, image_source = hosts.probe(request, settings.get("image"), allocation, environ)
    facts = _check_policies(config, host, image_source, environ)
    if "layers" in settings:
        host = host._replace(layers=_find_layers(settings["layers"], host.image, environ))
    return Prepared(request, host, image_source, settings, facts)


# The keys that are no attributes of RunOptions: what they name becomes a part of the host.
_OF_HOST = ("image", "layers", "stage", "stage-folder")


def _read_options(settings: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of RunOptions that are set."""
    options = {key.replace("-", "_"): setting.value for key, setting in settings.items() if key not in _OF_HOST}
    options["sources"] = {key: setting.source for key, setting in settings.items()}
    if "binds" in options:
        options["binds"] = tuple(options["binds"])
    if "env" in options:
        options["env"] = parse_env(options["env"], environ)
    if "srun_args" in options:
        source = settings["srun-args"].source
        options["srun_args"] = tuple(word for words in options["srun_args"] for word in split_words(words, source))
    return options


def _stage(
    launcher: str | None,
    host: Host,
    allocation: Allocation | None,
    folder: str,
    dry_run: bool,
    environ: Mapping[str, str],
) -> Host:
    """The host, with the image's path on the nodes."""
    from jaxsif import staging
    from jaxsif.imagefile import remembered_digest, staged_path

    if not host.image or choose_launcher(launcher, host.srun, allocation) != SRUN:
        note("warning: --stage has no effect without Slurm and an image")
        return host
    if dry_run:
        note("with --dry-run, nothing is staged")
        return host._replace(image=staged_path(folder, remembered_digest(host.image, environ)))
    return host._replace(image=staging.stage(host.image, folder, allocation, host.package, environ, note))


def note(line: str) -> None:
    """Tell the user something, on standard error."""
    print(f"jaxsif: {line}", file=sys.stderr, flush=True)


def _check_policies(config: Config, host: Host, image_source: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    if not config.policies:  # as most runs have none, spare them the import
        return ()
    from jaxsif.policy import Subject, check_policies

    subject = Subject(host.image, image_source, host.runtime.command if host.runtime else None)
    return check_policies(config, subject, environ)


def _find_layers(names: Setting, image: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files of the layers."""
    from jaxsif.layers import find_layers

    return find_layers(names.value, names.source, image, environ)


def print_bytes(line: str) -> None:
    """Print a line as the bytes that it came from: values may have some that are no UTF-8."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # standard output is closed, or replaced by an object without bytes
        print(line)
    else:
        stream.write(os.fsencode(line + "\n"))
