"""Requirements -> the packages that an image lacks for them, found by uv in the image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxsif.errors import HostError, JaxsifError
from jaxsif.layers.workspace import SEEN_AS, Workspace, tail

_ADDED = re.compile(r"^ \+ ([\w.-]+)((?:==| @ )\S+)(?: \(from (\S+)\))?$", re.MULTILINE)
_REMOVED = re.compile(r"^ - ([\w.-]+)(?:==| @ )\S+", re.MULTILINE)
_SUMMARY = re.compile(r"^Would (?:install (\d+) package|make no changes)", re.MULTILINE)
# As uv says it of a server that does not answer, or answers that it cannot serve now; a 404 is the
# request's fault.
_NO_NETWORK = re.compile(
    r"client error \(Connect\)|dns error|operation timed out"
    r"|HTTP status (server error|client error \(429)"
)
_PIN = re.compile(r"(?<![\w.-])([\w.-]+)==([^\s,]*[^\s,.])")


class Resolution(NamedTuple):
    """What uv would do in the image."""

    install: dict[str, str]  # package -> the requirement of just this version of it
    replaced: tuple[str, ...]  # packages of the image that would go


def parse_plan(lines: Sequence[str]) -> Resolution:
    """Return the plan that `uv pip install --dry-run` prints; raises HostError for one that cannot
    be read.

    uv's JSON has a version of each package, but not the address of a wheel that was given by one.
    """
    text = "\n".join(lines)
    install = {
        name: f"{name} @ {address}" if address else f"{name}{version}"
        for name, version, address in _ADDED.findall(text)
    }
    summary = _SUMMARY.search(text)
    if not summary or len(install) != int(summary[1] or 0):
        raise HostError("cannot read what uv said:", "uv", "use another version of uv", tail(lines))
    return Resolution(install, tuple(_REMOVED.findall(text)))


def resolve(
    container: Workspace, image: dict[str, Any], allow_replace: Sequence[str]
) -> Resolution:
    """Return the packages to install for requirements.txt; raises JaxsifError where they do not go
    with the image's.
    """
    kept = {name: one for name, one in image["packages"].items() if name not in allow_replace}
    constraints = "".join(f"{name}=={version}\n" for name, version in kept.items())
    (container.scratch / "constraints.txt").write_text(constraints)
    files = [
        f"--constraint={SEEN_AS}/constraints.txt",
        f"--requirements={SEEN_AS}/requirements.txt",
    ]
    status, lines = container.run(*uv_install(image), "--dry-run", *files)
    if status:
        raise explain(lines, kept)
    return parse_plan(lines)


def explain(lines: Sequence[str], kept: dict[str, str]) -> JaxsifError:
    """Return uv's reason for no plan, as an error that names the packages of the image which are in
    the way.
    """
    pins = dict.fromkeys(_PIN.findall("\n".join(lines)))
    named = [name for name, version in pins if kept.get(name) == version]
    reason = tail(lines)
    if named:
        packages = ", ".join(f"{name} {kept[name]}" for name in named)
        remedy = " ".join(f"--allow-replace {name}" for name in named)
        return JaxsifError(
            f"the requirements do not go with {packages} of the image:",
            "requirements",
            f"ask for other versions, or let the layer have its own: {remedy}",
            reason,
        )
    if _NO_NETWORK.search(reason):
        return HostError(
            "the package index cannot be reached:",
            "requirements",
            "run it where the network is; for a proxy or an index of your own, see docs/build.md",
            reason,
        )
    return JaxsifError(
        "uv cannot resolve the requirements:", "requirements", "correct what it names", reason
    )


def uv_install(image: dict[str, Any]) -> list[str]:
    """Return the beginning of a command line of uv's."""
    # The image's Python may belong to a distribution, which forbids changes; these go to a folder
    # of their own.
    options = ["--break-system-packages", "--no-build", "--color", "never", "--no-progress"]
    return [f"{SEEN_AS}/uv", "pip", "install", "--python", image["executable"], *options]
