"""The ledger of suspect nodes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from jaxsif.errors import STUCK_TASK as STUCK
from jaxsif.history.ledger import Finding, add_findings, find_ledger, find_suspects, read_findings, suspect

NOW = 1.79e9


def finding(node: str, evidence: str, expiry: float = NOW + 1) -> Finding:
    return Finding(NOW, node, "run", evidence, expiry)


@pytest.mark.parametrize(
    ("findings", "suspects"),
    [
        ([], {}),
        ([finding("n1", "lost")], {"n1": "lost"}),
        ([finding("n1", "lost", NOW)], {}),
        ([finding("n1", STUCK)], {}),
        ([finding("n1", STUCK), finding("n2", STUCK)], {}),
        ([finding("n1", STUCK), finding("n1", STUCK)], {"n1": STUCK}),
        ([finding("n1", STUCK, NOW), finding("n1", STUCK)], {}),
        ([finding("n1", "lost"), finding("n1", "SIGBUS")], {"n1": "SIGBUS"}),
    ],
)
def test_what_makes_a_node_suspect(findings: list[Finding], suspects: dict[str, str]) -> None:
    assert find_suspects(findings, NOW) == suspects


def test_each_job_has_a_private_file(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "SLURM_CLUSTER_NAME": "a/b"}
    path = find_ledger("12", environ)
    assert path == f"{tmp_path}/state/jaxsif/nodes/a_b-12.jsonl"
    assert read_findings(path) == []
    assert suspect(path, ["n1", "n2"], "run", "lost", pytest.fail) == []
    assert suspect(path, ["n1"], "check", "no answer", pytest.fail) == []
    found = [(one.node, one.source, one.evidence) for one in read_findings(path)]
    assert found == [("n1", "run", "lost"), ("n2", "run", "lost"), ("n1", "check", "no answer")]
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_lines_of_another_form_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "nodes/12.jsonl"
    add_findings(str(path), [finding("n1", "lost")])
    with path.open("a") as file:
        file.write(
            '{"time": 1}\nnull\n[]\nnoise\n{"time": "x", "node": "", "source": "", "evidence": "", "expiry": 1}\n'
            '{"time": 1, "node": "", "source": "", "evidence": "", "expiry": 1' + 400 * "0" + "}\n" + 9999 * "[" + "\n"
        )
    add_findings(str(path), [finding("n2", "lost")])
    assert read_findings(str(path)) == [finding("n1", "lost"), finding("n2", "lost")]


def test_a_folder_of_others_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir(mode=0o755)
    with pytest.raises(PermissionError):
        add_findings(str(tmp_path / "nodes/12.jsonl"), [finding("n1", "lost")])


def test_evidence_that_cannot_be_written_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir(mode=0o755)
    path, said = str(tmp_path / "nodes/12.jsonl"), list[str]()
    assert [one.node for one in suspect(path, ["n1"], "run", "lost", said.append)] == ["n1"]
    assert suspect(path, [], "run", "lost", said.append) == []
    remedy = f"others may read or write its folder: chmod 700 {tmp_path}/nodes"
    assert said == [f"warning: cannot record suspect nodes: {remedy} ({path})"]


def test_old_files_are_removed(tmp_path: Path) -> None:
    for name in ("1.jsonl", "2.jsonl"):
        add_findings(str(tmp_path / "nodes" / name), [finding("n1", "lost")])
    os.utime(tmp_path / "nodes/1.jsonl", (0, time.time() - 31 * 86400))
    add_findings(str(tmp_path / "nodes/3.jsonl"), [finding("n1", "lost")])
    assert sorted(os.listdir(tmp_path / "nodes")) == ["2.jsonl", "3.jsonl"]


def test_many_may_write_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "nodes/12.jsonl")
    add_findings(path, [finding("n0", "lost")])
    writers = [threading.Thread(target=add_findings, args=(path, [finding("n1", "x" * 5000)] * 3)) for _ in range(20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_findings(path)) == 61
