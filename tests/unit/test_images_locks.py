"""Every lock names each package once, with hashes, for one version of JAX, and no place to get it from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LOCKS = Path(__file__).resolve().parents[2] / "containers/locks"
FLAVOURS = ("cpu", "cuda12", "cuda13")


def packages(flavour: str) -> dict[str, tuple[str, int]]:
    """Name -> version and number of hashes."""
    text = (LOCKS / f"{flavour}.txt").read_text()
    block = r"^([a-z0-9][a-z0-9-]*)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
    blocks = re.findall(block, text, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "a line that is no package with hashes"
    return {name: (version, hashes.count("--hash")) for name, version, hashes in blocks}


def test_every_flavour_has_a_lock_and_every_lock_a_flavour() -> None:
    flavours = sorted(path.stem for path in (LOCKS.parent / "flavours").glob("*.args"))
    assert flavours == sorted(path.stem for path in LOCKS.glob("*.txt")) == sorted(FLAVOURS)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_lock(flavour: str) -> None:
    locked = packages(flavour)
    assert {"jax", "jaxlib", "numpy"} <= set(locked)
    assert not re.search(r"https?://|--index|--find-links|file:", (LOCKS / f"{flavour}.txt").read_text())


def test_flavours_share_the_versions_of_what_they_share() -> None:
    locks = [packages(flavour) for flavour in FLAVOURS]
    shared = set.intersection(*map(set, locks))
    assert {name: {lock[name] for lock in locks} for name in shared} == {name: {locks[0][name]} for name in shared}


@pytest.mark.parametrize("number", [12, 13])
def test_cuda_parts_are_of_one_cuda(number: int) -> None:
    """All of them as wheels; of the driver's libraries, none."""
    locked = packages(f"cuda{number}")
    assert locked[f"jax-cuda{number}-plugin"][0] == locked["jax"][0]
    runtime = locked.get(f"nvidia-cuda-runtime-cu{number}") or locked["nvidia-cuda-runtime"]
    assert runtime[0].startswith(f"{number}.")
    assert {name for name in locked if name.endswith("-cu12" if number == 13 else "-cu13")} == set()
