"""Recorded facts of nodes and tasks, as they arrive, and what the checks say of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jaxsif.diagnose.reports import Report
from jaxsif.doctor.checks import judge
from jaxsif.doctor.facts import DoctorFacts, EndFacts, FactsReader, LoginFacts, SumFacts, parse_facts
from jaxsif.doctor.render import HEADING, render_line, render_rest, render_rows
from jaxsif.doctor.result import CheckResult, fold_nodes, merge
from jaxsif.settings import config
from jaxsif.task.contract import cut
from jaxsif.text import align

GPU = [0, "NVIDIA H100 80GB HBM3", 12, 0, 0, 0, 0, 0, 0, 700, 700]
NODE: dict[str, Any] = {
    "number": 0,
    "nodelist": "node[1-2]",
    "driver": "575.57.08",
    "devices": 1,
    "gpus": [GPU],
    "addresses": {"node1": "10.0.0.1", "node2": "10.0.0.2"},
    "rate": 2e9,
    "image": "ab",
    "spaces": [["/dev/shm", 90000, 1000000]],
    "folders": [["/scratch/run", ""]],
    "ports": [["mlx5_0/ports/1", "4: ACTIVE", "400 Gb/sec (4X NDR)"]],
    "namespaces": 1000,
    "kernel": [],
    "site": [["disk", "ok", "fine", ""]],
}
TASK: dict[str, Any] = {
    "flavour": "cuda12",
    "machine": "x86_64",
    "python": "3.13.1",
    "jax": "/opt/jax/lib/python3.13/site-packages/jax/__init__.py",
    "home": "/home/me",
    "left": 3600,
    "folder": "/home/me",
    "user": "me",
    "temporary": "/tmp",
    "packages": {"jax": "0.12.0.1", "nvidia-nccl-cu12": "2.32.3", "nvidia-cuda-nvcc-cu12": "12.9.86"},
    "variables": {"XLA_FLAGS": ""},
    "visible": 1,
    "memory": 100000,
    "cpus": 8,
    "limits": {"RLIMIT_NOFILE": 65536, "RLIMIT_MEMLOCK": -1, "RLIMIT_AS": -1},
    "verbs": True,
}
SUM: dict[str, Any] = {"phase": "summed", "platform": "gpu", "here": 1, "devices": 2, "total": 2.0, "network": "IB"}
SLURM = {"PreemptMode": "OFF", "KillWait": "30 sec", "MaxStepCount": "40000"}
HOST = LoginFacts({"io.jaxsif.driver": "525.60.13"}, SLURM, folder="/home/me")


def record(reader: FactsReader, kind: str, number: int, /, **facts: Any) -> None:
    """Hand a line to the reader as srun does."""
    for piece in cut(json.dumps(facts), f"{kind}{number}"):
        reader.take(piece.encode())


def collect(
    node: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    total: dict[str, Any] | None = None,
    host: LoginFacts = HOST,
    reports: tuple[Report, ...] = (),
) -> DoctorFacts:
    """Two nodes with a task each; the second one's facts are changed."""
    reader = FactsReader()
    changes: list[tuple[Any, Any, Any]] = [({}, {}, {}), (node or {}, task or {}, total or {})]
    for number, (of_node, of_task, of_sum) in enumerate(changes):
        name = {"node": f"node{number + 1}"}
        record(reader, "n", number, **{**NODE, **name, "number": number, **of_node})
        record(reader, "t", number, **{**TASK, **name, "task": number, **of_task})
        record(reader, "s", number, **{**SUM, **name, "task": number, **of_sum})
    return reader.collect(host, reports)


def findings(seen: DoctorFacts) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """The findings that are not ok, without the checks that have nothing to judge."""
    found = [one for one in merge(judge(seen)) if one.state != "ok" and (one.nodes or one.state != "unknown")]
    return [(one.state, one.check, one.evidence, one.nodes) for one in found]


def unchecked(seen: DoctorFacts) -> dict[str, str]:
    """The checks that have nothing to judge, each with the reason."""
    return {one.check: one.evidence for one in judge(seen) if one.state == "unknown" and not one.nodes}


def gpu(**changes: Any) -> dict[str, Any]:
    """A node whose GPU differs."""
    names = ("number", "name", "memory", "errors", "pending", "failed", "recovery", "down", "mig", "power", "usual")
    return {"gpus": [[changes.get(name, value) for name, value in zip(names, GPU)]]}


def test_good_facts_have_no_finding() -> None:
    assert findings(collect()) == []
    assert all(result.check and result.state == "ok" and not result.evidence for result in judge(collect()))


def test_folders_that_nodes_cannot_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache, a run only takes longer."""
    monkeypatch.setattr(config, "staff_files", lambda: (f"{tmp_path}/jaxsif.toml",))
    paths = "/scratch/run", "/tmp/cache", "/logs"
    seen = collect({"folders": [[path, "cannot write there"] for path in paths]})
    sources = {"/scratch/run": "--checkpoints", "/logs": f"run.log-dir in {tmp_path}/jaxsif.toml"}
    seen = seen._replace(host=HOST._replace(cache="/tmp/cache", sources=sources))
    assert findings(seen) == [
        ("failure", "folders", "/scratch/run: cannot write there", ("node2",)),
        ("failure", "folders", "/logs: cannot write there", ("node2",)),
        ("warning", "folders", "/tmp/cache: cannot write there", ("node2",)),
    ]
    folder = "name a folder that all nodes share and you can write to: "
    assert {(one.whose, one.remedy) for one in judge(seen) if one.check == "folders"} == {
        ("user", f"{folder}--checkpoints"),
        ("site", f"{folder}run.log-dir in {tmp_path}/jaxsif.toml"),
        ("user", f"{folder}--compile-cache-folder"),
    }


def test_a_check_that_has_nothing_to_judge_is_not_ok() -> None:
    assert unchecked(collect()) == {}
    quick = collect(host=HOST._replace(quick=True))._replace(sums={})
    assert unchecked(quick) == {"sum": "--no-sum", "transport": "NCCL has not run"}
    alone = quick._replace(nodes={"node1": quick.nodes["node1"]._replace(rate=0.0)})
    assert unchecked(alone).keys() - unchecked(quick).keys() == {"port", "names", "links", "clocks"}
    dead = alone.nodes["node1"]._replace(site=(), image="", failed=(("the site's checks", "no answer within 6 s"),))
    reasons = unchecked(alone._replace(nodes={"node1": dead}))
    assert (reasons["site"], reasons["image"]) == ("cannot examine the site's checks", "the nodes mount no image file")
    large = quick._replace(nodes={name: node._replace(rate=0.0) for name, node in quick.nodes.items()})
    assert unchecked(large)["links"] == "rates are measured only in steps of 2 to 128 nodes"
    silent = quick._replace(tasks={})  # as where no container starts
    assert {"python", "alike", "limits", "gpus", "time"} <= unchecked(silent).keys()
    states = {one.check: one.state for one in judge(quick)}
    assert (states["sum"], states["names"]) == ("unknown", "ok")
    some = [one for one in judge(silent) if one.check in ("sum", "python", "user", "names")]
    lines = list(render_rest(some, "2 nodes"))
    assert lines == ["1 check is ok on 2 nodes", "not checked: sum (--no-sum); python, user (no task has reported)"]


def test_a_table_has_80_columns() -> None:
    """Also with many nodes and a long text; only a longer word, such as a path, exceeds them."""
    nodes = tuple(f"n{number:04}" for number in range(0, 3000, 3))
    long = CheckResult("failure", "word " * 60, "remedy " * 40, "site", nodes, "infiniband")
    lines = [*align([HEADING, *render_rows([long])]), *render_rest([long, *judge(FactsReader().collect(HOST))], "")]
    assert len(lines) > 20
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("failure  infiniband  site   n[0000,0003,")


@pytest.mark.parametrize(
    ("node", "check", "state", "evidence"),
    [
        ({"gpus": []}, "gpus", "failure", "the driver sees 0 of 1 GPUs"),
        ({"gpus": None, "devices": 0}, "gpus", "failure", "the driver sees 0 of 1 GPUs"),
        (
            {"gpus": None, "devices": 0, "trouble": "nvmlInit failed"},
            "gpus",
            "failure",
            "nvmlInit failed",
        ),
        (gpu(errors=3), "health", "warning", "GPU 0 has had 3 uncorrected memory errors"),
        (gpu(errors=3, recovery=-1), "health", "failure", "GPU 0 has had 3 uncorrected memory errors"),
        (gpu(failed=1), "health", "failure", "GPU 0 has a memory row that could not be remapped"),
        (gpu(pending=1), "health", "warning", "GPU 0 has memory rows to remap at its next reset"),
        (gpu(recovery=2), "health", "failure", "GPU 0 needs a reboot of the node, according to its driver"),
        (gpu(down=4), "health", "warning", "GPU 0 has 4 NVLinks down"),
        (gpu(memory=70000), "memory", "warning", "GPU 0 has 70000 MiB in use before the run"),
        (gpu(power=400), "power", "warning", "a GPU is limited to 400 W; its default is 700 W"),
        (gpu(mig=1), "power", "warning", "a GPU is NVIDIA H100 80GB HBM3, with MIG; most are NVIDIA H100 80GB HBM3"),
        ({"kernel": ["NVRM: Xid (PCI:0000:01:00): 79, GPU lost"]}, "xid", "warning", "the kernel reports Xid 79"),
        ({"kernel": ["NVRM: Xid (PCI:0000:01:00): 154"]}, "xid", "warning", "the kernel reports Xid 154"),
        (
            {"kernel": ["oom-kill:task=python"]},
            "xid",
            "warning",
            "the kernel killed a process because memory ran out: oom-kill:task=python",
        ),
        ({"imex": 1}, "imex", "failure", "the container does not see the node's IMEX channel"),
        ({"skew": 2.5}, "clocks", "warning", "the clock is +2.5 s off the first node's"),
        (
            {"ports": [["mlx5_0/ports/1", "1: DOWN", "10 Gb/sec"]]},
            "infiniband",
            "warning",
            "active InfiniBand ports: none; elsewhere: 400 Gb/sec (4X NDR)",
        ),
        (
            {"reason": "10.0.0.1:61000: timed out"},
            "port",
            "failure",
            "cannot reach task 0's node at 10.0.0.1:61000: timed out",
        ),
        (
            {"failed": [["disks", "no answer within 6 s"]]},
            "probes",
            "warning",
            "cannot examine disks: no answer within 6 s",
        ),
        ({"image": "missing"}, "image", "failure", "the image is missing"),
    ],
)
def test_a_node(node: dict[str, Any], check: str, state: str, evidence: str) -> None:
    assert (state, check, evidence, ("node2",)) in findings(collect(node))


@pytest.mark.parametrize(
    ("task", "check", "state", "evidence"),
    [
        ({"jax": ""}, "python", "failure", "Python cannot find JAX"),
        ({"user": ""}, "user", "warning", "the user has no name in the container: Python's getpass.getuser fails"),
        ({"temporary": "/scratch/" + "x" * 80}, "sockets", "warning", None),
        ({"verbs": False}, "verbs", "warning", None),
        (
            {"packages": {**TASK["packages"], "nvidia-nccl-cu12": "2.30.7"}},
            "nccl",
            "warning",
            "NCCL 2.30.7 is known to hang some programs",
        ),
        ({"machine": "aarch64", "packages": {"nvidia-nccl-cu12": "2.28.9"}}, "nccl", "warning", None),
        (
            {"variables": {"XLA_FLAGS": "--a"}},
            "alike",
            "failure",
            "XLA_FLAGS is --a in task 1, but unset in others",
        ),
        ({"variables": {"XLA_FLAGS": "", "NCCL_SOCKET_IFNAME": "ib0"}}, "alike", "warning", None),
        ({"folder": "/tmp"}, "places", "failure", "the program starts in /tmp, because /home/me is not there"),
        ({"lacks": ["/home/me"]}, "places", "failure", "no /home/me, which other nodes have"),
        ({"lacks": ["/mnt/me"], "home": "/mnt/me"}, "places", "warning", "no /mnt/me in the container"),
        ({"limits": {"RLIMIT_MEMLOCK": 65536}}, "limits", "warning", None),
        ({"memory": 2000}, "limits", "warning", "2000 MiB for 1 task; each needs about 2048 MiB to start"),
        (
            {"memory": 300, "tasks": 2, "visible": 0},
            "limits",
            "warning",
            "300 MiB for 2 tasks; each needs about 256 MiB to start",
        ),
    ],
)
def test_a_task(task: dict[str, Any], check: str, state: str, evidence: str | None) -> None:
    found = [one for one in findings(collect(task=task)) if one[:2] == (state, check)]
    assert len(found) == 1, findings(collect(task=task))
    assert found[0][3] == ("node2",)
    assert evidence in (None, found[0][2])


@pytest.mark.parametrize("number", [31, 63, 109])
def test_an_xid_of_a_program_or_of_a_planned_repair_is_none_of_a_broken_gpu(number: int) -> None:
    assert findings(collect(node={"kernel": [f"NVRM: Xid (PCI:0000:01:00): {number}, pid=1"]})) == []


@pytest.mark.parametrize(
    ("total", "evidence"),
    [
        ({"total": 1.0}, "the sum over 2 devices is 1; the task sees 2"),
        ({"phase": "imported"}, "task 1 was still in jax.distributed.initialize at the end"),
        ({"phase": "connected"}, "task 1 was still finding its devices at the end"),
        ({"here": 0}, "the sum over 1 devices is 2; the task sees 2"),
    ],
)
def test_the_sum(total: dict[str, Any], evidence: str) -> None:
    assert ("failure", "sum", evidence) in [one[:3] for one in findings(collect(total=total))]
    assert findings(collect(total=total, host=HOST._replace(quick=True))) == []


def test_nccl_takes_tcp_and_jax_the_cpu() -> None:
    found = findings(collect(total={"network": "Socket", "platform": "cpu"}))
    assert [one[:3] for one in found] == [
        ("failure", "gpus", "JAX computes on CPUs, not on the GPUs"),
        ("warning", "transport", "NCCL uses TCP, although the node has InfiniBand"),
    ]


def test_reports_of_tasks() -> None:
    refused = Report(1, "node2", "refused", text="this task sees 1 of 2 planned GPUs", hint="leave it")
    warned = Report(0, "node1", "warning", text="/dev/shm has 1 MiB free")
    assert findings(collect(reports=(refused, warned))) == [
        ("failure", "start", "task 1 on node2: this task sees 1 of 2 planned GPUs", ("node2",)),
        ("warning", "messages", "/dev/shm has 1 MiB free", ("node1",)),
    ]


def test_facts_that_are_not_known_never_fail() -> None:
    """As on a node with no driver, in an image that says nothing of itself."""
    reader = FactsReader()
    record(reader, "n", 0, node="node1")
    record(reader, "t", 0, node="node1", task=0, jax="/x", user="me")
    found = findings(reader.collect(LoginFacts(quick=True)))
    assert found == []
    assert unchecked(reader.collect(LoginFacts(quick=True))).keys() > {"image", "driver", "slurm", "health", "xid"}
    assert unchecked(FactsReader().collect(LoginFacts(quick=True)))  # nothing at all: no exception


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"node": "node1", "number": -1}',
        '{"node": "node1", "evil": 1}',
        '{"node": "a b"}',
        '{"node": "node1", "skew": NaN}',
        '{"node": "node1", "gpus": [[1]]}',
        '{"node": "node1", "gpus": 4}',
        '{"node": "node1", "nodelist": "n[1-"}',
        '{"node": "node1", "spaces": [["/tmp", 1.5, 2]]}',
        '{"node": "node1", "driver": "' + "x" * 400 + '"}',
        "[" * 100000,
    ],
)
def test_other_lines_are_refused(text: str) -> None:
    assert parse_facts("n", text) is None
    assert parse_facts("x", '{"node": "node1"}') is None


def test_texts_are_printable() -> None:
    found = parse_facts("t", json.dumps({"node": "node1", "task": 0, "user": "\x1b[2J", "lacks": ["\n"]}))
    assert found is not None
    assert found[found._fields.index("user")] == "\\x1b[2J"
    assert found[found._fields.index("lacks")] == ("\\n",)


def render_nodes(count: int) -> tuple[list[str], float]:
    """Return the lines of doctor's table for that many nodes, and the processor time in seconds."""
    begin, reader = time.process_time(), FactsReader()
    for number in range(count):
        name = f"n{number:04}"
        bad = {"spaces": [["/dev/shm", number % 200, 1000]], "image": "cd"} if number % 3 == 0 else {}
        addresses = {f"n{other:04}": f"10.0.{other}.1" for other in range(32)}
        changes = {"node": name, "number": number, "addresses": addresses, "nodelist": f"n[0000-{count - 1:04}]", **bad}
        record(reader, "n", number, **{**NODE, **changes})
        record(reader, "t", number, **{**TASK, "node": name, "task": number})
    results = merge(judge(reader.collect(HOST._replace(quick=True))))
    lines = [*align([HEADING, *render_rows(results)]), *render_rest(results, f"{count} nodes")]
    return lines, time.process_time() - begin


def test_a_thousand_nodes_take_one_screen_and_time_in_proportion() -> None:
    few = min(render_nodes(200)[1] for _ in range(3))  # 0.1 s on a quiet machine
    (lines, _), many = render_nodes(1000), min(render_nodes(1000)[1] for _ in range(3))
    assert len(lines) <= 24
    assert "n[0000,0003," in "\n".join(lines)
    assert many < 15 * few, (many, few)  # 25 times if each node looked at all others


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["node3", "node1", "node2", "login"], "login,node[1-3]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["rack1-n1-ib", "rack1-n2-ib"], "rack1-n[1-2]-ib"),
        ([], ""),
        (["node7", "node7"], "node7"),
    ],
)
def test_fold_nodes(names: list[str], folded: str) -> None:
    assert fold_nodes(names) == folded


def test_the_first_name_of_nodes_is_not_cut() -> None:
    names = [f"gpu-a100-rack12-node{number:04}" for number in (34, 99, 120)]
    assert fold_nodes(names[:1], 20) == names[0]
    assert fold_nodes(names, 20) == "gpu-a100-rack12-node[0034..."


def test_a_row_for_many_nodes() -> None:
    results = [
        CheckResult("warning", f"/tmp has {free} MiB", "free up space there", "user", (f"node{free}",), "space")
        for free in (1, 2, 4)
    ]
    merged = merge([*results, CheckResult("failure", "no answer", "", "node", ("node9",), "answers")])
    rows = list(render_rows(merged))
    assert rows == [
        ("failure", "answers", "node", "node9", "no answer"),
        ("warning", "space", "user", "node[1-2,4]", "/tmp has 1 MiB"),
        ("", "", "", "", "  try: free up space there"),
    ]
    assert render_line(merged[1]) == "warning: space on node[1-2,4]: /tmp has 1 MiB; try: free up space there"


@pytest.mark.parametrize(
    ("check", "evidence", "rows"),
    [
        ("xid", "the kernel reports Xid 4{}", 2),
        ("alike", "jaxlib is 0.12.{} in task 3, not 0.11", 2),
        ("infiniband", "active InfiniBand ports: {}00 Gb/sec; elsewhere: 400 Gb/sec", 2),
        ("power", "a GPU is NVIDIA H{}00; most are NVIDIA H100", 2),
        ("gpus", "the driver sees {} of 4 GPUs", 2),
        ("site", "firmware 28.{}", 2),
        ("space", "/tmp has {} MiB", 1),
        ("clocks", "the clock is +{}.5 s off the first node's", 1),
        ("names", "node{0} has the address 127.0.1.1 there, else 10.0.0.{0}", 1),
        ("names", "gpu{} has no address there", 2),
        ("names", "gpu-{} has no address there", 2),
        ("clocks", "the clock is -{}.5 s off the first node's", 1),
        ("messages", "a compilation took {}.2s", 1),
        ("sum", "task {} was still importing JAX at the end", 1),
        ("start", "task {0} on node{0}: this task sees 0 of 2 planned GPUs", 1),
    ],
)
def test_only_measured_numbers_are_merged(check: str, evidence: str, rows: int) -> None:
    """Nodes with different versions, rates or Xids are different findings."""
    results = [
        CheckResult("failure", evidence.format(number), "", "node", (f"node{number}",), check) for number in (2, 3)
    ]
    assert len(merge(results)) == rows


def with_ends(*numbers: int, error: str = "FATAL: no", seen: DoctorFacts | None = None) -> DoctorFacts:
    """The two nodes, of whose tasks some containers ended with an error; none reports unless `seen` has it."""
    seen = seen or collect()._replace(tasks={}, sums={})
    ends = {number: EndFacts(f"node{number + 1}", number, 139, error) for number in numbers}
    return seen._replace(ends=ends)


def whose(seen: DoctorFacts, check: str) -> set[tuple[str, str]]:
    """The states of a check's findings, and who can help."""
    return {(one.state, one.whose) for one in judge(seen) if one.check == check and one.state != "ok"}


def test_a_container_that_starts_nowhere_is_not_the_nodes_fault() -> None:
    assert whose(with_ends(1), "container") == {("failure", "node")}
    assert whose(with_ends(0, 1), "container") == {("failure", "user")}


def test_a_container_that_lacks_a_bind_brings_its_remedy() -> None:
    error = "FATAL:   container creation failed: while mounting /x: mount source /x doesn't exist"
    seen = with_ends(0, 1, error=error)
    seen = seen._replace(host=seen.host._replace(sources={"/x": "run.bind in /sw/jaxsif.toml"}))
    found = [one for one in judge(seen) if one.check == "container"]
    remedy = "put it on a disk that all nodes see, or leave out the option or setting that names it"
    assert {one.remedy for one in found} == {remedy}
    assert found[0].evidence == "node1 has no /x, which the container needs (run.bind in /sw/jaxsif.toml)"


def test_a_node_without_a_container_runtime() -> None:
    error = "FATAL: cannot execute apptainer: No such file or directory"
    found = [one for one in judge(with_ends(0, error=error)) if one.check == "container" and one.nodes == ("node1",)]
    assert [(one.state, one.whose, one.evidence) for one in found] == [
        ("failure", "node", "node1 cannot execute apptainer: No such file or directory")
    ]


def test_the_others_end_for_a_container_that_has_not_started() -> None:
    """JAX ends them; so only the container is a finding."""
    seen = collect()
    left = {number: task for number, task in seen.tasks.items() if task.node == "node2"}
    ends = {number: EndFacts("node2", number, 134, "SIGABRT") for number in left}
    sums = {number: SumFacts("node2", number, "imported") for number in left}
    seen = seen._replace(tasks=left, sums=sums, ends=ends)
    assert "sum" in {one[1] for one in findings(seen)}
    seen = seen._replace(ends={**ends, 0: EndFacts("node1", 0, 127, "FATAL: cannot execute apptainer: No")})
    assert {one[1] for one in findings(seen)} == {"container"}


def test_a_node_whose_task_never_reports_is_not_ok() -> None:
    """Whatever the reason, such as one that only srun knows."""
    seen = collect({"number": 0}, {"number": 1})
    of_one = {number: task for number, task in seen.tasks.items() if task.node == "node1"}
    assert whose(seen._replace(tasks=of_one, sums={}), "answers") == {("failure", "node")}
    found = judge(seen._replace(tasks=of_one, sums={}, broken="task 1 on node2 ended with exit status 2", remedy="see"))
    assert [(one.evidence, one.nodes) for one in found if one.check == "answers"] == [
        ("task 1 on node2 ended with exit status 2", ("node2",))
    ]


def test_a_device_that_no_node_has_is_not_the_nodes_fault() -> None:
    lacking = [Report(number, f"node{number + 1}", "lacking", text="no /dev/x", hint="leave it") for number in (0, 1)]
    assert whose(collect(reports=lacking[:1]), "start") == {("failure", "node")}
    assert whose(collect(reports=lacking), "start") == {("failure", "site")}


def test_a_taken_port_is_not_the_nodes_fault() -> None:
    assert whose(collect({"number": 0, "reason": "port 61000 is not free"}), "port") == {("failure", "user")}


def test_names_of_the_loopback() -> None:
    """On one node; and on all nodes, as Debian makes them. With GPUs, nothing looks the own name up."""
    own = [{"addresses": {**NODE["addresses"], f"node{number}": "127.0.1.1"}} for number in (1, 2)]
    seen = collect(own[1])
    assert whose(seen, "names") == {("warning", "node")}
    on_cpus = {number: task._replace(flavour="cpu") for number, task in seen.tasks.items()}
    assert whose(seen._replace(tasks=on_cpus), "names") == {("failure", "node")}
    nodes = {name: node._replace(addresses=one["addresses"]) for (name, node), one in zip(seen.nodes.items(), own)}
    assert whose(seen._replace(nodes=nodes), "names") == {("warning", "site")}
    assert whose(seen._replace(nodes=nodes, tasks=on_cpus), "names") == {("failure", "site")}
    for address in ("", "::1", "127.0.1.1,127.0.0.1"):
        assert whose(collect({"addresses": {"node1": address}}), "names") == {("failure", "node")}


@pytest.mark.parametrize(
    ("first", "second", "evidence"),
    [
        ("10.0.0.1,10.0.0.7", "10.0.0.1,10.0.0.7", None),
        ("10.0.0.1,10.0.0.7", "10.0.0.7,10.0.0.9", None),  # parts of the same
        ("10.0.0.1,fd00::1", "10.0.0.1", None),  # a node without IPv6
        ("10.0.0.1", "10.0.0.1,127.0.1.1", None),
        ("10.0.0.1,127.0.1.1", "10.0.0.1,127.0.1.1", None),
        ("10.0.0.1", "fd00::1", "node1 has the address fd00::1 there, else 10.0.0.1"),
        ("10.0.0.1", "10.9.9.9", "node1 has the address 10.9.9.9 there, else 10.0.0.1"),
    ],
)
def test_names_with_several_addresses(first: str, second: str, evidence: str | None) -> None:
    """DNS may rotate them, and know IPv6: that is no node's fault."""
    seen = collect({"addresses": {"node1": second}})
    nodes = {**seen.nodes, "node1": seen.nodes["node1"]._replace(addresses={"node1": first})}
    seen = seen._replace(nodes=nodes)
    assert [one[2] for one in findings(seen)] == ([evidence] if evidence else [])
    assert whose(seen, "names") == ({("warning", "site")} if evidence else set())


def test_a_name_of_the_loopback_alone() -> None:
    seen = collect({"addresses": {"node1": "127.0.1.1"}})
    nodes = {**seen.nodes, "node1": seen.nodes["node1"]._replace(addresses={"node1": "10.0.0.1,127.0.1.1"})}
    assert whose(seen._replace(nodes=nodes), "names") == {("failure", "node")}


def test_a_name_that_most_nodes_do_not_know() -> None:
    seen = collect()
    lost = {
        f"node{number}": seen.nodes["node2"]._replace(node=f"node{number}", addresses={"a": ""}) for number in (2, 3)
    }
    nodes = {"node1": seen.nodes["node1"]._replace(addresses={"a": "10.0.0.1"}), **lost}
    found = findings(seen._replace(nodes=nodes))
    assert ("failure", "names", "a has no address there, else 10.0.0.1", ("node2", "node3")) in found
    found = findings(seen._replace(nodes=lost))
    assert ("failure", "names", "a has no address there, nor elsewhere", ("node2", "node3")) in found


def test_a_task_that_dies_in_the_sum_without_a_word() -> None:
    found = findings(with_ends(1, error="Segmentation fault", seen=collect(total={"phase": "devices"})))
    assert found == [("failure", "sum", "task 1 ended with status 139, adding up: Segmentation fault", ("node2",))]
    follows = Report(1, "node2", "exception", text="RuntimeError: task 0 has died", consequence=True)
    alone = with_ends(1, seen=collect(total={"phase": "devices"}, reports=(follows,)))
    assert [one[1] for one in findings(alone)] == ["sum"]
    cause = Report(0, "node1", "exception", text="RuntimeError: no")
    both = with_ends(1, seen=collect(total={"phase": "devices"}, reports=(follows, cause)))
    assert [one[1] for one in findings(both)] == ["start"]


def test_divided_gpus_are_not_counted() -> None:
    """Slurm hands out seven parts of one GPU, and other jobs use memory of it."""
    seen = collect(gpu(mig=1, memory=70000), {"visible": 7})
    assert [one[1] for one in findings(seen)] == ["power"]


def test_gpus_of_another_maker_are_no_fault_of_the_nodes() -> None:
    seen = collect()
    nodes = {name: node._replace(gpus=None, devices=0, driver="") for name, node in seen.nodes.items()}
    assert whose(seen._replace(nodes=nodes), "gpus") == {("failure", "site")}
    assert whose(collect({"gpus": None, "devices": 0}), "gpus") == {("failure", "node")}


@pytest.mark.parametrize(
    ("begin", "state"), [(0.0, "failure"), (102.0, "failure"), (120.0, "unknown"), (80.0, "unknown")]
)
def test_a_node_that_began_at_another_time_than_the_first(begin: float, state: str) -> None:
    """As after a prolog of Slurm: they have not met, and nothing is known."""
    seen = collect({"reason": "10.0.0.1:61000: Connection refused", "began": begin})
    nodes = {**seen.nodes, "node1": seen.nodes["node1"]._replace(began=100.0)}
    found = [one for one in findings(seen._replace(nodes=nodes)) if one[1] == "port"]
    assert [(one[0], one[3]) for one in found] == [(state, ("node2",))]


def test_ports_without_a_cable() -> None:
    """A second port that is down on all nodes is no fault; nor do they have InfiniBand with the first one alone."""
    up, down = NODE["ports"][0], ["mlx5_1/ports/1", "1: DOWN", "10 Gb/sec"]
    seen = collect({"ports": [up, down]}, {"verbs": False})
    nodes = dict.fromkeys(seen.nodes, seen.nodes["node2"])
    assert "infiniband" not in [one[1] for one in findings(seen._replace(nodes=nodes))]
    assert "verbs" in [one[1] for one in findings(seen)]
    assert "verbs" not in [one[1] for one in findings(collect({"ports": [down]}, {"verbs": False}))]


def test_a_current_folder_behind_a_link() -> None:
    assert findings(collect(task={"folder": "/mnt/data/home/me"})) == []


def test_where_no_task_has_started() -> None:
    """Where the step has succeeded, on all nodes, it is the fault of the image."""
    seen = collect()._replace(tasks={}, ends={}, reports=[])
    assert whose(seen, "answers") == {("failure", "node")}  # the step stood still
    assert whose(seen._replace(succeeded=True), "answers") == {("failure", "user")}
    assert whose(seen._replace(broken="the job was cancelled"), "answers") == {("failure", "node")}


def test_a_step_that_ends_early_blames_no_silent_node() -> None:
    seen = collect()
    alone = seen._replace(nodes={"node1": seen.nodes["node1"]})
    assert whose(alone, "answers") == {("failure", "node")}
    assert whose(alone._replace(broken="the job was cancelled"), "answers") == {("failure", "site")}


@pytest.mark.parametrize(
    ("driver", "state", "evidence"),
    [
        ("520.61.05", "failure", "driver 520.61.05 is too old: the image's CUDA needs 525, or cuda-compat"),
        ("535.183.01", "warning", "driver 535.183.01 is old: PTX of the image's CUDA 12.9 needs 575"),
    ],
)
def test_old_drivers(driver: str, state: str, evidence: str) -> None:
    """Unless JAX has added up on the GPUs, as with the libraries of cuda-compat; without the sum, that may be so."""
    seen = collect({"driver": driver})
    differs = ("warning", "driver", f"driver {driver}; most nodes have 575.57.08", ("node2",))
    assert findings(seen) == [differs]
    without = findings(seen._replace(sums={}, host=HOST._replace(quick=True)))
    assert set(without) == {("warning", "driver", evidence, ("node2",)), differs}
    failed = findings(collect({"driver": driver}, total={"phase": "devices"}))
    assert (state, "driver", evidence, ("node2",)) in failed


@pytest.mark.parametrize(
    ("jax", "path", "is_found"),
    [
        ("/home/me/.local/lib/python3.13/site-packages/jax/__init__.py", "", True),
        ("/home/me/src/jax/__init__.py", "/opt/site:/home/me/src", True),
        ("/home/me/venv/lib/python3.13/site-packages/jax/__init__.py", "", False),
        ("/home/me/venv/lib/python3.13/site-packages/jax/__init__.py", "/home/me/src", False),
        ("/opt/layer/jax/__init__.py", "/opt/layer", False),
    ],
)
def test_where_jax_is_from(jax: str, path: str, is_found: bool) -> None:
    """A virtual environment in the home folder is the user's choice."""
    found = findings(collect(task={"jax": jax, "foreign": {"PYTHONPATH": path}}))
    assert [one[:3] for one in found if one[0] == "failure"] == (
        [("failure", "python", f"JAX comes from {jax}, not from the image")] if is_found else []
    )


def test_where_jax_is_from_without_a_container() -> None:
    """The whole Python is the host's, and the user's affair."""
    lib = "/home/me/.local/lib/python3.13/site-packages"
    seen = collect(task={"jax": f"{lib}/jax/__init__.py", "foreign": {"PYTHONPATH": f"{lib}/jaxsif/task/site"}})
    assert "python" in {one[1] for one in findings(seen)}
    assert "python" not in {one[1] for one in findings(seen._replace(host=HOST._replace(in_container=False)))}


PREEMPTS = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE", "GraceTime": "0"}


@pytest.mark.parametrize(
    ("slurm", "evidence"),
    [
        (PREEMPTS, ["jobs are preempted without a signal: no send_user_signal, no GraceTime"]),
        (
            {**PREEMPTS, "PreemptMode": "CANCEL"},
            ["jobs are preempted without a signal: no send_user_signal, no GraceTime"],
        ),
        ({**PREEMPTS, "PreemptMode": "GANG,SUSPEND"}, []),
        ({**PREEMPTS, "PreemptMode": "OFF"}, []),
        ({**PREEMPTS, "PreemptType": "(null)"}, []),
        ({**PREEMPTS, "GraceTime": "60"}, []),  # SIGTERM comes
        ({**PREEMPTS, "PreemptParameters": "youngest_first,send_user_signal"}, []),
        ({**PREEMPTS, "SlurmctldParameters": "preempt_send_user_signal"}, []),
        (
            {**PREEMPTS, "PreemptType": "preempt/qos"},
            ["jobs are preempted without a signal, unless their QOS has a GraceTime"],
        ),
    ],
)
def test_announcements_of_the_end(slurm: dict[str, str], evidence: list[str]) -> None:
    seen = collect(host=HOST._replace(slurm={**SLURM, **slurm}))
    assert [one[2] for one in findings(seen)] == evidence
    assert all("send_user_signal" in one.remedy for one in judge(seen) if one.state == "warning")


def test_little_time_is_left() -> None:
    assert [one[1:3] for one in findings(collect(task={"left": 59}))] == [("time", "the job ends in 59 s")]


def test_a_lost_gpu_is_of_no_other_kind() -> None:
    assert [one[1] for one in findings(collect(gpu(name="lost")))] == ["health"]


@pytest.mark.parametrize(
    ("statuses", "state"), [("93", "warning"), ("1,90-99", "warning"), ("1,94-99", None), ("(null)", None)]
)
def test_statuses_that_start_a_job_again(statuses: str, state: str | None) -> None:
    seen = collect(host=HOST._replace(slurm={**SLURM, "RequeueExit": statuses}))
    assert [one[0] for one in findings(seen)] == ([state] if state else [])
