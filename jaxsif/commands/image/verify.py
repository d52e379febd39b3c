"""jaxsif image verify: whether an image is signed by a key, and not changed since."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.errors import printable
from jaxsif.images.file import digest
from jaxsif.images.signing import check_key, find_signer, is_fingerprint, verify
from jaxsif.runtime import require_runtime
from jaxsif.screen import add_json, print_json, working

DESCRIPTION = """\
Verify that one of the given keys has signed the whole image. Print the signer
and the image's digest.

examples:
  jaxsif image verify jax.sif --key public.pem
  jaxsif image verify jax.sif --pgp DE90813DA85423FB5CDF9434F4CBF70844051B26
"""

EPILOG = """\
exit status:
  0  signed                     1  not signed by that key, or changed since
  2  a bad request            125  the image, a key or the runtime cannot be used
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image verify`."""
    parser.add_argument("image", metavar="IMAGE", help="a .sif file")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--key", metavar="FILE", help="a public key in a PEM file")
    how.add_argument(
        "--pgp",
        action="append",
        type=_fingerprint,
        metavar="FINGERPRINT",
        help="a PGP key of the runtime's keyring; of several, one must be the signer",
    )
    add_json(parser)


def _fingerprint(text: str) -> str:
    if not is_fingerprint(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a fingerprint of 40 digits, see `apptainer key list`"
        )
    return text


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Verify the image."""
    runtime, image = require_runtime(environ), arguments.image
    if arguments.key:
        check_key(arguments.key)
    keys = [arguments.key] if arguments.key else arguments.pgp
    signer = find_signer(image, keys, lambda key: verify(runtime, image, key, environ))
    with working(f"jaxsif: the digest of {image}", environ) as update:
        found = {"signer": signer, "digest": digest(image, progress=update)}
    if arguments.json:
        print_json(found)
    else:
        print(printable(f"signed by {signer}"))
        print(f"digest    {found['digest']}")
    return 0
