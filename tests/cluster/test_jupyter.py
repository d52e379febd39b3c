"""`jaxsif jupyter`: a server on a node, reached as a browser would; a kernel of the image for a Jupyter outside."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from harness import MINICLUSTER, Cluster
from terminal import Terminal

# What a browser would do, through ssh's tunnel, which ends at this host and port.
BROWSER = """
import json, sys, urllib.error, urllib.request
base, token = sys.argv[1:]
def ask(path, data=None, **headers):
    return json.load(urllib.request.urlopen(urllib.request.Request(base + path, data, headers)))
try:
    ask("api/kernels")
except urllib.error.HTTPError as error:
    print("without a token:", error.code)
started = ask("api/kernels", b"{}", Authorization="token " + token)["id"]
print(started in [kernel["id"] for kernel in ask("api/kernels", Authorization="token " + token)])
"""
# What a Jupyter outside of the image does with the kernel; here, on the login node.
OUTSIDE = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="jax")
print(manager.kernel_spec.argv[0])
client.execute_interactive("import jax; print('computes', jax.numpy.ones(3).sum())", timeout=60)
client.stop_channels()
manager.shutdown_kernel()  # in order: killed, the runtime would leave what serves the image's files
"""


@pytest.fixture(scope="module")
def layers(cluster: Cluster) -> Iterator[str]:
    """A folder of data for XDG_DATA_HOME with the layer jupyter, of the real packages; without JupyterLab's 40 MB."""
    sandbox = [MINICLUSTER, "sandbox", "--", "bash", "-c"]
    create = "export XDG_DATA_HOME=/sw/layers XDG_CACHE_HOME=/sw/layers JAX_IMAGE=$(ls /sw/jaxsif/images/*-cpu.sif); "
    create += "exec /sw/jaxsif/*/bin/jaxsif layer create jupyter jupyter_server ipykernel"
    try:
        made = subprocess.run([*sandbox, create], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        folder = cluster.check("mktemp -d ~/data.XXXXXX").strip()
        cluster.check(f"mkdir {folder}/jaxsif && cp -r /sw/layers/jaxsif/layers {folder}/jaxsif")
        yield f"export XDG_DATA_HOME={folder} HOME={folder} && module load jax/sif && cd {folder}"
        cluster.check(f"rm -rf {folder}")
    finally:
        subprocess.run([*sandbox, "rm -rf /sw/layers"], check=True)


def test_server(cluster: Cluster, layers: str) -> None:
    """It has the GPUs, tells how to reach it, wants its token, which nobody sees in /proc, and ends by Ctrl-C."""
    script = f"{layers} && exec jaxsif jupyter --layer=jupyter --gpus-per-node=2 --login=me@front"
    with cluster.start(script) as server:
        assert server.stdout
        said = "".join(server.stdout.readline() for _ in range(5))
        found = re.fullmatch(
            r"Jupyter is running on node1; Ctrl-C here ends it\.\nOn your own machine:\n"
            r"    ssh -N -L (\d+):node1:\1 me@front\nIn your browser:\n    http://localhost:\1/\?token=(\S+)\n",
            said,
        )
        assert found, said
        port, token = found.groups()
        browser = cluster.check(["python3", "-c", BROWSER, f"http://node1:{port}/", token])
        assert browser == "without a token: 403\nTrue\n"
        arguments = cluster.check("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", node="node1", user="root")
        assert "jupyter_server" in arguments
        assert token not in arguments
        cluster.check("pkill -INT -u user -f 'jaxsif jupyter'")
        server.communicate(timeout=30)
    assert server.returncode == 130
    cluster.wait_completed()
    assert cluster.check("squeue --noheader") == ""


def test_a_terminal_shows_that_it_starts(cluster: Cluster, layers: str) -> None:
    """While the job waits for its node, too."""
    others = "srun --nodes=4 --exclusive sleep 5 & sleep 1"
    terminal = Terminal(f"{others}; {layers} && exec jaxsif jupyter --layer=jupyter")
    terminal.expect("waiting for Jupyter")
    terminal.expect(r"token=\S+\s")
    assert cluster.check("squeue --me --noheader --format=%j") == "jupyter\n"
    shown = len(terminal.text)
    terminal.type("\x03")
    assert terminal.end() == 130, terminal.text
    assert terminal.text[shown:].replace("^C", "").split() == ["jaxsif:", "Jupyter", "has", "exited"]
    cluster.wait_completed()


def test_kernel(cluster: Cluster, layers: str) -> None:
    install = f"{layers} && jaxsif jupyter --layer jupyter --kernel jax"
    path = cluster.check(f"{install} && {install.rpartition('&& ')[2]}").splitlines()  # twice: it replaces its own
    assert path[0] == path[1]
    assert path[0].endswith("/jupyter/kernels/jax/kernel.json")
    # The login node has the same Python as the image, so the layer's packages will do as those of a Jupyter outside.
    mount = f"{layers} && mkdir -p out && squashfuse jaxsif/layers/jupyter.*.sqfs out"
    packages = "PYTHONPATH=$(echo out/opt/jax/lib/python3*/site-packages) PATH=/usr/bin:/bin"
    outside = cluster.check(
        f"{mount} && {packages} python3 -; status=$?; fusermount -u out; exit $status", stdin=OUTSIDE
    )
    assert outside == "/usr/bin/apptainer\ncomputes 3.0\n"


def test_no_jupyter(cluster: Cluster) -> None:
    """Told at once, and not after the job has waited in the queue."""
    done = cluster.run("module load jax/sif && exec jaxsif jupyter --gpus-per-node=2")
    image = cluster.check("module load jax/sif && echo $JAX_IMAGE").strip()
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        f"jaxsif: error: no jupyterlab in the image {image}\n"
        "  from: looked for jupyterlab, notebook, jupyter_server\n"
        "  try:  pass --layer jupyterlab after jaxsif layer create jupyterlab jupyterlab\n"
    )
