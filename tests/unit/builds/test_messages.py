"""What a build says of a full disk, and of its log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jaxsif.builds.messages import end_of, timed, when_full
from jaxsif.errors import HostError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_as_asked(number: int) -> None:
    with pytest.raises(HostError, match="full"), when_full(HostError("full")):
        raise OSError(number, os.strerror(number))


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(PermissionError), when_full(HostError("full")):
        raise PermissionError(errno.EACCES, "no")


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\n" + b"".join(b"%d\n" % number for number in range(20)))
    assert end_of(tmp_path / "log") == "12\n13\n14\n15\n16\n17\n18\n19"
    assert end_of(tmp_path / "log", 2) == "18\n19"


def test_lines_with_their_seconds() -> None:
    lines: list[str] = []
    timed(lines.append)("packing")
    assert lines == ["   0.0 s  packing"]
