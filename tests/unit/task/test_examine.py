"""The facts that a task reports from its container."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from jaxsif.task.examine import collect, find_unknown_flags


def test_folders_of_dumps_may_differ_between_tasks(tmp_path: Path) -> None:
    flags = "--xla_dump_to=/tmp/0 --xla_gpu_autotune_level=4 --xla_dump_hlo_as_text"
    found = collect({"HOME": str(tmp_path), "XLA_FLAGS": flags, "SLURM_PROCID": "1"})
    assert found["variables"] == {"XLA_FLAGS": "--xla_gpu_autotune_level=4"}


@pytest.mark.parametrize(("home", "lacks"), [("", []), ("/", []), ("/nowhere/me", ["/nowhere/me"])])
def test_a_home_folder_that_is_not_there(home: str, lacks: list[str]) -> None:
    assert collect({"HOME": home})["lacks"] == lacks


def test_flags_that_no_library_has(tmp_path: Path) -> None:
    """A linker may have merged a name with the end of a longer string."""
    library = tmp_path / "jaxlib" / "_jax.so"
    library.parent.mkdir()
    library.write_bytes(bytes(1 << 20) + b"\0xla_one\0its_xla_two\0")
    spec = ModuleSpec("jax", None, origin=str(tmp_path / "jax" / "__init__.py"))
    environ = {"XLA_FLAGS": "--xla_one=1 --xla_two --xla_tow=3 --xla_on"}
    assert find_unknown_flags(environ, spec) == ["xla_on", "xla_tow"]
    assert find_unknown_flags({**environ, "SLURM_PROCID": "1"}, spec) == []
