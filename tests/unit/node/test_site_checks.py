"""A site's own checks: what they print, and their bounds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jaxsif.node import site_checks
from jaxsif.node.site_checks import _NO_FINDING, parse_output, run_checks


@pytest.mark.parametrize(
    ("output", "rows"),
    [
        (b'{"state": "ok", "evidence": "fine"}', [("ok", "fine", "")]),
        (b'[{"state": "failure", "evidence": "a", "remedy": "b"}]', [("failure", "a", "b")]),
        (b"[]", []),
        (b"", [("unknown", "it prints nothing", "")]),
        (b"\xff", [("unknown", "its output is not JSON", "")]),
        (b"{}", [("unknown", _NO_FINDING, "")]),
        (
            b'[{"state": "failure", "evidence": "no disk"}, {"state": "bad"}]',
            [("failure", "no disk", ""), ("unknown", _NO_FINDING, "")],
        ),
        (b"3", [("unknown", _NO_FINDING, "")]),
        (b'{"state": "bad", "evidence": ""}', [("unknown", _NO_FINDING, "")]),
        (b'{"state": ["ok"], "evidence": ""}', [("unknown", _NO_FINDING, "")]),
        (b'{"state": "ok", "evidence": "\\u001b[2J"}', [("ok", "\\x1b[2J", "")]),
        (b" " * 65537, [("unknown", "more than 64 KiB of output", "")]),
        (b"[" * 60000, [("unknown", "its output is not JSON", "")]),
    ],
)
def test_output(output: bytes, rows: list[tuple[str, str, str]]) -> None:
    assert parse_output("/checks/one", output) == [("one", *row) for row in rows]


@pytest.mark.starts_processes
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of time, output and trust; a file that cannot be executed is a check if it is a script."""
    monkeypatch.setattr(site_checks, "_SECONDS", 1)
    tmp_path.chmod(0o755)
    texts = {
        "good": 'echo \'{"state": "ok", "evidence": "\'$WORD\'"}\'',
        "hangs": "sleep 100 & sleep 100",
        "floods": "exec cat /dev/zero",
        "writable": 'echo \'{"state": "ok", "evidence": ""}\'',
        "closed": "nothing",
        "fails": "echo no licence server >&2; exit 1",
        "fails-ok": 'echo \'{"state": "ok", "evidence": ""}\'; exit 3',
        "fails-well": 'echo \'{"state": "failure", "evidence": "no disk"}\'; exit 1',
        "floods-error": "cat /dev/zero >&2; echo",
        "good~": "nothing",
    }
    (tmp_path / "README").write_text("How to add a check\n")
    (tmp_path / "inner/one").mkdir(parents=True)
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod({"writable": 0o777, "closed": 0o644}.get(name, 0o755))
    begin = time.monotonic()
    rows = run_checks([str(tmp_path), "/nowhere"], {"PATH": "/usr/bin:/bin", "WORD": "yes"})
    assert time.monotonic() - begin < 10
    assert [row[:3] for row in rows if row[0] != "writable"] == [
        ("closed", "unknown", "not executable"),
        ("fails", "unknown", "exit status 1: no licence server"),
        ("fails-ok", "unknown", "exit status 3"),
        ("fails-well", "failure", "no disk"),
        ("floods", "unknown", "more than 64 KiB of output"),
        ("floods-error", "unknown", "no answer within 1 s"),
        ("good", "ok", "yes"),
        ("hangs", "unknown", "no answer within 1 s"),
        ("inner", "unknown", f"{tmp_path}/inner is a subfolder: not run"),
        ("nowhere", "unknown", "/nowhere is neither a file nor a folder with checks"),
    ]
    remedies = {row[0]: row[3] for row in rows}
    assert remedies["nowhere"] == "correct the path; `jaxsif config doctor.checks` names the file that sets it"
    why = "not run, because other users can write to it: "
    assert [row[2].startswith(why) for row in rows if row[0] == "writable"] == [True]


def test_a_path_that_cannot_be_looked_at() -> None:
    """As below a folder that users may not enter; here, below a file."""
    ((_, state, text, _),) = run_checks(["/etc/passwd/checks"], {})
    assert (state, "Not a directory" in text) == ("unknown", True)


def test_a_folder_without_checks(tmp_path: Path) -> None:
    """A hidden file is none."""
    (tmp_path / ".gitkeep").touch()
    assert [row[2] for row in run_checks([str(tmp_path)], {})] == [f"{tmp_path} has no checks"]


GOOD = """echo '{"state": "ok", "evidence": "fine"}'"""


def make_check(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.starts_processes
def test_what_a_check_leaves_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the checks, also if it has left the session."""
    monkeypatch.setattr(site_checks, "_SECONDS", 4)
    tmp_path.chmod(0o755)
    make_check(tmp_path, "background", f"#!/bin/sh\nsleep 30 & echo $! >{tmp_path}/background.pid; {GOOD}\n")
    make_check(
        tmp_path, "daemon", f"#!/bin/sh\nsetsid sh -c 'echo $$ >{tmp_path}/daemon.pid; exec sleep 30' & {GOOD}\n"
    )
    quiet = f"(setsid env -i /bin/sh -c 'echo $$ >{tmp_path}/quiet.pid; exec /bin/sleep 30' >/dev/null &)"
    make_check(tmp_path, "quiet", f"#!/bin/sh\n{quiet}; sleep 0.3; {GOOD}\n")
    make_check(tmp_path, "good", f"#!/bin/sh\n{GOOD}\n")
    make_check(tmp_path, "silent", f"#!/bin/sh\nsleep 30 >/dev/null & {GOOD}\n")
    make_check(tmp_path, "text", "no executable\0")
    make_check(tmp_path, "dos", "#!/bin/sh\r\n")
    make_check(tmp_path, "typo", "#!/bin/bsh\n")
    begin = time.monotonic()
    rows = run_checks([str(tmp_path)], {"PATH": "/usr/bin:/bin"})
    assert time.monotonic() - begin < 20
    assert [row[:3] for row in rows] == [
        ("background", "ok", "fine"),
        ("daemon", "ok", "fine"),
        ("dos", "unknown", "cannot run: its lines end in CR LF"),
        ("good", "ok", "fine"),
        ("quiet", "ok", "fine"),
        ("silent", "ok", "fine"),
        ("text", "unknown", "cannot run: no #! in its first line"),
        ("typo", "unknown", "cannot run: the interpreter in its first line is missing"),
    ]
    for name in ("background", "daemon", "quiet"):
        assert not Path(f"/proc/{(tmp_path / name).with_suffix('.pid').read_text().strip()}").exists(), name


@pytest.mark.starts_processes
def test_a_folder_above_that_others_may_rename(tmp_path: Path) -> None:
    """Also if the folder is reached through a link; the sticky bit protects, as in /tmp."""
    folder = tmp_path / "open" / "checks"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    make_check(folder, "good", f"#!/bin/sh\n{GOOD}\n")
    (tmp_path / "link").symlink_to(folder)
    for mode, state in ((0o755, "ok"), (0o777, "unknown"), (0o1777, "ok")):
        folder.parent.chmod(mode)
        for path in (folder, tmp_path / "link"):
            rows = run_checks([str(path)], {"PATH": "/usr/bin:/bin"})
            assert [row[1] for row in rows] == [state], (mode, rows)
            assert state == "ok" or rows[0][2].endswith("open: it has no sticky bit")


@pytest.mark.starts_processes
def test_more_checks_than_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for number in range(33):
        make_check(tmp_path, f"{number:02}", f"#!/bin/sh\n{GOOD}\n")
    rows = run_checks([str(tmp_path)], {"PATH": "/usr/bin:/bin"})
    assert [row[0] for row in rows if row[1] == "ok"] == [f"{number:02}" for number in range(32)]
    assert rows[-1] == ("32", "unknown", "not run: it is not one of the first 32", "")
