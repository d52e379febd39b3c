"""The launcher's packages for Python 3.9, which have known vulnerabilities: `image pull` does not reach them.

No Python 3.9 is needed: the packages are pure Python, and run under the one that is here.
"""

from __future__ import annotations

import gzip
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import REPOSITORY
from kit.siffile import write_image

LIBRARIES = REPOSITORY / "build/launcher-lib/3.9/lib"
# `jaxsif ARGUMENTS`, which ends with a traceback where it comes to a function that has a known vulnerability.
PROGRAM = """
import sys, time
import requests, urllib3
from urllib3.response import HTTPResponse

def reached(*arguments, **options):
    raise AssertionError("reached a function with a known vulnerability")

class Decoder:
    has_unconsumed_tail = False
    decompress = flush = reached

def urlopen(pool, *arguments, before=urllib3.HTTPConnectionPool.urlopen, **options):
    assert options["redirect"] is False  # urllib3 is to follow none
    return before(pool, *arguments, **options)

assert (requests.__version__, urllib3.__version__) == ("2.32.5", "2.6.3")
urllib3.response._get_decoder = lambda mode: Decoder()
HTTPResponse.read_chunked = reached
urllib3.HTTPConnectionPool.urlopen = urlopen
time.sleep = lambda seconds: None  # between tries
from jaxsif.cli import main
status = main(sys.argv[1:])
# Not getrusage: its peak counts what this process was before it became Python, a copy of the tests' own.
peak = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
print("MB at most:", int(peak) >> 10)
sys.exit(status)
"""


class _Handler(socketserver.StreamRequestHandler):
    """Answers that reach the vulnerable functions of a client that is not careful, by path."""

    content: bytes

    def handle(self) -> None:
        path = self.rfile.readline(1000).split()[1].decode()
        while self.rfile.readline(1000).strip():
            pass
        try:
            for part in ANSWERS[path](self.content):
                self.wfile.write(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has seen enough


def _whole(content: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(content)
    yield content


def _redirect(_content: bytes) -> Iterator[bytes]:
    """One whose body is a bomb."""
    bomb = gzip.compress(bytes(300 << 20), 1)
    yield b"HTTP/1.1 302 Found\r\nLocation: /whole.sif\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    yield b"Content-Length: %d\r\n\r\n" % len(bomb)
    yield bomb


def _compressed(_content: bytes) -> Iterator[bytes]:
    bomb = gzip.compress(bytes(300 << 20), 1)
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    yield bomb


def _chunked(content: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    yield b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


def _endless_chunk_line(_content: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1;"
    for _ in range(300):
        yield bytes(1 << 20)


ANSWERS = {
    "/whole.sif": _whole,
    "/redirect.sif": _redirect,
    "/chunked.sif": _chunked,
    "/compressed.sif": _compressed,
    "/endless-chunk-line.sif": _endless_chunk_line,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback."""
    image = Path(write_image(tmp_path_factory.mktemp("origin") / "origin.sif", bytes(range(256)) * 12_000))
    handler = type("Handler", (_Handler,), {"content": image.read_bytes()})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The packages that `make install` would install for Python 3.9."""
    subprocess.run(["make", "--silent", str(LIBRARIES.parent.relative_to(REPOSITORY))], cwd=REPOSITORY, check=True)
    return LIBRARIES


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("whole", ""),
        ("redirect", ""),
        ("chunked", ""),
        ("compressed", "jaxsif: error: cannot download "),
        ("endless-chunk-line", "jaxsif: error: cannot download "),
    ],
)
def test_pull(libraries: Path, address: str, tmp_path: Path, name: str, error: str) -> None:
    argv = [sys.executable, "-c", PROGRAM, "image", "pull", f"{address}/{name}.sif", "--output", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": f"{libraries}:{REPOSITORY}", "NO_PROXY": "*"}
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == (125 if error else 0), done.stderr
    *_, last = done.stdout.splitlines()
    assert error in done.stderr
    assert int(last.removeprefix("MB at most: ")) < 150
    assert bool(list(tmp_path.glob("*.sif"))) == (not error)
