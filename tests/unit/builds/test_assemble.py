"""Packed files come to their places in the engine's tree; tests/cluster has whole images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import siffile

from jaxsif.builds.assemble import add_base, add_parts, find_links, pack_parts, read_system, write_image
from jaxsif.builds.squashfs_writer import write
from jaxsif.images.squashfs import DIRECTORY, FILE, LINK, Data, Node

WHEEL = "/mnt/cache/uv/archive-v0/ID/"


def folder(**children: Node) -> Node:
    return Node(DIRECTORY, 0o755, children={name.encode(): child for name, child in children.items()})


def link(target: str) -> Node:
    return Node(LINK, 0o777, target=target.encode())


def pack(path: Path, root: Node) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        write(out, root, 131072, 0)
    return path


def content(root: Node, path: str) -> bytes:
    node = root
    for name in path.split("/"):
        node = node.children[name.encode()]
    assert node.data
    with open(node.data.path, "rb") as file:
        file.seek(node.data.start)
        return file.read(node.data.length)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A file with data to be packed."""
    (tmp_path / "source").write_bytes(b"onetwo")
    return str(tmp_path / "source")


def file(source: str, start: int, mode: int = 0o644, uid: int = 0, mtime: int = 0) -> Node:
    return Node(FILE, mode, uid, uid, mtime, size=3, data=Data(source, start, (1 << 24 | 3,)))


def test_links_into_the_cache_become_files(tmp_path: Path, source: str) -> None:
    """Whatever the modes, owners and times in the cache; other links stay."""
    packed = tmp_path / "packed"
    wheel = folder(jax=folder(run=file(source, 0, 0o700, 1000, 99), a=file(source, 3, 0o600)))
    pack(packed / "ID-1M.sqfs", wheel)
    pack(packed / "HASH-1M.sqfs", folder(**{"0": file(source, 3)}))
    places = {"run": link(WHEEL + "jax/run"), "a.pyc": link("/mnt/cache/compiled/HASH/0"), "sh": link("/bin/dash")}
    root = folder(site=folder(**places))
    add_parts(root, tmp_path, "1M", 1234)
    site = root.children[b"site"].children
    run, compiled = site[b"run"], site[b"a.pyc"]
    assert [(node.type, node.mode, node.uid, node.gid, node.mtime) for node in (run, compiled)] == [
        (FILE, 0o755, 0, 0, 1234),
        (FILE, 0o644, 0, 0, 1234),
    ]
    assert (content(root, "site/run"), content(root, "site/a.pyc")) == (b"one", b"two")
    assert site[b"sh"] == link("/bin/dash")
    assert list(find_links(root)) == []


def test_the_base_brings_its_files_as_they_are(tmp_path: Path, source: str) -> None:
    """Those that are named and no others: what a build has changed or removed stays so."""
    system = folder(kept=file(source, 0, 0o4755, 42, 7), changed=file(source, 0), removed=file(source, 0))
    base = pack(tmp_path / "base.sqfs", folder(usr=folder(lib=system)))
    root = folder(usr=folder(lib=folder(changed=file(source, 3))))
    add_base(root, base, [b"usr/lib/kept"])
    lib = root.children[b"usr"].children[b"lib"].children
    kept = lib[b"kept"]
    assert set(lib) == {b"kept", b"changed"}
    assert (kept.mode, kept.uid, kept.mtime) == (0o4755, 42, 7)
    assert (content(root, "usr/lib/kept"), content(root, "usr/lib/changed")) == (b"one", b"two")


def test_what_is_packed_is_not_packed_again(tmp_path: Path, source: str) -> None:
    """No process is started; that it was used is noted, so that the cache keeps it."""
    packed = pack(tmp_path / "packed/ID-1M.sqfs", folder(run=file(source, 0)))
    wheel = tmp_path / "uv/archive-v0/ID"
    wheel.mkdir(parents=True)
    os.utime(packed, (0, 0))
    assert pack_parts(folder(run=link(WHEEL + "run")), tmp_path, "1M", tmp_path) == 0
    assert packed.stat().st_mtime > 0


def test_an_image_with_another_file_system(tmp_path: Path, source: str) -> None:
    """The engine's image, but for the tree: no time in it is later than asked for, the mode is the same."""
    packed = pack(tmp_path / "root.sqfs", folder(run=file(source, 0, mtime=99)))
    image = Path(siffile.write_image(tmp_path / "engine.sif", packed.read_bytes()))
    image.chmod(0o750)
    system = read_system(image)
    system.root.children[b"more"] = file(source, 3, mtime=5)
    write_image(tmp_path / "new.sif", system, image, 42)
    found = read_system(tmp_path / "new.sif").root
    assert (content(found, "run"), content(found, "more")) == (b"one", b"two")
    assert [node.mtime for node in found.walk()] == [0, 5, 42]
    assert (tmp_path / "new.sif").stat().st_mode & 0o777 == 0o750
