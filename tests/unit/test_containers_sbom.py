"""The script that lists what a system is made of."""

from __future__ import annotations

import json
import platform
from email.message import Message
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from kit.scripts import load_script

sbom = load_script(Path(__file__).resolve().parents[2] / "containers/sbom.py")

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1
Description: GNU C Library: Shared libraries
 Version: not a field

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: bsdutils
Status: hold ok installed
Architecture: amd64
Version: 1:2.41-5~rc1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13"\nID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n',
        "var/lib/dpkg/status": STATUS,
        "usr/share/doc/libc6/copyright": "Format: x\n\nLicense: LGPL-2.1+\n text\n\nLicense: GPL-2\nLicense: GPL-2\n",
        "usr/share/doc/bsdutils/copyright": "It is in the public domain.\nLicense: no field\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_debian_packages(root: Path) -> None:
    found = {one["name"]: one for one in sbom.find_components(root) if one["purl"].startswith("pkg:deb/")}
    assert set(found) == {"libc6", "bsdutils"}
    assert found["libc6"]["purl"] == "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64&distro=trixie"
    assert found["libc6"]["licenses"] == [{"license": {"name": "GPL-2"}}, {"license": {"name": "LGPL-2.1+"}}]
    assert found["bsdutils"]["purl"] == "pkg:deb/debian/bsdutils@1:2.41-5~rc1?arch=amd64&distro=trixie"
    assert "licenses" not in found["bsdutils"]


def test_document_is_valid_sorted_and_the_same_again(root: Path) -> None:
    document = sbom.build_document(root)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None
    assert document["metadata"]["component"] == {"type": "operating-system", "name": "debian", "version": "13"}
    purls = [one["purl"] for one in document["components"]]
    assert purls == sorted(set(purls))
    assert f"pkg:generic/python@{platform.python_version()}" in purls
    assert sbom.build_document(root) == document


def test_system_that_is_not_debian(tmp_path: Path) -> None:
    document = sbom.build_document(tmp_path)
    assert document["metadata"]["component"] == {"type": "operating-system", "name": "unknown"}
    assert {one["purl"].split("/")[0] for one in document["components"]} == {"pkg:pypi", "pkg:generic"}


@pytest.mark.parametrize(
    ("fields", "licences"),
    [
        ([("License-Expression", "MIT OR GPL-2.0-only"), ("License", "x")], [{"expression": "MIT OR GPL-2.0-only"}]),
        (
            [("License", "x"), ("Classifier", "License :: OSI Approved :: MIT License"), ("Classifier", "Topic :: a")],
            [{"license": {"name": "MIT License"}}],
        ),
        ([("License", "Apache-2.0")], [{"license": {"name": "Apache-2.0"}}]),
        ([("License", "Copyright\n\nPermission is")], []),
        ([], []),
    ],
    ids=["expression", "classifier", "one line", "whole text", "nothing"],
)
def test_python_licences(fields: list[tuple[str, str]], licences: list[dict[str, object]]) -> None:
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert sbom.python_licences(metadata) == licences
