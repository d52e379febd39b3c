"""Jupyter in an image: whether it is there, and kernels of the image for a Jupyter outside."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxsif.errors import HostError, JaxsifError
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.launch.packages import find_packages
from jaxsif.plan.host import Host
from jaxsif.plan.plan import LaunchPlan, share_argv
from jaxsif.settings.request import RunOptions

SERVERS = ("jupyterlab", "notebook", "jupyter_server")  # the first that is there
KERNEL = ("ipykernel",)
_MARK = "jaxsif"  # in a kernel's metadata: ours to replace


def find_module(names: Sequence[str], host: Host, environ: Mapping[str, str]) -> str:
    """The first of the modules that the image, with its layers, has; raises HostError. Looked for
    on this host.
    """
    found = find_packages(names, host, environ)
    if not found:
        package = names[0]
        raise HostError(
            f"no {package} in the image {host.image}" + (" and its layers" if host.layers else ""),
            f"looked for {', '.join(names)}",
            f"jaxsif layer create {package} {package}, then --layer {package}",
        )
    return found[0]


def install_kernel(
    name: str,
    options: RunOptions,
    host: Host,
    plan: LaunchPlan,
    runtime: str,
    environ: Mapping[str, str],
) -> Path:
    """Write a kernel specification of the image for this user's Jupyter; return its file.

    `runtime` is the path of the container engine: who starts kernels may have another PATH. Raises
    JaxsifError where there is a kernel of this name that is not ours.
    """
    assert host.runtime is not None
    assert host.image is not None
    # Jupyter finds no others, and the name is a folder's.
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise JaxsifError(
            f"not a name for a kernel: {name!r}", "--kernel", "letters, digits and ._- only"
        )
    path = _data_folder(environ) / "kernels" / name / "kernel.json"
    if path.exists() and not _is_ours(path):
        raise JaxsifError(
            f"there is a kernel {name} already, and jaxsif did not make it",
            str(path),
            "another name",
        )
    prefix = host.runtime.prefix
    command = ("python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")
    engine = host.runtime._replace(command=runtime)
    if host.allowed:  # the kernel starts later, when the image may be another
        argv = share_argv(host, engine, alone=True, binds=options.binds, program=command)
    else:
        argv = engine.run_argv(host.image, options.binds, command, host.layers)
    text = {
        "argv": argv,
        "display_name": name,
        "language": "python",
        # The engine is between Jupyter and Python; a message comes through it.
        "interrupt_mode": "message",
        "env": {
            key: value
            for key, value in plan.set_environ
            if key.startswith(prefix) and not key.startswith(f"{prefix}JAXSIF_")
        },
        "metadata": {_MARK: {"image": host.image}},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".kernel.json.{os.getpid()}.new")
    new.write_text(json.dumps(text, indent=1) + "\n")
    new.replace(path)
    return path


def _is_ours(path: Path) -> bool:
    try:
        return isinstance(find(parse_json(read_text(str(path), "kernel")), "metadata", _MARK), dict)
    except ValueError:
        return False  # not even a kernel


def _data_folder(environ: Mapping[str, str]) -> Path:
    """Where Jupyter looks for what a user installed; see `jupyter --paths`."""
    if environ.get("JUPYTER_DATA_DIR"):
        return Path(environ["JUPYTER_DATA_DIR"])
    return (
        Path(environ.get("XDG_DATA_HOME") or Path(environ.get("HOME", "/"), ".local/share"))
        / "jupyter"
    )
