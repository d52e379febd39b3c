"""What a shared library needs, out of its bytes."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.elffile import elf_library

from jaxsif.container.elf import Needs, read_needs


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


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Needs | None]:
    """As the launcher reads a library: from a file that is mapped."""
    path = tmp_path_factory.mktemp("elf") / "lib.so"

    def read(data: bytes) -> Needs | None:
        path.write_bytes(data)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return read_needs(content)

    return read


WHOLE = elf_library(("libc.so.6", "libcxi.so.1"), ("GLIBC_2.9", "GLIBC_2.38"))
NUMBERS = st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]), st.integers(0, 500))


@given(st.dictionaries(st.integers(6, len(WHOLE) - 8), NUMBERS, min_size=1, max_size=6), st.integers(0, 3))
def test_any_numbers(mapped: Callable[[bytes], Needs | None], numbers: dict[int, int], more: int) -> None:
    """Wherever they lead: nothing, or the needs of a library, in bounded time."""
    data = bytearray(WHOLE + bytes(more << 20))
    for place, number in numbers.items():
        size = min(8, len(data) - place)
        data[place : place + size] = number.to_bytes(8, "little")[:size]
    found: list[Needs | None] = []
    assert read_bounded(lambda: found.append(mapped(bytes(data)))) is None
    assert found[0] is None or len(found[0].libraries) <= 10_000


@pytest.mark.parametrize(
    ("place", "layout", "number"),
    [
        (32, "<Q", 2**64 - 1),
        (32, "<Q", 2**63),
        (56, "<H", 65535),
        (64 + 56 + 32, "<Q", 2**64 - 1),
        (WHOLE.index(struct.pack("<Q", 10)) + 8, "<Q", 2**64 - 1),
    ],
    ids=["table", "table in the middle", "segments", "dynamic", "texts"],
)
def test_numbers_that_lead_far(mapped: Callable[[bytes], Needs | None], place: int, layout: str, number: int) -> None:
    """Out of the file, or to its end in very many steps."""
    data = bytearray(WHOLE)
    struct.pack_into(layout, data, place, number)
    assert read_bounded(lambda: mapped(bytes(data))) is None


def test_a_file_that_is_cut_short_is_no_library() -> None:
    whole = elf_library(versions=("GLIBC_2.38",))
    for size in range(len(whole) - 16):  # without the last tag, which says that it is the last
        found = read_needs(whole[:size])
        assert found is None or found == Needs((), (0, 0)), size
