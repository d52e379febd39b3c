"""Which image counts, the digest of its root file system, and when that is read again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kit.caught import catch, error_of
from kit.siffile import OVERLAY, descriptor, sha256, write_image

from jaxsif.errors import HostError
from jaxsif.images.file import Image, digest, find_image, find_root, find_state, known, remembered, remembered_digest
from jaxsif.settings.options import Setting


def test_digest_is_that_of_the_root_file_system(tmp_path: Path) -> None:
    content = b"squashfs" * 300_000
    seen: list[tuple[int, int]] = []
    image = write_image(tmp_path / "a.sif", content)
    assert digest(image, progress=lambda *numbers: seen.append(numbers)) == sha256(content)
    assert seen == [(done, len(content)) for done in (1 << 20, 2 << 20, len(content))]
    assert digest(write_image(tmp_path / "b.sif", content, descriptor(0x4005, 1, 2))) == sha256(content)  # signed


def test_image_with_an_overlay_in_it(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="image has 2 partitions, 1 of them with a root file system"):
        find_root(write_image(tmp_path / "a.sif", b"x", descriptor(0x4004, 8192, 1, OVERLAY)))


def test_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    image = write_image(tmp_path / "a.sif", b"one")
    memory = tmp_path / "cache/jaxsif/images.json"
    assert known(image, "digest", environ) is None
    assert remembered_digest(image, environ) == known(image, "digest", environ) == sha256(b"one")
    entries = json.loads(memory.read_text())
    entries[image]["digest"] = "sha256:as remembered"
    memory.write_text(json.dumps(entries))
    assert remembered_digest(image, environ) == "sha256:as remembered"
    write_image(tmp_path / "a.sif", b"two")
    assert known(image, "digest", environ) is None
    assert remembered_digest(image, environ) == sha256(b"two")


def test_another_host_remembers_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a network's file system is each host's own."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    image = write_image(tmp_path / "a.sif", b"one")
    remembered_digest(image, environ)
    here, stat_here = find_state(image), os.stat

    def stat_elsewhere(path: str, **options: bool) -> os.stat_result:
        status = stat_here(path, **options)
        times = {name: getattr(status, name) for name in ("st_mtime_ns", "st_ctime_ns")}
        return os.stat_result((*status[:2], status.st_dev + 1, *status[3:]), times)

    monkeypatch.setattr(os, "stat", stat_elsewhere)
    assert (known(image, "digest", environ), find_state(image)) == (sha256(b"one"), here)


@pytest.mark.parametrize("text", ["", "[", "{}", '{"/a.sif": {"sta', "\ud800"])
def test_memory_that_was_cut_short(tmp_path: Path, text: str) -> None:
    (tmp_path / "jaxsif").mkdir()
    (tmp_path / "jaxsif/images.json").write_text(text, errors="surrogatepass")
    image = write_image(tmp_path / "a.sif", b"one")
    assert remembered_digest(image, {"XDG_CACHE_HOME": str(tmp_path)}) == sha256(b"one")


def test_each_thing_is_remembered_for_itself(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    image = write_image(tmp_path / "a.sif", b"one")
    assert [remembered(image, what, environ, lambda what=what: f"{what} found") for what in "abab"] == [
        "a found",
        "b found",
        "a found",
        "b found",
    ]
    assert remembered(image, "a", environ, lambda: "found again") == "a found"
    write_image(tmp_path / "a.sif", b"two")
    assert remembered(image, "a", environ, lambda: "found again") == "found again"


def test_what_raises_is_not_remembered(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    image = write_image(tmp_path / "a.sif", b"one")

    def fail() -> str:
        raise HostError("no")

    with pytest.raises(HostError):
        remembered(image, "a", environ, fail)
    assert not (tmp_path / "jaxsif").exists()


def test_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    image = write_image(tmp_path / "a.sif", b"one")
    assert remembered_digest(image, {"XDG_CACHE_HOME": str(tmp_path / "file")}) == sha256(b"one")


@pytest.mark.parametrize(
    ("setting", "found", "source"),
    [
        (Setting("a.sif", "--image"), "a.sif", "--image"),
        (Setting("b.sif", "JAX_IMAGE (environment)"), "b.sif", "JAX_IMAGE (environment)"),
        (None, "jax.sif", "./jax.sif"),
        (Setting("a folder", "--image"), "a folder", "--image"),
    ],
    ids=["option", "variable", "default", "sandbox folder"],
)
def test_image(folder: Path, setting: Setting | None, found: str, source: str) -> None:
    for name in ("a.sif", "b.sif", "jax.sif"):
        write_image(folder / name, b"x")
    (folder / "a folder/.singularity.d").mkdir(parents=True)
    assert find_image(setting) == Image(f"{folder}/{found}", source)


LONG = "x" * 300

NOT_FOUND = """\
jaxsif: error: image not found: {}
  from: --image
  try:  correct its path, or leave --image out and call module load jax/sif"""
NO_FILE = """\
jaxsif: error: cannot read image {}: {}
  from: --image
  try:  check its path and permissions, or ask its owner"""


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("nowhere.sif", NOT_FOUND.format("nowhere.sif")),
        ("file/jax.sif", NOT_FOUND.format("file/jax.sif")),
        (
            "docker://python:3.13",
            "jaxsif: error: image not found: docker://python:3.13\n"
            "  from: --image\n"
            "  try:  download it first: jaxsif image pull docker://python:3.13",
        ),
        (LONG, NO_FILE.format(LONG, "File name too long")),
        (f"loop/{LONG}", NO_FILE.format(f"loop/{LONG}", "Too many levels of symbolic links")),
        (
            "folder",
            "jaxsif: error: not an image: folder is a folder without .singularity.d\n"
            "  from: --image\n"
            "  try:  pass a .sif file",
        ),
        (
            "file",
            "jaxsif: error: not a SIF image: file\n"
            "  from: --image\n"
            "  try:  make image, or give the path of a .sif file",
        ),
    ],
    ids=["missing", "below a file", "an address", "a long name", "a loop of links", "a folder", "another file"],
)
def test_image_refused(folder: Path, named: str, text: str) -> None:
    (folder / "file").write_text("hello\n")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    assert error_of(catch(HostError, find_image, Setting(named, "--image"))) == (125, text)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_damaged_image_of_a_module_is_its_owners_to_mend(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    (folder / "file").write_text("hello\n")
    monkeypatch.setattr(os, "access", lambda path, mode: is_own)  # root may write to all files
    hint = catch(HostError, find_image, Setting("file", "JAX_IMAGE (environment)")).hint
    mend = "report it to its owner, and load another module or pass --image PATH"
    assert hint == ("make image, or pass --image PATH to a .sif file" if is_own else mend)


@pytest.mark.parametrize("source", ["IMAGE", "A", "run.image in /sw/jaxsif/jaxsif.toml"])
def test_the_option_is_told_where_there_is_one(folder: Path, source: str) -> None:
    (folder / "file").write_text("hello\n")
    hints = [catch(HostError, find_image, Setting(named, source)).hint for named in ("gone.sif", "file")]
    assert hints == [
        f"correct its path{'' if source.isupper() else ', or call module load jax/sif'}",
        "make image, or give the path of a .sif file",
    ]


def test_an_image_that_a_module_named_is_also_for_site_staff(folder: Path) -> None:
    hint = catch(HostError, find_image, Setting("gone.sif", "JAX_IMAGE (environment)")).hint
    assert hint == "correct JAX_IMAGE, or pass --image PATH; if a module set it, tell site staff"


def test_no_image_at_all(folder: Path) -> None:
    assert error_of(catch(HostError, find_image, None)) == (
        125,
        "jaxsif: error: no image: JAX_IMAGE names none, and there is no ./jax.sif here\n"
        "  try:  module load jax/sif, or name one; make image writes it into build/images",
    )
