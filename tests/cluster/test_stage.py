"""`jaxsif run --stage`: one copy on each node, brought once, looked after."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from harness import Cluster

NODES = ("node1", "node2", "node3", "node4")
STAGED = "/tmp/jaxsif-1000"


@pytest.fixture(autouse=True)
def nothing_staged(cluster: Cluster) -> Iterator[None]:
    """Before a test, too: the jobs of other files may have left a copy on a node."""
    remove_copies(cluster)
    yield
    remove_copies(cluster)


def remove_copies(cluster: Cluster) -> None:
    for node in NODES:
        cluster.check(f"rm -rf {STAGED}", node=node, user="root")


def in_job(cluster: Cluster, folder: str, script: str, nodes: int = 4) -> tuple[str, list[str], int]:
    """Output, jaxsif's own lines, and status of a script in a job."""
    options = f"--quiet --nodelist=node[1-{nodes}] --nodes={nodes} --ntasks-per-node=2"
    job = f"salloc {options} bash -c {json.dumps(script)}".replace("$", "\\$")
    done = cluster.run(f"cd {folder} && module load jax/sif && {job}", timeout=200)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("srun:", "salloc:", "slurmstepd"))]
    return done.stdout, lines, done.returncode


def test_one_copy_on_each_node_and_a_damaged_one_is_replaced(cluster: Cluster, folder: str) -> None:
    run = "jaxsif run --stage -- sh -c 'echo $APPTAINER_CONTAINER' | sort -u"
    # A byte in the middle of a file that keeps its size, and a file that is gone.
    spoil = (
        "srun --overlap --nodes=1 --ntasks=1 -w node3 sh -c 'cd " + STAGED + "/*/opt/jax/lib/python3.*/site-packages;"
        " printf x | dd of=numpy/version.py bs=1 seek=9 conv=notrunc status=none; rm jax/version.py'"
    )
    last = "jaxsif run --stage -- python -c 'import jax, numpy.version; print(1)' | uniq -c"
    forgotten = "XDG_CACHE_HOME=/proc/none jaxsif run --stage --no-compile-cache -- true"
    out, said, status = in_job(cluster, folder, f"{run}; {run}; {spoil}; {last}; {forgotten}")
    assert status == 0, said
    first, second, sums = out.splitlines()
    assert first == second
    assert first.startswith(f"{STAGED}/")
    assert sums.split() == ["8", "1"]
    assert said[0].endswith("to 4 of 4 nodes, into /tmp")
    assert "checked and unpacked in" in said[1]
    assert said[2].startswith("jaxsif: the image is on 4 nodes, from an earlier run of this job: ")
    assert said[2].endswith(" MB not copied")
    assert said[3] == said[2]
    damage = r"jaxsif: the image on node3 was damaged: 3 of \d+ files changed, such as '\S+'; restaged in [0-9.]+ s"
    assert re.fullmatch(damage, said[4])
    assert said[5].startswith("jaxsif: the image is on 4 nodes, unchanged (")
    assert len(said) == 6
    for node in NODES:
        names = cluster.check(f"ls -A {STAGED}", node=node).split()
        assert sorted(names) == [first.rpartition("/")[2], f"{first.rpartition('/')[2]}.list", "lock"]


def test_disks_that_are_too_small(cluster: Cluster, folder: str) -> None:
    """Too small for all: refused before anything is copied; for the unpacked image: the file is used."""
    cluster.write(f"{folder}/jaxsif.toml", "[run]\nstage = true\nstage-folder = '/small'\n")
    program = "jaxsif run -- python -c 'print(1)'"
    for size, expected in (("100m", ("", 125)), ("330m", ("1\n" * 4, 0))):
        for node in NODES[:2]:
            mount = f"mkdir -p /small && mount -t tmpfs -o mode=1777,size={size} tmpfs /small"
            cluster.check(mount, node=node, user="root")
        try:
            out, said, status = in_job(cluster, folder, program, nodes=2)
            left = cluster.check("ls -A /small/jaxsif-1000", node="node1").split()
        finally:
            for node in NODES[:2]:
                cluster.check("umount /small && rmdir /small", node=node, user="root")
        assert (out, status) == expected, said
        if status:
            assert said[0] == f"jaxsif: {folder}/jaxsif.toml sets run.stage, run.stage-folder"
            assert said[1].startswith("jaxsif: error: no room on node1 in /small: ")
            assert said[3] == "  try:  set run.stage-folder in jaxsif.toml to another folder on the nodes"
            assert left == ["lock"]
        else:
            assert "placed as a single file where there is no room to unpack it" in said[2]


def test_interrupted(cluster: Cluster, folder: str) -> None:
    """Nothing half is left, on no node."""
    begun = "until grep -q copying said 2>/dev/null; do sleep 0.05; done; sleep 0.3"
    script = f"jaxsif run --stage -- true 2>said & {begun}; kill -TERM $!; wait $!; echo status $?; cat said >&2"
    out, said, _ = in_job(cluster, folder, script)
    assert out == "status 143\n", said
    for node in NODES:
        assert set(cluster.check(f"ls -A {STAGED}", node=node).split()) <= {"lock"}


def test_two_stagings_at_once(cluster: Cluster, folder: str) -> None:
    """In two jobs on the same node, the second begins while the first unpacks; the second is cut off in the middle."""
    run = "salloc --quiet --nodes=1 --ntasks-per-node=2 -w node1 jaxsif run --stage -- python -c 'import jax; print(1)'"
    for delay in (1.2, 2.0, 2.8):
        second = f"(sleep {delay}; timeout --signal=INT 1.2 {run} >/dev/null 2>&1) & {run}; wait"
        assert cluster.check(f"cd {folder}; module load jax/sif; {second}", timeout=60) == "1\n1\n"
        listed = int(cluster.check(f"tr -dc '\\0' <$(echo {STAGED}/*.list) | wc -c", node="node1"))
        found = int(cluster.check(f"find {STAGED}/*/ | wc -l", node="node1"))
        assert listed == 2 * found > 10000
        cluster.check(f"rm -rf {STAGED}", node="node1", user="root")


def test_copies_that_nobody_uses_give_way(cluster: Cluster, folder: str) -> None:
    """After 30 days; but not one from which a program runs, in a container of its own or with others."""
    on_node = "srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 "
    age = f"{on_node} sh -c 'touch -d \"31 days ago\" {STAGED}/*.list'"
    look = f"{on_node} sh -c '/usr/bin/python3 -IS /sw/jaxsif/0*/lib/jaxsif/node/stage.py check /tmp sha256:{'0' * 64}'"
    program = "sh -c 'touch here; while ! test -e go; do sleep 0.1; done; test -e /opt/jax && echo ok'"
    for options, tasks in (("", 2), ("--containers=task", 2), ("--ntasks-per-node=1", 1)):
        run = f"jaxsif run --stage {options} -- {program}"
        during = f"while ! test -e here; do sleep 0.1; done; {age}; {look}; touch go; wait; rm here go"
        # Afterwards, what has held it may be ending still.
        until_gone = f"for i in $(seq 50); do {look} >found; grep -q 'removed.: 1' found && break; sleep 0.2; done"
        out, said, status = in_job(cluster, folder, f"{run} & {during}; {age}; {until_gone}; cat found", nodes=1)
        assert status == 0, said
        looked = [json.loads(line) for line in out.splitlines() if line != "ok"]
        assert out.count("ok\n") == tasks
        assert [one["removed"] for one in looked] == [0, 1]
        assert cluster.check(f"ls -A {STAGED}", node="node1") == "lock\n"


def test_an_image_that_no_ordinary_user_can_unpack(cluster: Cluster, folder: str) -> None:
    """With a device in it: the SIF file is used. And folders that their owner cannot write can be replaced."""
    sif = "apptainer --quiet sif new {0}.sif && mksquashfs odd {0}.sqfs -quiet -no-progress {1} &&"
    sif += " apptainer sif add --datatype 4 --partfs 1 --parttype 2 --partarch 2 {0}.sif {0}.sqfs"
    build = "module load jax/sif && apptainer --quiet build --sandbox odd $JAX_IMAGE && rm -rf odd/opt/jax"
    device = sif.format("device", "-p 'odd-device c 666 0 0 1 3'")
    cluster.check(
        f"cd {folder} && {build} && {device} && chmod 555 odd/usr/bin && {sif.format('odd', '')}", timeout=120
    )
    cluster.check(f"chmod 755 {folder}/odd/usr/bin")
    spoil = f"srun --overlap --nodes=1 --ntasks=1 sh -c 'touch {STAGED}/*/etc/passwd'"
    one = "jaxsif run --stage --image odd.sif -- true"
    out, said, status = in_job(cluster, folder, f"{one} && {spoil}; {one}; echo $?", nodes=1)
    assert (out, status) == ("0\n", 0), said
    assert "restaged in" in said[-1]
    out, said, status = in_job(cluster, folder, "jaxsif run --stage --image device.sif -- echo 1", nodes=1)
    assert (out, status) == ("1\n1\n", 0), said
    assert "placed as a single file" in said[1]


def test_a_folder_of_somebody_else(cluster: Cluster, folder: str) -> None:
    cluster.check(f"mkdir -m 777 {STAGED}", node="node1", user="root")
    _, said, status = in_job(cluster, folder, "jaxsif run --stage -- true", nodes=1)
    assert status == 125
    problem = f"cannot stage the image on node1: not a folder private to this user: {STAGED} (drwxrwxrwx root)"
    assert said[0] == f"jaxsif: error: {problem}"
    cluster.write(f"{folder}/jaxsif.toml", "[run]\nstage = true\n")
    out, said, status = in_job(cluster, folder, "jaxsif run -- printenv APPTAINER_CONTAINER", nodes=1)
    warning = f"jaxsif: warning: {problem}; the nodes read the image where it is"
    assert (status, said) == (0, [f"jaxsif: {folder}/jaxsif.toml sets run.stage", warning])
    assert set(out.split()) == {cluster.check("module load jax/sif; echo $JAX_IMAGE").strip()}


def test_a_folder_in_which_others_can_replace_ours(cluster: Cluster, folder: str) -> None:
    cluster.check("mkdir -m 777 /open", node="node1", user="root")
    try:
        _, said, status = in_job(cluster, folder, "jaxsif run --stage --stage-folder /open -- true", nodes=1)
        left = cluster.check("ls -A /open", node="node1")
    finally:
        cluster.check("rm -r /open", node="node1", user="root")
    assert (status, left) == (125, "")
    problem = "others may replace what is in /open: it has no sticky bit"
    assert said[0] == f"jaxsif: error: cannot stage the image on node1: {problem}"


def test_what_a_later_run_of_a_job_finds(cluster: Cluster, folder: str) -> None:
    """A folder that others can change; nothing at all, for one task a node; and then it is as ever."""
    on_node = "srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 "
    run = "jaxsif run --stage -- printenv APPTAINER_CONTAINER"
    open_to_all = f"{run}; {on_node} chmod 755 {STAGED}; {run}; echo $?; {on_node} rm -r {STAGED}"
    one_task = run.replace("--stage", "--stage --ntasks-per-node=1")
    out, said, status = in_job(cluster, folder, f"{open_to_all}; {one_task}; {run}", nodes=1)
    assert status == 0, said
    places = out.split()
    assert places[:2] + places[3:] == places[:1] * 5
    assert places[2] == "125"
    later = said[2]
    assert later.startswith("jaxsif: the image is on 1 node, from an earlier run of this job: ")
    problem = f"not a folder private to this user: {STAGED} (drwxr-xr-x user)"
    assert said[3] == f"jaxsif: error: cannot stage the image on node1: {problem}"
    assert re.fullmatch(r"  from: task [01] on node1", said[4])
    assert said[5] == later
    assert said[6].startswith("jaxsif: the image on node1 was absent; restaged in ")
    assert said[7:] == [later]


def test_what_arrives_must_be_the_image(cluster: Cluster, folder: str) -> None:
    script = (
        "/usr/bin/python3 -IS /sw/jaxsif/0*/lib/jaxsif/node/stage.py place /tmp sha256:"
        + "0" * 64
        + " $JAX_IMAGE x.sif"
    )
    said = json.loads(cluster.check(f"module load jax/sif && {script}", node="node1"))
    assert said["error"].startswith("no file here has the digest sha256:0000")
    assert cluster.check(f"ls -A {STAGED}", node="node1") == "lock\n"


def test_variables_of_srun_do_not_matter(cluster: Cluster, folder: str) -> None:
    script = "export SLURM_LABELIO=1 XDG_CACHE_HOME=/proc/none; jaxsif run --stage -- echo x"
    out, said, status = in_job(cluster, folder, script, nodes=2)
    assert (sorted(out.splitlines()), status) == ([f"{task}: x" for task in range(4)], 0), said


def test_bad_requests(cluster: Cluster, folder: str) -> None:
    done = cluster.run("module load jax/sif && jaxsif run --stage -- true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jaxsif: error: there are no nodes yet to stage the image on\n  from: --stage\n")
    _, said, status = in_job(cluster, folder, "mkdir -p own/.singularity.d; jaxsif run --stage --image own -- true", 1)
    assert (status, said[0]) == (2, f"jaxsif: error: cannot stage a folder: {folder}/own")
    local = cluster.run("module load jax/sif && jaxsif run --stage --launcher local -- true")
    assert (local.returncode, local.stderr) == (
        0,
        "jaxsif: warning: --stage has no effect without Slurm and an image\n",
    )
