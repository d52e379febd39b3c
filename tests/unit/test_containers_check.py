"""The script that checks an image."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.scripts import load_script

check = load_script(Path(__file__).resolve().parents[2] / "containers/check.py")

RECORD = """\
numpy/core.so,sha256=abc,4
numpy.libs/libblas-1.so.3,sha256=abc,4
numpy/random/tests/part.so,sha256=abc,4
numpy/version.py,sha256=abc,4

numpy-1.dist-info/RECORD,,
"""
MAPPED = Path("/proc/self/maps").read_text().split()
LIBRARY = next(Path(word) for word in MAPPED if word.endswith("/libc.so.6")).with_name("libm.so.6")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for line in RECORD.split():
        path = tmp_path / line.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF")
    (tmp_path / "numpy-1.dist-info/RECORD").write_text(RECORD)
    return tmp_path


def test_all_libraries_are_there(site: Path) -> None:
    assert check.lost_libraries(site, []) == []


@pytest.mark.parametrize(
    ("left_out", "lost"),
    [
        ([], ["numpy.libs/libblas-1.so.3 of numpy-1.dist-info is not there"]),
        (["numpy.libs/libblas*"], []),
        (["numpy.libs"], []),
        (["numpy*"], []),
        (["*.so*"], ["numpy.libs/libblas-1.so.3 of numpy-1.dist-info is not there"]),
    ],
)
def test_a_library_is_gone(site: Path, left_out: list[str], lost: list[str]) -> None:
    (site / "numpy.libs/libblas-1.so.3").unlink()
    assert check.lost_libraries(site, left_out) == lost


def test_a_library_is_cut_short(site: Path) -> None:
    (site / "numpy/core.so").write_bytes(b"\x7fEL")
    assert check.lost_libraries(site, []) == ["numpy/core.so of numpy-1.dist-info has 3 bytes"]


def test_tests_are_removed_from_all_wheels(site: Path) -> None:
    (site / "numpy/random/tests/part.so").unlink()
    assert check.lost_libraries(site, []) == []


@pytest.mark.starts_processes
@pytest.mark.parametrize("size", [8, 4096, None], ids=["a stub", "a page", "all of it"])
def test_what_the_linker_says(tmp_path: Path, size: int | None) -> None:
    library = tmp_path / "libcopy.so"
    library.write_bytes(LIBRARY.read_bytes()[:size])
    found = check.check_libraries(tmp_path)
    assert [line.split(" needs ")[0] for line in found] == ([str(library)] if size else [])


def test_a_driver_that_cannot_be_loaded(tmp_path: Path) -> None:
    driver = tmp_path / "x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so"
    driver.parent.mkdir(parents=True)
    driver.write_bytes(b"\x7fELF")
    assert [str(driver) in line for line in check.check_drivers(tmp_path)] == [True]
    driver.write_bytes(LIBRARY.read_bytes())
    assert check.check_drivers(tmp_path) == []
