"""Benchmarks: figures and units, results in files, comparisons, the node behind slow links, records in output."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jaxsif.bench.collectives import OPERATIONS, add_bandwidths, find_slow_nodes, parse_bytes, parse_sizes, render_blame
from jaxsif.bench.compare import compare, render_comparison
from jaxsif.bench.execute import read_records
from jaxsif.bench.inside.rings import find_rounds
from jaxsif.bench.kinds import (
    BYTES,
    COUNT,
    FLOPS,
    KEY,
    KINDS,
    NUMBER,
    RATE,
    SECONDS,
    SHARE,
    render_heading,
    render_row,
    render_value,
)
from jaxsif.bench.results import Results, read_results, recording
from jaxsif.bench.runner import Bench
from jaxsif.bench.startup import measure
from jaxsif.errors import HostError, JaxsifError

HEADER = {"bench": "collectives", "devices": 8, "complete": True}


def operation(name: str, size: int, time: float) -> dict[str, Any]:
    record = {"record": "operation", "operation": name, "size": size, "time": time, "iterations": 3}
    return add_bandwidths(record, HEADER["devices"])  # type: ignore[arg-type]


def link(source: str, to: str, bandwidth: float) -> dict[str, Any]:
    return {"record": "link", "from": source, "to": to, "size": 4096, "bandwidth": bandwidth, "latency": 1e-5}


def results(*records: dict[str, Any], **header: object) -> Results:
    return Results({**HEADER, **header}, list(records), Path("results.jsonl"))


def ring(nodes: int, slow_from: int | None, slow_to: int | None, usual: float = 1e9) -> dict[tuple[str, str], float]:
    """All links of a ring; those from one node, or to one node, have a hundredth of the bandwidth."""
    pairs = [(a, (a + step) % nodes) for a in range(nodes) for step in (1, -1)]
    slow = [a == slow_from or b == slow_to for a, b in pairs]
    return {(f"n{a}", f"n{b}"): usual / 100 if is_slow else usual for (a, b), is_slow in zip(pairs, slow)}


@given(st.sampled_from(OPERATIONS), st.integers(2, 5000), st.floats(1e6, 1e12))
def test_the_bus_bandwidth_of_a_perfect_ring_is_that_of_its_links(name: str, devices: int, link_rate: float) -> None:
    """In a ring each device sends, at this rate, what the operation cannot do without."""
    size = 1 << 20
    sent = {"all-reduce": 2 * size * (devices - 1) / devices, "permute": size}.get(name, size * (devices - 1) / devices)
    record = add_bandwidths({"record": "operation", "operation": name, "size": size, "time": sent / link_rate}, devices)
    assert record["bus_bandwidth"] == pytest.approx(link_rate)
    assert record["algorithm_bandwidth"] == size / record["time"]


def test_figures_have_units() -> None:
    assert [render_value(value, SECONDS) for value in (1.5e-6, 0.0123, 2, None)] == [
        "1.5 us",
        "12.30 ms",
        "2.00 s",
        "-",
    ]
    sizes = (512, 1024, 3 << 19, 1 << 30)
    assert [render_value(value, BYTES) for value in sizes] == ["512 B", "1 KiB", "1.5 MiB", "1 GiB"]
    assert [render_value(value, RATE) for value in (0, 999e3, 2.5e9)] == ["0.0 B/s", "999.0 kB/s", "2.50 GB/s"]
    assert [render_value(value, FLOPS) for value in (1e6, 249e9, 1.5e12)] == [
        "0.001 GFLOP/s",
        "249 GFLOP/s",
        "1.5 TFLOP/s",
    ]
    assert [render_value(7547.4, NUMBER), render_value(0.449, SHARE), render_value(3, COUNT)] == ["7,547", "44.9%", "3"]
    assert render_row(link("node1", "node2", 1e9), KINDS["collectives"]["link"]).split() == [
        *("node1", "node2", "4", "KiB", "1.00", "GB/s", "10.0", "us")
    ]


@given(st.integers(1, 1 << 40), st.sampled_from(["", "B", "K", "KiB", "M", "MB", "GiB"]))
def test_sizes_are_read(number: int, unit: str) -> None:
    assert parse_bytes(f"{number}{unit}", "--x") == number * 1024 ** " KMG".find(unit[:1] if unit[:1] != "B" else " ")


def test_ranges_of_sizes() -> None:
    assert parse_sizes("1KiB-64KiB", "--sizes") == (1024, 4096, 16384, 65536)
    assert parse_sizes("1K-5K", "--sizes") == (1024, 4096)
    assert parse_sizes("1MiB,4", "--sizes") == (1 << 20, 4)


@pytest.mark.parametrize("text", ["", "0", "1Z", "-", "1K-", "1.5K", "2K-1K", "1K,,2K"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(JaxsifError, match=r"not a size|not a range of sizes"):
        parse_sizes(text, "--sizes")


def test_records_of_a_kind_have_keys() -> None:
    for kinds in KINDS.values():
        for kind in kinds.values():
            assert any(field.role == KEY for field in kind)
            assert len({field.name for field in kind}) == len(kind)


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    notes: list[str] = []
    with recording(folder, dict(HEADER), notes.append) as written:
        written.records.extend([operation("permute", 1024, 1e-3), link("a", "b", 1e9)])
        assert not folder.exists()
    assert notes == [f"not complete: 2 records in {folder}"]
    read = read_results(str(folder), "FOLDER")
    assert (read.header, read.records) == (written.header, written.records)
    assert read_results(str(folder / "results.jsonl"), "FILE") == read
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["record"], row["operation"], row["from"]) for row in rows] == [
        ("operation", "permute", ""),
        ("link", "", "a"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, JaxsifError])
def test_what_there_was_stays_when_a_run_ends_early(tmp_path: Path, error: type[BaseException]) -> None:
    header = {"bench": "collectives"}

    notes: list[str] = []

    def end_early(folder: str, *records: dict[str, Any]) -> None:
        with recording(tmp_path / folder, header, notes.append) as written:
            written.records.extend(records)
            raise error("ended")

    with pytest.raises(error):
        end_early("new", operation("permute", 1024, 1e-3))
    read = read_results(str(tmp_path / "new"), "FOLDER")
    assert (len(read.records), read.header["complete"]) == (1, False)
    with pytest.raises(error):
        end_early("empty")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(JaxsifError, match=r"the folder .*new already exists"):
        end_early("new")
    assert notes == [f"not complete: 1 records in {tmp_path}/new"]


def test_results_of_two_runs_at_once_are_both_kept(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    expected = pytest.raises(JaxsifError, match=r"the folder .*new now exists")
    notes: list[str] = []
    with expected as caught, recording(folder, dict(HEADER), notes.append) as written:
        written.records.append(link("a", "b", 1e9))
        (folder / "of another run").mkdir(parents=True)
    assert notes == []
    kept = caught.value.what.rpartition(" ")[2]
    assert read_results(kept, "FOLDER").records == written.records


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the first line is not a header"),
        ('{"bench": "other"}\n', "the first line is not a header"),
        ("[]\n", "line 1 is not an object"),
        (json.dumps(HEADER) + '\n{"record": "operation", "size"', "line 2 is not JSON"),
        (json.dumps(HEADER) + '\n{"record": "other"}\n', "line 2 has no record"),
        (json.dumps(HEADER) + '\n{"record": "link", "from": "a"}\n', "line 2 has no to"),
        (json.dumps(HEADER) + '\n{"record": []}\n', "line 2 has no record"),
        ('{"bench": []}\n', "the first line is not a header"),
        (json.dumps(HEADER) + "\n" + json.dumps(link("a", "b", "fast")) + "\n", "line 2 has an invalid bandwidth"),
        (json.dumps(HEADER) + "\n" + json.dumps({**link("a", "b", 1e9), "to": []}) + "\n", "line 2 has an invalid to"),
    ],
)
def test_broken_results(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(text)
    with pytest.raises(JaxsifError, match=f"not a results file of jaxsif bench: .*: {reason}"):
        read_results(str(tmp_path), "FOLDER")


def test_results_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(JaxsifError, match=r"cannot read results .*: No such file"):
        read_results(str(tmp_path / "none"), "FOLDER")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(JaxsifError, match=r"cannot read results .*: it is not text"):
        read_results(str(tmp_path / "binary"), "FOLDER")


def test_what_is_worse() -> None:
    old = results(operation("permute", 1024, 1e-3), operation("permute", 4096, 1e-3), link("a", "b", 1e9))
    new = results(operation("permute", 1024, 1.2e-3), operation("permute", 4096, 0.5e-3), link("a", "b", 0.5e9))
    assert [change.is_worse(0.1) for change in compare(old, new)] == [True, False, True]
    lines, worse = render_comparison(old, new, 0.1)
    assert worse
    assert [line.split() for line in lines if line.endswith("worse")] == [
        ["permute", "1", "KiB", "time", "1.00", "ms", "1.20", "ms", "1.20", "worse"],
        ["a", "b", "4", "KiB", "bandwidth", "1.00", "GB/s", "500.0", "MB/s", "0.50", "worse"],
    ]
    assert lines[-1] == "2 of 3 figures are worse than before by more than 10%"
    lines, worse = render_comparison(new, old, 1.5)
    assert (lines[-1], worse) == ("none of the 3 figures is worse than before by more than 150%", False)


def test_what_else_differs_is_told() -> None:
    old = results(link("a", "b", 1e9), jax="0.11", complete=False)
    lines, _ = render_comparison(old, results(link("a", "b", 1e9), jax="0.12"), 0.1)
    assert "note: jax differs: 0.11 before, now 0.12" in lines
    assert "note: not complete: results.jsonl" in lines


def test_older_figures_without_newer_ones_are_no_success() -> None:
    old = results(link("a", "b", 1e9), link("b", "a", 1e9))
    lines, worse = render_comparison(old, results(link("a", "b", 1e9), link("a", "c", 1e9)), 0.1)
    assert (lines[-1], worse) == ("1 older figures, such as b a 4 KiB, have no newer counterpart", True)


def test_results_that_have_nothing_in_common() -> None:
    with pytest.raises(JaxsifError, match="nothing to compare"):
        compare(results(link("a", "b", 1e9)), results(link("a", "c", 1e9)))
    with pytest.raises(JaxsifError, match="results of different benchmarks: train and collectives"):
        compare(results(bench="train"), results())


@given(st.integers(3, 40), st.integers(0, 39), st.booleans(), st.booleans(), st.floats(1e-3, 1e12))
def test_the_node_behind_slow_links_is_named(
    nodes: int, culprit: int, sends: bool, receives: bool, usual: float
) -> None:
    assume(culprit < nodes)
    links = ring(nodes, culprit if sends else None, culprit if receives else None, usual)
    found = {(blame.node, blame.direction) for blame in find_slow_nodes(links, 0.1)}
    directions = [name for name, is_slow in (("sending", sends), ("receiving", receives)) if is_slow]
    assert found == {(f"n{culprit}", name) for name in directions}


@given(st.integers(0, 100))
def test_neighbours_in_a_ring_are_measured_in_few_rounds(nodes: int) -> None:
    rounds = find_rounds(nodes)
    pairs = [frozenset(pair) for pairs in rounds for pair in pairs]
    ring = {frozenset((node, (node + 1) % nodes)) for node in range(nodes)} if nodes > 1 else set()
    assert (set(pairs), len(pairs)) == (ring, len(ring))
    assert len(rounds) <= 3
    for some in rounds:
        assert len({node for pair in some for node in pair}) == 2 * len(some)


def test_no_node_is_named_where_none_stands_out() -> None:
    assert find_slow_nodes(ring(4, None, None, 1e3), 0.1) == []
    assert find_slow_nodes(ring(2, 0, None), 0.1) == []  # either end may be to blame
    assert find_slow_nodes({**ring(4, None, None), ("n0", "n1"): 1.0}, 0.1) == []  # one bad link, not a bad node
    assert find_slow_nodes({}, 0.1) == []


def test_a_comparison_names_the_node() -> None:
    old, new = (
        results(*(link(*ends, rate) for ends, rate in ring(4, *slow).items())) for slow in ((None, None), (2, 2))
    )
    lines, worse = render_comparison(old, new, 0.1)
    assert worse
    assert (
        lines[-2]
        == "slow node: n2, on all its links: sending, 0.01 of the median node; receiving, 0.01 of the median node"
    )
    assert render_blame([]) == []


@given(st.lists(st.integers(1, 40), max_size=20))
def test_records_are_found_however_the_output_is_cut(cuts: list[int]) -> None:
    text = (
        b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
        b'{"record": "link", "from": "a"}\nsomething else\n'
        b'[Gloo] Rank 1{"record": "note", "text": "{}"} is connected to\nlast'
    )
    records: list[object] = []
    others: list[str] = []
    feed = read_records(records.append, others.append)
    rest = text
    for cut in cuts:
        rest, data = rest[cut:], rest[:cut]
        if data:
            feed(data)
    if rest:
        feed(rest)
    feed(b"")
    assert records == [{"record": "link", "from": "a"}, {"record": "note", "text": "{}"}]
    assert others == ["something else\n", "last\n"]


def test_a_record_that_cannot_be_read() -> None:
    feed = read_records(lambda record: None, lambda line: None)
    with pytest.raises(JaxsifError, match="cannot read the benchmark's output"):
        feed(b'{"record": "link", "from[Gloo] Rank 1\n')


def test_a_row_is_no_wider_than_the_terminal() -> None:
    for name, kind in ((name, kind) for kinds in KINDS.values() for name, kind in kinds.items()):
        record = {field.name: 1.5 for field in kind}
        rows = [render_heading(kind, 80), render_row(record, kind, 80)]
        assert max(len(line) for row in rows for line in row.splitlines()) <= 80, name
        assert [row.split() for row in rows] == [render_heading(kind).split(), render_row(record, kind).split()]
        assert rows[0].count("\n") == rows[1].count("\n")


def test_a_start_in_a_folder_that_nodes_lack_says_where_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, compile_cache_folder: str, **__: object) -> int:
        raise HostError(f"node1 has no {compile_cache_folder}/a, which the container needs", "--compile-cache-folder")

    monkeypatch.chdir(tmp_path)
    bench = Bench(results(), {}, {})
    monkeypatch.setattr(bench, "run", run)
    with pytest.raises(HostError) as caught:
        measure(bench, ["cache"], 1, 1)
    assert caught.value.where == f"the current folder: {tmp_path}"
    assert caught.value.hint == "run this in a folder that all nodes see"
