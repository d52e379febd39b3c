"""What a shared library needs, out of its bytes."""

from __future__ import annotations

import pytest
from elffile import elf_library

from jaxsif.elf import Needs, read_needs


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        ((), (0, 0)),
        (("GLIBC_2.2.5",), (2, 2)),
        (("GLIBC_2.9", "GLIBC_2.38", "GLIBC_2.14"), (2, 38)),
        (("GLIBC_2.17", "GLIBC_ABI_DT_RELR"), (2, 36)),
        (("GLIBC_PRIVATE", "GLIBCXX_3.4.30"), (0, 0)),
    ],
)
def test_needs(versions: tuple[str, ...], newest: tuple[int, int]) -> None:
    names = ("libc.so.6", "libcxi.so.1")
    assert read_needs(elf_library(names, versions)) == Needs(names, newest)


@pytest.mark.parametrize("data", [b"", b"GROUP ( libc.so.6 )", b"\x7fELF\x01\x01" + bytes(200), b"\x7fELF\x02\x01"])
def test_what_is_no_library(data: bytes) -> None:
    assert read_needs(data) is None


def test_a_file_that_is_cut_short_is_no_library() -> None:
    whole = elf_library(versions=("GLIBC_2.38",))
    for size in range(len(whole) - 16):  # without the last tag, which says that it is the last
        found = read_needs(whole[:size])
        assert found is None or found == Needs((), (0, 0)), size
