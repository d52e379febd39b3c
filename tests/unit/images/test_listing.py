"""Images of a folder: the table."""

from __future__ import annotations

import json
import os
import struct
from argparse import Namespace
from pathlib import Path

import pytest
from kit.caught import catch
from kit.siffile import write_image

from jaxsif.commands.image import VERBS
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images import listing
from jaxsif.images.file import remembered_digest
from jaxsif.images.listing import find_folder, list_images, render_item

LABELS = {"io.jaxsif.flavour": "cuda12", "io.jaxsif.jax": "0.12.0", "org.opencontainers.image.created": "2026-11-20"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    write_image(folder / "jax-0.12.0-cuda12.sif", b"fs", labels=LABELS, created=86400)
    write_image(folder / "jax-0.11.0-cpu.sif", b"fs", created=86400)
    write_image(folder / "other.sif", b"fs", created=86400)
    (folder / "broken.sif").write_bytes(b"<html>")
    (folder / ".build.sif").write_bytes(b"")
    return folder


def test_list(folder: Path, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    digest = remembered_digest(str(folder / "jax-0.12.0-cuda12.sif"), environ)
    items = list_images(folder, environ)
    assert [(one.name, one.flavour, one.jax, one.created, one.digest) for one in items] == [
        ("broken.sif", None, None, None, None),
        ("jax-0.11.0-cpu.sif", "cpu", "0.11.0", "1970-01-02T00:00:00+00:00", None),
        ("jax-0.12.0-cuda12.sif", "cuda12", "0.12.0", "1970-01-02T00:00:00+00:00", digest),
        ("other.sif", None, None, "1970-01-02T00:00:00+00:00", None),
    ]
    assert items[0].problem == f"not a SIF image: {folder}/broken.sif"
    assert render_item(items[0]) == ("broken.sif", "-", "-", "0 MB", "-", "-")
    assert render_item(items[2])[3:] == ("0 MB", "1970-01-02", digest[7:19])


def test_odd_files_spoil_no_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no image is listed with its problem, in one line each, whatever its name is."""
    os.mkfifo(folder / "fifo.sif")
    (folder / "gone.sif").symlink_to("nowhere")
    (folder / "round.sif").symlink_to("round.sif")
    (folder / "zero.sif").symlink_to("/dev/zero")
    (folder / "folder.sif").mkdir()
    for name in (b"two\nlines.sif", b"\x1b[2J.sif", b"\xff.sif"):
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_bytes(b"x" * 200)
    odd = {"io.jaxsif.jax": "0.10\n\x1b[2J", "io.jaxsif.flavour": "\ud800"}
    write_image(folder / "jax-0.10.0-cpu.sif", b"fs", labels=odd)
    content = bytearray((folder / "other.sif").read_bytes())
    struct.pack_into("<q", content, 64, 2**62)  # the time of its creation
    (folder / "future.sif").write_bytes(content)
    VERBS["list"].call(Namespace(folder=str(folder), json=False), {"HOME": "/nowhere"})
    said, complaints = capsys.readouterr()
    assert all(line.isprintable() for line in (said + complaints).splitlines())
    names = [line.split()[0] for line in said.splitlines()[1:]]
    assert names == [
        *("\\x1b[2J.sif", "broken.sif", "fifo.sif", "future.sif", "gone.sif", "jax-0.10.0-cpu.sif"),
        *("jax-0.11.0-cpu.sif", "jax-0.12.0-cuda12.sif", "other.sif", "round.sif", "two\\nlines.sif", "zero.sif"),
        "\\udcff.sif",
    ]
    assert sorted(complaints.replace(f"{folder}/", "").splitlines()) == [
        "jaxsif: cannot read image gone.sif: No such file or directory",
        "jaxsif: cannot read image round.sif: Too many levels of symbolic links",
        "jaxsif: image is a FIFO, not a file: fifo.sif",
        "jaxsif: image is a device, not a file: zero.sif",
        f"jaxsif: image is damaged (the time of its creation is {2**62}): future.sif",
        *(f"jaxsif: not a SIF image: {name}.sif" for name in ("\\udcff", "\\x1b[2J", "broken", "two\\nlines")),
    ]
    VERBS["list"].call(Namespace(folder=str(folder), json=True), {"HOME": "/nowhere"})
    assert len(json.loads(capsys.readouterr().out)) == len(names)


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = catch(HostError, list_images, tmp_path / "file", {})
    assert (error.what, error.exit_code) == (f"cannot read {tmp_path}/file: Not a directory", 125)
    assert error.hint == f"its owner can open it: chmod a+rx {tmp_path}/file"


def test_where_images_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build/images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_folder(None, {}) == tmp_path / "build/images"
    assert find_folder(None, {"JAXSIF_IMAGES": str(tmp_path)}) == tmp_path
    assert find_folder(str(tmp_path / "build"), {"JAXSIF_IMAGES": str(tmp_path)}) == tmp_path / "build"
    with pytest.raises(JaxsifError, match="image folder not found: missing") as caught:
        find_folder(None, {"JAXSIF_IMAGES": "missing"})
    assert caught.value.where == "JAXSIF_IMAGES (environment)"
    with pytest.raises(JaxsifError) as caught:
        find_folder("missing", {})
    assert caught.value.hint == "pass another --folder"
    (tmp_path / "file").write_text("")
    assert catch(JaxsifError, find_folder, "file", {}).hint == "it is a file: pass another --folder"


def test_images_beside_an_installed_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called by its full path, without its module's JAXSIF_IMAGES."""
    (tmp_path / "sw/jaxsif/images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(listing, "find_home", lambda: str(tmp_path / "sw/jaxsif/0.1.0"))
    assert find_folder(None, {}) == tmp_path / "sw/jaxsif/images"
    (tmp_path / "build/images").mkdir(parents=True)
    assert find_folder(None, {}) == tmp_path / "build/images"
