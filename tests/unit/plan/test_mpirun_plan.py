"""Hosts and options -> what mpirun starts; the whole line is in tests/golden."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.probe import probe
from jaxsif.plan import mpirun
from jaxsif.plan.command import render_notes
from jaxsif.plan.host import Host
from jaxsif.plan.map import render_map
from jaxsif.plan.plan import build
from jaxsif.runtime import Runtime
from jaxsif.settings.request import RunOptions

RUNTIME = Runtime("apptainer", "APPTAINERENV_")
LAUNCHER = Host(False, RUNTIME, "/sw/jax.sif", "python3", "/sw/lib/jaxsif", 61234, "0a1b", 0, None)
PROGRAM = RunOptions(("true",), launcher="mpirun")
JOB = Allocation("4711", 2, None, None, 4)


def host(hosts: str, gpus: int = 0) -> Host:
    return LAUNCHER._replace(hosts=mpirun.parse_hosts(hosts, "--hosts"), hosts_source="--hosts", gpus=gpus)


@pytest.mark.parametrize(
    ("there", "allocation", "options", "placed", "why"),
    [
        (host("a,b"), None, {}, "a:1,b:1", "one task on each node"),
        (host("a:4,b:4"), None, {}, "a:4,b:4", "the slots of --hosts"),
        (host("a:4,b:4", gpus=8), None, {}, "a:4,b:4", "the slots of --hosts"),
        (host("a:64,b:64", gpus=8), None, {}, "a:8,b:8", "one task per GPU"),
        (host("a,b", gpus=8), None, {}, "a:8,b:8", "one task per GPU"),
        (host("a:4,b:4"), None, {"gpus_per_node": "2"}, "a:2,b:2", "one task per GPU"),
        (host("a:4,b:2"), None, {"ntasks_per_node": 3}, "a:3,b:3", "--ntasks-per-node"),
        (host("a:4,b:2"), None, {"nodes": 1}, "a:4", "the slots of --hosts"),
        (host("a,b"), JOB, {}, "a:4,b:4", "one task per GPU"),
        (host("a,b"), JOB._replace(ntasks_per_node=2), {"nodes": 1}, "a:2", "SLURM_NTASKS_PER_NODE"),
    ],
    ids=[
        *(
            "nothing known",
            "slots",
            "slots before GPUs here",
            "slots that are cores",
            "GPUs here",
            "GPUs asked for",
            "tasks asked for",
        ),
        *("some of the hosts", "in a job", "a part of a job with its own tasks"),
    ],
)
def test_layout(there: Host, allocation: Allocation | None, options: dict[str, object], placed: str, why: str) -> None:
    plan = build(PROGRAM._replace(**options), there, allocation, {})  # type: ignore[arg-type]
    assert plan.launch_argv[:3] == ("mpirun", "--host", placed)
    assert plan.layout.why == why


@pytest.mark.parametrize(("options", "gpus"), [({}, "-"), ({"gpus_per_node": "2"}, "2")])
def test_each_node_hands_out_its_own_gpus_unless_told(options: dict[str, object], gpus: str) -> None:
    plan = build(PROGRAM._replace(**options), host("a,b", gpus=2), None, {})  # type: ignore[arg-type]
    assert plan.launch_argv[-3:] == ("a,b", "2", gpus)


@pytest.mark.parametrize(
    ("there", "options", "text"),
    [
        (host("a,b"), {"nodes": 3}, "3 nodes, but 2 host(s)"),
        (host("a:4,b"), {}, "the hosts have different numbers of slots: a:4, b"),
    ],
    ids=["too few hosts", "uneven slots"],
)
def test_refused(there: Host, options: dict[str, object], text: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        build(PROGRAM._replace(**options), there, None, {})  # type: ignore[arg-type]
    assert (caught.value.what, caught.value.where) == (text, "--hosts")


def test_different_numbers_of_tasks_are_refused() -> None:
    job = JOB._replace(gpus_per_node=None, gpus=4)
    there = host("a,b")._replace(job_gpus=((3, 1), (1, 1)))
    with pytest.raises(JaxsifError, match="mpirun starts the same number of tasks on each node"):
        build(PROGRAM._replace(per_gpu=True, allow_uneven=True), there, job, {})
    plan = build(PROGRAM._replace(per_node=True, allow_uneven=True), there, job, {})
    assert plan.launch_argv[:3] == ("mpirun", "--host", "a:1,b:1")


def test_options_of_another_launcher_are_told() -> None:
    request = PROGRAM._replace(launcher="local", hosts="a", srun_args=("--mem=0",), gpu_bind="none", cpus_per_task=2)
    plan = build(request, LAUNCHER, None, {})
    names = ("srun-args", "gpu-bind", "cpus-per-task", "hosts")
    told = render_notes(request, plan, LAUNCHER, None)
    assert told == tuple(f"warning: --{name} has no effect with --launcher local" for name in names)
    of_a_file = request._replace(sources={name: f"run.{name} in FILE" for name in names})
    assert render_notes(of_a_file, plan, LAUNCHER, None) == ()


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host with mpirun, a runtime and an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jax.sif/.singularity.d").mkdir(parents=True)
    for name in ("mpirun", "apptainer"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hosts").write_text("c slots=2\nd slots=2\n")
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(
    ("options", "variables", "names", "source"),
    [
        ({"hosts": "a,b", "hostfile": "hosts"}, {}, "a b", "--hosts"),
        ({"hostfile": "hosts"}, {"PBS_NODEFILE": "no"}, "c d", "--hostfile"),
        ({}, {"PBS_NODEFILE": "hosts"}, "c d", "PBS_NODEFILE (environment)"),
        ({}, {"LSB_DJOB_HOSTFILE": "hosts"}, "c d", "LSB_DJOB_HOSTFILE (environment)"),
        (
            {},
            {
                "SLURM_JOB_ID": "1",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_GPUS_PER_NODE": "1",
                "SLURM_JOB_NODELIST": "n[3-4]",
            },
            "n3 n4",
            "SLURM_JOB_NODELIST (environment)",
        ),
    ],
    ids=["--hosts", "--hostfile", "PBS", "LSF", "Slurm"],
)
def test_where_hosts_come_from(
    environ: dict[str, str], options: dict[str, str], variables: dict[str, str], names: str, source: str
) -> None:
    environ.update(variables)
    found, _ = probe(PROGRAM._replace(**options), None, Allocation.from_environ(environ), environ)  # type: ignore[arg-type]
    assert (" ".join(one.name for one in found.hosts), found.hosts_source) == (names, source)


def test_no_hosts_is_this_one(environ: dict[str, str]) -> None:
    found, _ = probe(PROGRAM, None, None, environ)
    assert (len(found.hosts), found.hosts_source) == (1, "this host")


def test_hostfile_that_cannot_be_read(environ: dict[str, str]) -> None:
    with pytest.raises(JaxsifError, match="cannot read the hosts of none: No such file"):
        probe(PROGRAM._replace(hostfile="none"), None, None, environ)


def test_nodes_may_have_other_gpus_than_this_one() -> None:
    """Each hands out its own, so no task may refuse to start because of their number."""
    variables = dict(build(PROGRAM, host("a,b", gpus=4), None, {}).set_environ)
    assert variables["APPTAINERENV_JAXSIF_LAYOUT"] == "4:-(x2)"


def test_options_of_the_layout_stand_before_slots() -> None:
    plan = build(PROGRAM._replace(per_node=True), host("a:3,b:3"), None, {})
    assert (plan.layout.ntasks_per_node, plan.layout.why) == (1, "--per-node")


def test_the_map_names_the_hosts() -> None:
    plan = build(PROGRAM, host("a:1,b:1,c:1"), JOB._replace(nodes=3, nodelist="n[1-3]"), {})
    assert "\na … c " in render_map(plan, JOB, None)
