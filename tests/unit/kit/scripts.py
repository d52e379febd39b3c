"""Scripts that no package has, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load_script(path: Path) -> Any:
    """Execute a script as the module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
