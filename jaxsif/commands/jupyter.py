"""jaxsif jupyter: a Jupyter server in the image on a compute node, or a kernel of the image."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jaxsif.commands import COMMAND, all_of, argument, titled
from jaxsif.commands.shell import LEFT_OUT, OF_TASKS, ONE_TASK, choose_launcher
from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import user_folder, write_file
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import add_srun_options, split_options
from jaxsif.launch import pipeline
from jaxsif.launch.packages import find_packages
from jaxsif.plan.container import Container
from jaxsif.plan.kernel import MARK, render_kernel
from jaxsif.plan.launcher import SRUN
from jaxsif.process import find_executable
from jaxsif.runtime import TASK_FOLDER, require_runtime
from jaxsif.screen import note
from jaxsif.settings.options import add_arguments

_SERVERS = ("jupyterlab", "notebook", "jupyter_server")  # the first that is installed
_KERNEL = ("ipykernel",)
DESCRIPTION = """\
Run a Jupyter server in the image on a compute node, on a free port, until
Ctrl-C. Print the ssh command that reaches it, and the address for the browser.
jaxsif's images have no Jupyter: add it as a layer.

examples:
  jaxsif layer create jupyter jupyterlab
        once
  jaxsif jupyter --layer jupyter --gpus-per-node=1 --time=2:00:00
        start JupyterLab if installed, or else notebook or jupyter_server
  jaxsif jupyter --layer jupyter --gpus-per-node=1 -- --ServerApp.root_dir=/data
        pass arguments to Jupyter
  jaxsif jupyter --layer jupyter --kernel jax
        no server: install the image as a kernel for another Jupyter
"""


add_options = all_of(
    partial(add_arguments, leave_out=LEFT_OUT),
    titled(
        "Jupyter",
        argument(
            "--login",
            metavar="[USER@]HOST",
            help="the cluster's ssh address, for use in the printed command",
        ),
        argument(
            "--kernel", metavar="NAME", help="install a kernel with this name; start no server"
        ),
    ),
    add_srun_options,
    COMMAND,
    usage="jaxsif jupyter [OPTIONS] [-- ARGUMENT...]",
)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the server to its end, or install the kernel."""
    options = vars(arguments)
    login, kernel, words = options.pop("login"), options.pop("kernel"), options.pop("command")
    runtime = require_runtime(environ)
    allocation = Allocation.from_environ(environ)
    options = {**options, **ONE_TASK, **choose_launcher(environ)}
    prepared = pipeline.prepare(options, ("python3",), allocation, environ, note, fixed=OF_TASKS)
    container = prepared.require_container()
    # Here, not in a job that would wait in the queue first.
    names = _KERNEL if kernel else _SERVERS
    module = find_module(names, container, environ)
    if kernel:
        path = find_kernel(kernel, environ)
        engine = find_executable(runtime.command, environ) or runtime.command
        text = render_kernel(kernel, pipeline.make_plan(prepared.off_terminal()), container, engine)
        write_file(str(path), text.encode())
        print(path)
        return 0
    here = f"{environ.get('USER', '')}@{socket.gethostname()}".lstrip("@")
    by_slurm = prepared.launcher.name == SRUN
    reached_by = (login or here) if by_slurm else ""
    program = ("python3", f"{TASK_FOLDER}/jupyter.py", module, reached_by, *words)
    # Ctrl-C is the usual way to end it, not an error.
    prepared = prepared.with_options(command=program, ends_quietly=True)
    if by_slurm and allocation and not allocation.in_step:
        words = split_options(["--overlap"])  # with the job's other steps
        prepared = prepared.with_options(srun_args=(*words, *prepared.settings.options.srun_args))
    note("waiting for Jupyter")
    status = pipeline.run_plan(pipeline.make_plan(prepared), notify=lambda _line: None)
    note("Jupyter has exited")
    return status


def find_module(names: Sequence[str], container: Container, environ: Mapping[str, str]) -> str:
    """Return the first of these modules that the image or its layers have; raise HostError if they
    have none of them.

    The search takes place on this host.
    """
    packages = find_packages(names, container, environ)
    if not packages:
        from jaxsif.layers.store import suggest_layer

        package, where = names[0], " and its layers" if container.layers else ""
        layer = suggest_layer(names, container.image, container.layers, environ)
        raise HostError(
            f"no {package} in the image {container.image}{where}",
            f"looked for {', '.join(names)}",
            layer or f"pass --layer {package} after jaxsif layer create {package} {package}",
        )
    return packages[0]


def find_kernel(name: str, environ: Mapping[str, str]) -> Path:
    """Return the file of the kernel with this name; raise JaxsifError if jaxsif did not write that
    file.
    """
    # Jupyter finds no other names, and a folder gets this name.
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        what = f"not a valid kernel name: {name!r}"
        raise JaxsifError(what, "--kernel", "use only letters, digits and ._-")
    path = _data_folder(environ) / "kernels" / name / "kernel.json"
    if path.exists() and not _is_ours(path):
        what = f"kernel {name} already exists, and jaxsif did not create it"
        raise JaxsifError(what, str(path), "choose another name")
    return path


def _is_ours(path: Path) -> bool:
    try:
        kernel = parse_json(read_text(str(path), "kernel"))
    except ValueError:
        return False  # not even a kernel
    return isinstance(find(kernel, "metadata", MARK), dict)


def _data_folder(environ: Mapping[str, str]) -> Path:
    """Find the folder of a user's own Jupyter files; see `jupyter --paths`."""
    if environ.get("JUPYTER_DATA_DIR"):
        return Path(environ["JUPYTER_DATA_DIR"])
    return Path(user_folder(environ, "XDG_DATA_HOME"), "jupyter")
