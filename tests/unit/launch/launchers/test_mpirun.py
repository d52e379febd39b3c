"""Hosts and options -> what mpirun starts, and what is shown of its output; the whole line is in tests/golden."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch
from kit.executables import executable
from kit.hosts import WORKSTATION, launch_words, plan_for, srun_words

from jaxsif.errors import JaxsifError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.launchers.mpirun import Output, choose_variables
from jaxsif.launch.pipeline import prepare
from jaxsif.plan.host import Host
from jaxsif.plan.host_list import HostList, parse_hosts
from jaxsif.plan.map import render_map
from jaxsif.plan.notes import find_notes
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import RunOptions, Setting

LAUNCHER = WORKSTATION._replace(gpus=0)
PROGRAM = RunOptions(("true",), launcher="mpirun")
JOB = Allocation("4711", 2, None, None, 4)


def host(hosts: str, gpus: int = 0) -> Host:
    return LAUNCHER._replace(host_list=parse_hosts(hosts, "--hosts"), gpus=gpus)


def plan_of(there: Host, allocation: Allocation | None = None, **options: object) -> Plan:
    asked = PROGRAM._replace(**options)  # type: ignore[arg-type]
    return plan_for(asked, there._replace(allocation=allocation))


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
        (host("a:3,b:3"), None, {"per_node": True}, "a:1,b:1", "--per-node"),
        (host("a:4,b:2"), None, {"nodes": 1}, "a:4", "the slots of --hosts"),
        (host("a,b"), JOB, {}, "a:4,b:4", "one task per GPU"),
        (host("a,b"), JOB._replace(ntasks_per_node=2), {"nodes": 1}, "a:2", "SLURM_NTASKS_PER_NODE"),
    ],
    ids=[
        *("nothing known", "slots", "slots before GPUs here", "slots that are cores", "GPUs here", "GPUs asked for"),
        *("tasks asked for", "a task a node", "some of the hosts", "in a job", "a part of a job with its own tasks"),
    ],
)
def test_layout(there: Host, allocation: Allocation | None, options: dict[str, object], placed: str, why: str) -> None:
    plan = plan_of(there, allocation, **options)
    assert launch_words(plan)[:3] == ("mpirun", "--host", placed)
    assert plan.layout.why == why


@pytest.mark.parametrize(("options", "gpus"), [({}, "-"), ({"gpus_per_node": "2"}, "2")])
def test_each_node_hands_out_its_own_gpus_unless_told(options: dict[str, object], gpus: str) -> None:
    plan = plan_of(host("a,b", gpus=2), **options)
    assert launch_words(plan)[-3:] == ("a,b", "2", gpus)


@pytest.mark.parametrize(
    ("there", "options", "text"),
    [
        (host("a,b"), {"nodes": 3}, "3 nodes, but 2 hosts"),
        (host("a:4,b"), {}, "the hosts have different numbers of slots: a:4, b"),
    ],
    ids=["too few hosts", "uneven slots"],
)
def test_refused(there: Host, options: dict[str, object], text: str) -> None:
    error = catch(JaxsifError, plan_of, there, **options)
    assert (error.what, error.where) == (text, "--hosts")


def test_different_numbers_of_tasks_are_refused() -> None:
    job = JOB._replace(gpus_per_node=None, gpus=4)
    there = host("a,b")._replace(job_gpus=((3, 1), (1, 1)))
    with pytest.raises(JaxsifError, match="mpirun starts the same number of tasks on each node"):
        plan_of(there, job, per_gpu=True, allow_uneven=True)
    plan = plan_of(there, job, per_node=True, allow_uneven=True)
    assert launch_words(plan)[:3] == ("mpirun", "--host", "a:1,b:1")


def test_options_of_another_launcher_are_told() -> None:
    asked = PROGRAM._replace(
        launcher="local", hosts="a", srun_args=srun_words("--mem=0"), gpu_bind="none", cpus_per_task=2
    )
    names = ("cpus-per-task", "gpu-bind", "srun-args", "hosts")
    told = find_notes(plan_for(asked, LAUNCHER))
    assert told == tuple(f"warning: --{name} has no effect with --launcher local" for name in names)
    of_a_file = asked._replace(sources={name: Setting(None, "FILE") for name in names})
    assert find_notes(plan_for(of_a_file, LAUNCHER)) == ()


def test_variables() -> None:
    own = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES", "PWD", "_", "PBS_JOBID")
    environ = dict.fromkeys((*own, "HOME", "_CE_CONDA", "BASH_FUNC_ml%%", "http_proxy", "HTTP_PROXY"), "")
    chosen = choose_variables(plan_of(host("a")._replace(environ=environ)))
    assert chosen[:4] == ("HOME", "_CE_CONDA", "HTTP_PROXY", "JAXSIF_STEP")
    assert not {*own, "BASH_FUNC_ml%%", "http_proxy"}.intersection(chosen)


def look(environ: dict[str, str], **said: object) -> HostList:
    """The hosts that are found with these options and variables."""
    allocation = Allocation.from_environ(environ)
    said = {"launcher": "mpirun", "compile_cache": False, **said}
    return prepare(said, ("true",), allocation, environ, print).host.host_list


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host with mpirun, a runtime and an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jax.sif/.singularity.d").mkdir(parents=True)
    for name in ("mpirun", "apptainer"):
        executable(tmp_path / name)
    (tmp_path / "hosts").write_text("c slots=2\nd slots=2\n")
    return {"PATH": str(tmp_path)}


IN_SLURM = {"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[3-4]", "SLURM_GPUS_PER_NODE": "1"}


@pytest.mark.parametrize(
    ("options", "variables", "names", "source"),
    [
        ({"hosts": "a,b", "hostfile": "hosts"}, {}, "a b", "--hosts"),
        ({"hostfile": "hosts"}, {"PBS_NODEFILE": "no"}, "c d", "--hostfile"),
        ({}, {"PBS_NODEFILE": "hosts"}, "c d", "PBS_NODEFILE (environment)"),
        ({}, {"LSB_DJOB_HOSTFILE": "hosts"}, "c d", "LSB_DJOB_HOSTFILE (environment)"),
        ({}, IN_SLURM, "n3 n4", "SLURM_JOB_NODELIST (environment)"),
    ],
    ids=["--hosts", "--hostfile", "PBS", "LSF", "Slurm"],
)
def test_where_hosts_come_from(
    environ: dict[str, str], options: dict[str, str], variables: dict[str, str], names: str, source: str
) -> None:
    environ.update(variables)
    found = look(environ, **options)
    assert (" ".join(found.slots), found.source) == (names, source)


def test_no_hosts_is_this_one(environ: dict[str, str]) -> None:
    found = look(environ)
    assert (len(found.slots), found.source) == (1, "this host")


def test_hostfile_that_cannot_be_read(environ: dict[str, str]) -> None:
    with pytest.raises(JaxsifError, match="cannot read the hosts of none: No such file"):
        look(environ, hostfile="none")


def test_the_map_names_the_hosts() -> None:
    plan = plan_of(host("a:1,b:1,c:1"), JOB._replace(nodes=3, nodelist="n[1-3]"))
    assert "\na … c " in render_map(plan, None)


NOISE = b"[login:00258] plm:ssh: Warning: setpgid(262,262) failed in parent with errno=Permission denied(13)\n"


def test_labels_are_as_sruns() -> None:
    out = Output(label=True)
    shown = [
        out.feed(data) for data in (b"[prterun-a-1@1,", b"10]<stdout>: a\n[1,2]<stderr>:b [1,2]<stderr>: c\nx", b"")
    ]
    assert shown == [b"", b"10: a\n2:b [1,2]<stderr>: c\n".replace(b"2:b", b"2: b"), b"x"]


def test_noise_is_left_out_and_the_rest_is_shown_at_once() -> None:
    out = Output(label=False)
    assert [out.feed(NOISE + b"10 %"), out.feed(b" 20 %\r"), out.feed(b"")] == [b"10 %", b" 20 %\r", b""]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"hello\n", ""),
        (
            NOISE + b"ssh: connect to host n9 port 22: No route to host\n",
            "ssh: connect to host n9 port 22: No route to host",
        ),
        (b"a@n1: Permission denied (publickey).\n", "a@n1: Permission denied (publickey)."),
        (
            b"-" * 74 + b"\nThere are not enough slots\nfor it:\n\n  sh\n" + b"-" * 74,
            "There are not enough slots for it:",
        ),
    ],
    ids=["none", "ssh", "a key", "mpirun's own"],
)
def test_complaint(said: bytes, complaint: str) -> None:
    out = Output(label=False)
    out.feed(said)
    assert out.complaint == complaint
