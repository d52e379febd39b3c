"""`jaxsif doctor`: each fault that this cluster can have is injected, and found; a clean one has none."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import HERE, Cluster, sandbox

NODES = ("node1", "node2", "node3", "node4")
STEP = "--nodes=2 --ntasks-per-node=2 --gpus-per-node=2"


def examine(cluster: Cluster, options: str = f"--no-sum {STEP}", before: str = "true") -> tuple[list[Any], int]:
    """The findings of a run of doctor that are not ok, and its exit status."""
    done = cluster.run(f"module load jax/sif && {before} && jaxsif doctor --json {options}", timeout=200)
    assert done.returncode in (0, 1), done.stderr
    return [row for row in json.loads(done.stdout) if row["state"] in ("failure", "warning")], done.returncode


@contextmanager
def injected(cluster: Cluster, node: str, fault: str, remedy: str) -> Iterator[None]:
    """A fault of a node, made by root, during the body of the `with`."""
    cluster.check(fault, node=node, user="root")
    try:
        yield
    finally:
        cluster.check(remedy, node=node, user="root")


@contextmanager
def bound(cluster: Cluster, node: str, path: str, text: str) -> Iterator[None]:
    """A file with this text over another one of a node."""
    name = f"/run/fake{path.replace('/', '-')}"
    cluster.check(f"cat >{name}", stdin=text, node=node, user="root")
    with injected(cluster, node, f"touch {path} && mount --bind {name} {path}", f"umount {path}"):
        yield


def only(rows: list[Any], check: str, state: str, nodes: list[str] | None = None) -> str:
    """The evidence of the only finding, which is of this check."""
    assert [(row["check"], row["state"]) for row in rows] == [(check, state)], rows
    assert nodes is None or rows[0]["nodes"] == nodes, rows
    assert rows[0]["remedy"]
    return str(rows[0]["evidence"])


def test_a_clean_cluster_has_no_finding(cluster: Cluster) -> None:
    """Three times, with the sum and without; as a table, too."""
    for options in (STEP, f"--no-sum {STEP}", "--no-sum --nodes=4 --per-node --gpus-per-node=4"):
        assert examine(cluster, options) == ([], 0)
    done = cluster.run(f"module load jax/sif && jaxsif doctor --no-sum {STEP}")
    assert done.returncode == 0, done.stderr
    ok = r"^\d\d checks are ok on 2 nodes, 2 tasks a node, 2 GPUs a node\nnot checked: sum \(--no-sum\); "
    assert re.search(ok, done.stdout, re.MULTILINE), done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == ""


# That users pass for a layout of 2 nodes with 2 tasks each.
CLEAN = (
    "",
    "--no-sum",
    "--gpus-per-node=2",
    "--checkpoints={folder} --bind={folder}",
    "--cpus-per-task=2 --no-sum",
    "--gpus-per-node=4 --gpu-bind=closest --time=10",
    "--coordinator-tls=on --init-timeout=60",
    "--env=XLA_FLAGS=--xla_cpu_enable_fast_math=false --no-compile-cache",
    "--containers=task --node-address=%N --coordinator-ports=61000-61999",
    "--compile-cache-folder={folder} --mem=12G --partition=batch",
)


def test_clean_runs_have_no_finding(cluster: Cluster, folder: str) -> None:
    """RUNS of them, one after the other, with other options each."""
    runs, faults = int(os.environ.get("RUNS", "4")), {}
    for number in range(runs):
        options = CLEAN[number % len(CLEAN)].format(folder=folder)
        found = examine(cluster, f"--nodes=2 --ntasks-per-node=2 {options}")
        if found != ([], 0):
            faults[f"run {number + 1}: {options}"] = found
    assert faults == {}, f"{len(faults)} of {runs} runs"


def test_time(cluster: Cluster) -> None:
    """The bounds are those of the page, on a machine of 2 cores."""
    took = []  # seconds
    for options in ("--nodes=4 --ntasks-per-node=4", "--no-sum --nodes=4 --ntasks-per-node=4"):
        begin = time.monotonic()
        assert examine(cluster, options) == ([], 0)
        took.append(time.monotonic() - begin)
    # On a machine that others use; docs/doctor.md has the times of a quiet one.
    assert took[0] < 60, took
    assert took[1] < 15, took


def test_a_blocked_port(cluster: Cluster) -> None:
    rule = "INPUT -s 10.77.1.2 -p tcp --dport 61000:65499 -j DROP"
    with injected(cluster, "node1", f"iptables -A {rule}", f"iptables -D {rule}"):
        rows, status = examine(cluster)
    what = only(rows, "port", "failure", ["node2"])
    assert re.fullmatch(r"cannot reach task 0's node at 10\.77\.1\.1:6\d{4}: timed out", what), what
    assert (status, rows[0]["whose"]) == (1, "site")


@pytest.mark.parametrize(
    ("address", "state", "whose"), [("127.0.1.1", "failure", "node"), ("10.77.9.9", "warning", "site")]
)
def test_a_name_with_another_address(cluster: Cluster, address: str, state: str, whose: str) -> None:
    edit = f"cp /etc/hosts /run/hosts && sed -i 's/^10.77.1.2 node2$/{address} node2/' /etc/hosts"
    with injected(cluster, "node2", edit, "cat /run/hosts >/etc/hosts"):
        rows, status = examine(cluster)
    assert only(rows, "names", state, ["node2"]) == f"node2 has the address {address} there, else 10.77.1.2"
    assert (rows[0]["whose"], status) == (whose, state == "failure")


def test_a_name_with_an_address_of_ipv6_on_one_node(cluster: Cluster) -> None:
    edit = "cp /etc/hosts /run/hosts && echo fd77::1 node1 >>/etc/hosts"
    with injected(cluster, "node2", edit, "cat /run/hosts >/etc/hosts"):
        assert examine(cluster) == ([], 0)


def test_another_image_on_one_node(cluster: Cluster) -> None:
    image = cluster.check("module load jax/sif && realpath $JAX_IMAGE").strip()
    swap = f"cp {image} /run/other.sif && echo >>/run/other.sif && mount --bind /run/other.sif {image}"
    with injected(cluster, "node2", swap, f"umount {image} && rm /run/other.sif"):
        rows, status = examine(cluster)
    assert only(rows, "image", "failure") == "the image differs from that of most nodes"
    assert status == 1


def test_folders_of_checkpoints(cluster: Cluster, folder: str) -> None:
    for path in (folder, f"{folder}/made/later", "/usr", "/usr/none"):
        rows, status = examine(cluster, f"--no-sum {STEP} --checkpoints {path}")
        if path.startswith(folder):
            assert (rows, status) == ([], 0)
            assert cluster.check(f"ls -A {folder} | grep -c jaxsif-doctor || true").strip() == "0"
        else:
            assert only(rows, "folders", "failure").startswith(f"{path}: ")
    with injected(cluster, "node2", f"mount -t tmpfs -o mode=777 tmpfs {folder}", f"umount {folder}"):
        rows, _ = examine(cluster, f"--no-sum {STEP} --checkpoints {folder}")
    assert only(rows, "folders", "failure", ["node2"]) == f"{folder}: not the same folder as on the first node"


def test_folders_of_checkpoints_in_settings(cluster: Cluster, folder: str) -> None:
    """As `jaxsif run` takes them; the command line comes first."""
    cluster.write(f"{folder}/jaxsif.toml", '[run]\ncheckpoints = "/sbin/none"\n')
    for options, faulty in (("", "/sbin/none"), ("--checkpoints /usr", "/usr"), (f"--checkpoints {folder}", "")):
        rows, status = examine(cluster, f"--no-sum {STEP} {options}", f"cd {folder}")
        assert [row["evidence"].partition(":")[0] for row in rows] == ([faulty] if faulty else [])
        assert status == bool(faulty)


def test_the_folder_of_logs(cluster: Cluster, folder: str) -> None:
    """That of the run, or else of a variable, or else of a file."""
    cluster.write(f"{folder}/jaxsif.toml", '[run]\nlog-dir = "/sbin/none"\n')
    rows, _ = examine(cluster, f"--no-sum {STEP}", f"cd {folder}")
    assert only(rows, "folders", "failure").startswith("/sbin/none: ")
    assert examine(cluster, f"--no-sum {STEP}", f"cd {folder} && export JAXSIF_LOG_DIR={folder}/a") == ([], 0)
    job = f"module load jax/sif && cd {folder} && salloc --quiet --nodes=2 jaxsif run --check --log-dir=b -- echo hello"
    done = cluster.run(job)
    assert (done.returncode, done.stdout) == (0, "hello\n" * 2), done.stderr


def test_what_a_run_would_warn_of(cluster: Cluster) -> None:
    done = cluster.run(f"module load jax/sif && JAX_COORDINATOR_ADDRESS=localhost:1 jaxsif doctor --no-sum {STEP}")
    assert done.stderr.startswith("jaxsif: warning: JAX_COORDINATOR_ADDRESS=localhost:1: JAX would connect there, ")


def test_space(cluster: Cluster) -> None:
    with injected(cluster, "node2", "mount -t tmpfs -o size=1m,mode=1777 tmpfs /dev/shm", "umount /dev/shm"):
        rows, status = examine(cluster)
    assert only(rows, "space", "warning", ["node2"]).startswith("/dev/shm has 1 MiB")
    assert status == 0


def test_a_slow_link(cluster: Cluster) -> None:
    slow = "tc qdisc add dev eth0 root tbf rate 10mbit burst 32kbit latency 400ms"
    with injected(cluster, "node2", slow, "tc qdisc del dev eth0 root"):
        rows, status = examine(cluster, "--no-sum --nodes=4 --ntasks-per-node=1")
    assert "MB/s to the first node" in only(rows, "links", "warning", ["node2"])
    assert status == 0


def test_one_cpu(cluster: Cluster) -> None:
    pin, free = (f"taskset -apc {cpus} $(cat /run/slurmd.pid || pgrep -o slurmd)" for cpus in ("0", "0-1"))
    with injected(cluster, "node2", pin, free):
        rows, _ = examine(cluster)
    only(rows, "cpus", "warning", ["node2"])


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_node_that_cannot_execute_the_runtime(cluster: Cluster, tasks: int) -> None:
    """By one task a node, srun would start it; by more, jaxsif does."""
    step = f"--nodes=2 --ntasks-per-node={tasks} -w node[1-2]"
    mode = "chmod {} $(readlink -f $(command -v apptainer))"
    with injected(cluster, "node2", mode.format("a-x"), mode.format("a+x")):
        rows, status = examine(cluster, step)
        done = cluster.run(f"module load jax/sif && jaxsif run {step} -- true")
    reason = r"node2 cannot execute \S*apptainer: Permission denied"  # srun looks it up
    assert re.fullmatch(reason, only(rows, "container", "failure", ["node2"]))
    assert (status, rows[0]["whose"]) == (1, "node")
    assert re.search(f"^jaxsif: error: {reason}$", done.stderr, re.M)
    assert done.returncode == 125


@pytest.mark.parametrize(
    ("options", "check", "state", "evidence"),
    [
        (
            "--env http_proxy=http://p:1",
            "proxies",
            "failure",
            "JAX's processes connect through http_proxy of the container",
        ),
        (
            "--env XLA_FLAGS=--xla_gpu_autotune_levle=4",
            "flags",
            "failure",
            "XLA_FLAGS has a flag that this JAX does not know: --xla_gpu_autotune_levle",
        ),
        ("--env XLA_FLAGS=--xla_force_host_platform_device_count=2", "", "", ""),
        ("--env LD_PRELOAD=/usr/lib/none.so", "python", "warning", "LD_PRELOAD=/usr/lib/none.so brings"),
        ("--mem=400M", "limits", "warning", "400 MiB for 2 tasks; each needs about 256 MiB to start"),
        ("--env TMPDIR=/tmp/none", "messages", "warning", "TMPDIR names a path that is not in the container"),
    ],
)
def test_options(cluster: Cluster, options: str, check: str, state: str, evidence: str) -> None:
    rows, status = examine(cluster, f"--no-sum {STEP} {options}")
    if not check:
        assert rows == []
        return
    assert only(rows, check, state).startswith(evidence), rows
    assert status == (state == "failure")


def test_a_jax_in_the_home_folder(cluster: Cluster, folder: str) -> None:
    cluster.check(f"mkdir -p {folder}/jax && touch {folder}/jax/__init__.py")
    rows, status = examine(cluster, f"--no-sum {STEP} --env PYTHONPATH={folder}")
    assert only(rows, "python", "failure").startswith(f"JAX comes from {folder}/jax/__init__.py"), rows
    assert status == 1


def test_long_paths_of_sockets(cluster: Cluster, folder: str) -> None:
    deep = f"{folder}/{'x' * 60}"
    rows, _ = examine(cluster, f"--no-sum {STEP}", f"mkdir -p {deep} && export TMPDIR={deep}")
    only(rows, "sockets", "warning")


def test_a_folder_that_only_the_login_node_has(cluster: Cluster) -> None:
    with injected(cluster, "login", "mkdir /opt/only && chmod 777 /opt/only", "rmdir /opt/only"):
        rows, status = examine(cluster, before="cd /opt/only")
    assert only(rows, "places", "failure").endswith(", because /opt/only is not there")
    assert status == 1


def test_ulimits(cluster: Cluster) -> None:
    rows, _ = examine(cluster, before="ulimit -Sn 512")
    assert only(rows, "limits", "warning").startswith("ulimit -n is below 1024")


def test_tasks_that_differ(cluster: Cluster, folder: str) -> None:
    """A profile of the shell's, or a prolog of Slurm, that sets a variable on one task alone."""
    prolog = f"{folder}/prolog"
    text = '#!/bin/sh\n[ "$SLURM_PROCID" != 3 ] || echo export XLA_FLAGS=--xla_cpu_enable_fast_math=true\n'
    cluster.write(prolog, text)
    rows, status = examine(cluster, f"--no-sum {STEP} --srun-args=--task-prolog={prolog}", f"chmod +x {prolog}")
    assert only(rows, "alike", "failure", ["node2"]).startswith(
        "XLA_FLAGS is --xla_cpu_enable_fast_math=true in task 3"
    )
    assert status == 1


def test_a_task_without_its_gpus(cluster: Cluster, folder: str) -> None:
    prolog = f"{folder}/prolog"
    cluster.write(prolog, '#!/bin/sh\n[ "$SLURM_PROCID" != 3 ] || echo export CUDA_VISIBLE_DEVICES=NoDevFiles\n')
    rows, status = examine(cluster, f"--no-sum {STEP} --srun-args=--task-prolog={prolog}", f"chmod +x {prolog}")
    assert only(rows, "start", "failure", ["node2"]) == "task 3 on node2: this task sees 0 of 2 planned GPUs"
    assert status == 1


def test_a_sum_that_misses_a_process(cluster: Cluster, folder: str) -> None:
    """Task 3 stops before it connects: named, and bounded."""
    prolog = f"{folder}/prolog"
    cluster.write(prolog, '#!/bin/sh\n[ "$SLURM_PROCID" != 3 ] || echo export JAX_PLATFORMS=none\n')
    begin = time.monotonic()
    rows, status = examine(cluster, f"{STEP} --srun-args=--task-prolog={prolog}", f"chmod +x {prolog}")
    assert time.monotonic() - begin < 90
    assert status == 1
    found = {row["check"]: row["evidence"] for row in rows}
    assert found.keys() == {"start", "sum", "alike"}, rows
    assert found["start"].startswith("task 3 on node2: RuntimeError: Unable to initialize backend 'none'")
    assert " was still " in found["sum"]


def test_run_check(cluster: Cluster) -> None:
    """In the job, before the program; refused outside of one; a failure is kept in the ledger."""
    done = cluster.run("module load jax/sif && jaxsif run --check -- true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jaxsif: error: there are no nodes yet to check\n  from: --check\n")
    job = "module load jax/sif && salloc --quiet --nodes=2 --ntasks-per-node=2 jaxsif run --check -- echo hello"
    done = cluster.run(job)
    assert (done.returncode, done.stdout) == (0, "hello\n" * 4), done.stderr
    edit = "cp /etc/hosts /run/hosts && sed -i 's/^10.77.1.2 node2$/127.0.1.1 node2/' /etc/hosts"
    with injected(cluster, "node2", edit, "cat /run/hosts >/etc/hosts"):
        done = cluster.run(
            f"{job}; status=$?; tail -qn1 $(ls -t ~/.local/state/jaxsif/nodes/* | head -n1); exit $status"
        )
    assert done.returncode == 125, done.stderr
    assert "jaxsif: failure: names on node2: node2 has the address 127.0.1.1 there" in done.stderr
    assert "jaxsif: error: a check has failed: node2 has the address" in done.stderr
    found = json.loads(done.stdout)
    assert (found["node"], found["source"]) == ("node2", "check")
    assert found["evidence"].startswith("jaxsif doctor: node2 has the address")


def test_run_check_with_spare_nodes(cluster: Cluster) -> None:
    """A spare node replaces one that fails; with too few spares, the run does not begin."""
    job = "salloc --quiet --no-kill --nodelist={} --ntasks-per-node=1 jaxsif run --check --max-restarts=1 {}"
    line = f"module load jax/sif && {job} -- sh -c 'echo $SLURMD_NODENAME'"
    edit = "cp /etc/hosts /run/hosts && sed -i 's/^10.77.1.2 node2$/127.0.1.1 node2/' /etc/hosts"
    with injected(cluster, "node2", edit, "cat /run/hosts >/etc/hosts"):
        done = cluster.run(line.format("node[1-3]", "--spare-nodes=1"))
        none = cluster.run(line.format("node[1-2]", ""))
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["node1", "node3"]), done.stderr
    assert "jaxsif: node2 is left out: a check has failed\n" in done.stderr
    assert (none.returncode, none.stdout) == (125, ""), none.stderr
    assert "jaxsif: error: a check has failed: node2 has the address" in none.stderr


def test_run_check_with_a_virtual_environment(cluster: Cluster, folder: str) -> None:
    """Its Python is checked; one that a script chooses is not known."""
    job = "module load jax/sif && salloc --quiet --nodes=1 --ntasks=1 jaxsif run"
    cluster.check(f"{job} -- python -m venv --without-pip {folder}/venv", timeout=100)
    cluster.write(f"{folder}/run.sh", f"exec {folder}/venv/bin/python -c 'print(1)'\n")
    done = cluster.run(f"{job} --check -- {folder}/venv/bin/python -c 'print(1)'")
    assert done.returncode == 125, done.stdout
    assert "jaxsif: error: a check has failed: Python cannot find JAX\n" in done.stderr
    where = f"$(ls -d {folder}/venv/lib/python*)/site-packages"
    cluster.check(f"mkdir -p {where}/jax && touch {where}/jax/__init__.py")
    for program in (f"{folder}/venv/bin/python -c 'print(1)'", f"sh {folder}/run.sh"):
        done = cluster.run(f"{job} --check -- {program}")
        assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_request_that_slurm_refuses(cluster: Cluster) -> None:
    done = cluster.run("module load jax/sif && jaxsif doctor --nodes=2 --gpus-per-node=4 --partition=none")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("jaxsif: error: Slurm refused the request: "), done.stderr


def test_interrupted(cluster: Cluster) -> None:
    """At once, silently, and nothing is left."""
    with cluster.start(f"module load jax/sif && exec timeout --signal=INT 2 jaxsif doctor {STEP}") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (124, ""), err
    cluster.check("for i in $(seq 50); do squeue --me --noheader | grep -q . || exit 0; sleep 0.2; done; exit 1")


SITE = "/sw/site-checks"
CHECKS = {
    "good.sh": '#!/bin/sh\necho \'{"state": "ok", "evidence": "fine"}\'\n',
    "disk.sh": '#!/bin/sh\necho "{\\"state\\": \\"warning\\", \\"evidence\\": \\"scratch is 98 % full\\"}"\n',
    "licence.py": "#!/usr/bin/env python3\nimport json\n"
    "print(json.dumps([{'state': 'failure', 'evidence': 'no licence', 'remedy': 'renew it'}]))\n",
    "hangs": "#!/bin/sh\nsleep 1000\n",
    "floods": "#!/bin/sh\nexec head -c 100000000 /dev/zero\n",
    "rubbish": "#!/bin/sh\nprintf '\\033[2J{{{'\n",
    "foreign": "#!/bin/sh\ntouch /tmp/foreign-ran\n",
    "daemon": '#!/bin/sh\n(setsid sleep 4711 >/dev/null 2>&1 &)\necho \'{"state": "ok", "evidence": ""}\'\n',
}


def test_checks_of_the_site(cluster: Cluster) -> None:
    sandbox(f"mkdir -p {SITE} && echo '[doctor]\nchecks = \"{SITE}\"' >>/sw/jaxsif/jaxsif.toml")
    try:
        for name, text in CHECKS.items():
            sandbox(f"printf %s {shlex.quote(text)} >{SITE}/{name} && chmod 755 {SITE}/{name}")
        sandbox(f"chown 4242 {SITE}/foreign && touch {SITE}/closed && chmod 700 {SITE}/closed")
        begin = time.monotonic()
        rows, status = examine(cluster)
        took = time.monotonic() - begin
        done = cluster.check(f"module load jax/sif && jaxsif doctor --no-sum {STEP} || true")
    finally:
        sandbox(f"rm -rf {SITE} && sed -i '/^.doctor.$/,$d' /sw/jaxsif/jaxsif.toml")
    assert [(row["state"], row["check"], row["evidence"], row["remedy"]) for row in rows] == [
        ("failure", "site", "licence.py: no licence", "renew it"),
        ("warning", "site", "disk.sh: scratch is 98 % full", "ask the site"),
    ]
    assert status == 1
    assert took < 20
    for named in (
        "hangs: no answer within 5 s",
        "floods: more than 64 KiB of output",
        "rubbish: its output is not JSON",
        "closed: not readable",
        "foreign: not run, because other users can write to it: owner 4242, mode 0755",
    ):
        assert named in " ".join(done.split())
    assert cluster.run("ls /tmp/foreign-ran", node="node1").returncode != 0
    assert cluster.run("pgrep -f 'slee[p] 4711'", node="node1").stdout == ""


@contextmanager
def configured(cluster: Cluster, lines: str, partition: str = "") -> Iterator[None]:
    """More lines in the slurm.conf of the login node, whose scontrol and slurmctld read it, and more of a partition."""
    config = cluster.check("cat /etc/slurm/slurm.conf")
    restart = "cat {} >/etc/slurm/slurm.conf; scontrol reconfigure; sleep 1"
    faulty = config.replace("PartitionName=batch ", f"PartitionName=batch {partition} ") + lines
    cluster.check("cat >/run/faulty.conf", stdin=faulty, user="root")
    cluster.check("cat >/run/good.conf", stdin=config, user="root")
    with injected(cluster, "login", restart.format("/run/faulty.conf"), restart.format("/run/good.conf")):
        yield


def test_slurms_configuration(cluster: Cluster) -> None:
    """This cluster's own has no fault."""
    lines = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nKillWait=5\nRequeueExit=93\nMaxStepCount=50\n"
    with configured(cluster, lines):
        rows, status = examine(cluster)
    assert {row["check"] for row in rows} == {"slurm"}, rows
    assert [row["evidence"].split()[0] for row in rows] == ["jobs", "RequeueExit", "KillWait", "MaxStepCount"]
    assert status == 0


@pytest.mark.parametrize(
    ("mode", "partition", "evidence"),
    [
        ("REQUEUE", "", ["jobs are preempted without a signal: no send_user_signal, no GraceTime"]),
        ("REQUEUE", "GraceTime=60", []),
        ("REQUEUE", "PreemptMode=OFF", []),
        ("SUSPEND,GANG", "OverSubscribe=FORCE:1", []),
    ],
)
def test_preemption(cluster: Cluster, mode: str, partition: str, evidence: list[str]) -> None:
    with configured(cluster, f"PreemptType=preempt/partition_prio\nPreemptMode={mode}\n", partition):
        rows, _ = examine(cluster)
    assert [row["evidence"] for row in rows] == evidence


def test_a_heterogeneous_job(cluster: Cluster) -> None:
    """All nodes reach the first one, which is not the first of the sorted list."""
    job = "salloc --quiet --nodelist=node3 --ntasks=1 : --nodelist=node1 --ntasks=1 jaxsif doctor --no-sum --json"
    rows = json.loads(cluster.check(f"module load jax/sif && {job}", timeout=100))
    assert [row for row in rows if row["state"] in ("failure", "warning")] == []
    assert "ok" in [row["state"] for row in rows if row["check"] == "port"]


def test_without_slurm(cluster: Cluster) -> None:
    assert examine(cluster, "--launcher local --ntasks-per-node=2") == ([], 0)


@pytest.mark.parametrize("job", ["", "salloc --quiet --nodes=2 --time=1 "], ids=["a new job", "in a job"])
def test_time_left(cluster: Cluster, job: str) -> None:
    options = "--no-sum" if job else "--no-sum --nodes=2 --time=1"
    done = cluster.run(f"module load jax/sif && {job}jaxsif doctor --json {options}", timeout=100)
    found = [row for row in json.loads(done.stdout) if row["state"] == "warning"]
    assert re.fullmatch(r"the job ends in (60|[45]\d) s", only(found, "time", "warning")), found


# --- What no machine without GPUs has: by a file over the real one, or by a stand-in for the driver's library.


def build_library(cluster: Cluster, source: str, folder: str, name: str, work: Path) -> None:
    """Compile a library here, and put it into a folder of the cluster."""
    argv = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", HERE / source, "-o", work / name, "-ldl"]
    subprocess.run(argv, check=True)
    cluster.check(f"base64 -d >{folder}/{name}", stdin=base64.b64encode((work / name).read_bytes()).decode())


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder of a stand-in for libnvidia-ml.so.1 (mock_nvml.c), which reads /run/mock-nvml on a node."""
    folder = cluster.check("mktemp -d ~/driver.XXXXXX").strip()
    build_library(cluster, "mock_nvml.c", folder, "libnvidia-ml.so.1", tmp_path_factory.mktemp("driver"))
    yield folder
    cluster.check(f"rm -r {folder}")


@pytest.mark.parametrize(
    ("gpus", "check", "state", "evidence"),
    [
        ("", "", "", ""),
        ("gpus 3\nhidden 2", "", "", ""),  # another job's
        (
            "driver 520",
            "driver",
            "warning",
            "driver 520.57.08 is too old: the image's CUDA needs 525, or cuda-compat",
        ),
        ("driver 550", "driver", "warning", "driver 550.57.08 is old: PTX of the image's CUDA 12.9 needs 575"),
        ("gpus 1", "gpus", "failure", "the driver sees 1 of 2 GPUs"),
        ("lost 1", "health", "failure", "GPU 1 is lost"),
        ("errors 3", "health", "warning", "GPU 0 has had 3 uncorrected memory errors"),
        ("failed 1", "health", "failure", "GPU 0 has a memory row that could not be remapped"),
        ("pending 1", "health", "warning", "GPU 0 has memory rows to remap at its next reset"),
        ("recovery 1", "health", "failure", "GPU 0 needs a reset of the GPU, according to its driver"),
        ("down 4", "health", "warning", "GPU 0 has 4 NVLinks down"),
        ("memory 70000", "memory", "warning", "GPU 0 has 70000 MiB in use before the run"),
        ("power 400", "power", "warning", "a GPU is limited to 400 W; its default is 700 W"),
        ("name 40", "power", "warning", "a GPU is Mock 40; most are Mock 100"),
    ],
)
def test_a_driver(cluster: Cluster, folder: str, driver: str, gpus: str, check: str, state: str, evidence: str) -> None:
    """Both nodes have two good GPUs, but for the second node's fault."""
    cluster.check(f"mkdir {folder}/nvidia_cuda_nvcc_cu12-12.9.86.dist-info")
    options = f"--no-sum {STEP} --env JAXSIF_FLAVOUR=cuda12 --env PYTHONPATH={folder}"
    with ExitStack() as faults:
        for node, more in (("node1", ""), ("node2", gpus)):
            text = f"gpus 2\n{more}\n"
            faults.enter_context(injected(cluster, node, f"printf '{text}' >/run/mock-nvml", "rm /run/mock-nvml"))
        rows, status = examine(cluster, options, f"export LD_LIBRARY_PATH={driver}")
    assert status == (state == "failure"), rows
    found = {(row["check"], row["state"], row["evidence"], *row["nodes"]) for row in rows}
    assert (check, state, evidence, "node2") in found if check else found == set(), rows
    # Another driver also differs from the first node's.
    assert {row["check"] for row in rows} == ({check} if check else set())


def test_the_memory_of_gpus_between_two_attempts(cluster: Cluster, driver: str) -> None:
    """By the inspector, as `jaxsif run --max-restarts` starts it."""
    script = "python3 -IS $(jaxsif home)/lib/jaxsif/node/inspect_step.py"
    line = f"module load jax/sif && LD_LIBRARY_PATH={driver} {script} --gpus none"
    assert '"memory": 0}' in cluster.check(line, node="node2")  # no driver
    with injected(cluster, "node2", "printf 'gpus 2\\nmemory 70000\\n' >/run/mock-nvml", "rm /run/mock-nvml"):
        assert '"memory": 70000}' in cluster.check(line, node="node2")
        assert '"memory": 0}' in cluster.check(line.replace("--gpus ", ""), node="node2")


def test_a_clock_that_is_ahead(cluster: Cluster, folder: str, tmp_path: Path) -> None:
    build_library(cluster, "late_clock.c", folder, "late.so", tmp_path)
    prolog = f"{folder}/prolog"
    cluster.write(prolog, f'#!/bin/sh\n[ "$SLURM_NODEID" != 1 ] || echo export LD_PRELOAD={folder}/late.so\n')
    rows, status = examine(cluster, f"--no-sum {STEP} --srun-args=--task-prolog={prolog}", f"chmod +x {prolog}")
    found = {row["check"]: (row["evidence"], row["nodes"]) for row in rows}
    assert found.keys() == {"clocks", "python"}, rows  # the library is there in the container, too
    assert re.fullmatch(r"the clock is \+[23]\.\d s off the first node's", found["clocks"][0])
    assert (found["clocks"][1], status) == (["node2"], 0)


def test_a_version_of_nccl_that_hangs(cluster: Cluster, folder: str) -> None:
    cluster.check(f"mkdir {folder}/nvidia_nccl_cu12-2.30.7.dist-info")
    rows, _ = examine(cluster, f"--no-sum {STEP} --env PYTHONPATH={folder}")
    assert only(rows, "nccl", "warning") == "NCCL 2.30.7 is known to hang some programs"


def test_the_kernels_log(cluster: Cluster) -> None:
    now = int(float(cluster.check("cut -d' ' -f1 /proc/uptime", node="node2")) * 1e6)
    lines = f"6,1,{now},-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    lines += (
        f"6,1,{now},-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, MMU fault of a program\n6,1,{now},-;usb 1-1: new device\n"
    )
    for user in (0, 1000):  # another one's, and our own
        lines += f"3,1,{now},-;Out of memory: Killed process 7 (python), UID {user}\n"
    with bound(cluster, "node2", "/dev/kmsg", lines):
        rows, status = examine(cluster)
    assert [(row["check"], row["evidence"], row["nodes"]) for row in rows] == [
        ("xid", "the kernel reports Xid 79", ["node2"]),
        (
            "xid",
            "the kernel killed a process because memory ran out: Out of memory: Killed process 7 (python), UID 1000",
            ["node2"],
        ),
    ]
    assert status == 0


def test_a_user_without_a_name(cluster: Cluster, folder: str) -> None:
    """In the container; and on a node, where the runtime then refuses to start."""
    cluster.write(f"{folder}/passwd", "root:x:0:0::/root:/bin/sh\n")
    names = " ".join(f"--env {name}=" for name in ("USER", "LOGNAME"))
    rows, _ = examine(cluster, f"--no-sum {STEP} {names} --bind {folder}/passwd:/etc/passwd")
    only(rows, "user", "warning", ["node1", "node2"])
    with bound(cluster, "node2", "/etc/passwd", "root:x:0:0::/root:/bin/sh\n"):
        rows, status = examine(cluster)
    what = only(rows, "container", "failure", ["node2"])
    assert what.startswith("the container ended with status 255: FATAL: ")
    assert what.endswith("unknown userid 1000")
    assert status == 1


def test_infiniband(cluster: Cluster) -> None:
    """A tree of files in place of the kernel's: one port is down on the second node."""
    make = "mount -t tmpfs tmpfs /sys/class && for port in 1 2; do path=/sys/class/infiniband/mlx5_$port/ports/1 && "
    make += "mkdir -p $path && echo '400 Gb/sec (4X NDR)' >$path/rate && echo '4: ACTIVE' >$path/state; done"
    break_it = " && echo '1: DOWN' >/sys/class/infiniband/mlx5_2/ports/1/state"
    with (
        injected(cluster, "node1", make, "umount /sys/class"),
        injected(cluster, "node2", make + break_it, "umount /sys/class"),
    ):
        rows, status = examine(cluster)
    found = [(row["check"], row["evidence"], row["nodes"]) for row in rows if row["check"] != "limits"]
    rate = "400 Gb/sec (4X NDR)"
    assert found == [
        ("infiniband", f"active InfiniBand ports: {rate}; elsewhere: {rate}, {rate}", ["node2"]),
        ("infiniband", "InfiniBand port mlx5_2/ports/1 is in state 1: DOWN", ["node2"]),
        (
            "verbs",
            "the image lacks libibverbs: NCCL uses TCP, although the node has InfiniBand",
            ["node1", "node2"],
        ),
    ]
    assert status == 0


def test_an_imex_channel_that_the_container_does_not_see(cluster: Cluster, folder: str) -> None:
    """A file in place of the device, and an empty folder over it in the container."""
    path = "/dev/nvidia-caps-imex-channels"
    with (
        injected(cluster, "node1", f"mkdir {path}", f"rm -r {path}"),
        injected(cluster, "node2", f"mkdir {path} && touch {path}/channel0", f"rm -r {path}"),
    ):
        assert examine(cluster) == ([], 0)
        rows, status = examine(cluster, f"--no-sum {STEP} --bind {folder}:{path}")
    only(rows, "imex", "failure", ["node2"])
    assert status == 1


def test_a_node_without_an_answer(cluster: Cluster) -> None:
    """Its Python ends at once, without a word."""
    swap = "mount --bind /bin/true $(readlink -f /usr/bin/python3)"
    with injected(cluster, "node2", swap, "umount $(readlink -f /usr/bin/python3)"):
        rows, status = examine(cluster)
    only(rows, "answers", "failure", ["node2"])
    assert status == 1


def test_a_node_without_the_disk_of_jaxsif(cluster: Cluster) -> None:
    """The node is named, by `run` of several tasks a node, too."""
    cluster.check("mkdir -p /run/away && mount --move /sw /run/away", node="node2", user="root")
    try:
        wants = f"module load jax/sif && jaxsif {{}} {STEP} -w node[1-2]"
        done = cluster.run(wants.format("doctor --no-sum"))
        assert done.returncode == 125
        assert re.search(
            r"^jaxsif: error: /sw/\S+/node/examine\.py, which belongs to jaxsif, cannot be read on node2$",
            done.stderr,
            re.M,
        )
        done = cluster.run(f"{wants.format('run')} -- true")
        assert done.returncode == 125
        assert re.search(
            r"^jaxsif: error: /sw/\S+/node/share\.py, which belongs to jaxsif, cannot be read on node2$",
            done.stderr,
            re.M,
        )
        assert "perhaps the cause" not in done.stderr
    finally:
        cluster.check("mount --move /run/away /sw", node="node2", user="root")


def test_a_node_without_python(cluster: Cluster) -> None:
    python = cluster.check("readlink -f /usr/bin/python3").strip()
    with injected(cluster, "node2", f"mv {python} {python}.away", f"mv {python}.away {python}"):
        for command in (f"doctor --no-sum {STEP} -w node[1-2]", f"run {STEP} -w node[1-2] -- true"):
            done = cluster.run(f"module load jax/sif && jaxsif {command}")
            assert done.returncode == 125
            assert re.search(r"^jaxsif: error: node2 cannot execute \S+/python3\S*: No such file", done.stderr, re.M)


def test_a_port_that_is_taken(cluster: Cluster) -> None:
    listen = "import socket, time; one = socket.create_server(('', 61234)); print(flush=True); time.sleep(20)"
    with cluster.start(["python3", "-c", listen], node="node1") as other:
        assert other.stdout is not None
        other.stdout.readline()
        rows, status = examine(cluster, f"--no-sum {STEP} --coordinator-ports=61234")
        other.communicate()
    found = {(row["check"], *row["nodes"]): row["evidence"] for row in rows}
    assert found.keys() == {("port", "node1"), ("port", "node2"), ("start", "node1")}, rows
    assert found["port", "node1"] == "port 61234, for JAX's coordinator, is not free: Address already in use"
    assert status == 1


def test_a_probe_that_hangs(cluster: Cluster) -> None:
    """A FIFO in place of a file of the kernel: nobody ever writes into it."""
    fifo = "mkfifo /run/fifo && mount --bind /run/fifo /proc/sys/user/max_user_namespaces"
    with injected(cluster, "node2", fifo, "umount /proc/sys/user/max_user_namespaces && rm /run/fifo"):
        rows, _ = examine(cluster)
    assert only(rows, "probes", "warning", ["node2"]) == "cannot examine containers: no answer within 6 s"
