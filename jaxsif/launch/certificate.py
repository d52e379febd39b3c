"""A certificate for JAX's coordinator and its processes, made for each run by the host's openssl.

One self-signed certificate serves a whole run: every process presents it, and trusts no other.
`openssl req -x509` would write all of it, but cannot backdate it before OpenSSL 3.4. `openssl ca`
can, but needs a folder for its index, which stays behind if Slurm kills the launcher, and takes 3
to 6 ms more. So the fields are written here (RFC 5280), and openssl makes the key and the
signature, in two short commands that run while the launcher imports its modules.
"""

from __future__ import annotations

import binascii
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from jaxsif import process
from jaxsif.errors import HostError
from jaxsif.process import Running, find_executable
from jaxsif.settings.options import OFF, RunOptions
from jaxsif.task.contract import IDENTITY, ON, SEPARATOR_OF_LINES
from jaxsif.text import printable, shorten

_OPENSSL = "openssl"
# Seconds. It takes milliseconds; a module on a hung file system may take all of them.
_TIMEOUT = 2.0  # for openssl, in all
_MOMENT = 0.2  # for its end by SIGKILL
_DAY = 86_400  # seconds
_BACK, _AHEAD = _DAY, 365 * _DAY  # clocks of nodes differ; jobs wait in queues
# A public key of P-256, which ends a private one: a bit string, of a point with both coordinates.
_POINT_BEGIN, _UNCOMPRESSED, _POINT_BYTES = b"\x03\x42\x00", b"\x04", 65

# Tags of DER, see ITU-T X.690.
_BOOLEAN, _INTEGER, _BITS, _OCTETS, _OID, _UTF8 = 1, 2, 3, 4, 6, 12
_UTC_TIME, _GENERALIZED_TIME, _SEQUENCE, _SET = 23, 24, 48, 49
_VERSION, _EXTENSIONS, _URI = 0xA0, 0xA3, 0x86  # of their own contexts


class PendingCertificate:
    """A certificate in the making, begun at the very start of a run, before the settings are known.
    Errors are raised only by `finish`.
    """

    def __init__(self, environ: Mapping[str, str], is_wanted: bool = True) -> None:
        """Start openssl, unless it is already known that no certificate `is_wanted`."""
        self.lack = ""  # why there is no certificate, if the run does without
        self._environ = environ
        self._openssl = (is_wanted and find_executable(_OPENSSL, environ)) or ""
        self._time_left = _TIMEOUT
        self._running: Running | None = None
        self._failure: HostError | None = None
        self._key, self._fields = b"", b""
        if self._openssl:
            self._start("ecparam", "-name", "prime256v1", "-genkey", "-noout")

    def _start(self, *words: str, texts: tuple[bytes, ...] = ()) -> None:
        try:
            self._running = process.start_heard((self._openssl, *words), self._environ, *texts)
        except HostError as error:
            self._failure = error

    def sign(self) -> None:
        """Wait for the key, and have the certificate signed with it."""
        if self._running is None:
            return
        try:
            self._key = self._wait(self._running)
            self._fields = render_fields(find_point(self._key), os.urandom(15), time.time())
        except HostError as error:
            self._failure = error
        else:
            self._start("dgst", "-sha256", "-sign", texts=(self._key, self._fields))

    def finish(self, options: RunOptions) -> str:
        """Return the certificate with its key, for the tasks' environment, or '' if none is wanted,
        or if none can be made and the run may do without. Raise HostError if a required certificate
        cannot be made.
        """
        if options.coordinator_tls == OFF:
            if self._running:
                _end(self._running)
            return ""
        try:
            return self._finish(options.source("coordinator-tls"))
        except HostError as error:
            if options.coordinator_tls == ON:
                raise
            self.lack = error.what
            return ""

    @property
    def has_openssl(self) -> bool:
        """Return whether this host has openssl, so that a certificate can be expected."""
        return bool(self._openssl)

    def _finish(self, source: str) -> str:
        if self._failure:
            raise self._failure
        if self._running is None:
            hint = "install it here, or pass --coordinator-tls=auto"
            raise HostError("openssl is not on the PATH", source, hint)
        text = self._key.decode() + render_certificate(self._fields, self._wait(self._running))
        return SEPARATOR_OF_LINES.join(text.splitlines())

    def _wait(self, running: Running) -> bytes:
        """Return the output of openssl; raise HostError if it fails or is too slow."""
        begin = time.monotonic()
        try:
            written, messages = running.communicate(timeout=self._time_left)
        except subprocess.TimeoutExpired:
            _end(running)
            raise _failed(f"not within {_TIMEOUT:.0f} s") from None
        self._time_left -= time.monotonic() - begin
        if running.returncode:
            reason = printable(messages.decode(errors="replace").partition("\n")[0])
            raise _failed(reason or f"exit status {running.returncode}")
        return written


def _end(running: Running) -> None:
    """End openssl with all that it has started, if it is still running."""
    if running.returncode is None:
        os.killpg(running.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a hung file system holds it
            running.wait(_MOMENT)
    for stream in (running.stdout, running.stderr):
        if stream:
            stream.close()


def _failed(reason: str) -> HostError:
    what = f"openssl did not create a certificate: {shorten(reason)}"
    return HostError(what, _OPENSSL, "pass --coordinator-tls=off")


def find_point(key: bytes) -> bytes:
    """Return the public key of a private key in PEM; raise HostError for other kinds of keys."""
    body = b"".join(line for line in key.splitlines() if not line.startswith(b"-"))
    try:
        der = binascii.a2b_base64(body)
    except binascii.Error:
        raise _failed("its key is not text") from None
    begin, point = der[:-_POINT_BYTES], der[-_POINT_BYTES:]
    if not (begin.endswith(_POINT_BEGIN) and point.startswith(_UNCOMPRESSED)):
        raise _failed("its key is of another kind")
    return point


def render_fields(point: bytes, serial: bytes, now: float) -> bytes:
    """Return the signed part of a certificate, in DER."""
    name = _join(_SEQUENCE, _join(_SET, _join(_SEQUENCE, _oid("550403"), _join(_UTF8, b"jaxsif"))))
    extensions = (
        # It signs itself.
        _extension("551d13", _join(_SEQUENCE, _join(_BOOLEAN, b"\xff")), _join(_BOOLEAN, b"\xff")),
        _extension("551d11", _join(_SEQUENCE, _join(_URI, IDENTITY.encode()))),
        # For a server and for a client.
        _extension("551d25", _join(_SEQUENCE, _oid("2b06010505070301"), _oid("2b06010505070302"))),
    )
    return _join(
        _SEQUENCE,
        _join(_VERSION, _join(_INTEGER, b"\2")),  # version 3
        _join(_INTEGER, b"\1" + serial),
        _ECDSA_WITH_SHA256,
        name,  # of the issuer
        _join(_SEQUENCE, _time(now - _BACK), _time(now + _AHEAD)),
        name,
        _join(_SEQUENCE, _EC_P256, _join(_BITS, b"\0", point)),
        _join(_EXTENSIONS, _join(_SEQUENCE, *extensions)),
    )


def render_certificate(fields: bytes, signature: bytes) -> str:
    """Return a certificate in PEM."""
    der = _join(_SEQUENCE, fields, _ECDSA_WITH_SHA256, _join(_BITS, b"\0", signature))
    body = binascii.b2a_base64(der, newline=False).decode()
    lines = (body[begin : begin + 64] for begin in range(0, len(body), 64))
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])


def _join(tag: int, *parts: bytes) -> bytes:
    """Return parts as one DER value."""
    body = b"".join(parts)
    size = len(body)
    octets = size.to_bytes(-(-size.bit_length() // 8), "big")
    return bytes((tag, size) if size < 0x80 else (tag, 0x80 | len(octets), *octets)) + body


def _oid(digits: str) -> bytes:
    return _join(_OID, bytes.fromhex(digits))


def _extension(oid: str, value: bytes, *critical: bytes) -> bytes:
    return _join(_SEQUENCE, _oid(oid), *critical, _join(_OCTETS, value))


def _time(seconds: float) -> bytes:
    when = time.gmtime(seconds)
    tag, form = (_UTC_TIME, "%y") if when.tm_year < 2050 else (_GENERALIZED_TIME, "%Y")
    return _join(tag, time.strftime(form + "%m%d%H%M%SZ", when).encode())


_ECDSA_WITH_SHA256 = _join(_SEQUENCE, _oid("2a8648ce3d040302"))
_EC_P256 = _join(_SEQUENCE, _oid("2a8648ce3d0201"), _oid("2a8648ce3d030107"))
