"""What the cache of builds forgets."""

from __future__ import annotations

import os
from pathlib import Path

from kit import siffile

from jaxsif.builds.build import _is_whole, keep_compiled, prune

DAY = 24 * 3600


def test_what_was_not_used_for_thirty_days_is_removed(tmp_path: Path) -> None:
    for days in (29, 31):
        for name in (
            f"base-trixie-{days}.sqfs",
            f"packed/{days}-128K.sqfs",
            f"compiled/{days}/0",
            f"uv/{days}",
            f"{days}.log",
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (0, 1000 * DAY - days * DAY))
        os.utime(tmp_path / f"compiled/{days}", (0, 1000 * DAY - days * DAY))
    prune(tmp_path, 1000 * DAY)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    used = {"base-trixie-29.sqfs", "packed/29-128K.sqfs", "compiled/29/0", "uv/29", "29.log"}
    assert left == {*used, "uv/31", "31.log"}


def test_an_image_that_lacks_bytes_is_not_whole(tmp_path: Path) -> None:
    image, told = Path(siffile.write_image(tmp_path / "jax.sif", b"root" * 1024)), list[str]()
    assert _is_whole(image, told.append)
    for size in (image.stat().st_size - 1000, 0):
        os.truncate(image, size)
        assert not _is_whole(image, told.append)
    assert [line.endswith(": building it again") for line in told] == [True, True]


def test_two_builds_that_compile_the_same(tmp_path: Path) -> None:
    for stage in ("one", "other"):
        (tmp_path / stage / "compiled/digest").mkdir(parents=True)
        (tmp_path / stage / "compiled/digest/a.pyc").write_text(stage)
        keep_compiled(tmp_path / stage, tmp_path)
    assert (tmp_path / "compiled/digest/a.pyc").read_text() == "one"
