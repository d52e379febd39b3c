"""The policies of the settings files: which images `jaxsif run` may start, by their digest or by who signed them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxsif.config import Config, Setting
from jaxsif.errors import HostError, JaxsifError
from jaxsif.imagefile import checksum, find_state, remembered, remembered_digest
from jaxsif.images.signing import find_signer, is_fingerprint, verify

_DIGESTS = "policy.digests"


class Subject(NamedTuple):
    """What a policy is about."""

    image: str | None  # None where no container is run
    source: str  # the option, variable or file that named the image
    runtime: str | None


class Allowed(NamedTuple):
    """The image that the policies allow."""

    digest: str
    state: str  # of the file that has it, as `find_state` tells
    reasons: tuple[str, ...]  # for people: why each policy allows it


def check_policies(config: Config, subject: Subject, environ: Mapping[str, str]) -> Allowed:
    """Raise HostError unless the policies of all files allow the image; say which image that is.

    What was found of a file is remembered, since its gigabytes take seconds to read. The image's folder may be another
    user's, and the image another one when a node mounts it: the node compares the digest and the state.
    """
    image = subject.image
    state = find_state(image) if image else ""
    reasons = tuple(_check(name, policy, subject, environ) for name, policy in config.policies)
    assert image is not None  # no policy allows that
    digest = remembered_digest(image, environ)
    _check_state(image, state, subject.source)
    return Allowed(digest, state, reasons)


def find_checksum(image: str, state: str, source: str, environ: Mapping[str, str]) -> str:
    """SHA-256 of the file of an image that is allowed; raises HostError where it is another one by now."""
    found = remembered(image, "checksum", environ, lambda: checksum(image))
    _check_state(image, state, source)
    return found


def _check_state(image: str, state: str, source: str) -> None:
    if find_state(image) != state:
        raise HostError(f"the image changed while the policy looked at it: {image}", source, "run it again")


def _check(name: str, policy: Setting, subject: Subject, environ: Mapping[str, str]) -> str:
    image, runtime = subject.image, subject.runtime
    try:
        if image is None or runtime is None:
            raise HostError("there is no container here")
        if os.path.isdir(image):
            raise HostError(f"{image} is a folder, and has neither digest nor signature")
        if name == _DIGESTS:
            return f"{name} of {policy.source} holds: {_find_digest(image, policy.value, environ)}"
        keys = [_key_path(key, policy.source) for key in policy.value]
        signer = find_signer(image, keys, lambda key: _signer(runtime, image, key, environ))
        return f"{name} of {policy.source} holds: signed by {signer}"
    except JaxsifError as error:
        raise HostError(
            f"the policy refuses this run: {error.what}",
            f"{name} in {policy.source}; the image is from {subject.source}",
            "run an image that the policy allows, or ask who set it",
        ) from error


def _find_digest(image: str, allowed: Sequence[str], environ: Mapping[str, str]) -> str:
    found = remembered_digest(image, environ)
    if found not in allowed:
        raise HostError(f"the digest of {image} is {found}")
    return found


def _key_path(key: str, source: str) -> str:
    """A PEM file's path as from the folder of the settings file that names it; a fingerprint as it is."""
    return key if is_fingerprint(key) else os.path.join(os.path.dirname(source), key)


def _signer(runtime: str, image: str, key: str, environ: Mapping[str, str]) -> str:
    """As `verify`, remembered for this file and this key, not only its path."""
    content = key if is_fingerprint(key) else _read_key(key)
    return remembered(image, f"signed by {content}", environ, lambda: verify(runtime, image, key, environ))


def _read_key(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise HostError(f"cannot read the key {path}: {error.strerror}") from error
