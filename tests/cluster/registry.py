"""Debian's OCI registry (docker-registry), on loopback, over http; it forgets all at its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import HERE, MINICLUSTER

# https://distribution.github.io/distribution/about/configuration/
_CONFIGURATION = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "{host}"}}
"""


@contextmanager
def registry() -> Iterator[str]:
    """The registry's host and port, while the body of the `with` runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = f"127.0.0.1:{port}"
    # Below this clone, which is what the sandbox sees of the host.
    with tempfile.TemporaryDirectory(dir=HERE.parents[1] / "build") as folder:
        configuration = Path(folder, "registry.yml")
        configuration.write_text(_CONFIGURATION.format(host=host, folder=folder))
        argv = [MINICLUSTER, "sandbox", "--", "docker-registry", "serve", configuration]
        with subprocess.Popen(argv, start_new_session=True) as server:
            try:
                _wait_until_it_listens(server, port)
                yield host
            finally:
                os.killpg(server.pid, signal.SIGKILL)  # the first process of a namespace does not hear SIGTERM


def _wait_until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert server.poll() is None, f"docker-registry has ended with status {server.returncode}"
            assert time.monotonic() < deadline, "docker-registry does not listen"
            time.sleep(0.05)
