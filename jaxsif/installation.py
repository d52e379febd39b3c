"""Where jaxsif and its files lie: in a clone, or below PREFIX as `make install` puts them."""

from __future__ import annotations

import os

from jaxsif.errors import HostError

# In a clone ROOT/jaxsif. `make install`: PREFIX/jaxsif/VERSION/lib/jaxsif, with VERSION/containers,
# VERSION/slurm and VERSION/bin beside lib, and the site's settings in PREFIX/jaxsif.
PACKAGE = os.path.dirname(os.path.realpath(__file__))
SITE_FOLDER = os.path.normpath(os.path.join(PACKAGE, "../../.."))
# Of a clone that is installed by pip, and of an installation alike: the folder that Python needs.
LIBRARY = os.path.dirname(PACKAGE)


def find_data(name: str) -> str:
    """Return the path of a file or folder beside jaxsif, such as 'containers/sbom.py'.

    Raises HostError where there is none.
    """
    above = PACKAGE
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        path = os.path.join(above, name)
        if os.path.exists(path):
            return path
    raise HostError(
        f"no {name} beside jaxsif", LIBRARY, "run jaxsif from a clone or from a site's module"
    )


def find_home() -> str | None:
    """Return PREFIX/jaxsif/VERSION with the links that lead to it, None where jaxsif is a clone."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return home if os.path.exists(os.path.join(home, "bin/jaxsif")) else None


def owner() -> int:
    """Return the user number of the owner of this installation."""
    return os.stat(__file__).st_uid


def list_launchers() -> tuple[str, ...]:
    """Return the names of the launchers: each is a file of jaxsif/launch/launchers."""
    files = os.listdir(os.path.join(PACKAGE, "launch/launchers"))
    names = [name[:-3] for name in files if name.endswith(".py") and name[0] != "_"]
    return tuple(sorted(names, key=lambda name: (name != "srun", name)))  # the usual one first
