"""jaxsif jupyter: a Jupyter server in the image on a compute node, or a kernel of the image."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping
from contextlib import ExitStack

from jaxsif import screen
from jaxsif.commands import run
from jaxsif.commands.shell import LEFT_OUT, OF_TASKS, ONE_TASK, choose_launcher
from jaxsif.job.allocation import Allocation
from jaxsif.launch import kernels, pipeline
from jaxsif.launch.children import Readers
from jaxsif.plan.kernel import render_kernel
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.plan import Plan
from jaxsif.process import find_executable
from jaxsif.runtime import TASK_FOLDER, require_runtime
from jaxsif.settings.options import add_arguments
from jaxsif.settings.passed import add_srun_options

DESCRIPTION = """\
Run a Jupyter server in the image on a compute node, at a free port, until
Ctrl-C. Print the ssh command that reaches it, and the address for the browser.
jaxsif's images have no Jupyter: add it as a layer.

examples:
  jaxsif layer create jupyter jupyterlab
        once
  jaxsif jupyter --layer jupyter --gpus-per-node=1 --time=2:00:00
        JupyterLab, or else notebook or jupyter_server
  jaxsif jupyter --layer jupyter --gpus-per-node=1 -- --ServerApp.root_dir=/scratch/me
        pass arguments to Jupyter
  jaxsif jupyter --layer jupyter --kernel jax
        no server: install the image as a kernel for another Jupyter
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif jupyter`."""
    parser.usage = "jaxsif jupyter [OPTIONS] [-- ARGUMENT...]"
    add_arguments(parser, leave_out=LEFT_OUT)
    server = parser.add_argument_group("Jupyter")
    server.add_argument(
        "--login", metavar="[USER@]HOST", help="the ssh address of the cluster, in the printed line"
    )
    server.add_argument(
        "--kernel", metavar="NAME", help="install a kernel of this name; start no server"
    )
    add_srun_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the server to its end, or install the kernel."""
    said = vars(arguments)
    login, kernel, words = said.pop("login"), said.pop("kernel"), said.pop("command")
    runtime = require_runtime(environ)
    allocation = Allocation.from_environ(environ)
    said = {**said, **ONE_TASK, **choose_launcher(environ)}
    prepared = pipeline.prepare(said, ("python3",), allocation, environ, run.note, fixed=OF_TASKS)
    container = prepared.require_container()
    # Here, and not in a job that waits in the queue first.
    names = kernels.KERNEL if kernel else kernels.SERVERS
    module = kernels.find_module(names, container, environ)
    if kernel:
        path = kernels.find_kernel(kernel, environ)
        engine = find_executable(runtime.command, environ) or runtime.command
        text = render_kernel(kernel, pipeline.make_plan(prepared.off_terminal()), container, engine)
        kernels.install_kernel(path, text)
        print(path)
        return 0
    here = f"{environ.get('USER', '')}@{socket.gethostname()}".lstrip("@")
    by_slurm = prepared.launcher.name == SRUN
    reached_by = (login or here) if by_slurm else ""
    program = ("python3", f"{TASK_FOLDER}/jupyter.py", module, reached_by, *words)
    prepared = prepared.ask(command=program)
    if by_slurm and allocation and not allocation.in_step:
        others = prepared.settings.asked.srun_args
        prepared = prepared.ask(srun_args=("--overlap", *others))  # with the job's other steps
    return _serve(pipeline.make_plan(prepared), environ)


def _serve(plan: Plan, environ: Mapping[str, str]) -> int:
    """Run the server to its end; until it tells where it is, show that it starts."""
    with ExitStack() as start:
        start.enter_context(screen.working("jaxsif: waiting for Jupyter", environ))

        def end_start(data: bytes) -> bytes:
            start.close()
            return data

        readers = Readers(lambda: end_start, screen.make_way)
        # Ctrl-C is its usual end, of which there is nothing to tell.
        return pipeline.run_plan(plan, show=lambda _line: None, readers=readers)
