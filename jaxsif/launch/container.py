"""The container of a run: image, policies, and everything mounted over it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from zlib import crc32  # not hashlib, which takes 3 ms to import

from jaxsif import files
from jaxsif.container.environment import CACHE, find_rule
from jaxsif.errors import HostError, Notify
from jaxsif.images.file import cache_folder, find_image, open_image, read_objects
from jaxsif.plan.container import Container
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import Launcher
from jaxsif.settings.options import TASK, Rank, Setting
from jaxsif.settings.read import Settings
from jaxsif.text import printable

_DEFAULT_FOLDER = Setting(None, "--compile-cache (the default)")  # of the compile cache


def find_container(
    settings: Settings, launcher: Launcher, host: Host, notify: Notify
) -> Container | None:
    """Return the container, or None on a machine without a runtime; raise JaxsifError if the
    image is missing or refused.

    Policies are checked before anything named by a project's file runs.
    """
    fabric = settings.values.get("fabric") if launcher.spans_nodes else None
    if not launcher.spans_nodes and settings.is_on_command_line("fabric"):
        notify("warning: --fabric has no effect on a single machine")
    if settings.config.project:
        _show_project(settings, fabric, notify)
    if host.runtime is None:
        _refuse_to_go_without(settings, host)
        return None
    image = find_image(settings.values.get("image"))
    if "run.image" in settings.config.settings:
        _note_overridden(settings, notify)
    container = Container(
        host.runtime,
        image.path,
        image.source,
        alone=settings.options.containers == TASK,
    )
    if settings.config.policies:
        container = _obey_policies(container, settings, host)
    if fabric:
        container = _add_fabric(container, fabric, settings, host, notify)
    options = settings.options
    if options.binds:
        container = container.add_binds(options.binds, options.source("binds"))
    if options.log_dir:
        folder = os.path.dirname(options.log_dir)
        container = container.add_binds((folder,), options.source("log-dir"))
    if "layers" in settings.values:
        container = _add_layers(container, settings.values["layers"], host, notify)
    return _add_cache(container, settings, host, notify)


def _show_project(settings: Settings, fabric: Setting | None, notify: Notify) -> None:
    """Print the options that the project's file sets, since the user has not named that file."""
    config = settings.config
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_lineage

    lineage = find_lineage(fabric, read_profiles(config)) if fabric else []
    profiles = [name for name in lineage if name in config.profiles]
    keys = config.of_project(settings.values, profiles)
    if keys:
        notify(f"{printable(config.project)} sets {', '.join(keys)}")


def _note_overridden(settings: Settings, notify: Notify) -> None:
    """Print a warning if a file of the user's or the project's names an image other than JAX_IMAGE,
    which modules set.
    """
    chosen, other = settings.values["image"], settings.config.settings["run.image"]
    is_overridden = chosen.rank == Rank.VARIABLE and other.rank >= Rank.USER
    if is_overridden and chosen.value != other.value:
        notify(f"warning: JAX_IMAGE overrides {printable(other.source)}")


def _refuse_to_go_without(settings: Settings, host: Host) -> None:
    """Raise HostError if there are policies or layers, which need a container."""
    if settings.config.policies:
        from jaxsif.container.policy import Subject, check_policies

        check_policies(settings.config, Subject(None, "nowhere (no container)", None), host.environ)
    if settings.value("layers"):
        raise HostError(
            "layers need a container runtime, and there is none here",
            settings.values["layers"].source,
            "load Apptainer's module",
        )


def _obey_policies(container: Container, settings: Settings, host: Host) -> Container:
    """Return the container with the image that the policies allow; raise HostError."""
    from jaxsif.container.policy import Subject, check_binds, check_environment, check_policies

    check_environment(host.environ)
    if "binds" in settings.values:
        binds = settings.values["binds"]
        check_binds(binds.value, binds.source, host.environ)
    # A link could lead to the allowed file when the nodes look, and to another one when the runtime
    # mounts it.
    image = os.path.realpath(container.image)
    subject = Subject(image, container.source, container.runtime)
    allowed = check_policies(settings.config, subject, host.environ)
    return container._replace(image=image, allowed=allowed)


def _add_fabric(
    container: Container, chosen: Setting, settings: Settings, host: Host, notify: Notify
) -> Container:
    """Return the container with the binds and variables of the fabric's profile."""
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_variables, resolve_fabric, shim_variables
    from jaxsif.settings.secret import describe_secrets_of

    options = settings.options
    fabric = resolve_fabric(chosen, read_profiles(settings.config))
    for line in describe_secrets_of(fabric):
        notify(line)
    environ = host.environ.items()
    passed = {name: text for name, text in environ if find_rule(name) or not options.cleanenv}
    variables, notes = find_variables(fabric, dict(options.env), passed)
    if fabric.items("binds"):
        container = container.add_binds(fabric.items("binds"), fabric.lists["binds"].source)
    folders: tuple[str, ...] = ()
    if container.allowed:
        from jaxsif.container.policy import check_fabric

        check_fabric(fabric, host.environ)
    if fabric.items("libraries"):
        from jaxsif.container.libraries import check_libraries, find_libraries
        from jaxsif.launch.packages import unchanged_image

        libraries = find_libraries(fabric.lists["libraries"])
        with unchanged_image(container):
            notes += check_libraries(libraries, container.runtime, container.image, host.environ)
        container = container.add_binds(libraries.binds, fabric.lists["libraries"].source)
        folders = libraries.folders
    for line in notes:
        notify(line)
    return container._replace(variables={**variables, **shim_variables(fabric, folders)})


def _add_layers(container: Container, names: Setting, host: Host, notify: Notify) -> Container:
    """Return the container with its layers. Policies do not cover layers, so print the layers'
    names if there is a policy.
    """
    from jaxsif.layers.store import describe_layers, find_layers

    layers = find_layers(names.value, names.source, container.image, host.environ)
    if container.allowed and layers:
        notify(f"layers over the image: {describe_layers(layers)}")
    return container._replace(layers=layers)


def _add_cache(container: Container, settings: Settings, host: Host, notify: Notify) -> Container:
    """Return the container with the folder of JAX's compile cache for the image's file.

    Return the container unchanged if the user has a separate cache, or wants none.
    """
    users_own = CACHE in {**host.environ, **container.variables, **dict(settings.options.env)}
    if (
        users_own
        or not settings.values["compile-cache"].value
        or not os.path.isfile(container.image)
    ):
        return container
    folder = settings.values.get("compile-cache-folder", _DEFAULT_FOLDER)
    is_chosen = folder is not _DEFAULT_FOLDER
    path = cache_of(container.image, folder.value, host.environ)
    try:
        if folder.rank == Rank.SITE and not _is_in_home(folder.value, host):
            os.stat(folder.value)  # if it were made here, it would be closed to other users
        make_private(path, folder.source)
    except OSError as error:
        if is_chosen:
            what = f"cannot create the compile cache {error.filename or path}: {error.strerror}"
            hint = "name a folder that you may write on all nodes"
            may_help = folder.rank == Rank.SITE and isinstance(error, _FOR_STAFF)
            remedy = _find_remedy(folder.value) if may_help else ""
            hint = f"ask site staff to call {remedy}" if remedy else hint
            raise HostError(what, folder.source, f"{hint}, or pass --no-compile-cache") from error
        notify(f"warning: no compile cache: cannot create {path}: {error.strerror}")
        return container
    if is_chosen:  # the runtime mounts the home folder, and perhaps no other
        container = container.add_binds((path,), folder.source)
    return container._replace(cache=path)


_FOR_STAFF = (FileNotFoundError, PermissionError)  # of the compile cache


def _find_remedy(path: str) -> str:
    """Return the command with which staff can make a site's folder usable, or ''."""
    import shlex
    from pathlib import Path

    make = shlex.join(["install", "-d", "-m", "1777", path])
    for folder in [*map(str, Path(path).parents)][::-1]:
        if os.path.isdir(folder) and not os.access(folder, os.X_OK):
            is_home = folder == os.path.expanduser("~root")
            return "" if is_home else f"{shlex.join(['chmod', 'a+x', folder])} && {make}"
    is_closed = os.path.isdir(path) and not os.access(path, os.W_OK)
    return make if is_closed or not os.path.lexists(path) else ""


def _is_in_home(path: str, host: Host) -> bool:
    home = host.environ.get("HOME", "").rstrip("/")
    return bool(home) and path.startswith(f"{home}/")


_HEAD, _TAIL = 4096, 65536  # bytes


def identify(image: str) -> str:
    """Return a name for the content of an image's file from a few of its bytes, since reading all
    of them takes seconds.

    The ends of a squashfs hold its sizes and the table of its files; a signature changes neither
    end. Raise OSError, and HostError for a file that is not an image.
    """
    head = tail = 0
    with open_image(image) as file:
        for part in read_objects(image):
            if part.type == "partition":
                end = part.offset + max(0, part.size - _TAIL)
                head = crc32(os.pread(file.fileno(), min(part.size, _HEAD), part.offset), head)
                tail = crc32(os.pread(file.fileno(), min(part.size, _TAIL), end), tail)
    return f"{head:08x}{tail:08x}"


def cache_of(image: str, folder: str | None, environ: Mapping[str, str]) -> str:
    """Return the path of an image's compile cache, under `folder`, or else under the user's own
    cache.
    """
    above = os.path.join(cache_folder(environ), "compiled")
    if folder:
        above = os.path.join(os.path.abspath(folder), f"jaxsif-{os.getuid()}")
    return os.path.join(above, identify(image))


def make_private(path: str, source: str) -> None:
    """Make a folder of `cache_of`, private to this user; raise OSError, and HostError if others may
    write to it.
    """
    mine = os.path.dirname(path)
    above = os.path.dirname(mine)
    os.makedirs(above, mode=0o700, exist_ok=True)
    mode = os.stat(above).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        # They could put another folder in its place.
        raise _open_to_others(above, source, "let its owner set the sticky bit (chmod +t)")
    for folder in (mine, path):
        if not files.make_private(folder):
            raise _open_to_others(folder, source)


def _open_to_others(
    folder: str, source: str, remedy: str = "remove it, since JAX executes what is in it"
) -> HostError:
    return HostError(
        f"the compile cache is open to others: {folder}",
        source,
        f"{remedy}; or pass --no-compile-cache, or --compile-cache-folder",
    )
