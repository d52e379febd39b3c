"""The locations of jaxsif and its files: in a clone, under PREFIX as `make install` puts them, or
in a wheel.
"""

from __future__ import annotations

import os

from jaxsif.errors import HostError

# In a clone ROOT/jaxsif. `make install`: PREFIX/jaxsif/VERSION/lib/jaxsif, with VERSION/containers,
# VERSION/slurm and VERSION/bin next to lib, and the site's settings in PREFIX/jaxsif. In a wheel,
# the package's folder share has what a clone has next to it: pyproject.toml puts it there.
PACKAGE = os.path.dirname(os.path.realpath(__file__))
# '' without such a folder: in a clone, and in a wheel.
SITE_FOLDER = os.path.normpath(os.path.join(PACKAGE, "../../.."))
if not os.path.exists(os.path.join(PACKAGE, "../../bin/jaxsif")):
    SITE_FOLDER = ""
_linked_home: str | None = None  # see use_home
# The folder on Python's path, both for a clone that pip has installed and for an installation.
LIBRARY = os.path.dirname(PACKAGE)


def wheel_share(package: str = PACKAGE) -> str | None:
    """Return the package's folder named share if the package came in a wheel, or None."""
    share = os.path.join(package, "share")
    return share if os.path.isdir(share) else None


def find_share(package: str = PACKAGE) -> str:
    """Return the folder that contains containers/, modulefiles/ and slurm/; raise HostError."""
    library = os.path.dirname(package)
    for folder in (wheel_share(package) or library, os.path.dirname(library)):
        if os.path.exists(os.path.join(folder, "containers/jaxsif.def")):
            return folder
    raise HostError("no containers/ next to jaxsif", library, "install jaxsif again")


def find_data(name: str) -> str:
    """Return the path of a file or folder that comes with jaxsif, such as 'containers/sbom.py'.

    Raise HostError if jaxsif's files are missing.
    """
    return os.path.join(find_share(), name)


def use_home(home: str) -> None:
    """Take PREFIX/jaxsif/VERSION, which `jaxsif module add` set up for a wheel, as the home."""
    global SITE_FOLDER, _linked_home
    SITE_FOLDER, _linked_home = os.path.dirname(home), home


def find_home() -> str | None:
    """Return PREFIX/jaxsif/VERSION with links unresolved, or None if jaxsif has no such folder: it
    is a clone, or a wheel's own command.
    """
    if _linked_home:
        return _linked_home
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return home if os.path.exists(os.path.join(home, "bin/jaxsif")) else None


def owner() -> int:
    """Return the user ID of the owner of this installation."""
    return os.stat(__file__).st_uid


def list_launchers() -> tuple[str, ...]:
    """Return the names of the launchers: each is a file in jaxsif/launch/launchers."""
    files = os.listdir(os.path.join(PACKAGE, "launch/launchers"))
    names = [name[:-3] for name in files if name.endswith(".py") and name[0] != "_"]
    return tuple(sorted(names, key=lambda name: (name != "srun", name)))  # the usual one first
