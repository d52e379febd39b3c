"""As much of an OCI registry as pushing and pulling an image needs, on loopback, over http.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def registry() -> Iterator[str]:
    """The registry's host and port, while the body of the `with` runs."""
    handler = type("Handler", (_Handler,), {"kept": {}, "uploads": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]  # digest, or tag -> blob or manifest
    uploads: dict[str, bytes]  # path -> what has come

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        """Silence."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if not name:  # /v2/
            self._answer(200)
        elif name not in self.kept:
            self._answer(404)
        elif "/manifests/" in self.path:
            self._answer(200, self.kept[name], Content_Type=json.loads(self.kept[name])["mediaType"])
        else:
            self._answer(200, self.kept[name], Content_Type="application/octet-stream")

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self._body()
        path = f"{self.path}{len(self.uploads)}"
        self.uploads[path] = b""
        self._answer(202, Location=path)

    def do_PATCH(self) -> None:
        self.uploads[self.path] += self._body()
        self._answer(202, Location=self.path, Range=f"0-{len(self.uploads[self.path]) - 1}")

    def do_PUT(self) -> None:
        path = self.path.partition("?")[0]
        data = self.uploads.get(path, b"") + self._body()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.kept[digest] = data
        if "/manifests/" in path:
            self.kept[path.rpartition("/")[2]] = data
        self._answer(201, Location=path, Docker_Content_Digest=digest)
