"""What --json prints has the keys that docs/json.md promises."""

from __future__ import annotations

import re
from pathlib import Path

from kit.hosts import CONTAINER, LOGIN_NODE, plan_for

from jaxsif.bench.compare import comparison_as_json
from jaxsif.bench.results import Results
from jaxsif.builds.definition import Refusal, converted_as_json
from jaxsif.cli import COMMANDS, build_parsers
from jaxsif.images.diff import Comparison
from jaxsif.images.diff import comparison_as_json as diff_as_json
from jaxsif.images.listing import Item
from jaxsif.layers.store import Layer
from jaxsif.plan.command import describe_plan
from jaxsif.settings.options import RunOptions
from jaxsif.watch.snapshot import make_snapshot, render_json

PAGE = Path(__file__).parents[2] / "docs/json.md"
_ROW = re.compile(r"^\| `jaxsif ([^`]+)` \| (?:object|list) \| (.*) \|$", re.MULTILINE)
ROWS = {name: re.findall("`([^`]+)`", re.sub(r" \([^)]*\)", "", keys)) for name, keys in _ROW.findall(PAGE.read_text())}


def test_each_command_with_json_has_a_row() -> None:
    with_json = {" ".join(name) for name in COMMANDS if "--json" in build_parsers(name)[name]._option_string_actions}
    rows = {" ".join(word for word in row.split() if not word.startswith("--")) for row in ROWS}
    assert rows - {"history show"} == with_json


def record(bandwidth: float) -> dict[str, object]:
    return {"record": "link", "from": "a", "to": "b", "size": 1, "bandwidth": bandwidth, "latency": 1.0}


def results(*records: dict[str, object]) -> Results:
    return Results({"bench": "collectives", "complete": True}, [*records], Path("results.jsonl"))


def test_a_plan() -> None:
    plan = plan_for(RunOptions(("python", "a.py"), nodes=2, gpus_per_node="4"), LOGIN_NODE, CONTAINER)
    found = describe_plan(plan)
    assert list(found) == ROWS["run --dry-run"]
    assert (found["nodes"], found["tasks"], found["command"]) == (2, 8, list(plan.argv))
    assert found["groups"] == [{"nodes": 2, "tasks_per_node": 4, "gpus_per_node": 4, "cpus_per_node": None}]


def test_stacks() -> None:
    assert list(render_json(make_snapshot([], []), "1.0")) == ROWS["stacks"]


def test_images() -> None:
    assert list(Item._fields) == ROWS["image list"]
    assert (
        list(diff_as_json(Comparison({"packages": [], "labels": [], "definition": []}, ()))) == ROWS["image diff"][:5]
    )


def test_converted_files() -> None:
    assert list(converted_as_json((), None, ())) == ROWS["image convert"][:14]
    assert list(Refusal._fields) == ["line", "text", "reason"]


def test_layers() -> None:
    assert [*Layer._fields, "status"] == ROWS["layer list"][:13]


def test_comparison() -> None:
    old, new = results(record(2.0), {**record(2.0), "to": "c"}), results(record(1.0))
    found = comparison_as_json(old, new, 0.1)
    assert list(found) == ["worse", "figures", "missing", "notes"]
    keys = {"from": "a", "to": "b", "size": 1}
    assert found["figures"] == [
        {"record": "link", "keys": keys, "figure": "bandwidth", "old": 2.0, "new": 1.0, "ratio": 0.5, "worse": True}
    ]
    assert found["missing"] == [{"record": "link", "keys": {**keys, "to": "c"}}]
    assert found["worse"]
    assert not comparison_as_json(new, new, 0.1)["worse"]
