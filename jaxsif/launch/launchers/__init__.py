"""The launchers: what starts the tasks of a step. Each file here is one."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from jaxsif.plan.launcher import Launcher


def load_launcher(name: str) -> Launcher:
    """Return the launcher of that name, a file of this folder."""
    return cast(Launcher, import_module(f"{__name__}.{name}").LAUNCHER)
