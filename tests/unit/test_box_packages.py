"""Apptainer's package in the cluster in a box: what is offered to apt, and what is said of the version."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from box import packages


def write_status(rootfs: Path, version: str) -> Path:
    (rootfs / "var/lib/dpkg").mkdir(parents=True)
    others = [f"Package: {name}\nStatus: install ok installed\nVersion: 9\n" for name in ("adduser", "zlib")]
    apptainer = f"Package: apptainer\nStatus: install ok installed\nDepends: adduser (>= 1)\nVersion: {version}\n"
    (rootfs / "var/lib/dpkg/status").write_text("\n".join([others[0], apptainer, others[1]]))
    return rootfs


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (packages.KNOWN, f"Apptainer {packages.KNOWN}: the version that the tests know"),
        ("9.5.3-1", f"Apptainer 9.5.3-1: neither mirror nor cache has {packages.KNOWN}"),
    ],
)
def test_version_is_named(tmp_path: Path, version: str, said: str) -> None:
    assert packages.describe(write_status(tmp_path, version)) == said


@pytest.mark.starts_processes  # dpkg-deb
def test_packages_are_offered_unless_damaged(tmp_path: Path) -> None:
    (tmp_path / "a/DEBIAN").mkdir(parents=True)
    fields = "Package: apptainer\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: y\n"
    (tmp_path / "a/DEBIAN/control").write_text(fields)
    kept = tmp_path / "kept"
    kept.mkdir()
    subprocess.run(["dpkg-deb", "--build", tmp_path / "a", kept / "apptainer_1_all.deb"], check=True)
    packages.keep(kept)
    (named,) = kept.iterdir()
    (kept / f"{'0' * 64}.deb").write_bytes(named.read_bytes()[:-1])
    packages.discard_damaged(kept)
    index = packages.render_index(kept)
    assert index == f"{fields}Filename: ./{named.name}\nSize: {named.stat().st_size}\nSHA256: {named.stem}\n"
