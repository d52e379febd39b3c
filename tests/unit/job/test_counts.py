"""Numbers of many nodes, in Slurm's short form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.job.counts import Counts, align, fold, parse_counts, size, take

COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=6).map(fold)


def one_by_one(counts: Counts) -> list[int]:
    return [value for value, times in counts for _ in range(times)]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", ((4, 1),)),
        ("4(x3),2", ((4, 3), (2, 1))),
        ("1,3,1", ((1, 1), (3, 1), (1, 1))),
        ("2,2(x2)", ((2, 3),)),
        ("", ()),
        ("4(x", ()),
        ("many", ()),
    ],
)
def test_parse(text: str, counts: Counts) -> None:
    assert parse_counts(text) == counts


@given(COUNTS)
def test_written_as_slurm_does_it_is_read_back(counts: Counts) -> None:
    assert parse_counts(",".join(f"{value}(x{times})" for value, times in counts)) == counts


@given(COUNTS, st.integers(1, 40))
def test_take_is_the_first_nodes(counts: Counts, nodes: int) -> None:
    assert one_by_one(take(counts, nodes)) == one_by_one(counts)[:nodes]


@given(COUNTS, COUNTS)
def test_rows_have_what_the_columns_have(one: Counts, other: Counts) -> None:
    rows = align(one, other)
    found = [values for times, *values in rows for _ in range(times)]
    nodes = min(size(one), size(other))
    assert found == [list(pair) for pair in zip(one_by_one(one)[:nodes], one_by_one(other)[:nodes])]
