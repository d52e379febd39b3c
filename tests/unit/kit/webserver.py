"""An HTTP server on loopback that serves one file, well or badly."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Write = Callable[[bytes], object]


class Served:
    """The file, the server's faults, and what it was asked."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.address = ""
        self.ranges = True  # whether it knows Range
        self.validator = "ETag"  # or Last-Modified, or '' for none
        self.checks_if_range = True
        self.cut_after: list[int] = []  # bytes after which each of the next answers breaks off
        self.statuses: list[int] = []  # of each of the next answers, instead of the file
        self.length_is_wrong_by = 0
        self.tells_length = True
        self.redirect = ""
        self.stall = threading.Event()  # set: it answers, and then says nothing
        self.requests: list[str] = []  # the Range of each, or ''
        self.paths: list[str] = []
        self.cookies: list[str] = []
        self.authorizations: list[str] = []
        self.lie: Callable[[Write, str], object] | None = None  # writes the whole answer to a Range, or ''

    @property
    def version(self) -> str:
        if self.validator == "ETag":
            return f'"{hashlib.sha256(self.content).hexdigest()}"'
        return f"Fri, 20 Nov 2026 00:00:{len(self.content) % 60:02} GMT"


@contextmanager
def serve(content: bytes, certificate: Path | None = None, key: Path | None = None) -> Iterator[Served]:
    """The server, while the body of the `with` runs; with a certificate, by https."""
    served = Served(content)
    handler = type("Handler", (_Handler,), {"served": served})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        served.address = f"http://127.0.0.1:{server.server_address[1]}/images/jax.sif"
        if certificate and key:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            served.address = served.address.replace("http:", "https:")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield served
        finally:
            served.stall.clear()
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        """Silence."""

    def do_GET(self) -> None:
        served = self.served
        wanted = self.headers.get("Range", "")
        served.requests.append(wanted)
        served.paths.append(self.path)
        served.cookies.append(self.headers.get("Cookie", ""))
        served.authorizations.append(self.headers.get("Authorization", ""))
        if served.lie:
            with suppress(OSError):  # whoever asked has had enough
                served.lie(self.wfile.write, wanted)
            self.close_connection = True
            return
        if served.statuses:
            self.send_error(served.statuses.pop(0))
            return
        if served.redirect:
            self.send_response(302)
            self.send_header("Location", served.redirect)
            self.end_headers()
            return
        body = self._begin(wanted)
        end = served.cut_after.pop(0) if served.cut_after else len(body)
        self.wfile.write(body[:end])
        self.wfile.flush()
        while served.stall.is_set():
            threading.Event().wait(0.05)
        self.close_connection = True

    def _begin(self, wanted: str) -> bytes:
        """Status and headers; return the body."""
        served = self.served
        content, total = served.content, len(served.content)
        same = self.headers.get("If-Range") == served.version or not served.checks_if_range
        body = content
        if wanted and served.ranges and same:
            first = int(wanted[len("bytes=") : -1])
            body = content[first:]
            self.send_response(206 if body else 416)
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}" if body else f"bytes */{total}")
        else:
            self.send_response(200)
        if served.validator:
            self.send_header(served.validator, served.version)
        if served.tells_length:
            self.send_header("Content-Length", str(len(body) + served.length_is_wrong_by))
        self.end_headers()
        return body
