"""Certificates for JAX's coordinator: another user gets nowhere, and nothing else changes."""

from __future__ import annotations

import os
import re
import shlex

import pytest
from harness import Cluster, jaxsif_run, program_lines

RUNS = int(os.environ.get("ATTACKED", "2"))  # of the test that takes long
PORT = "61300"
ON_TWO = ("--nodes=2", "--ntasks-per-node=2", "--srun-args=--nodelist=node[3-4]", f"--coordinator-ports={PORT}")
WORK = """\
import os, sys, time, jax, jax.numpy as jnp
jax.distributed.initialize()
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
client = jax._src.distributed.global_state.client
if jax.process_index() == 0:
    client.key_value_set("mine", "precious")
    open("ready", "w").close()
y = [0]
while y[0] < 100:  # all leave the loop in the same turn, in which process 0 has seen the file
    released = jax.process_index() == 0 and os.path.exists("release")
    y = total(jnp.full(jax.local_device_count(), 1.0 + 100 * released))
    time.sleep(0.1)
print(int(y[0]) % 100, client.blocking_key_value_get("mine", 5000), flush=True)
"""
# As another user, with no certificate or with its own: connect as a task that is there, or as the first one; read,
# delete, shut down. JAX ends a process that is refused, so each kind has its own.
ATTACK = """\
import socket, sys
from jaxlib import _jax
node, port, number, certificate = sys.argv[1:]
with socket.create_connection((node, int(port))) as one:
    one.sendall(b"x" * 5000)
own = dict.fromkeys(("mtls_cert_file", "mtls_key_file", "mtls_ca_file"), certificate) if certificate else {}
prefix = {"mtls_peer_uri_prefix": "spiffe://jaxsif/"} if certificate else {}
client = _jax.get_distributed_runtime_client(f"{node}:{port}", int(number), init_timeout=2, **own, **prefix)
client.connect()
print("connected", flush=True)
print(client.key_value_dir_get(""))
client.key_value_delete("mine")
client.shutdown()
"""
# A certificate as jaxsif makes it, of somebody else.
FORGE = """\
cd /tmp && rm -rf forged.pem && touch forged.pem && chmod 600 forged.pem && openssl req -x509 -newkey ec \
-pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=jaxsif -addext subjectAltName=URI:spiffe://jaxsif/task \
-keyout key.pem -out certificate.pem 2>/dev/null && cat key.pem certificate.pem >forged.pem
"""


def attack(cluster: Cluster, node: str, *kinds: tuple[int, str]) -> list[str]:
    """What programs of another user say that connect at once, each as process N with a certificate, or with ''."""
    script = f"module load jax/sif && exec apptainer -q exec $JAX_IMAGE python - {node} {PORT}"
    started = [cluster.start(f"{script} {number} '{certificate}'", user="other") for number, certificate in kinds]
    said = [one.communicate(ATTACK, timeout=100)[0] for one in started]
    assert all(one.returncode for one in started)
    return said


@pytest.mark.parametrize("number", range(RUNS))
def test_another_user_gets_nowhere(cluster: Cluster, folder: str, number: int) -> None:
    """And the run is not disturbed, nor says anything."""
    cluster.check(FORGE, user="other")
    cluster.write(f"{folder}/work.py", WORK)
    with cluster.start(f"cd {folder} && " + jaxsif_run(*ON_TWO, "--", "python", "work.py")) as started:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done", timeout=60)
        kinds = [(task, certificate) for task in (number % 4, 0) for certificate in ("", "/tmp/forged.pem")]
        said = attack(cluster, "node3", *kinds)
        cluster.check(f"touch {folder}/release")
        out, err = started.communicate(timeout=60)
    assert said == [""] * 4
    assert (started.returncode, program_lines(out)) == (0, ["4 precious"] * 4), err
    assert program_lines(err) == []


def test_without_certificates_the_error_names_what_came(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/work.py", WORK)
    run = jaxsif_run(*ON_TWO, "--coordinator-tls=off", "--", "python", "work.py")
    with cluster.start(f"cd {folder} && {run}") as started:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done", timeout=60)
        attack(cluster, "node3", (2, ""))
        _, err = started.communicate(timeout=60)
    assert started.returncode == 134
    assert "error: a second process connected to JAX's coordinator as process 2, and JAX ended the run\n" in err


SUM = """\
import os, jax, jax.numpy as jnp
jax.distributed.initialize({})
client = jax._src.distributed.global_state.client
y = jax.pmap(lambda x: jax.lax.psum(x, 'i'), axis_name='i')(jnp.ones(jax.local_device_count()))
path = jax.config.jax_mtls_cert_file if hasattr(jax.config, "jax_mtls_cert_file") else None
print(int(y[0]), path and os.path.exists(path), flush=True)
"""
TWO = ("--nodes=2", "--ntasks-per-node=1", "--init-timeout=30")


def run(cluster: Cluster, folder: str, *options: str, program: str = SUM.format(""), before: str = "") -> list[str]:
    """What the program prints: the sum over all processes, and whether JAX has a certificate's file."""
    cluster.write(f"{folder}/sum.py", program)
    done = cluster.run(f"cd {folder} && {before}{jaxsif_run(*(options or TWO), '--', 'python', 'sum.py')}")
    assert done.returncode == 0, done.stderr
    assert "No match found" not in done.stderr
    return program_lines(done.stdout)


@pytest.mark.parametrize(
    "options",
    [TWO, (*TWO, "--label"), (*TWO, "--containers=task"), (*TWO, "--cleanenv"), ("--nodes=1", "--ntasks-per-node=4")],
    ids=["plain", "label", "a container each", "cleanenv", "one node"],
)
def test_a_run_has_a_certificate(cluster: Cluster, folder: str, options: tuple[str, ...]) -> None:
    tasks = 4 if "--nodes=1" in options else 2
    lines = run(cluster, folder, *options, "--coordinator-tls=on")
    assert [line.split(": ")[-1] for line in lines] == [f"{tasks} True"] * tasks


def test_local_processes_have_one(cluster: Cluster, folder: str) -> None:
    options = ("--launcher=local", "--ntasks-per-node=2", "--coordinator-tls=on")
    assert run(cluster, folder, *options) == ["2 True"] * 2


def test_standard_input_is_closed(cluster: Cluster) -> None:
    """As by some daemons: no pipe to openssl may get its descriptor."""
    done = cluster.run(f"{jaxsif_run('--coordinator-tls=on', '--nodes=1', '--gpus-per-node=2', '--', 'true')} <&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("ssh")
def test_mpirun_passes_one(cluster: Cluster, folder: str) -> None:
    assert run(cluster, folder, "--hosts=node1:2,node2:2", "--coordinator-tls=on") == ["4 True"] * 4


NO_OPENSSL = "mkdir bin && ln -s /usr/bin/* bin && rm bin/openssl && export PATH=$PWD/bin && "


def test_a_host_without_openssl(cluster: Cluster, folder: str) -> None:
    assert run(cluster, folder, before=NO_OPENSSL) == ["2 None"] * 2
    again = f"cd {folder} && export PATH=$PWD/bin && "
    done = cluster.run(again + jaxsif_run(*TWO, "--verbose", "--", "true"))
    assert (done.returncode, "JAX's coordinator has no TLS: openssl is not on" in done.stderr) == (0, True), done.stderr
    done = cluster.run(again + jaxsif_run(*TWO, "--coordinator-tls=on", "--", "true"))
    assert (done.returncode, done.stdout) == (125, "")
    assert "jaxsif: error: openssl is not on the PATH\n  from: --coordinator-tls\n" in done.stderr


def test_an_openssl_that_hangs(cluster: Cluster, folder: str) -> None:
    """The run goes without, and says so."""
    cluster.check(["mkdir", f"{folder}/bin"])
    cluster.write(f"{folder}/bin/openssl", "#!/bin/sh\nexec sleep 60\n")
    cluster.write(f"{folder}/sum.py", SUM.format(""))
    before = f"cd {folder} && chmod +x bin/openssl && export PATH=$PWD/bin:$PATH && "
    done = cluster.run(before + jaxsif_run(*TWO, "--", "python", "sum.py"))
    assert (done.returncode, program_lines(done.stdout)) == (0, ["2 None"] * 2), done.stderr
    text = "jaxsif: JAX's coordinator has no TLS: openssl did not create a certificate: not within 2 s\n"
    assert done.stderr.count(text) == 1
    done = cluster.run(before + jaxsif_run(*TWO, "--coordinator-tls=off", "--", "true"))
    assert (done.returncode, "TLS" in done.stderr) == (0, False)


CLOSE = "import os; os.closerange(3, 1024)\n"
# A parent that ends before its child imports JAX; cat outlives both.
ORPHAN = """\
import subprocess, sys, time
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"])
    sys.exit(time.sleep(2))
time.sleep(3)
"""


@pytest.mark.parametrize(
    ("command", "first"),
    [("python sum.py", CLOSE), ("ulimit -n 256 && python sum.py", ""), ("python sum.py | cat", ORPHAN)],
    ids=["closes descriptors", "few descriptors", "orphan"],
)
def test_the_file_of_the_certificate(cluster: Cluster, folder: str, command: str, first: str) -> None:
    cluster.write(f"{folder}/sum.py", first + SUM.format(""))
    words = ["sh", "-c", command]
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*TWO, "--", *words))
    assert (done.returncode, program_lines(done.stdout)) == (0, ["2 True"] * 2), done.stderr


# A JAX whose parameters have other names, as where it has none.
OLDER = r"""
cd jax && find . -name __pycache__ -prune -exec rm -r {} + &&
sed -i -E 's/\bmtls_(cert|key|ca|peer)/xtls_\1/g; s/^  return kwargs$/  return {}/' _src/distributed.py &&
sed -i -E 's/\b(jax_)?mtls_(cert|key|ca|peer)/\1xtls_\2/g' _src/config.py
"""


def test_an_older_jax(cluster: Cluster, folder: str) -> None:
    jax = "$(apptainer -q exec $JAX_IMAGE python -c 'import jax; print(jax.__path__[0])')"
    copy = f"module load jax/sif && apptainer -q exec --bind {folder} $JAX_IMAGE cp -r {jax} {folder}"
    cluster.check(f"{copy} && chmod -R u+w {folder}/jax && cd {folder} && {OLDER}")
    options = (*TWO, f"--env=PYTHONPATH={folder}")
    assert run(cluster, folder, *options) == ["2 None"] * 2
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*options, "--coordinator-tls=on", "--", "python", "sum.py"))
    assert done.returncode == 1
    text = "RuntimeError: this JAX has no mutual TLS, which --coordinator-tls=on requires"
    assert re.search(rf"jaxsif: error: task [01] on node\d failed: {text}\n", done.stderr)


# A launcher whose clock is some hours before or behind that of the nodes.
CLOCK = """\
import os, sys, time
real, hours = time.time, float(sys.argv.pop(1))
time.time = lambda: real() + 3600 * hours
sys.path.insert(0, os.path.join(os.environ["JAXSIF_HOME"], "lib"))
from jaxsif.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(("hours", "status"), [(12, 0), (-12, 0), (30, 1)], ids=str)
def test_clocks_that_differ(cluster: Cluster, folder: str, hours: int, status: int) -> None:
    cluster.write(f"{folder}/sum.py", SUM.format("initialization_timeout=5"))
    cluster.write(f"{folder}/clock.py", CLOCK)
    # A run of the future would stay the last one of the history.
    words = shlex.join([*TWO, "--coordinator-tls=on", "--no-history", "--", "python", "sum.py"])
    done = cluster.run(f"cd {folder} && module load jax/sif && exec python3 -I clock.py {hours} run {words}")
    assert bool(done.returncode) == bool(status), done.stderr
    assert program_lines(done.stdout) == ([] if status else ["2 True"] * 2)


@pytest.mark.parametrize(
    "arguments",
    [
        'process_id=int(os.environ["SLURM_PROCID"])',
        'os.environ["JAX_COORDINATOR_ADDRESS"], 2, int(os.environ["SLURM_PROCID"]), 0',
    ],
)
def test_a_program_that_passes_arguments(cluster: Cluster, folder: str, arguments: str) -> None:
    assert run(cluster, folder, program=SUM.format(arguments)) == ["2 True"] * 2


MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=mine"
    " -addext subjectAltName=DNS:node1 -keyout own.pem -out own.crt 2>/dev/null && cat own.crt >>own.pem && "
)
OWN = 'mtls_cert_file="own.pem", mtls_key_file="own.pem", mtls_ca_file="own.crt"'


def test_certificates_of_the_program_stand_alone(cluster: Cluster, folder: str) -> None:
    """They have a host's name, and no URI."""
    options = (*TWO, "--srun-args=--nodelist=node[1-2]")
    assert run(cluster, folder, *options, program=SUM.format(OWN), before=MAKE) == ["2 None"] * 2
    variables = "export JAX_MTLS_CERT_FILE=own.pem JAX_MTLS_KEY_FILE=own.pem JAX_MTLS_CA_FILE=own.crt; "
    assert run(cluster, folder, *options, before=variables) == ["2 True"] * 2


def test_two_runs_with_one_coordinator(cluster: Cluster, folder: str) -> None:
    """They have different certificates, and cannot use either."""
    address = '"node3:61310", 4, int(os.environ["SLURM_PROCID"]) + {}, 0, initialization_timeout=60'
    for first in (0, 2):
        cluster.write(f"{folder}/run{first}.py", SUM.format(address.format(first)))
    runs = [
        jaxsif_run("--nodes=1", "--ntasks-per-node=2", f"--srun-args=--nodelist={node}", "--", "python", program)
        for node, program in (("node3", "run0.py"), ("node4", "run2.py"))
    ]
    out = cluster.check(f"cd {folder}; ({runs[0]}) & ({runs[1]}); wait $!", timeout=90)
    assert program_lines(out) == ["4 None"] * 4


LOOK = r"""
import os, subprocess, sys
path = os.environ.get("JAX_MTLS_KEY_FILE")
assert open(path).read().count("PRIVATE KEY") == 2
assert oct(os.stat(path).st_mode) == "0o100600"
assert os.stat(path).st_nlink == 0
key = open(path).read().splitlines()[1]
assert not [name for name, text in os.environ.items() if key in text]
assert "shm/jaxsif" not in " ".join(os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
child = "import os; print(open(os.environ['JAX_MTLS_KEY_FILE']).read() == open(os.environ['JAX_MTLS_CA_FILE']).read())"
subprocess.run([sys.executable, "-c", child], check=True)
print(key, flush=True)
if os.environ["SLURM_PROCID"] == "0":
    open("ready", "w").close()
import time
time.sleep(120)
"""


def shown(cluster: Cluster, node: str) -> str:
    """What other users see on a node: command lines, and names of files in memory."""
    script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; ls /dev/shm"
    return cluster.check(["sh", "-c", script], node=node, user="other")


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize(
    "how", [("--nodes=2", "--ntasks-per-node=2"), ("--hosts=node1:2,node2:2",)], ids=["srun", "mpirun"]
)
def test_the_key_is_shown_nowhere_and_gone_with_the_run(cluster: Cluster, folder: str, how: tuple[str, ...]) -> None:
    cluster.write(f"{folder}/look.py", LOOK)
    words = (*how, "--verbose", "--", "python", "look.py")
    with cluster.start(f"cd {folder} && XDG_STATE_HOME=$PWD/state {jaxsif_run(*words)}") as started:
        cluster.check(f"cd {folder} && until [ -e ready ]; do sleep 0.1; done", timeout=60)
        seen = [shown(cluster, node) for node in ("login", "node1", "node2")]
        for node in ("node1", "node2"):
            cluster.check("pkill -KILL -u user -f '[l]ook.py|start[.]sh' || true", node=node, user="root")
        out, err = started.communicate(timeout=60)
    lines = program_lines(out)
    keys = {line for line in lines if line != "True"}
    assert (len(keys), lines.count("True")) == (1, 4)
    (key,) = keys
    assert not any(key in text or "jaxsif-" in text.split("\n", 1)[-1] for text in seen)
    assert "JAXSIF_CREDENTIALS" in err
    assert key not in err
    kept = cluster.check(f"cd {folder} && grep -rl 'JAXSIF_CREDENTIALS' state || true; grep -rl {key} state || true")
    assert kept == ""
    for node in ("node1", "node2"):
        assert "jaxsif" not in cluster.check(["ls", "/dev/shm"], node=node)
