"""`make audit`: the real pip-audit, which asks a server on loopback that answers as OSV's does, and its exceptions.

osv-urllib3-2.6.3.json is written after OSV's public format, with the numbers and versions of two published advisories.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kit.scripts import load_script

AUDIT = Path(__file__).resolve().parents[2] / "containers/audit.py"
ANSWER = Path(__file__).with_name("osv-urllib3-2.6.3.json").read_text()
LOCK = """\
urllib3==2.6.3 ; python_full_version < '3.10' \\
    --hash=sha256:00
urllib3==2.8.0 ; python_full_version >= '3.10' \\
    --hash=sha256:00
"""
EXCEPTION = """\
[[exception]]
package = "urllib3"
version = "2.6.3"
id = "{id}"
until = {until}
reason = "nothing is decompressed"
"""
audit = load_script(AUDIT)


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        """Silence."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = (asked["package"]["name"], asked["version"]) == ("urllib3", "2.6.3")
        self.send_response(200)
        self.end_headers()
        self.wfile.write((ANSWER if known else "{}").encode())


@pytest.fixture
def osv() -> Iterator[str]:
    """The address of a database that knows what is wrong with urllib3 2.6.3."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        server.shutdown()


def run(folder: Path, url: str, exceptions: str) -> subprocess.CompletedProcess[str]:
    (folder / "launcher.txt").write_text(LOCK)
    (folder / "exceptions.toml").write_text(exceptions)
    environ = {**os.environ, "NO_PROXY": "127.0.0.1"}
    argv = [sys.executable, str(AUDIT), "--osv-url", url, str(folder)]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.starts_processes
def test_a_vulnerability_is_found_for_every_python_of_a_universal_lock(osv: str, tmp_path: Path) -> None:
    ended = EXCEPTION.format(id="GHSA-qccp-gfcp-xxvc", until="2026-11-01")
    done = run(tmp_path, osv, ended)
    first, second, last = done.stdout.splitlines()
    assert first.startswith("urllib3==2.6.3 (launcher.txt): CVE-2026-44432, GHSA-mf9v-mfxr-j63j, repaired in 2.7.0: ")
    assert second.startswith(
        "urllib3==2.6.3 (launcher.txt): CVE-2026-44431, GHSA-qccp-gfcp-xxvc, whose exception ended"
    )
    assert last == "2 packages in 1 locks checked"
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.starts_processes
def test_exceptions_have_a_reason_and_an_end(osv: str, tmp_path: Path) -> None:
    both = "".join(EXCEPTION.format(id=name, until="9999-12-31") for name in ("CVE-2026-44431", "GHSA-mf9v-mfxr-j63j"))
    done = run(tmp_path, osv, both)
    assert done.stdout.splitlines() == [
        "excepted until 9999-12-31: CVE-2026-44431 in urllib3==2.6.3: nothing is decompressed",
        "excepted until 9999-12-31: GHSA-mf9v-mfxr-j63j in urllib3==2.6.3: nothing is decompressed",
        "2 packages in 1 locks checked",
    ]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.starts_processes
def test_without_an_answer_nothing_is_checked(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:9/v1/query", EXCEPTION.format(id="CVE-2026-44431", until="9999-12-31"))
    assert done.stdout == ""
    reason, remedy = done.stderr.splitlines()
    assert reason.startswith("not checked: 2 of 2 packages: osv: ")
    assert len(reason) < 400
    assert remedy == "  try:  a host with the network, or --osv-url URL of a mirror (docs/site.md)"
    assert done.returncode == 3


def test_a_package_that_the_source_does_not_know_is_not_checked() -> None:
    """pip-audit itself says "No known vulnerabilities found" of those, with exit status 0."""
    reason = "Dependency not found on PyPI and could not be audited: jax (0.12.0.1)"
    said = [{"name": "jax", "skip_reason": reason}, {"name": "idna", "version": "3.20", "vulns": []}]
    assert audit.parse_answer(said) == audit.Answer(frozenset({("idna", "3.20")}), (), reason)


def test_an_exception_that_nothing_needs_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    exemption = audit.Exemption(("idna", "3.19"), "CVE-2026-1", audit.datetime.date.max, "reason")
    found = audit.Found(("idna", "3.20"), frozenset({"CVE-2026-2"}), (), "a title\x1b[2J")
    answer = audit.Answer(frozenset({("idna", "3.20")}), (found,), "")
    assert audit.report(answer, {"launcher.txt": [("idna", "3.20")]}, [exemption], audit.datetime.date.min)
    assert capsys.readouterr().out.splitlines() == [
        r"idna==3.20 (launcher.txt): CVE-2026-2, no version repairs it: a title\x1b[2J",
        "the exception for CVE-2026-1 in idna==3.19 is not needed: remove it",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[exception]]\nid = 1\n", "an exception has no package"),
        (EXCEPTION.format(id="", until="2027-01-01"), "an exception has no id"),
        (EXCEPTION.format(id="CVE", until="2027-01-01T00:00:00Z"), "an exception has no until"),
        (EXCEPTION.format(id="CVE", until="2027-01-01").replace("reason", "why"), "an exception has no reason"),
        ("[[exception", "cannot read .*exceptions.toml: "),
    ],
)
def test_bad_exceptions(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "exceptions.toml").write_text(text)
    with pytest.raises(audit.JaxsifError, match=error):
        audit.read_exemptions(tmp_path / "exceptions.toml")


def test_our_exceptions_are_of_packages_in_our_locks() -> None:
    locked = {pin for path in audit.LOCKS.glob("*.txt") for pin in audit.read_pins(path.read_text())}
    assert {exemption.pin for exemption in audit.read_exemptions(audit.LOCKS / "exceptions.toml")} <= locked


def test_both_versions_of_a_package_are_read() -> None:
    pins = audit.read_pins((audit.LOCKS / "launcher.txt").read_text())
    assert [version for name, version in pins if name == "urllib3"] == ["2.6.3", "2.8.0"]
