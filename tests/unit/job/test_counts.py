"""Numbers of many nodes, in Slurm's short form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.job.counts import Counts, each_node, fold, parse_counts, size

COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=6).map(fold)


@pytest.mark.parametrize(("text", "counts"), [("2,2(x2)", ((2, 3),)), ("", ()), ("4(x", ()), ("many", ())])
def test_parse(text: str, counts: Counts) -> None:
    assert parse_counts(text) == counts


@given(COUNTS)
def test_written_as_slurm_does_it_is_read_back(counts: Counts) -> None:
    assert parse_counts(",".join(f"{value}(x{times})" for value, times in counts)) == counts


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=6))
def test_folded_counts_are_of_the_same_nodes(pairs: list[tuple[int, int]]) -> None:
    counts = fold(pairs)
    values = [value for value, _ in counts]
    assert list(each_node(counts)) == [value for value, times in pairs for _ in range(times)]
    assert size(counts) == sum(times for _, times in pairs)
    assert all(times for _, times in counts)
    assert all(one != other for one, other in zip(values, values[1:]))
