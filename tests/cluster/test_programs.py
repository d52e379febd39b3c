"""The user's program behaves exactly as without the task shim.

Every form runs twice in the image: under `jaxsif run` in a Slurm step, and plainly, where the shim does nothing.
"""

from __future__ import annotations

import re

import pytest
from harness import Cluster, jaxsif_run

pytestmark = pytest.mark.core

FORMS = {
    "script": "python mirror.py a 'b c'",
    "module": "python -m mirror a",
    "package": "python -m package a",
    "command": "python -c 'exec(open(\"mirror.py\").read())' a",
    "unbuffered": "python -u mirror.py",
    "options": "python -X dev -O -W error mirror.py",
    "standard input": "python - a <mirror.py",
    "folder": "python package",
    "isolated": "python -I mirror.py",
    "PYTHONPATH": "env PYTHONPATH=/tmp/x:/tmp/y python mirror.py",
    "shell script": "bash run.sh 1 2",
    "console script": "./tool --option",
    "children": "python children.py",
    "traceback": "python raises.py",
    "traceback of a cause": "python raises.py cause",
    "exit with a text": "python -c 'import sys; sys.exit(\"a reason\")'",
    "syntax error": "python broken.py",
    "interrupt": "python -c 'raise KeyboardInterrupt'",
    "own excepthook": "python -c 'import sys; sys.excepthook = lambda *a: print(\"mine\", a[0].__name__); 1 / 0'",
    "exit in a thread": "python -c 'import threading; threading.Thread(target=exit, args=(3,)).start()'",
}
FILES = {
    "package/__init__.py": "",
    "package/__main__.py": "import sys; print(__name__, __package__, __spec__ and __spec__.name, sys.argv)\n",
    "run.sh": 'echo "$0 $@"; python mirror.py "$@"; echo $?\n',
    "tool": "#!/usr/bin/env python\nimport runpy\nif __name__ == '__main__':\n    runpy.run_path('mirror.py')\n",
    "raises.py": (
        "import sys\ndef f(x):\n    return 1 / x\ntry:\n    f(0)\nexcept ZeroDivisionError as error:\n"
        "    if sys.argv[1:]:\n        raise ValueError('two\\nlines') from error\n    raise\n"
    ),
    "broken.py": "def f(:\n",
}
# What srun and jaxsif add when a program fails.
ADDED = re.compile(r"^(srun: |slurmstepd|jaxsif: error: |  from: |  try:  )")


@pytest.mark.parametrize("command", FORMS.values(), ids=FORMS.keys())
def test_same_with_and_without_the_shim(cluster: Cluster, folder: str, command: str) -> None:
    for name, text in FILES.items():
        cluster.check(f"mkdir -p {folder}/package")
        cluster.write(f"{folder}/{name}", text)
    cluster.write(f"{folder}/command.sh", command)
    cluster.check(f"cd {folder} && chmod +x tool")
    plain = cluster.run(f"cd {folder} && module load jax/sif && apptainer -q run $JAX_IMAGE bash command.sh")
    shim = cluster.run(f"cd {folder} && " + jaxsif_run("--nodes=1", "--", "bash", "command.sh"))
    own = [line for line in shim.stderr.splitlines() if not ADDED.match(line)]
    assert shim.stdout == plain.stdout
    assert own == plain.stderr.splitlines()
    assert shim.returncode == plain.returncode


def test_output_is_seen_line_by_line(cluster: Cluster) -> None:
    """A program that prints and is then silent: its line must not wait for a full buffer."""
    program = "import time; print('here'); time.sleep(100)"
    with cluster.start(jaxsif_run("--nodes=1", "--", "python", "-c", program)) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "here\n"
        cluster.check("scancel --me")
        launcher.communicate(timeout=10)


def test_image_of_others_gets_the_shim_too(cluster: Cluster, folder: str) -> None:
    """An image without jaxsif's marks, here a sandbox: the Python hook comes by PYTHONPATH, and steps aside."""
    sandbox = "/tmp/foreign"
    build = f"apptainer -q build --sandbox {sandbox} $JAX_IMAGE && rm -rf {sandbox}/opt/jaxsif"
    build += f" {sandbox}/opt/jax/lib/python3.*/site-packages/jaxsif*"
    program = "python -c 'import sys, jax; print(sys.path, jax.local_device_count()); sys.exit(3)'"
    script = f"module load jax/sif && {build} && jaxsif run --launcher local --gpus-per-node=2 --ntasks-per-node=1"
    done = cluster.run(f"{script} --image {sandbox} -- {program}; status=$?; rm -rf {sandbox}; exit $status")
    assert done.returncode == 3
    assert "failed: sys.exit(3)" in done.stderr
    assert "jaxsif" not in done.stdout
