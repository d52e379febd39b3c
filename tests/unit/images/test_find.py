"""Which image counts, and what is refused as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch, error_of
from kit.siffile import write_image

from jaxsif.errors import HostError
from jaxsif.images.file import Image, find_image
from jaxsif.settings.options import Setting


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
  try:  make image, module load jax/sif, or pass --image PATH"""
NO_FILE = """\
jaxsif: error: cannot read image {}: {}
  from: --image
  try:  check its path and permissions"""


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("nowhere.sif", NOT_FOUND.format("nowhere.sif")),
        ("file/jax.sif", NOT_FOUND.format("file/jax.sif")),
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
            "  try:  make image, or pass --image PATH to a .sif file",
        ),
    ],
    ids=["missing", "below a file", "a long name", "a loop of links", "a folder", "another file"],
)
def test_image_refused(folder: Path, named: str, text: str) -> None:
    (folder / "file").write_text("hello\n")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    assert error_of(catch(HostError, find_image, Setting(named, "--image"))) == (125, text)


def test_no_image_at_all(folder: Path) -> None:
    assert error_of(catch(HostError, find_image, None)) == (
        125,
        "jaxsif: error: no image: neither --image nor JAX_IMAGE names one, and there is no ./jax.sif here\n"
        "  try:  module load jax/sif, make image, or pass --image PATH",
    )
