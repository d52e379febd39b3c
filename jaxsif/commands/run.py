"""jaxsif run: a program in the container, one task per GPU."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from jaxsif.apptainer import parse_env
from jaxsif.config import Config, Setting, read_config, resolve
from jaxsif.environment import CACHE
from jaxsif.errors import HostError, JaxsifError
from jaxsif.launchers import LAUNCHERS, LOCAL, MPIRUN, SRUN
from jaxsif.options import OUTPUT, add_arguments, split_words
from jaxsif.plan import NODE, Host, LaunchPlan, RunOptions, choose_launcher
from jaxsif.slurm import Allocation
from jaxsif.srunargs import lift

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
  jaxsif run --hosts node1:4,node2:4 -- python train.py
        without Slurm: Open MPI's mpirun starts them
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
    output.add_argument("--explain", action="store_true", help="draw which process has which GPUs, and run nothing")
    output.add_argument("--dry-run", action="store_true", help="print the command line, and run nothing")
    output.add_argument("-v", "--verbose", action="store_true", help="tell on standard error what is started and why")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the program to its end."""
    from jaxsif import host as hosts
    from jaxsif import launch, plan, render

    said = vars(arguments)
    dry_run, verbose, command = said.pop("dry_run"), said.pop("verbose"), said.pop("command")
    explain = said.pop("explain")
    if not command:
        raise JaxsifError("no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py")
    allocation = Allocation.from_environ(environ)
    config = read_config(environ, os.getcwd())
    settings = resolve(said, environ, config, in_job=allocation is not None)
    request = plan.RunOptions(tuple(command), **_read_options(settings, environ))
    host, image_source = hosts.probe(request, settings.get("image"), allocation, environ)
    for line in _check_policies(config, host, image_source, environ):
        if dry_run or verbose:
            _note(line)
    if "fabric" in settings and _crosses_nodes(settings["fabric"], request, host, allocation):
        request = _add_fabric(request, settings["fabric"], config, host, environ)
    if "layers" in settings:
        host = host._replace(layers=_find_layers(settings["layers"], host.image, environ))
    request, host = _find_cache(request, host, settings, environ)
    if settings["stage"].value and not explain:
        host = _stage(request, host, allocation, settings["stage-folder"].value, dry_run, environ)
    launch_plan = plan.build(request, host, allocation, environ)
    if explain:
        _explain(launch_plan, allocation, environ)
    if dry_run:
        _print_bytes(render.render_command(launch_plan))
    if explain or dry_run:
        return 0
    for line in render.render_notes(request, launch_plan, host, allocation):
        _note(line)
    if verbose:
        print(render.render_summary(launch_plan, image_source), file=sys.stderr, flush=True)
    others = launch.plans_for_other_ports(request, host, allocation, environ)
    return launch.launch_until_port_is_free(launch_plan, others, environ, _note, verbose)


# The keys that are no attributes of RunOptions: what they name becomes a part of the host, or of other options.
_OTHERS = ("image", "layers", "stage", "stage-folder", "compile-cache", "compile-cache-folder", "fabric")


def _read_options(settings: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of RunOptions that are set."""
    options = {key.replace("-", "_"): setting.value for key, setting in settings.items() if key not in _OTHERS}
    if "launcher" not in options and ("hosts" in options or "hostfile" in options):
        options["launcher"] = MPIRUN  # nothing else takes them
    options["sources"] = {key: setting.source for key, setting in settings.items()}
    if "binds" in options:
        options["binds"] = tuple(options["binds"])
    if "env" in options:
        options["env"] = parse_env(options["env"], environ, settings["env"].source)
    if "srun_args" in options:
        source = settings["srun-args"].source
        options["srun_args"] = tuple(word for words in options["srun_args"] for word in split_words(words, source))
        lifted, options["srun_args"] = lift(options["srun_args"], options)
        options.update(lifted)
        options["sources"].update({field.replace("_", "-"): source for field in lifted})
    return options


def _find_cache(
    request: RunOptions, host: Host, settings: Mapping[str, Setting], environ: Mapping[str, str]
) -> tuple[RunOptions, Host]:
    """Both, with the folder of JAX's compile cache for the image's file; unless the user has a cache of his own."""
    users_own = CACHE in environ or CACHE in dict(request.env)
    if users_own or not settings["compile-cache"].value or not host.image or not os.path.isfile(host.image):
        return request, host
    from jaxsif.compilecache import cache_of, make_private

    folder = settings.get("compile-cache-folder")
    path = cache_of(host.image, folder.value if folder else None, environ)
    try:
        make_private(path, folder.source if folder else "--compile-cache (the default)")
    except OSError as error:
        if folder:
            raise HostError(f"cannot make the compile cache {path}: {error.strerror}", folder.source) from error
        _note(f"warning: no compile cache: cannot make {path}: {error.strerror}")
        return request, host
    if folder:  # the runtime shows the home folder by itself, and may show no other
        request = request._replace(binds=(*request.binds, path))
    return request, host._replace(cache=path)


def _crosses_nodes(chosen: Setting, request: RunOptions, host: Host, allocation: Allocation | None) -> bool:
    """Whether the fabric of a site is for this run."""
    if LAUNCHERS[choose_launcher(request.launcher, host.srun, allocation)].spans_nodes:
        return True
    if chosen.source == "--fabric":
        _note("warning: --fabric has no effect on one machine alone")
    return False


def _add_fabric(
    request: RunOptions, chosen: Setting, config: Config, host: Host, environ: Mapping[str, str]
) -> RunOptions:
    """The request, with the binds and variables of the fabric's profile before its own."""
    from jaxsif.config import read_profiles
    from jaxsif.fabric import find_variables, resolve_fabric, shim_variables

    fabric = resolve_fabric(chosen, read_profiles(config))
    variables, notes = find_variables(fabric, dict(request.env), environ)
    binds = fabric.items("binds")
    folders: tuple[str, ...] = ()
    if fabric.items("libraries") and host.image and host.runtime:
        from jaxsif.libraries import check_libraries, find_libraries

        libraries = find_libraries(fabric.lists["libraries"])
        notes += check_libraries(libraries, host.runtime.command, host.image, environ)
        binds, folders = (*binds, *libraries.binds), libraries.folders
    for line in notes:
        _note(line)
    env = {**variables, **shim_variables(fabric, folders)}
    return request._replace(binds=(*binds, *request.binds), env=(*env.items(), *request.env))


def _stage(
    request: RunOptions,
    host: Host,
    allocation: Allocation | None,
    folder: str,
    dry_run: bool,
    environ: Mapping[str, str],
) -> Host:
    """The host, with the image's path on the nodes."""
    from jaxsif import staging
    from jaxsif.imagefile import remembered_digest, staged_path

    if not host.image or choose_launcher(request.launcher, host.srun, allocation) != SRUN:
        _note("warning: --stage has no effect without Slurm and an image")
        return host
    if dry_run:
        _note("with --dry-run, nothing is staged")
        digest = remembered_digest(host.image, environ)
        path = staged_path(folder, digest)
    else:
        tasks_look = request.containers == NODE
        path, digest = staging.stage(host.image, folder, allocation, host.package, environ, _note, tasks_look)
    return host._replace(image=path, staged=(digest, host.image))


def _explain(launch_plan: LaunchPlan, allocation: Allocation | None, environ: Mapping[str, str]) -> None:
    from jaxsif.explain import render_map
    from jaxsif.near import find_near

    here = launch_plan.launcher == LOCAL or "SLURMD_NODENAME" in environ  # on a node of the job, and not before it
    print(render_map(launch_plan, allocation, find_near() if here else None))


def _note(line: str) -> None:
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


def _print_bytes(line: str) -> None:
    """Print a line as the bytes that it came from: values may have some that are no UTF-8."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # standard output is closed, or replaced by an object without bytes
        print(line)
    else:
        stream.write(os.fsencode(line + "\n"))
