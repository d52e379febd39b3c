"""The policies of the settings files: which images may run, by digest or signature, and what may be
mounted over them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jaxsif import installation
from jaxsif.container.libraries import FOLDER
from jaxsif.errors import HostError, JaxsifError, raise_as
from jaxsif.images.file import (
    Allowed,
    check_state,
    checksum,
    find_state,
    remembered,
    remembered_digest,
)
from jaxsif.images.sif import DamagedImageError
from jaxsif.images.signing import UnusableKeyError, find_signer, is_fingerprint, verify
from jaxsif.process import find_executable
from jaxsif.runtime import Runtime
from jaxsif.settings.config import (
    BIND_OPTION,
    Config,
    builtin_profiles,
    for_staff,
    resolve,
    staff_files,
)
from jaxsif.settings.fabric import Fabric
from jaxsif.settings.options import NOTHING, Setting

SIGNED_BY = "policy.signed-by"
DIGESTS = "policy.digests"


class RefusedImageError(HostError):
    """A policy does not allow the image."""

    def __init__(self, what: str, where: str, hint: str, setting: str) -> None:
        super().__init__(what, where, hint)
        self.setting = setting  # of the policy


class Subject(NamedTuple):
    """The subject of a policy."""

    image: str | None  # None if no container is run
    source: str  # the option, variable or file that named the image
    runtime: Runtime | None


def check_policies(config: Config, subject: Subject, environ: Mapping[str, str]) -> Allowed:
    """Return the image as allowed by the policies of all files; raise HostError if any does not
    allow it.

    Findings about a file are cached, since its gigabytes take seconds to read. The image's folder
    may be another user's, and the image may be replaced before a node mounts it: the node compares
    the digest and the state.
    """
    image = subject.image
    state = find_state(image) if image else ""
    reasons = tuple(_check(name, policy, subject, environ) for name, policy in config.policies)
    assert image is not None  # no policy allows that
    digest = remembered_digest(image, environ)
    check_state(image, state, subject.source)
    return Allowed(digest, state, reasons)


def find_checksum(image: str, state: str, source: str, environ: Mapping[str, str]) -> str:
    """Return the SHA-256 of an allowed image's file; raise HostError if the file has changed."""
    found = remembered(image, "checksum", environ, lambda: checksum(image))
    check_state(image, state, source)
    return found


def _check(name: str, policy: Setting, subject: Subject, environ: Mapping[str, str]) -> str:
    """Return why a policy allows the image; raise HostError if it does not."""
    image, runtime = subject.image, subject.runtime
    try:
        if image is None or runtime is None:
            raise HostError("there is no container here")
        if os.path.isdir(image):
            raise HostError(f"{image} is a folder, and has neither digest nor signature")
        if name == DIGESTS:
            digest = remembered_digest(image, environ)
            if digest not in policy.value:
                raise HostError(f"the digest of {image} is {digest}")
            return f"{name} of {policy.source} is satisfied: {digest}"
        signer = find_signer(
            image, find_keys(policy), lambda key: _verify(runtime, image, key, environ)
        )
        return f"{name} of {policy.source} is satisfied: signed by {signer}"
    except JaxsifError as error:
        hint = "run an image that the policy allows, or ask whoever set it"
        if isinstance(error, UnusableKeyError):
            hint = for_staff(error.hint, policy.source)
        elif isinstance(error, DamagedImageError):
            hint = "report it to its owner, or run another image"
        raise RefusedImageError(
            f"the policy refuses this run: {error.what}",
            f"{name} in {policy.source}; the image is from {subject.source}",
            hint,
            name,
        ) from error


def find_keys(policy: Setting) -> list[str]:
    """Return the keys of a policy.signed-by: fingerprints, and absolute paths of PEM files."""
    return [key if is_fingerprint(key) else resolve(key, policy.source) for key in policy.value]


def _verify(runtime: Runtime, image: str, key: str, environ: Mapping[str, str]) -> str:
    """Return the signer like `verify`, cached for this file and the key's content, not its path."""
    content = key
    if not is_fingerprint(key):
        hint = "name a PEM file that users may read, or a PGP key by its 40 hexadecimal digits"
        if "/SHA256:" in key:  # as `image verify` names the signer
            hint = "name the key's PEM file: its fingerprint, which this is, does not identify it"
        try:
            with raise_as(UnusableKeyError(f"cannot read the key {key}", "", hint)):
                content = checksum(key, "key")
        except HostError as error:  # a folder
            raise UnusableKeyError(error.what, "", hint) from error
    return remembered(
        image, f"signed by {content}", environ, lambda: verify(runtime, image, key, environ)
    )


# The folders of an image's own system. Its other folders are for data: /home, /mnt, /scratch, /tmp
# and so on.
_SYSTEM = frozenset(
    [
        "",  # the root folder
        *("bin", "boot", "dev", "environment", "etc", "lib", "lib32", "lib64", "libx32", "opt"),
        *("proc", "root", "run", "sbin", "singularity", "sys", "usr", "var"),
        *(".exec", ".run", ".shell", ".singularity.d"),
    ]
)
# Variables that the runtime treats like options. Apptainer's documentation lists them under the
# options of `apptainer run`.
_PREFIXES = ("APPTAINER_", "SINGULARITY_")
_PATHS = frozenset(  # paths to mount
    prefix + option
    for prefix in _PREFIXES
    for option in ("BIND", "BINDPATH", "HOME", "SCRATCH", "SCRATCHDIR")
)
_ANYWHERE = frozenset(  # may mount anywhere
    prefix + option
    for prefix in _PREFIXES
    for option in ("CONFIG_FILE", "CONTAINLIBS", "FUSESPEC", "MOUNT", "OVERLAY", "OVERLAYIMAGE")
)


def check_binds(binds: Iterable[str], source: str, environ: Mapping[str, str]) -> None:
    """Raise HostError for a bind over the image's system, unless one of the staff's files sets it.

    This guards against mounts made by mistake, or by somebody else's file: links are not followed.
    """
    if source.partition(" in ")[2] in (*staff_files(), builtin_profiles()):
        return
    for bind in binds:
        if "\\" in bind:  # the runtime takes the comma or colon after it for a part of a path
            raise _refuse_overlay(f"a bind has a backslash: {bind}", source)
        for path in find_destinations(bind):
            if not path.startswith("/"):
                raise _refuse_overlay(f"a bind has the relative destination {path}: {bind}", source)
            destination = "/" + os.path.abspath(path).lstrip("/")
            if is_of_system(destination, environ):
                raise _refuse_overlay(
                    f"{destination} of the image would be hidden by {bind}", source
                )


def check_fabric(fabric: Fabric, environ: Mapping[str, str]) -> None:
    """Raise HostError like `check_binds`, for the mounts of a fabric's profile."""
    for key, form in (("binds", "{}"), ("libraries", f"{{}}:{FOLDER}")):
        source = fabric.lists.get(key, NOTHING).source
        check_binds(map(form.format, fabric.items(key)), source, environ)


def find_destinations(bind: str) -> Iterator[str]:
    """Yield the destinations in a value of --bind: SRC[:DEST[:OPTS]], or several of these separated
    by commas.
    """
    for one in bind.split(","):
        source, _, rest = one.partition(":")
        destination = (rest.partition(":")[0] or source).strip()  # as the runtime does
        if destination and not re.fullmatch(BIND_OPTION, destination):
            yield destination


def is_of_system(path: str, environ: Mapping[str, str]) -> bool:
    """Return whether the image has its own files at `path`; False in the home folder, which the
    runtime mounts without a bind.
    """
    folders = ("/var/tmp", environ.get("HOME", ""))
    of_user = tuple(f"{folder}/" for folder in folders if folder.strip("/"))
    if f"{path}/".startswith(of_user):
        return False
    return path.strip("/").partition("/")[0] in _SYSTEM


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise HostError for a variable that mounts something over the image, or that names the user's
    own runtime.
    """
    for name in filter(environ.get, environ):
        source = f"{name} (environment)"
        if name in _PATHS:
            check_binds([environ[name]], source, environ)
        if name in _ANYWHERE:
            what = f"the image would be hidden by {environ[name]}"
            raise _refuse(what, source, f"unset {name}")
    runtime = environ.get("JAXSIF_RUNTIME")
    if runtime and not _is_of_staff(find_executable(runtime, environ) or runtime):
        raise _refuse(
            "JAXSIF_RUNTIME must name a runtime that only root or the owner of jaxsif can change:"
            f" {runtime}",
            "JAXSIF_RUNTIME (environment)",
            "unset JAXSIF_RUNTIME, or ask whoever set the policy to install that runtime",
        )


def _is_of_staff(path: str) -> bool:
    """Return whether only root or the owner of this launcher can change the file."""
    status = os.stat(path)
    owners = (0, installation.owner())
    return status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _refuse(problem: str, source: str, hint: str) -> HostError:
    return HostError(f"the policy refuses this run: {problem}", source, hint)


def _refuse_overlay(problem: str, source: str) -> HostError:
    return _refuse(
        problem, source, "leave it out; site staff can set such binds in the site's jaxsif.toml"
    )
