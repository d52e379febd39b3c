"""JAX's coordinator: in all forms of node list, on a port of its own, on nodes with two networks, as long as told."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import MINICLUSTER, Cluster, jaxsif_run, program_lines

FIRST = Path(os.environ.get("MINICLUSTER_DIR") or MINICLUSTER.parents[2] / "build/cluster")
SUM = """\
import os, jax, jax.numpy as jnp
jax.distributed.initialize()
y = jax.pmap(lambda x: jax.lax.psum(x, 'i'), axis_name='i')(jnp.ones(jax.local_device_count()))
print(os.environ['JAX_COORDINATOR_ADDRESS'].split(':')[0], y[0])
"""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Cluster]:
    """A second cluster on the files of the first, whose nodes have names that are harder to read."""
    home = tmp_path_factory.mktemp("named")
    for name in ("rootfs-trixie", "rootfs-trixie.recipe", "shared"):
        (home / name).symlink_to(FIRST / name)
    nodes = "rack[1-2]n[1-2],cn[1-2]-ib,node[007-008]"
    one = Cluster(MINICLUSTER_DIR=str(home), MINICLUSTER_NODES=nodes)
    subprocess.run([MINICLUSTER, "up"], env=one.environ, check=True)
    yield one
    (home / "shared").unlink()  # before anything could follow it
    subprocess.run([MINICLUSTER, "reset"], env=one.environ, check=True)


@pytest.mark.parametrize(
    ("nodelist", "tasks", "first"),
    [("rack[1-2]n[1-2]", 1, "rack1n1"), ("cn[1-2]-ib", 2, "cn1-ib"), ("node[007-008]", 2, "node007")],
)
def test_node_lists(named: Cluster, nodelist: str, tasks: int, first: str) -> None:
    """The nodes are so called; the list is written as Slurm may, which itself writes only some of these forms."""
    options = (f"--ntasks-per-node={tasks}", f"--env=SLURM_STEP_NODELIST={nodelist}")
    assert run_on(named, nodelist, 4 // tasks, *options) == [f"{first} 4.0"] * 4


def test_a_node_list_of_several_forms(named: Cluster) -> None:
    assert run_on(named, "rack1n2,cn[1-2]-ib,node007", 4, "--ntasks-per-node=1") == ["cn1-ib 4.0"] * 4


def run_on(named: Cluster, nodelist: str, nodes: int, *options: str) -> list[str]:
    """What SUM prints there, with proxies set that lead nowhere."""
    proxies = "export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 grpc_proxy=http://127.0.0.1:9"
    command = (f"--nodes={nodes}", f"--srun-args=--nodelist={nodelist}", *options, "--", "python", "-c", SUM)
    done = named.run(f"{proxies}; {jaxsif_run(*command)}", timeout=60)
    assert done.returncode == 0, done.stderr
    return program_lines(done.stdout)


COMPARE = """\
import os, random, subprocess, sys
sys.path.insert(0, os.path.join(os.environ["JAXSIF_HOME"], "lib"))
from jaxsif.job.nodelist import count, expand
from jaxsif.task.contract import first_host

def group():
    parts = []
    for _ in range(random.randint(1, 3)):
        width = random.randint(1, 4)
        first = random.randint(0, 10 ** width - 1)
        last = first + random.randint(0, 30)
        parts.append(random.choice((f"{first:0{width}}", f"{first:0{width}}-{last}", f"{first}-{last:0{width}}")))
    return f"[{','.join(parts)}]"

def name():
    text = random.choice(("n", "rack", "x1000c0s", "a-b."))
    for _ in range(random.randint(0, 3)):
        text += group() + random.choice(("n", "-ib", ".x", ""))
    return text

random.seed(4)
for _ in range(200):
    nodelist = ",".join(name() for _ in range(random.randint(1, 3)))
    done = subprocess.run(["scontrol", "show", "hostnames", nodelist], capture_output=True, check=True, text=True)
    names = tuple(done.stdout.split())
    if len(names) < 65536 and names:  # more, Slurm does not expand
        assert expand(nodelist) == names, nodelist
        assert (count(nodelist), first_host(nodelist)) == (len(names), names[0]), nodelist
        print(len(names))
"""


def test_node_lists_are_read_as_slurm_reads_them(cluster: Cluster) -> None:
    counts = cluster.check("module load jax/sif && python3 -", stdin=COMPARE).split()
    assert len(counts) > 150
    assert max(map(int, counts)) > 10_000


HOLD = """\
import os, socket, subprocess, time
ports = [socket.create_server(("", port)) for port in range(61231, 61235)]
open("ready", "w").close()

def steps():
    return subprocess.run(["squeue", "--steps", "--noheader", "--format=%i"], capture_output=True, check=True).stdout

while not os.path.exists("release"):
    time.sleep(0.02)
while not steps():
    time.sleep(0.02)
first = steps()
while steps() == first:
    time.sleep(0.02)
"""


@pytest.fixture
def taken(cluster: Cluster, folder: str) -> Iterator[str]:
    """Ports 61231 to 61234 are taken on node1; once there is a file `release`, until the next step gives way."""
    with cluster.start(f"cd {folder} && exec python3 -c '{HOLD}'", node="node1") as holder:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.05; done")
        yield folder
        holder.terminate()
        cluster.run(["pkill", "-f", "create_server"], node="node1")
        holder.communicate(timeout=10)


def test_a_taken_port(cluster: Cluster, taken: str) -> None:
    """Nobody else has it on the launcher's host, so that task 0 is the first to see it."""
    two = ("--nodes=2", "--ntasks-per-node=1", "--srun-args=--nodelist=node[1-2]")
    text = "chosen for JAX's coordinator, is taken on this node"
    # A program that may have run for a while, and one whose input is gone, are not started again.
    for options, command in ((two, ("bash", "-c", "python -c pass")), (two, ("python", "-c", "pass"))):
        done = cluster.run(jaxsif_run(*options, "--coordinator-ports=61231-61234", "--", *command))
        assert done.returncode == 125
        assert f"{text}\n  from: task 0 on node1\n" in done.stderr
        assert "starting again" not in done.stderr
    cluster.wait_steps(0)  # nothing that holds a port is left but the one that is released while the next one starts
    cluster.check(f"touch {taken}/release")
    done = cluster.run(jaxsif_run(*two, "--coordinator-ports=61231-61234", "--", "python", "-c", SUM) + " </dev/null")
    assert done.returncode == 0, done.stderr
    assert program_lines(done.stdout) == ["node1 2.0"] * 2
    assert f"{text} (task 0 on node1): starting again with another\n" in done.stderr


# As another user: read the step's secret from the name of its keeper's socket, and take all names for its ports.
TAKE_NAMES = r"""
import re, socket, sys, time
found = None
while not found:
    time.sleep(0.02)
    found = re.search(r"@jaxsif-([0-9a-f]+-\d+-\d+)-0\n", open("/proc/net/unix").read())
taken = []
for port in range(61231, 61241):
    taken.append(socket.socket(socket.AF_UNIX))
    taken[-1].bind(f"\0jaxsif-port-{found[1]}-{port}")
    if port % 2:
        taken[-1].listen()
print("taken", flush=True)
sys.stdin.read()
"""
IS_HELD = """import os, socket
try:
    socket.socket().bind(("", int(os.environ["JAXSIF_COORDINATOR_PORT"])))
    print("free")
except OSError as error:
    print(error.strerror)
"""


def test_names_that_another_user_has_taken(cluster: Cluster, folder: str) -> None:
    """The port is held all the same: nobody else can listen there before JAX's coordinator does."""
    program = f"until [ -e taken ]; do sleep 0.05; done; [ $SLURM_PROCID != 0 ] || python -c '{IS_HELD}'"
    options = ("--nodes=1", "--ntasks-per-node=2", "--coordinator-ports=61231-61240")
    run = jaxsif_run("--srun-args=--nodelist=node1", *options, "--", "sh", "-c", program)
    with cluster.start(["python3", "-c", TAKE_NAMES], node="node1", user="other") as other:
        with cluster.start(f"cd {folder} && {run}") as started:
            assert other.stdout is not None
            assert other.stdout.readline() == "taken\n"
            cluster.check(f"touch {folder}/taken")
            out, err = started.communicate(timeout=60)
        other.communicate("")
    assert (out, started.returncode) == ("Address already in use\n", 0), err


def test_two_jobs_whose_numbers_are_4096_apart(cluster: Cluster, folder: str) -> None:
    """To both of them JAX by itself would give one port on their common first node, and the first one would die."""
    options = ("--nodes=2", "--ntasks-per-node=1", "--srun-args=--nodelist=node[1-2]")
    program = "import time; import jax; jax.distributed.initialize(); time.sleep(2); " + SUM.split("\n", 2)[2]
    program = f"import os, jax.numpy as jnp; {program}".replace("\n", "; ").rstrip("; ")
    one, other = (jaxsif_run(*options, f"--env=SLURM_JOB_ID={n}", "--", "python", "-c", program) for n in (4711, 8807))
    out = cluster.check(f"({one}) & ({other}); wait $!", timeout=60)
    assert program_lines(out) == ["node1 2.0"] * 4


NETWORKS = """\
import os, socket
addresses = set()
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        one = socket.socket(fileno=number)
    except OSError:
        continue  # no socket
    if one.family in (socket.AF_INET, socket.AF_INET6):
        addresses.add(one.getsockname()[0].replace("::ffff:", ""))
    one.detach()
print(os.environ["SLURM_PROCID"], sorted(addresses - {"::", "127.0.0.1"}))
"""


@pytest.mark.parametrize(("options", "network"), [((), "10.77"), (("--node-address=%N-ib",), "10.78")])
def test_a_node_with_two_networks(cluster: Cluster, folder: str, options: tuple[str, ...], network: str) -> None:
    """Coordinator and Gloo use one of them, and nothing of the other."""
    cluster.write(f"{folder}/networks.py", SUM + NETWORKS)
    two = ("--nodes=2", "--ntasks-per-node=1", "--srun-args=--nodelist=node[1-2]", *options)
    first, *lines = program_lines(cluster.check(f"cd {folder} && " + jaxsif_run(*two, "--", "python", "networks.py")))
    assert (first, lines[0]) == (f"0 ['{network}.1.1']", f"1 ['{network}.1.2']")
    assert lines[1:] == ["node1-ib 2.0" if options else "node1 2.0"] * 2


def test_a_name_that_leads_nowhere(cluster: Cluster) -> None:
    command = ("--nodes=2", "--ntasks-per-node=1", "--node-address=%N-opa", "--", "python", "-c", "pass")
    done = cluster.run(jaxsif_run(*command))
    assert done.returncode == 125
    assert "jaxsif: error: no address is known for node1-opa: " in done.stderr


def test_timeouts(cluster: Cluster, folder: str) -> None:
    """Process 1 never comes."""
    cluster.write(
        f"{folder}/late.py",
        "import inspect, os, time, jax\n"
        "parameters = inspect.signature(jax.distributed.initialize).parameters.values()\n"
        "if os.environ['SLURM_PROCID'] == '0':\n"
        "    print(*(one.default for one in parameters if 'timeout' in one.name), flush=True)\n"
        "    jax.distributed.initialize()\n"
        "time.sleep(120)\n",
    )
    options = ("--ntasks-per-node=2", "--init-timeout=3", "--heartbeat-timeout=20", "--shutdown-timeout=30")
    begin = time.monotonic()
    done = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", *options, "--", "python", "late.py"))
    assert done.stdout == "3 20 30\n"
    assert "DEADLINE_EXCEEDED" in done.stderr
    assert done.returncode == 134
    what = f"task 1 on node1 never arrived, and task 0 on node1 timed out waiting at {folder}/late.py:5"
    assert f"jaxsif: error: {what}\n  from: {folder}/late.py:6, where task 1 on node1 was\n" in done.stderr
    assert time.monotonic() - begin < 60  # JAX alone: 300 s
