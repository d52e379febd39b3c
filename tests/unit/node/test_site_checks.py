"""A site's own checks: what they print, and their bounds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jaxsif.node import site_checks
from jaxsif.node.site_checks import parse_output, run_checks


@pytest.mark.parametrize(
    ("output", "rows"),
    [
        (b'{"state": "ok", "evidence": "fine"}', [("ok", "fine", "")]),
        (b'[{"state": "failure", "evidence": "a", "remedy": "b"}]', [("failure", "a", "b")]),
        (b"[]", []),
        (b"", [("unknown", "its output is not JSON", "")]),
        (b"\xff", [("unknown", "its output is not JSON", "")]),
        (b"{}", [("unknown", "its output is not {state, evidence, remedy}", "")]),
        (b"3", [("unknown", "its output is not {state, evidence, remedy}", "")]),
        (b'{"state": "bad", "evidence": ""}', [("unknown", "its output is not {state, evidence, remedy}", "")]),
        (b'{"state": ["ok"], "evidence": ""}', [("unknown", "its output is not {state, evidence, remedy}", "")]),
        (b'{"state": "ok", "evidence": "\\u001b[2J"}', [("ok", "\\x1b[2J", "")]),
        (b" " * 65537, [("unknown", "more than 64 KiB of output", "")]),
        (b"[" * 60000, [("unknown", "its output is not JSON", "")]),
    ],
)
def test_output(output: bytes, rows: list[tuple[str, str, str]]) -> None:
    assert parse_output("/checks/one", output) == [("one", *row) for row in rows]


@pytest.mark.starts_processes
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of time, output and trust; a file that cannot be executed is no check."""
    monkeypatch.setattr(site_checks, "_SECONDS", 1)
    tmp_path.chmod(0o755)
    texts = {
        "good": 'echo \'{"state": "ok", "evidence": "\'$WORD\'"}\'',
        "hangs": "sleep 100 & sleep 100",
        "floods": "exec cat /dev/zero",
        "writable": 'echo \'{"state": "ok", "evidence": ""}\'',
        "README": "nothing",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod({"writable": 0o777, "README": 0o644}.get(name, 0o755))
    begin = time.monotonic()
    rows = run_checks([str(tmp_path), "/nowhere"], {"PATH": "/usr/bin:/bin", "WORD": "yes"})
    assert time.monotonic() - begin < 10
    assert [row[:3] for row in rows if row[0] != "writable"] == [
        ("floods", "unknown", "more than 64 KiB of output"),
        ("good", "ok", "yes"),
        ("hangs", "unknown", "no answer within 1 s"),
        ("nowhere", "unknown", "not a file, nor a folder with checks"),
    ]
    assert [row[2].startswith("not run, because others may write it: ") for row in rows if row[0] == "writable"] == [
        True
    ]
