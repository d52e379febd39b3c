"""Where a build's small files are written; tests/cluster has full disks."""

from __future__ import annotations

from pathlib import Path

from jaxsif.files import fast_folder


def test_a_folder_in_memory(tmp_path: Path) -> None:
    """Only one that has room, on this host, and that is there."""
    assert fast_folder(1, "disk", str(tmp_path)) == str(tmp_path)
    assert fast_folder(1 << 60, "disk", str(tmp_path)) == "disk"
    assert fast_folder(1, "disk", str(tmp_path / "none")) == "disk"
    assert fast_folder(1, "disk", "/proc/self") == "disk"
