"""What a node's first task warns of before its program starts."""

from __future__ import annotations

import pytest

from jaxsif.task.shm import check, describe_shm

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "tasks", "text"),
    [
        (64 * MIB, 2, "/dev/shm has 64 MiB free, and NCCL may need 256 for 2 tasks"),
        (0, 8, "/dev/shm has 0 MiB free, and NCCL may need 1024 for 8 tasks"),
        (1023 * MIB, 16, "/dev/shm has 1023 MiB free, and NCCL may need 1024 for 16 tasks"),
        (256 * MIB, 2, ""),
        (1024 * MIB, 16, ""),
    ],
)
def test_describe_shm(free: int, tasks: int, text: str) -> None:
    assert describe_shm(free, tasks) == text


def test_it_is_looked_at_once() -> None:
    warnings: list[object] = []
    environ = {"SLURM_LOCALID": "0"}
    check(environ, warnings.append)
    assert environ.pop("JAXSIF_NODE_CHECKED") == "1"
    other = {"SLURM_LOCALID": "1"}
    check(other, warnings.append)
    assert "JAXSIF_NODE_CHECKED" not in other
    assert warnings == []
