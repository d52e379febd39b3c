"""A Jupyter server in a task: on a port that is free on this node, with its own token, and
instructions to reach it.

    jupyter.py MODULE LOGIN [ARGUMENT...]

LOGIN is the ssh destination for the cluster, USER@HOST, or empty if the browser is on this machine.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time

_PATIENCE = 120.0  # seconds until the server listens
_PATHS = {"jupyterlab": "lab", "notebook": "tree"}


def render_address(login: str, node: str, port: int, path: str) -> str:
    """Render the command to type on the machine with the browser, and the address to open there."""
    lines = [f"Jupyter is running on {node}; Ctrl-C here ends it."]
    if login:
        lines += ["On your own machine:", f"    ssh -N -L {port}:{node}:{port} {login}"]
    return "\n".join([*lines, "In your browser:", f"    http://localhost:{port}/{path}"])


def find_port(address: str) -> int:
    """Find a free port."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Return whether a server is listening at the port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def print_when_ready(server: int, port: int, text: str) -> None:
    """Print the text as soon as the server, which is the parent process, listens; print nothing if
    the server ends first.
    """
    deadline = time.monotonic() + _PATIENCE
    while os.getppid() == server and time.monotonic() < deadline:
        if listens(port):
            print(text, flush=True)
            return
        time.sleep(0.1)


def main(module: str, login: str, *arguments: str) -> None:
    """Run the command line, then become the server."""
    address = "0.0.0.0" if login else "127.0.0.1"  # reached from the login node
    port, token = find_port(address), secrets.token_urlsafe(24)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    text = render_address(login, node, port, f"{_PATHS.get(module, '')}?token={token}")
    server = os.getpid()
    if os.fork() == 0:
        print_when_ready(server, port, text)
        os._exit(0)
    os.environ["JUPYTER_TOKEN"] = token  # not an argument, which everybody on the node could read
    options = (
        "--no-browser",
        f"--ServerApp.ip={address}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
    )
    os.execv(
        sys.executable, [sys.executable, "-m", module, "--log-level=ERROR", *options, *arguments]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
