"""What builds keep for the next ones: base systems, wheels as compiled and as packed."""

from __future__ import annotations

import shutil
from pathlib import Path

_KEPT = 30 * 24 * 3600  # seconds since the last build that used it; a build touches what it uses


def prune(cache: Path, now: float) -> None:
    """Remove what no build has used for long; the wheels as downloaded are left to uv."""
    for pattern in ("base-*.sqfs", "packed/*", "compiled/*"):
        for path in cache.glob(pattern):
            if now - path.stat().st_mtime > _KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
