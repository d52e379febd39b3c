"""jaxsif image pull: an image from elsewhere, whole and checked."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

from jaxsif.commands.run import note
from jaxsif.errors import printable
from jaxsif.images.download import Watch
from jaxsif.images.pull import (
    ANY,
    FROM_REGISTRY,
    Expected,
    find_target,
    find_there,
    pull_by_http,
    pull_by_runtime,
)
from jaxsif.runtime import require_runtime
from jaxsif.screen import add_json, print_json, working

DESCRIPTION = """\
Download an image, check it, and move it to its place.

After an error of the network, or Ctrl-C, the same command continues the
download.

examples:
  jaxsif image pull https://example.org/jax.sif --digest sha256:35b74ab9…
  jaxsif image pull oras://registry.example.org/images/jax:0.12 --output /scratch/jax.sif
"""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image pull`."""
    parser.add_argument("url", metavar="URL", help="https://…, http://…, oras://… or docker://…")
    parser.add_argument("--output", metavar="PATH", help="the file to write, or its folder (.)")
    parser.add_argument(
        "--digest",
        type=_digest,
        metavar="sha256:HEX",
        help="the digest that the image must have, see jaxsif image verify",
    )
    parser.add_argument(
        "--sha256",
        type=_hexadecimal,
        metavar="HEX",
        help="the SHA-256 that the whole file must have",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long to wait for the server before the next try (30)",
    )
    add_json(parser)


def _hexadecimal(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 64 hexadecimal digits")
    return text.lower()


def _digest(text: str) -> str:
    return "sha256:" + _hexadecimal(text[7:] if text.startswith("sha256:") else text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return float(text)


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Pull the image."""
    url, expected = arguments.url, Expected(arguments.digest, arguments.sha256)
    target = find_target(url, arguments.output)
    found = None if arguments.force else find_there(target, expected)
    if found:
        return _show(arguments.json, target, found, "there already")
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and expected == ANY:
        print(
            "jaxsif: warning: anybody on the way can change what comes over http; give --digest",
            file=sys.stderr,
        )
    if parts.scheme in FROM_REGISTRY:
        found = pull_by_runtime(require_runtime(environ), url, target, expected, environ)
    else:
        with working("jaxsif", environ) as update:
            watch = Watch(arguments.timeout, note, update)
            found = pull_by_http(url, target, expected, watch)
    return _show(arguments.json, target, found, "pulled")


def _show(as_json: bool, path: str, digest: str, state: str) -> int:
    if as_json:
        print_json({"path": path, "digest": digest, "pulled": state == "pulled"})
    else:
        print(printable(f"{path} is {state}, digest {digest}"))
    return 0
