"""What a universal lock installs for one version of Python.

    for_python.py LOCK VERSION FOLDER

Writes FOLDER/requirements.txt, without markers, because pip evaluates markers for the Python that runs pip; and
FOLDER/oldest, the oldest Python for which the lock says the same.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.markers import Marker

OLDEST = 9  # 3.9, which the lock was resolved for
_REQUIREMENT = re.compile(r"^(\w\S*==\S+)(?: ; (.+?))? \\\n((?: +--hash=\S+.*\n)+)", re.MULTILINE)


def main() -> None:
    """Write both files."""
    lock, version, folder = Path(sys.argv[1]).read_text(), sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text(select(lock, version))
    (folder / "oldest").write_text(find_oldest(lock, version) + "\n")


def select(lock: str, version: str) -> str:
    """Return the requirements of `lock` that hold for Python `version`, such as 3.11, with hashes, without markers."""
    python = {"python_version": version, "python_full_version": f"{version}.0"}
    requirements = []
    for pin, marker, hashes in _REQUIREMENT.findall(lock):
        if not marker or Marker(marker).evaluate(python):
            requirements.append(f"{pin} \\\n{hashes}")
    return "".join(requirements)


def find_oldest(lock: str, version: str) -> str:
    """Return the oldest Python that gets the same packages as Python `version`."""
    newest = int(version.partition(".")[2])
    wanted = select(lock, version)
    return next(f"3.{minor}" for minor in range(OLDEST, newest + 1) if select(lock, f"3.{minor}") == wanted)


if __name__ == "__main__":
    main()
