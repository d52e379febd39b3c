"""Every lock names each package once, with hashes, for one version of JAX, and no place to get it from; changes."""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

import pytest
from kit.caught import catch
from kit.scripts import load_script
from packaging.requirements import Requirement

from jaxsif.builds.lock import Lock, LockOptions, resolve_locks, select_flavours, write_locks
from jaxsif.errors import HostError, JaxsifError

LOCKS = Path(__file__).resolve().parents[3] / "containers/locks"
for_python = load_script(LOCKS.parent / "for_python.py")
FLAVOURS = ("cpu", "cuda12", "cuda13")
NAMES = tuple(f"{flavour}{suffix}" for flavour in FLAVOURS for suffix in ("", "-aarch64"))


def packages(name: str) -> dict[str, tuple[str, int]]:
    """Name -> version and number of hashes."""
    text = (LOCKS / f"{name}.txt").read_text()
    block = r"^([a-z0-9][a-z0-9-]*)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
    blocks = re.findall(block, text, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "a line that is no package with hashes"
    return {name: (version, hashes.count("--hash")) for name, version, hashes in blocks}


def test_every_flavour_has_a_lock_and_every_lock_a_flavour() -> None:
    flavours = sorted(path.stem for path in (LOCKS.parent / "flavours").glob("*.args"))
    assert flavours == sorted(FLAVOURS)
    assert sorted(path.stem for path in LOCKS.glob("*.txt")) == sorted((*NAMES, "launcher"))


@pytest.mark.parametrize("name", NAMES)
def test_lock(name: str) -> None:
    locked = packages(name)
    assert {"jax", "jaxlib", "numpy"} <= set(locked)
    text = (LOCKS / f"{name}.txt").read_text()
    assert not re.search(r"https?://|--index|--find-links|file:|(?<![\w.])/\w", text)
    assert text.splitlines()[1] == f"#    make lock FLAVOUR={name.partition('-')[0]}"


def test_flavours_share_the_versions_of_what_they_share() -> None:
    locks = [packages(name) for name in NAMES]
    shared = set.intersection(*map(set, locks))
    assert {name: {lock[name] for lock in locks} for name in shared} == {name: {locks[0][name]} for name in shared}


@pytest.mark.parametrize("suffix", ["", "-aarch64"])
@pytest.mark.parametrize("number", [12, 13])
def test_cuda_parts_are_of_one_cuda(number: int, suffix: str) -> None:
    """All of them as wheels; of the driver's libraries, none."""
    locked = packages(f"cuda{number}{suffix}")
    assert locked[f"jax-cuda{number}-plugin"][0] == locked["jax"][0]
    runtime = locked.get(f"nvidia-cuda-runtime-cu{number}") or locked["nvidia-cuda-runtime"]
    assert runtime[0].startswith(f"{number}.")
    assert {name for name in locked if name.endswith("-cu12" if number == 13 else "-cu13")} == set()


def test_changed_locks_are_written_beside_and_renamed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a==1\n")
    before = (tmp_path / "a.txt").stat()
    same = Lock(tmp_path / "a.txt", "a==1\n", "a==1\n")
    write_locks([same, Lock(tmp_path / "b.txt", "", "b==1\n")])
    assert (tmp_path / "a.txt").stat() == before
    assert (tmp_path / "b.txt").read_text() == "b==1\n"
    with pytest.raises(OSError, match=r"b\.txt/c\.txt"):
        write_locks([Lock(tmp_path / "a.txt", "a==1\n", "a==2\n"), Lock(tmp_path / "b.txt/c.txt", "", "c==1\n")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]
    assert (tmp_path / "a.txt").read_text() == "a==1\n"


def test_another_version_of_jax_is_noted() -> None:
    """An older Python may bring one."""
    texts = ("jax==0.11.0 \\\n    --hash=sha256:1\njaxlib==0.11.0\n", "jax==0.4.30\n")
    assert Lock(LOCKS, *texts).note == ", JAX 0.11.0 -> 0.4.30"
    assert Lock(LOCKS, texts[0], texts[0] + "numpy==2\n").note == ""
    assert Lock(LOCKS, "", texts[1]).note == ", JAX none -> 0.4.30"


@pytest.mark.parametrize(("option", "named"), [({"jax": "latest"}, "--jax"), ({"python": "py3"}, "--python")])
def test_a_version_is_a_number(option: dict[str, str], named: str) -> None:
    error = catch(JaxsifError, resolve_locks, LOCKS.parents[1], ["cpu"], ["x86_64"], LockOptions(**option), {})  # type: ignore[arg-type]
    assert (error.where, error.exit_code) == (named, 2)


@pytest.mark.starts_processes
def test_a_lock_that_is_damaged(tmp_path: Path) -> None:
    """The error names it, not the copy that uv reads."""
    lock = tmp_path / "containers/locks/cpu.txt"
    lock.parent.mkdir(parents=True)
    (lock.parent / "cpu.in").write_text("jax\n")
    lock.write_text("garbage ===\n")
    error = catch(HostError, resolve_locks, tmp_path, ["cpu"], ["x86_64"], LockOptions(), dict(os.environ))
    assert error.where == str(lock)
    assert f"`{lock}`" in error.message


def test_flavours_to_resolve(tmp_path: Path) -> None:
    assert select_flavours(LOCKS.parents[1], None) == list(FLAVOURS)
    (tmp_path / "containers/flavours").mkdir(parents=True)
    (tmp_path / "containers/flavours/tpu.args").touch()
    with pytest.raises(JaxsifError, match=r"flavour tpu has no .*/containers/locks/tpu\.in"):
        select_flavours(tmp_path, None)
    with pytest.raises(JaxsifError, match="no flavour gpu"):
        select_flavours(tmp_path, "gpu")


def test_the_launcher_lock_has_what_the_launcher_wants() -> None:
    """For each Python from 3.9 on: each package once, with hashes, in a version that pyproject.toml allows."""
    wanted = [Requirement(line) for line in metadata.requires("jaxsif") or () if "extra ==" not in line]
    assert wanted
    lock = (LOCKS / "launcher.txt").read_text()
    for minor in range(9, 20):
        chosen = for_python.select(lock, f"3.{minor}")
        locked = dict(re.findall(r"^(\S+)==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}", chosen, re.MULTILINE))
        assert len(locked) == len(re.findall(r"^\S", chosen, re.MULTILINE))
        python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}
        needed = [one for one in wanted if one.marker is None or one.marker.evaluate(python)]
        assert all(locked[one.name] in one.specifier for one in needed)


@pytest.mark.parametrize(("version", "oldest"), [("3.9", "3.9"), ("3.10", "3.10"), ("3.11", "3.11"), ("3.14", "3.11")])
def test_the_oldest_python_that_gets_the_same_libraries(version: str, oldest: str) -> None:
    assert for_python.find_oldest((LOCKS / "launcher.txt").read_text(), version) == oldest
