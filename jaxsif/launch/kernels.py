"""Jupyter in an image: whether it is there, and kernels of the image for a Jupyter outside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxsif.errors import HostError, JaxsifError
from jaxsif.files import user_folder, write_file
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.launch.packages import find_packages
from jaxsif.plan.container import Container
from jaxsif.plan.kernel import MARK

SERVERS = ("jupyterlab", "notebook", "jupyter_server")  # the first that is there
KERNEL = ("ipykernel",)


def find_module(names: Sequence[str], container: Container, environ: Mapping[str, str]) -> str:
    """Return the first of the modules that the image, with its layers, has; raises HostError.

    They are looked for on this host.
    """
    found = find_packages(names, container, environ)
    if not found:
        package, where = names[0], " and its layers" if container.layers else ""
        raise HostError(
            f"no {package} in the image {container.image}{where}",
            f"looked for {', '.join(names)}",
            f"jaxsif layer create {package} {package}, then --layer {package}",
        )
    return found[0]


def find_kernel(name: str, environ: Mapping[str, str]) -> Path:
    """Return the file of a kernel of this name; raises JaxsifError for one that is not ours."""
    # Jupyter finds no others, and the name is a folder's.
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        what = f"not a name for a kernel: {name!r}"
        raise JaxsifError(what, "--kernel", "use letters, digits and ._- only")
    path = _data_folder(environ) / "kernels" / name / "kernel.json"
    if path.exists() and not _is_ours(path):
        what = f"there is a kernel {name} already, and jaxsif did not make it"
        raise JaxsifError(what, str(path), "another name")
    return path


def install_kernel(path: Path, text: str) -> None:
    """Write the specification of a kernel where Jupyter finds it."""
    write_file(str(path), text.encode())


def _is_ours(path: Path) -> bool:
    try:
        kernel = parse_json(read_text(str(path), "kernel"))
    except ValueError:
        return False  # not even a kernel
    return isinstance(find(kernel, "metadata", MARK), dict)


def _data_folder(environ: Mapping[str, str]) -> Path:
    """Return where Jupyter looks for what a user installed; see `jupyter --paths`."""
    if environ.get("JUPYTER_DATA_DIR"):
        return Path(environ["JUPYTER_DATA_DIR"])
    return Path(user_folder(environ, "XDG_DATA_HOME"), "jupyter")
