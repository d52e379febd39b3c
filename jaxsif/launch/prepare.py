"""What the command line said and what is here -> what a plan is made of, for all commands that
start programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.container.environment import CACHE, find_rule
from jaxsif.errors import FolderTakenError, HostError, printable
from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_args import lift
from jaxsif.launch import probe as hosts
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LAUNCHERS, MPIRUN, SRUN, choose_launcher
from jaxsif.settings.config import Config, Setting, read_config, resolve
from jaxsif.settings.options import split_words
from jaxsif.settings.request import RunOptions
from jaxsif.settings.variables import parse_env

Show = Callable[[str], None]  # tells the user something


class Prepared(NamedTuple):
    """What was asked for and what is there."""

    request: RunOptions
    host: Host
    image_source: str  # what named the image
    settings: Mapping[str, Setting]  # all that the command line, variables and files say
    facts: tuple[str, ...]  # what the policies found right


def prepare(
    said: Mapping[str, Any],
    command: Sequence[str],
    allocation: Allocation | None,
    environ: Mapping[str, str],
    show: Show,
    fixed: Container[str] = (),
) -> Prepared:
    """Complete what the command line said, and look at this host; raises JaxsifError for what
    cannot work.

    Options whose keys are in `fixed` mean nothing to the command, whatever files and variables say
    of them.
    """
    config = read_config(environ, os.getcwd())
    settings = resolve(said, environ, config, in_job=allocation is not None, fixed=fixed)
    request = RunOptions(tuple(command), **_read_options(settings, environ))
    for line in config.notes:
        show(printable(line))
    warn_of_secrets(settings, show)
    host, image_source = hosts.probe(request, settings.get("image"), allocation, environ)
    has_fabric = "fabric" in settings and _crosses_nodes(
        settings["fabric"], request, host, allocation, show
    )
    # Before anything runs that the project's file names.
    _tell_project(config, settings, settings["fabric"] if has_fabric else None, show)
    host, facts = _obey_policies(config, host, image_source, settings, environ)
    if has_fabric:
        request = _add_fabric(request, settings["fabric"], config, host, environ, show)
    if "layers" in settings:
        host = host._replace(layers=_find_layers(settings["layers"], host, environ, show))
    request, host = _find_cache(request, host, settings, environ, show)
    return Prepared(request, host, image_source, settings, facts)


# The keys that are no attributes of RunOptions: what they name becomes a part of the host, or of
# other options.
_OTHERS = (
    "image",
    "layers",
    "stage",
    "stage-folder",
    "compile-cache",
    "compile-cache-folder",
    "fabric",
)


def _read_options(settings: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of RunOptions that are set."""
    options = {
        key.replace("-", "_"): setting.value
        for key, setting in settings.items()
        if key not in _OTHERS
    }
    for key in ("hosts", "hostfile"):  # nothing else takes them
        on_command_line = key in settings and settings[key].source == f"--{key}"
        other = settings.get("launcher")
        if key in settings and (
            other is None or (on_command_line and other.source != "--launcher")
        ):
            options["launcher"] = MPIRUN
    options["sources"] = {key: setting.source for key, setting in settings.items()}
    if "binds" in options:
        options["binds"] = tuple(options["binds"])
    if "env" in options:
        options["env"] = parse_env(options["env"], environ, settings["env"].source)
    if "srun_args" in options:
        source = settings["srun-args"].source
        options["srun_args"] = tuple(
            word for words in options["srun_args"] for word in split_words(words, source)
        )
        lifted, options["srun_args"] = lift(options["srun_args"], options)
        options.update(lifted)
        options["sources"].update({field.replace("_", "-"): source for field in lifted})
    return options


def _tell_project(
    config: Config, settings: Mapping[str, Setting], fabric: Setting | None, show: Show
) -> None:
    """Say what the project's file sets of this run: nobody named it."""
    if not config.project:
        return
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_lineage

    lineage = find_lineage(fabric, read_profiles(config)) if fabric else []
    keys = config.of_project(settings, [name for name in lineage if name in config.profiles])
    if keys:
        show(f"{printable(config.project)} sets {', '.join(keys)}")


def warn_of_secrets(settings: Mapping[str, Setting], show: Show) -> None:
    """Name the secrets that others can read: those of --env, and of files. JAXSIF_ENV is seen by
    the user alone.
    """
    env = settings.get("env")
    if env is None or env.source == "JAXSIF_ENV (environment)":
        return
    from jaxsif.settings.secret import (
        find_secrets,  # here: its patterns take a millisecond to compile
    )

    place = "the list of processes" if env.source == "--env" else env.source
    for name in find_secrets(env.value):
        show(
            f"warning: {name} looks like a secret, and others may read its value in {place}:"
            f" export {name}, and name it alone, as in --env {name}"
        )


def _obey_policies(
    config: Config,
    host: Host,
    image_source: str,
    settings: Mapping[str, Setting],
    environ: Mapping[str, str],
) -> tuple[Host, tuple[str, ...]]:
    """The host, with the image that the policies allow, and why they do."""
    if not config.policies:  # as most runs have none, spare them the import
        return host, ()
    from jaxsif.container.policy import Subject, check_binds, check_environment, check_policies

    check_environment(environ)
    if "binds" in settings:
        check_binds(settings["binds"].value, settings["binds"].source, environ)
    # A link could lead to the allowed file when the nodes look, and to another one when the runtime
    # mounts it.
    image = os.path.realpath(host.image) if host.image else None
    subject = Subject(image, image_source, host.runtime.command if host.runtime else None)
    allowed = check_policies(config, subject, environ)
    return host._replace(image=image, allowed=(allowed.digest, allowed.state)), allowed.reasons


_ASK_FOR_GPUS = ("--gpus", "--gres", "--tres-per-task", "-G")  # words of srun's and sbatch's
_VARIABLES_FOR_GPUS = (
    "SLURM_GPUS",
    "SLURM_GRES",
    "SLURM_TRES_PER_TASK",
    "SBATCH_GPUS",
    "SBATCH_GRES",
)


def note_missing_gpus(
    request: RunOptions, image: str, words: Sequence[str], environ: Mapping[str, str], show: Show
) -> None:
    """Say that a new job has no GPUs, where the image is for CUDA and nothing asks for any.

    `words` are those of srun or sbatch.
    """
    asked = [word for word in words if word.startswith(_ASK_FOR_GPUS)]
    asked += [name for name in environ if name.startswith(_VARIABLES_FOR_GPUS)]
    if asked or {**environ, **dict(request.env)}.get("JAX_PLATFORMS"):
        return
    from jaxsif.images.labels import read_labels  # 2 ms, and only before a job without GPUs

    try:
        flavour = read_labels(image).get("io.jaxsif.flavour", "")
    except (OSError, HostError):
        return  # the job needs no labels
    if flavour.startswith("cuda"):
        show(
            "the job gets no GPUs, because nothing asks for any:"
            " pass --gpus-per-node=N, or --env JAX_PLATFORMS=cpu to silence this"
        )


def _find_layers(
    names: Setting, host: Host, environ: Mapping[str, str], show: Show
) -> tuple[str, ...]:
    """The files of the layers. Under a policy, which speaks of the image alone, they are named."""
    from jaxsif.layers.store import describe_layers, find_layers

    layers = find_layers(names.value, names.source, host.image, environ)
    if host.allowed and layers:
        show(f"layers over the image: {describe_layers(layers)}")
    return layers


def _find_cache(
    request: RunOptions,
    host: Host,
    settings: Mapping[str, Setting],
    environ: Mapping[str, str],
    show: Show,
) -> tuple[RunOptions, Host]:
    """Both, with the folder of JAX's compile cache for the image's file; unless the user has a
    cache of his own.
    """
    users_own = CACHE in environ or CACHE in dict(request.env)
    if (
        users_own
        or not settings["compile-cache"].value
        or not host.image
        or not os.path.isfile(host.image)
    ):
        return request, host
    from jaxsif.container.compilecache import cache_of, make_private

    folder = settings.get("compile-cache-folder")
    path = cache_of(host.image, folder.value if folder else None, environ)
    try:
        make_private(path, folder.source if folder else "--compile-cache (the default)")
    except OSError as error:
        if folder:
            raise HostError(
                f"cannot make the compile cache {path}: {error.strerror}", folder.source
            ) from error
        show(f"warning: no compile cache: cannot make {path}: {error.strerror}")
        return request, host
    if folder:  # the runtime shows the home folder by itself, and may show no other
        request = request._replace(binds=(*request.binds, path))
    return request, host._replace(cache=path)


def _crosses_nodes(
    chosen: Setting, request: RunOptions, host: Host, allocation: Allocation | None, show: Show
) -> bool:
    """Whether the fabric of a site is for this run."""
    if LAUNCHERS[choose_launcher(request.launcher, host.srun, allocation)].spans_nodes:
        return True
    if chosen.source == "--fabric":
        show("warning: --fabric has no effect on one machine alone")
    return False


def _add_fabric(
    request: RunOptions,
    chosen: Setting,
    config: Config,
    host: Host,
    environ: Mapping[str, str],
    show: Show,
) -> RunOptions:
    """The request, with the binds and variables of the fabric's profile before its own."""
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_variables, resolve_fabric, shim_variables

    fabric = resolve_fabric(chosen, read_profiles(config))
    passed = {
        name: value for name, value in environ.items() if find_rule(name) or not request.cleanenv
    }
    variables, notes = find_variables(fabric, dict(request.env), passed)
    binds = fabric.items("binds")
    folders: tuple[str, ...] = ()
    if host.allowed:
        from jaxsif.container.policy import check_fabric

        check_fabric(fabric, environ)
    if fabric.items("libraries") and host.image and host.runtime:
        from jaxsif.container.libraries import check_libraries, find_libraries

        libraries = find_libraries(fabric.lists["libraries"])
        with hosts.unchanged_image(host):
            notes += check_libraries(libraries, host.runtime.command, host.image, environ)
        binds, folders = (*binds, *libraries.binds), libraries.folders
    for line in notes:
        show(line)
    env = {**variables, **shim_variables(fabric, folders)}
    return request._replace(binds=(*binds, *request.binds), env=(*env.items(), *request.env))


def stage(
    prepared: Prepared,
    allocation: Allocation | None,
    dry_run: bool,
    environ: Mapping[str, str],
    show: Show,
) -> Host:
    """The host, with the image on each node's own disk.

    Unchanged where a setting for all runs asks for it and a node has the folder of somebody else:
    anybody can make it.
    """
    from jaxsif.images.file import remembered_digest, staged_path
    from jaxsif.launch import staging

    request, host, folder = prepared.request, prepared.host, prepared.settings["stage-folder"].value
    if not host.image or choose_launcher(request.launcher, host.srun, allocation) != SRUN:
        show("warning: --stage has no effect without Slurm and an image")
        return host
    if allocation is None and prepared.settings["stage"].source != "--stage":
        return host  # a setting for all runs; of this one, there are no nodes yet
    allocation = staging.check_request(host.image, allocation)
    # Under a policy it is the digest that was allowed, though the file may be another by now.
    digest = host.allowed[0] if host.allowed else remembered_digest(host.image, environ)
    if dry_run:
        show("with --dry-run, nothing is staged")
    else:
        try:
            staging.stage(host.image, digest, folder, allocation, host.package, environ, show)
        except FolderTakenError as error:
            if prepared.settings["stage"].source == "--stage":
                raise
            show(f"warning: {printable(error.what)}; the nodes read the image where it is")
            return host
    return host._replace(image=staged_path(folder, digest), staged=(digest, host.image), allowed=())
