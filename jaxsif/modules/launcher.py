"""The launcher of a wheel, as modules name it: PREFIX/jaxsif/VERSION leads to where pip put it."""

from __future__ import annotations

import shutil
from pathlib import Path

from jaxsif.files import write_file

# As `make install` writes it: no variable and no ~/.local of a user changes the launcher.
_COMMAND = """\
#!{python} -IS
import sys

sys.path.insert(0, {library!r})
from jaxsif.cli import main

sys.exit(main())
"""


def is_installed(home: Path) -> bool:
    """Return whether `make install` has put a launcher into this folder."""
    return (home / "modulefiles").is_dir()


def link_launcher(home: Path, share: str, library: str, python: str) -> None:
    """Make `home` lead to a wheel: `library` has the package, `share` the rest, and `python` runs
    it. Raise OSError.

    Its folder slurm is a copy: `cp -r` would copy a link as a link.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(f"{share}/slurm", home / "slurm", ignore=ignored, dirs_exist_ok=True)
    command = _COMMAND.format(python=python, library=library)
    write_file(str(home / "bin/jaxsif"), command.encode(), 0o777)
