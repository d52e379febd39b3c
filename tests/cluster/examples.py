"""The programs of slurm/ in the cluster: on 1, 2 and 4 nodes, with 1 and 2 devices per process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from drills import HANG, PATIENCE
from harness import Cluster, jaxsif_run, program_lines

LAYER = "ml"  # as in the job scripts
PACKAGES = ("flax", "optax", "orbax-checkpoint", "matplotlib")


class Layout(NamedTuple):
    """How many processes there are, and how many devices each has."""

    nodes: int
    per_node: int  # processes
    devices: int  # of each process

    def __str__(self) -> str:
        """As in the names of job scripts."""
        return "x".join(map(str, self))

    @property
    def processes(self) -> int:
        return self.nodes * self.per_node

    @property
    def options(self) -> tuple[str, ...]:
        gpus = self.per_node * self.devices
        names = f"--srun-args=--nodelist=node[1-{self.nodes}]"  # tests name them; an earlier job of one may be ending
        return (f"--nodes={self.nodes}", f"--ntasks-per-node={self.per_node}", f"--gpus-per-node={gpus}", names)


LAYOUTS = tuple(Layout(nodes, 3 - devices, devices) for devices in (1, 2) for nodes in (1, 2, 4))
on_each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def run_program(
    cluster: Cluster, folder: str, layout: Layout, program: Sequence[str], layers: Sequence[str] = (), **environ: str
) -> list[str]:
    """Run a program of slurm/, copied to `folder`/slurm, in its own folder; return the lines that it printed, sorted.

    `program`: the file, as from slurm/, and its arguments. `environ`: variables for it. Nobody may call it a hang.
    """
    where, _, name = program[0].rpartition("/")
    options = [*layout.options, f"--hang-timeout={PATIENCE}", *(f"--layer={layer}" for layer in layers)]
    options += [f"--env={variable}={value}" for variable, value in environ.items()]
    run = jaxsif_run(*options, "--", "python", name, *program[1:])
    done = cluster.run(f"cd {folder}/slurm/{where} && {run}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(HANG, done.stderr, re.MULTILINE), done.stderr
    return program_lines(done.stdout)


def run_script(cluster: Cluster, folder: str, script: str) -> list[str]:
    """Submit a job script of slurm/, copied to `folder`/slurm, from its own folder; return its output's lines, sorted.

    `script`: the file, as from slurm/; its output is named after it and the job.
    """
    where, _, name = script.rpartition("/")
    return program_lines(cluster.submit(f"{folder}/slurm/{where}", name, f"{name.removesuffix('.sbatch')}-*.out"))
