"""slurm/profile: one trace for each node, which other programs can read."""

from __future__ import annotations

import re

from examples import Layout, on_each_layout, run_program
from harness import Cluster, program_lines

# Prints the names of all events in the traces for browsers, as JSON says them.
NAMES = """
import glob, gzip, json
for file in sorted(glob.glob("*.trace.json.gz")):
    events = json.load(gzip.open(file))["traceEvents"]
    print(file, *(f"{name}:{sum(event.get('name') == name for event in events)}" for name in ("train", "load")))
"""


def check(cluster: Cluster, folder: str, lines: list[str], layout: Layout) -> None:
    """The first process of each node says what its file is; there are no others, and all hold the five steps."""
    pattern = r"Process (\d+) on (node\d): [\d.]+ ms a step, [\d.]+ ms of it loading, in (\S+)/(\S+)\.xplane\.pb"
    found = [re.fullmatch(pattern, line) for line in lines]
    assert all(found), lines
    said = sorted((match[2], int(match[1]), match[4]) for match in found if match)
    nodes = [f"node{number + 1}" for number in range(layout.nodes)]
    assert said == [(node, number * layout.per_node, node) for number, node in enumerate(nodes)]
    (where,) = {match[3] for match in found if match}
    files = cluster.check(f"cd {folder} && ls {where}").split()
    assert files == [f"{node}.{ending}" for node in nodes for ending in ("trace.json.gz", "xplane.pb")]
    cluster.write(f"{folder}/names.py", NAMES)
    names = cluster.check(f"cd {folder}/{where} && python3 {folder}/names.py").splitlines()
    assert names == [f"{node}.trace.json.gz train:5 load:5" for node in nodes]


@on_each_layout
def test_one_trace_for_each_node(cluster: Cluster, programs: str, layout: Layout) -> None:
    lines = run_program(cluster, programs, layout, ["profile/trace_steps.py", "traces", "--width=256"])
    check(cluster, f"{programs}/slurm/profile", lines, layout)


def test_job_script(cluster: Cluster, programs: str) -> None:
    log = cluster.submit(f"{programs}/slurm/profile", "trace_steps.sbatch", "trace_steps-*.out")
    check(cluster, f"{programs}/slurm/profile", program_lines(log), Layout(2, 4, 1))
