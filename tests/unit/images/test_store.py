"""Images of a folder: the table, the modules that point to them, removal."""

from __future__ import annotations

import json
import os
import struct
from argparse import Namespace
from pathlib import Path

import pytest
from bounds import read_bounded
from siffile import descriptor

import jaxsif.commands.image.list as list_command
from jaxsif.errors import JaxsifError
from jaxsif.images.file import remembered_digest
from jaxsif.images.store import (
    Shelf,
    find_modules,
    find_shelf,
    list_images,
    remove_image,
    render_item,
)

LABELS = {"io.jaxsif.flavour": "cuda12", "io.jaxsif.jax": "0.12.0", "org.opencontainers.image.created": "2026-11-20"}


def write_image(path: Path, labels: dict[str, str] | None) -> None:
    """A SIF file with labels, as the runtime keeps them, and two bytes for a file system."""
    text = json.dumps({"data": {"attributes": {"labels": labels}}}).encode() if labels is not None else b"{}"
    table = descriptor(0x4006, 4096, len(text)) + descriptor(0x4004, 8192, 2, struct.pack("<ii3s", 1, 2, b"02\0"))
    numbers = struct.pack("<8q", 86400, 0, 0, len(table) // 585, 128, len(table), 4096, 4098)
    header = bytes(32) + b"SIF_MAGIC\0" + bytes(22) + numbers
    path.write_bytes(((header + table).ljust(4096, b"\0") + text).ljust(8192, b"\0") + b"fs")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """PREFIX/jaxsif/images, and three modules that point to one image, and one that points to none."""
    folder = tmp_path / "jaxsif/images"
    folder.mkdir(parents=True)
    write_image(folder / "jax-0.12.0-cuda12.sif", LABELS)
    write_image(folder / "jax-0.11.0-cpu.sif", None)
    write_image(folder / "other.sif", None)
    (folder / "broken.sif").write_bytes(b"<html>")
    (folder / ".build.sif").write_bytes(b"")
    modules = tmp_path / "modulefiles"
    (modules / "jax").mkdir(parents=True)
    image = folder / "jax-0.12.0-cuda12.sif"
    (modules / "jax/0.12.0-cuda12-sif.lua").write_text(f'local image = "{image}"\nsetenv("JAX_IMAGE", image)\n')
    (modules / "jax/0.12.0-cuda12-sif").write_text(f"#%Module\nsetenv JAX_IMAGE {image}\n")
    (modules / "jax/b.lua").write_text('setenv("JAX_IMAGE", pathJoin(p, "images/jax-0.12.0-cuda12.sif"))\n')
    (modules / "jax/1.0-tcl").write_text(f"#%Module\nsetenv JAX_IMAGE {image}\n")
    (modules / "jax/c.lua").write_text(f'-- {image}\nsetenv("OTHER", "x")\n')
    (modules / "jax/d.lua").write_text('setenv("JAX_IMAGE", "/old/images/other.sif")\n')
    (modules / "jax/.modulerc.lua").write_text(f'-- JAX_IMAGE "{image}"\n')
    return Shelf(folder, "--folder")


def test_list(shelf: Shelf, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    digest = remembered_digest(str(shelf.folder / "jax-0.12.0-cuda12.sif"), environ)
    items = list_images(shelf, environ)
    assert [(one.name, one.flavour, one.jax, one.created, one.digest) for one in items] == [
        ("broken.sif", None, None, None, None),
        ("jax-0.11.0-cpu.sif", "cpu", "0.11.0", "1970-01-02T00:00:00+00:00", None),
        ("jax-0.12.0-cuda12.sif", "cuda12", "0.12.0", "2026-11-20", digest),
        ("other.sif", None, None, "1970-01-02T00:00:00+00:00", None),
    ]
    assert items[0].problem == f"not a SIF image: {shelf.folder}/broken.sif"
    assert [one.modules for one in items[1:]] == [(), ("jax/0.12.0-cuda12-sif", "jax/1.0-tcl", "jax/b"), ()]
    modules = "jax/0.12.0-cuda12-sif, jax/1.0-tcl, jax/b"
    assert render_item(items[0]) == ("broken.sif", "-", "-", "0 MB", "-", "-", "-")
    assert render_item(items[2])[3:] == ("0 MB", "2026-11-20", digest[7:19], modules)


def test_odd_files_spoil_no_list(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no image is listed with its problem, in one line each, whatever its name is."""
    os.mkfifo(shelf.folder / "fifo.sif")
    (shelf.folder / "gone.sif").symlink_to("nowhere")
    (shelf.folder / "round.sif").symlink_to("round.sif")
    (shelf.folder / "zero.sif").symlink_to("/dev/zero")
    (shelf.folder / "folder.sif").mkdir()
    for name in (b"two\nlines.sif", b"\x1b[2J.sif", b"\xff.sif"):
        Path(os.fsdecode(bytes(shelf.folder) + b"/" + name)).write_bytes(b"x" * 200)
    write_image(shelf.folder / "jax-0.10.0-cpu.sif", {"io.jaxsif.jax": "0.10\n\x1b[2J", "io.jaxsif.flavour": "\ud800"})
    content = bytearray((shelf.folder / "other.sif").read_bytes())
    struct.pack_into("<q", content, 64, 2**62)  # the time of its creation
    (shelf.folder / "future.sif").write_bytes(content)
    assert list_command.call(Namespace(folder=str(shelf.folder), json=False), {"HOME": "/nowhere"}) == 0
    said, complaints = capsys.readouterr()
    assert all(line.isprintable() for line in (said + complaints).splitlines())
    names = [line.split()[0] for line in said.splitlines()[1:]]
    assert names == [
        *("\\x1b[2J.sif", "broken.sif", "fifo.sif", "future.sif", "gone.sif", "jax-0.10.0-cpu.sif"),
        *("jax-0.11.0-cpu.sif", "jax-0.12.0-cuda12.sif", "other.sif", "round.sif", "two\\nlines.sif", "zero.sif"),
        "\\udcff.sif",
    ]
    assert sorted(complaints.replace(f"{shelf.folder}/", "").splitlines()) == [
        "jaxsif: cannot read image gone.sif: No such file or directory",
        "jaxsif: cannot read image round.sif: Too many levels of symbolic links",
        "jaxsif: image is a FIFO, not a file: fifo.sif",
        "jaxsif: image is a device, not a file: zero.sif",
        f"jaxsif: image is damaged, the time of its creation is {2**62}: future.sif",
        *(f"jaxsif: not a SIF image: {name}.sif" for name in ("\\udcff", "\\x1b[2J", "broken", "two\\nlines")),
    ]
    assert list_command.call(Namespace(folder=str(shelf.folder), json=True), {"HOME": "/nowhere"}) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(names)


def test_modulefile_that_is_no_text(shelf: Shelf) -> None:
    """It is read in linear time, and only its beginning."""
    folder = shelf.folder.parent.parent / "modulefiles/jax"
    for name, text in (("e", b"x" * 3_000_000), ("f", b"a.s" * 300_000), ("g", b"\xff.sif " * 9)):
        (folder / name).write_bytes(b"JAX_IMAGE " + text)
    os.mkfifo(folder / "h")
    assert read_bounded(lambda: find_modules(shelf.folder / "other.sif")) is None


def test_module_that_names_the_image_in_another_way(shelf: Shelf, tmp_path: Path) -> None:
    """Through a link, or behind a variable; the end of a longer name is another image."""
    (tmp_path / "link").symlink_to(tmp_path / "jaxsif")
    image = shelf.folder / "other.sif"
    modulefile = tmp_path / "modulefiles/jax/d.lua"
    for text, points in (
        (f'setenv("JAX_IMAGE", "{tmp_path}/link/images/other.sif")', True),
        ('setenv("JAX_IMAGE", prefix .. "/images/other.sif")', True),
        ('setenv("JAX_IMAGE", "other.sif")', True),
        ('setenv("JAX_IMAGE", prefix .. "/images/another.sif")', False),
    ):
        modulefile.write_text(text)
        assert list(find_modules(image)) == (["jax/d"] if points else []), text


def test_folder_without_modules_beside_it(tmp_path: Path) -> None:
    assert find_modules(tmp_path / "a/b/c.sif") == {}
    assert list_images(Shelf(tmp_path, ""), {}) == []


def test_where_images_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build/images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_shelf(None, {}).folder == tmp_path / "build/images"
    assert find_shelf(None, {"JAXSIF_IMAGES": str(tmp_path)}) == Shelf(tmp_path, "JAXSIF_IMAGES (environment)")
    assert find_shelf(str(tmp_path / "build"), {"JAXSIF_IMAGES": str(tmp_path)}).source == "--folder"
    with pytest.raises(JaxsifError, match="no folder of images: missing") as caught:
        find_shelf(None, {"JAXSIF_IMAGES": "missing"})
    assert caught.value.where == "JAXSIF_IMAGES (environment)"


@pytest.mark.parametrize("name", ["jax-0.11.0-cpu", "jax-0.11.0-cpu.sif"])
def test_remove(shelf: Shelf, name: str) -> None:
    """With its side files, and nothing of its neighbours; the second time there is nothing to do."""
    image = shelf.folder / "jax-0.11.0-cpu.sif"
    sides = [shelf.folder / f"jax-0.11.0-cpu.sif.{end}" for end in ("inputs", "log")]
    for path in (*sides, shelf.folder / "jax-0.11.0-cpu.sifter"):
        path.touch()
    assert remove_image(shelf, name, force=False) == [image, *sides]
    assert [path.name for path in sorted(shelf.folder.glob("[a-z]*"))] == [
        *("broken.sif", "jax-0.11.0-cpu.sifter", "jax-0.12.0-cuda12.sif", "other.sif"),
    ]
    assert remove_image(shelf, name, force=False) == []
    sides[0].touch()  # what an interrupted removal left
    assert remove_image(shelf, name, force=False) == sides[:1]


def test_image_that_a_module_points_to(shelf: Shelf) -> None:
    image = shelf.folder / "jax-0.12.0-cuda12.sif"
    with pytest.raises(JaxsifError) as caught:
        remove_image(shelf, image.name, force=False)
    assert caught.value.what == "module jax/0.12.0-cuda12-sif points to jax-0.12.0-cuda12.sif"
    assert caught.value.where.endswith("/modulefiles/jax/0.12.0-cuda12-sif.lua")
    assert image.exists()
    assert remove_image(shelf, image.name, force=True) == [image]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd"])
def test_what_is_no_name(shelf: Shelf, name: str) -> None:
    with pytest.raises(JaxsifError, match="not the name of an image"):
        remove_image(shelf, name, force=True)
