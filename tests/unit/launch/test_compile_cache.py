"""The compile cache's folder: its name from the image, and that it is this user's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.siffile import descriptor, write_image

from jaxsif.errors import HostError
from jaxsif.launch.container import cache_of, identify, make_private


def test_a_name_stands_for_what_is_in_the_image(tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    name = identify(write_image(tmp_path / "a.sif", content))
    assert len(name) == 16
    signed = write_image(tmp_path / "b.sif", content, descriptor(0x4005, 1, 2))
    others = [content[:-1] + b"x", b"x" + content[1:], content + b"x", b"small"]
    images = [write_image(tmp_path / f"{number}.sif", other) for number, other in enumerate(others)]
    assert identify(signed) == name
    assert len({name, *map(identify, images)}) == 1 + len(others)


def test_where_it_is(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"content")
    name = identify(image)
    assert cache_of(image, None, {"HOME": "/home/u"}) == f"/home/u/.cache/jaxsif/compiled/{name}"
    assert cache_of(image, None, {"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}) == f"/c/jaxsif/compiled/{name}"
    assert cache_of(image, "/scratch", {"HOME": "/home/u"}) == f"/scratch/jaxsif-{os.getuid()}/{name}"


def test_it_is_made_for_this_user_alone_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new/compiled/key"
    for _ in range(2):
        make_private(str(path), "here")
        assert [folder.stat().st_mode & 0o777 for folder in (path, path.parent)] == [0o700, 0o700]


@pytest.mark.parametrize(
    ("folder", "mode"),
    [("compiled/key", 0o750), ("compiled/key", 0o702), ("compiled", 0o755), ("", 0o777)],
    ids=["readable by a group", "writable", "readable above", "another folder could take its place"],
)
def test_a_folder_that_others_reach_is_refused(tmp_path: Path, folder: str, mode: int) -> None:
    path = tmp_path / "compiled/key"
    make_private(str(path), "here")
    (tmp_path / folder).chmod(mode)
    with pytest.raises(HostError) as raised:
        make_private(str(path), "run.compile-cache-folder in x")
    assert raised.value.what == f"the compile cache is open to others: {tmp_path / folder}"
    assert raised.value.where == "run.compile-cache-folder in x"


def test_a_sticky_folder_may_be_for_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make_private(str(tmp_path / "mine/key"), "here")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "compiled").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError):
        make_private(str(tmp_path / "compiled/key"), "here")
