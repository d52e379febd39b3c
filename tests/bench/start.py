"""`import jax` in all tasks of a node, and of 4 nodes: without a container, by jaxsif run, and the plain way.

    build/venv/bin/python tests/bench/start.py ROUNDS

The ways take turns, ROUNDS times each, in one job of the cluster in a box. Without a container means: the packages of
the same image, unpacked on the node's own disk. The plain way: the image of plain.def (gzip), one container a task.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PLAIN = "/sw/bench-plain.sif"
LOCAL = "/var/tmp/bench"  # on each node
IMPORT = ("python", "-c", "import jax")
UNPACK = f"""\
test -d {LOCAL} && exit
offset=$(apptainer sif list "$JAX_IMAGE" | sed -n 's/.*|\\([0-9]*\\)-[0-9]* *|FS.*/\\1/p')
unsquashfs -quiet -no-progress -no-xattrs -dest {LOCAL} -offset "$offset" "$JAX_IMAGE"
rm {LOCAL}/opt/jax/lib/python3.*/site-packages/jaxsif.pth
"""


def outside(rounds: str) -> None:
    """On this machine: make the plain image, put it where the nodes see it, and measure in the cluster."""
    import image

    plain = image.WORK / "plain-cpu.sif"
    if not plain.exists():
        image.WORK.mkdir(parents=True, exist_ok=True)
        print("building the plain image", flush=True)
        image.build_plain("cpu")
    minicluster = str(image.REPOSITORY / "tests/cluster/minicluster")
    subprocess.run([minicluster, "sandbox", "--", "cp", str(plain), PLAIN], check=True)
    job = "module load jax/sif && exec salloc --quiet --nodes=4 --ntasks-per-node=8 python3 - inside " + rounds
    program = Path(__file__).read_bytes()
    subprocess.run([minicluster, "exec", "--", "bash", "-lc", job], input=program, check=True)


def seconds(argv: list[str]) -> float:
    """Wall time of a command that must succeed and say nothing but notes of jaxsif."""
    begin = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{argv}: exit status {done.returncode}\n{done.stderr}")
    return took


def inside(rounds: int) -> None:
    """In the job."""
    environ = os.environ["JAX_IMAGE"]
    seconds(["srun", "--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "bash", "-c", UNPACK])
    for nodes in (1, 4):
        srun = ["srun", f"--nodes={nodes}", f"--ntasks={8 * nodes}"]
        ours = ["jaxsif", "run", f"--nodes={nodes}", "--ntasks-per-node=8"]
        ways = {
            "no container": [*srun, f"{LOCAL}/opt/jax/bin/python", *IMPORT[1:]],
            "jaxsif run": [*ours, "--", *IMPORT],
            "jaxsif run --stage": [*ours, "--stage", "--", *IMPORT],
            "a container a task": [*srun, "apptainer", "--quiet", "run", environ, *IMPORT],
            "plain way": [*srun, "apptainer", "--quiet", "exec", PLAIN, *IMPORT],
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, argv in ways.items():
                took = seconds(argv)
                if number:  # the first round fills the caches
                    times[name].append(took)
        bare, plain = (statistics.median(times[name]) for name in ("no container", "plain way"))
        print(f"import jax in {8 * nodes} tasks on {nodes} node(s), median of {rounds} turns")
        for name, all_ in times.items():
            middle = statistics.median(all_)
            print(
                f"  {name:20} {middle:6.2f} s   {middle / bare:5.2f} x no container   1/{plain / middle:.2f} of plain"
            )
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(int(sys.argv[2]))
    else:
        outside(sys.argv[1])
