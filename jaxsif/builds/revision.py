"""What the bytes of an image say of its origin: the last commit that touched its inputs, and that
commit's time.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number, shorten


class Revision(NamedTuple):
    """The origin of an image."""

    # With '-dirty' after it when the inputs differ from it; 'unknown' where git does not tell.
    commit: str
    created: int  # seconds since 1970

    @property
    def date(self) -> str:
        """The time, as ISO 8601 has it."""
        return datetime.fromtimestamp(self.created, timezone.utc).isoformat(timespec="seconds")


def find_revision(root: Path, inputs: Sequence[Path], environ: Mapping[str, str]) -> Revision:
    """Return the revision of `inputs` by the repository of `root`; SOURCE_DATE_EPOCH sets the time,
    as reproducible-builds.org has it. Raises JaxsifError for what is not a time.
    """
    paths = [os.path.relpath(path, root) for path in inputs]
    try:
        commit, _, time = _git(root, "log", "-1", "--format=%H %ct", "--", *paths).partition(" ")
        changes = _git(root, "status", "--porcelain", "--", *paths)
    except (OSError, subprocess.CalledProcessError):
        commit = time = changes = ""  # no git, no checkout, or a checkout without a commit
    if commit and changes:
        commit += "-dirty"
    wanted = environ.get("SOURCE_DATE_EPOCH") or time or "0"
    seconds = read_number(wanted)
    if seconds is None or seconds >= 1 << 32:
        raise JaxsifError(
            f"not a time: {shorten(wanted)}",
            "SOURCE_DATE_EPOCH",
            "give seconds since 1970, below 4294967296",
        )
    return Revision(commit or "unknown", seconds)


def _git(root: Path, *arguments: str) -> str:
    return process.output("git", "-C", str(root), *arguments).strip()
