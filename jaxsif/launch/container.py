"""The container of a run: its image, what policies say of it, what is mounted over it."""

from __future__ import annotations

import os

from jaxsif.container.environment import CACHE, find_rule
from jaxsif.errors import HostError, Show, printable
from jaxsif.images.find import find_image
from jaxsif.plan.container import Container
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import Launcher
from jaxsif.settings.config import Setting
from jaxsif.settings.read import Settings
from jaxsif.settings.request import TASK

_DEFAULT_FOLDER = Setting(None, "--compile-cache (the default)")  # of the compile cache


def find_container(
    settings: Settings, launcher: Launcher, host: Host, show: Show
) -> Container | None:
    """Return the container, None on a machine without a runtime; raises JaxsifError.

    Policies are obeyed before anything runs that a project's file names.
    """
    fabric = _choose_fabric(settings, launcher, show)
    if host.runtime is None:
        _tell_project(settings, fabric, show)
        _refuse_to_go_without(settings, host)
        return None
    image = find_image(settings.values.get("image"))
    container = Container(
        host.runtime,
        image.path,
        image.source,
        settings.asked.binds,
        alone=settings.asked.containers == TASK,
    )
    _tell_project(settings, fabric, show)
    container = _obey_policies(container, settings, host)
    if fabric:
        container = _add_fabric(container, fabric, settings, host, show)
    if "layers" in settings.values:
        container = _add_layers(container, settings.values["layers"], host, show)
    return _add_cache(container, settings, host, show)


def _choose_fabric(settings: Settings, launcher: Launcher, show: Show) -> Setting | None:
    """Return what names the network's profile, None where all tasks run on this machine."""
    if launcher.spans_nodes:
        return settings.values.get("fabric")
    if settings.is_on_command_line("fabric"):
        show("warning: --fabric has no effect on one machine alone")
    return None


def _tell_project(settings: Settings, fabric: Setting | None, show: Show) -> None:
    """Say what the project's file sets of this run: nobody named that file."""
    config = settings.config
    if not config.project:
        return
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_lineage

    lineage = find_lineage(fabric, read_profiles(config)) if fabric else []
    profiles = [name for name in lineage if name in config.profiles]
    keys = config.of_project(settings.values, profiles)
    if keys:
        show(f"{printable(config.project)} sets {', '.join(keys)}")


def _refuse_to_go_without(settings: Settings, host: Host) -> None:
    """Raise HostError for policies and layers, which need a container."""
    if settings.config.policies:
        from jaxsif.container.policy import Subject, check_policies

        nowhere = Subject(None, "nowhere (no container)", None)
        check_policies(settings.config, nowhere, host.environ)
    if settings.value("layers"):
        raise HostError(
            "layers need a container runtime, and there is none here",
            settings.values["layers"].source,
            "load Apptainer's module",
        )


def _obey_policies(container: Container, settings: Settings, host: Host) -> Container:
    """Return the container with the image that the policies allow; raises HostError."""
    if not settings.config.policies:  # as most runs have none, spare them the import
        return container
    from jaxsif.container.policy import Subject, check_binds, check_environment, check_policies

    check_environment(host.environ)
    if "binds" in settings.values:
        check_binds(*settings.values["binds"], host.environ)
    # A link could lead to the allowed file when the nodes look, and to another one when the runtime
    # mounts it.
    image = os.path.realpath(container.image)
    subject = Subject(image, container.source, container.runtime)
    allowed = check_policies(settings.config, subject, host.environ)
    return container._replace(image=image, allowed=allowed)


def _add_fabric(
    container: Container, chosen: Setting, settings: Settings, host: Host, show: Show
) -> Container:
    """Return the container with the binds and variables of the fabric's profile."""
    from jaxsif.settings.config import read_profiles
    from jaxsif.settings.fabric import find_variables, resolve_fabric, shim_variables

    asked = settings.asked
    fabric = resolve_fabric(chosen, read_profiles(settings.config))
    environ = host.environ.items()
    passed = {name: text for name, text in environ if find_rule(name) or not asked.cleanenv}
    variables, notes = find_variables(fabric, dict(asked.env), passed)
    binds = fabric.items("binds")
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
        binds, folders = (*binds, *libraries.binds), libraries.folders
    for line in notes:
        show(line)
    return container._replace(
        binds=(*binds, *container.binds),
        variables={**variables, **shim_variables(fabric, folders)},
    )


def _add_layers(container: Container, names: Setting, host: Host, show: Show) -> Container:
    """Return the container with its layers. Under a policy, which does not know them, name them."""
    from jaxsif.layers.store import describe_layers, find_layers

    layers = find_layers(names.value, names.source, container.image, host.environ)
    if container.allowed and layers:
        show(f"layers over the image: {describe_layers(layers)}")
    return container._replace(layers=layers)


def _add_cache(container: Container, settings: Settings, host: Host, show: Show) -> Container:
    """Return the container with the folder of JAX's compile cache for the image's file.

    Without one, where the user has a cache of his own or wants none.
    """
    users_own = CACHE in {**host.environ, **container.variables, **dict(settings.asked.env)}
    if users_own or not settings.value("compile-cache") or not os.path.isfile(container.image):
        return container
    from jaxsif.container.compilecache import cache_of, make_private

    folder = settings.values.get("compile-cache-folder", _DEFAULT_FOLDER)
    is_chosen = folder is not _DEFAULT_FOLDER
    path = cache_of(container.image, folder.value, host.environ)
    try:
        make_private(path, folder.source)
    except OSError as error:
        if is_chosen:
            what = f"cannot make the compile cache {path}: {error.strerror}"
            raise HostError(what, folder.source) from error
        show(f"warning: no compile cache: cannot make {path}: {error.strerror}")
        return container
    if is_chosen:  # the runtime shows the home folder, and may show no other
        container = container._replace(binds=(*container.binds, path))
    return container._replace(cache=path)
