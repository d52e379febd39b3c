"""The certificate of a run: its fields, its key, and runs without one."""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.errors import HostError
from jaxsif.launch.certificate import PendingCertificate, find_point, render_certificate, render_fields
from jaxsif.settings.options import RunOptions, Setting

KEY = b"""\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIA86n7Nh4EgDCBUVSYIGGQ2C1Q6ySSJjhGmhmdSXmLXSoAoGCCqGSM49
AwEHoUQDQgAEuIWWsXECqWFlYCEt5ZXf09dUGqAEzWeXLZtuc8Z1AcWqPpL9CGv5
0TDpQyRRbLsX9VnSAISx+BfX5mcyKrxQxw==
-----END EC PRIVATE KEY-----
"""
NOW = 1_795_000_000.0  # in 2026


def decode(folder: Path, now: float) -> dict[str, object]:
    """What OpenSSL reads in a certificate, whose signature it does not check here."""
    path = folder / "certificate.pem"
    path.write_text(render_certificate(render_fields(find_point(KEY), bytes(15), now), b"signature"))
    return ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined, no-any-return]


def test_fields(tmp_path: Path) -> None:
    found = decode(tmp_path, NOW)
    assert found["subject"] == found["issuer"] == ((("commonName", "jaxsif"),),)
    assert found["subjectAltName"] == (("URI", "spiffe://jaxsif/task"),)
    assert (found["version"], found["serialNumber"]) == (3, "01" + 15 * "00")


@pytest.mark.parametrize("year", [2026, 2048, 2049, 2050, 2060], ids=str)
def test_it_is_dated_back_by_a_day_and_good_for_a_year(tmp_path: Path, year: int) -> None:
    """From 2050 on, times have another form."""
    now = time.mktime((year, 7, 1, 12, 0, 0, 0, 0, 0))
    found = decode(tmp_path, now)
    begin, end = (ssl.cert_time_to_seconds(str(found[name])) for name in ("notBefore", "notAfter"))
    assert (begin, end) == (now - 86_400, now + 365 * 86_400)


@pytest.mark.parametrize("key", [b"", b"no text", KEY[:100], KEY.replace(b"KrxQxw==", b"KrxQ")])
def test_another_key_is_refused(key: bytes) -> None:
    assert catch(HostError, find_point, key).what.startswith("openssl did not create a certificate: its key is ")


def test_a_host_without_openssl(tmp_path: Path) -> None:
    pending = PendingCertificate({"PATH": str(tmp_path)})
    pending.sign()
    assert pending.finish(RunOptions(("x",))) == ""
    assert (pending.lack, pending.has_openssl) == ("openssl is not on the PATH", False)
    asked = RunOptions(("x",), coordinator_tls="on", sources={"coordinator-tls": Setting("on", "a.toml")})
    error = catch(HostError, pending.finish, asked)
    assert (error.what, error.where) == ("openssl is not on the PATH", "a.toml")


def write_openssl(folder: Path, script: str) -> dict[str, str]:
    """The environment in which openssl is a shell script."""
    path = folder / "openssl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.starts_processes
def test_openssl_signs_it() -> None:
    """Certificate and key are a pair, and the signature is good: OpenSSL takes both for a server and trusts it."""
    pending = PendingCertificate(os.environ)
    pending.sign()
    lines = pending.finish(RunOptions(("x",))).split(",")
    assert lines[0] == "-----BEGIN EC PRIVATE KEY-----"
    assert lines[-1] == "-----END CERTIFICATE-----"
    check_pair("\n".join(lines) + "\n")


def check_pair(text: str) -> None:
    """Shake hands in memory, each side with the certificate, and each trusting it alone."""
    path = f"/proc/self/fd/{os.memfd_create('pair')}"
    Path(path).write_text(text)
    sides = []
    buffers = (ssl.MemoryBIO(), ssl.MemoryBIO())
    for purpose, ours in ((ssl.PROTOCOL_TLS_SERVER, 0), (ssl.PROTOCOL_TLS_CLIENT, 1)):
        context = ssl.SSLContext(purpose)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(path)
        context.load_verify_locations(path)
        sides.append(context.wrap_bio(buffers[ours], buffers[1 - ours], server_side=ours == 0))
    for _ in range(4):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert [side.version() for side in sides] == ["TLSv1.3"] * 2


@pytest.mark.starts_processes
def test_an_openssl_that_cannot_be_executed(tmp_path: Path) -> None:
    environ = write_openssl(tmp_path, "")
    (tmp_path / "openssl").write_text("#!/no/shell\n")
    pending = PendingCertificate(environ)
    pending.sign()
    assert pending.finish(RunOptions(("x",))) == ""
    error = catch(HostError, pending.finish, RunOptions(("x",), coordinator_tls="on"))
    assert error.what.startswith(f"cannot start {tmp_path}/openssl: ")


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo 'unknown option' >&2; exit 1", "openssl did not create a certificate: unknown option"),
        ("echo hello", "openssl did not create a certificate: its key is not text"),
        (
            '[ $1 = ecparam ] && exec /usr/bin/openssl "$@"; exit 3',
            "openssl did not create a certificate: exit status 3",
        ),
    ],
)
def test_an_openssl_that_fails(tmp_path: Path, script: str, what: str) -> None:
    """A run goes without a certificate, unless it is asked for."""
    environ = write_openssl(tmp_path, script)
    pending = PendingCertificate(environ)
    pending.sign()
    assert pending.finish(RunOptions(("x",))) == ""
    assert (pending.lack, pending.has_openssl) == (what, True)
    pending = PendingCertificate(environ)
    pending.sign()
    assert catch(HostError, pending.finish, RunOptions(("x",), coordinator_tls="on")).what == what


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 60",
        "sleep 60 & exit 0",  # which has the pipes
        '[ $1 = ecparam ] || exec sleep 60; sleep 0.1; exec /usr/bin/openssl "$@"',
    ],
)
def test_a_slow_openssl_is_ended(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run waits for it once, and leaves no zombie."""
    monkeypatch.setattr("jaxsif.launch.certificate._TIMEOUT", 1.0)
    environ = write_openssl(tmp_path, f"echo $$ >>{tmp_path}/groups\n{script}")
    begin = time.monotonic()
    pending = PendingCertificate(environ)
    pending.sign()
    assert pending.finish(RunOptions(("x",))) == ""
    assert 0.9 < time.monotonic() - begin < 5
    assert (pending.lack, pending.has_openssl) == ("openssl did not create a certificate: not within 1 s", True)
    check_ended(tmp_path)


@pytest.mark.starts_processes
def test_without_tls_nothing_waits_for_openssl(tmp_path: Path) -> None:
    """Where only the settings say it, its key was there before them."""
    off = RunOptions(("x",), coordinator_tls="off")
    print_key = f"cat <<END\n{KEY.decode()}END"
    environ = write_openssl(tmp_path, f"echo $$ >>{tmp_path}/groups\n[ $1 = ecparam ] || exec sleep 60\n{print_key}")
    unwanted = PendingCertificate(environ, is_wanted=False)
    unwanted.sign()
    assert (unwanted.finish(off), unwanted.has_openssl) == ("", False)
    pending = PendingCertificate(environ)
    pending.sign()
    begin = time.monotonic()
    assert pending.finish(off) == pending.lack == ""
    assert time.monotonic() - begin < 1
    check_ended(tmp_path)


def check_ended(folder: Path) -> None:
    """No openssl that has begun is left to wait for."""
    for group in map(int, (folder / "groups").read_text().split()):
        with pytest.raises(ChildProcessError):
            os.waitpid(group, os.WNOHANG)
