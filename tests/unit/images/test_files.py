"""The files of an image: as unsquashfs writes them, and in a folder."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from jaxsif.images.files import Entry, _parse_pseudo_file, read_files

# As unsquashfs 4.6.1 wrote it, its comments left out.
PSEUDO = (
    rb"""/ D 1795182671 755 1000 1000
a\ b D 1795182671 2755 0 42
a\ b/li\ nk S 1795182671 777 1000 1000 tar get
a\ b/q\"uo\\te R 1795182671 4644 1000 1000 3 0 0
empty R 1795182671 644 1000 1000 0 3 0
ff I 1795182671 644 1000 1000 f
null C 1795182671 666 0 0 1 3
new\
line R 1795182671 644 1000 1000 1 3 0
other L empty
sock I 1795182671 755 0 0 s
"""
    + b"uni\xff R 1795182671 644 0 0 2 4 0\n"
    + b"#\n# START OF DATA - DO NOT MODIFY\n#\n"
    + b"hi\n"
    + b"x"
    + b"#\n"
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_unsquashfs_output() -> None:
    empty = Entry("file", "644", "1000:1000", 0, sha256(b""))
    assert _parse_pseudo_file(io.BytesIO(PSEUDO)) == {
        "": Entry("folder", "755", "1000:1000", 0, ""),
        "a b": Entry("folder", "2755", "0:42", 0, ""),
        "a b/li nk": Entry("link", "", "1000:1000", 0, "tar get"),
        'a b/q"uo\\te': Entry("file", "4644", "1000:1000", 3, sha256(b"hi\n")),
        "empty": empty,
        "ff": Entry("pipe", "644", "1000:1000", 0, ""),
        "null": Entry("device", "666", "0:0", 0, "1 3"),
        "new\nline": Entry("file", "644", "1000:1000", 1, sha256(b"x")),
        "other": empty,
        "sock": Entry("socket", "755", "0:0", 0, ""),
        "uni\udcff": Entry("file", "644", "0:0", 2, sha256(b"#\n")),
    }


@pytest.mark.parametrize("size", [0, 40, len(PSEUDO) - 8, len(PSEUDO) - 1])
def test_unsquashfs_output_that_is_cut_short(size: int) -> None:
    assert _parse_pseudo_file(io.BytesIO(PSEUDO[:size])) is None


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub/file").write_bytes(b"hi")
    (tmp_path / "sub/file").chmod(0o4755)
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o600)
    tmp_path.chmod(0o755)
    owner = f"{os.getuid()}:{os.stat(tmp_path / 'sub').st_gid}"
    assert read_files(str(tmp_path)) == {
        "": Entry("folder", "755", owner, 0, ""),
        "sub": Entry("folder", "700", owner, 0, ""),
        "sub/file": Entry("file", "4755", owner, 2, sha256(b"hi")),
        "loop": Entry("link", "", owner, 0, "."),
        "pipe": Entry("pipe", "600", owner, 0, ""),
    }
