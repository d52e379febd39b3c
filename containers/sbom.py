"""What this system is made of, as a CycloneDX 1.6 document on standard output: Debian packages, Python, its packages.

It runs in the image, with the image's own Python, from 3.8 on: at the end of a build, and for `jaxsif image sbom`.
The same system gives the same bytes: no time, no serial number, everything sorted.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import quote


def find_components(root: Path = Path("/")) -> list[dict]:
    """Everything that was found, by its purl."""
    release = read_os_release(root)
    found = [*debian_packages(root, release), *python_packages()]
    version = platform.python_version()
    found.append(component("platform", "python", version, f"pkg:generic/python@{version}"))
    by_purl = {one["purl"]: one for one in found}  # the first of two on Python's path is the one that counts
    return [by_purl[purl] for purl in sorted(by_purl)]


def component(kind: str, name: str, version: str, purl: str, licences: list[dict] | None = None) -> dict:
    """A component; what is unknown is left out."""
    made = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**made, "licenses": licences} if licences else made


def read_os_release(root: Path) -> dict[str, str]:
    """ID, VERSION_ID and others; nothing where the system does not tell."""
    path = root / "etc/os-release"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip("\"'") for name, equals, value in pairs if equals}


def debian_packages(root: Path, release: dict[str, str]) -> list[dict]:
    """The installed packages of dpkg's list; none in another system."""
    status = root / "var/lib/dpkg/status"
    text = status.read_text(errors="replace") if status.exists() else ""
    paragraphs = (dict(re.findall(r"^([\w-]+): (.*)$", part, re.MULTILINE)) for part in text.split("\n\n"))
    return [debian_package(root, release, one) for one in paragraphs if one.get("Status", "").endswith(" installed")]


def debian_package(root: Path, release: dict[str, str], fields: dict[str, str]) -> dict:
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/{release.get('ID', 'debian')}/{name}@{quote(version, safe=':~')}?arch={fields['Architecture']}"
    if "VERSION_CODENAME" in release:
        purl += f"&distro={release['VERSION_CODENAME']}"
    copyright_file = root / f"usr/share/doc/{name}/copyright"
    text = copyright_file.read_text(errors="replace") if copyright_file.exists() else ""
    # Debian's machine-readable form; older files are prose.
    names = set(re.findall(r"^License: *(\S.*?)\s*$", text, re.MULTILINE)) if text.startswith("Format:") else set()
    return component("library", name, version, purl, [{"license": {"name": one}} for one in sorted(names)])


def python_packages() -> list[dict]:
    """The distributions that this Python finds."""
    found = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name and distribution.version:  # a broken installation may have none
            name = re.sub(r"[-_.]+", "-", name).lower()
            found.setdefault(name, (distribution.version, distribution.metadata))
    return [
        component("library", name, version, f"pkg:pypi/{name}@{quote(version, safe='')}", python_licences(metadata))
        for name, (version, metadata) in found.items()
    ]


def python_licences(metadata: Message) -> list[dict]:
    """Of a package's metadata: an SPDX expression, else its classifiers, else one line of its own words."""
    if metadata["License-Expression"]:
        return [{"expression": metadata["License-Expression"]}]
    classifiers = [one.split(" :: ") for one in metadata.get_all("Classifier") or []]
    names = {one[-1] for one in classifiers if one[0] == "License"}
    own = (metadata["License"] or "").strip()
    if not names and own and "\n" not in own:  # some have the whole text of the licence here
        names = {own}
    return [{"license": {"name": name}} for name in sorted(names)]


def build_document(root: Path = Path("/")) -> dict:
    """The document."""
    release = read_os_release(root)
    system = {"type": "operating-system", "name": release.get("ID", "unknown")}
    if "VERSION_ID" in release:
        system["version"] = release["VERSION_ID"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": system},
        "components": find_components(root),
    }


if __name__ == "__main__":
    # ASCII, whatever the locale.
    sys.stdout.write(json.dumps(build_document(), indent=1) + "\n")
