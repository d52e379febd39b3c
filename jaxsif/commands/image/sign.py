"""jaxsif image sign: a signature of yours in an image."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.errors import JaxsifError, printable
from jaxsif.images.signing import check_key, sign
from jaxsif.runtime import require_runtime

DESCRIPTION = """\
Sign an image with a private key, in a PEM file or in the runtime's PGP
keyring. An image that this key has signed stays unchanged.

examples:
  openssl genpkey -algorithm ed25519 -out private.pem
  openssl pkey -in private.pem -pubout -out public.pem
  jaxsif image sign jax.sif --key private.pem
  jaxsif image sign jax.sif --pgp
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image sign`."""
    parser.add_argument("image", metavar="IMAGE", help="a .sif file")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--key", metavar="FILE", help="a private key in a PEM file")
    how.add_argument(
        "--pgp",
        action="store_true",
        help="a key of the runtime's PGP keyring, which may ask which one",
    )
    parser.add_argument(
        "--keyidx", metavar="N", help="the number of the PGP key in `apptainer key list --secret`"
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Sign the image."""
    if arguments.keyidx and not arguments.pgp:
        raise JaxsifError("--keyidx without --pgp", "--keyidx", "pass --pgp, or --key FILE alone")
    key_options: list[str] = []  # the runtime then asks for a key of its keyring
    if arguments.key:
        check_key(arguments.key)
        key_options = ["--key", arguments.key]
    elif arguments.keyidx:
        key_options = ["--keyidx", arguments.keyidx]
    signer, already = sign(require_runtime(environ), arguments.image, key_options)
    state = "was signed already" if already else "is signed"
    print(printable(f"{arguments.image} {state} by {signer}"))
    return 0
