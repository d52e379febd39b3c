"""Signatures of images: made and verified by the runtime, whose business keys, keyrings and
passphrases are.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError, SignatureError
from jaxsif.files import check_space
from jaxsif.foreign import find, parse_json
from jaxsif.images.file import find_root, read_parts

# The runtime's words for a key that is not the signer's; of a PEM key, of a PGP key, of a key of
# the other kind.
_OTHER_KEY = (
    "accepted signatures do not match threshold",
    "made by unknown entity",
    "key material not provided",
)
_ANOTHER = "another key"
_ANOTHER_COPY = "use the key that it was signed with, or another image"
_NO_KEY = "Failed to load key material: "
_FINGERPRINT_LENGTH = 40


class Signature(NamedTuple):
    """A signature in an image, as it says of itself: whether it holds is for `verify` to tell."""

    signer: str  # SHA256:… of a PEM key, as ssh-keygen -l prints it; the fingerprint of a PGP key
    signed: str  # the digests that were signed


def is_fingerprint(key: str) -> bool:
    """Whether `key` is the fingerprint of a PGP key, and not the path of a PEM file."""
    return len(key) == _FINGERPRINT_LENGTH and all(
        digit in "0123456789abcdefABCDEF" for digit in key
    )


def read_signatures(image: str) -> tuple[Signature, ...]:
    """The signatures in an image, in the order in which they were made."""
    return tuple(
        _parse_signature(image, data, part.fingerprint)
        for part, data in read_parts(image, "signature")
    )


def _parse_signature(image: str, data: bytes, fingerprint: str) -> Signature:
    """A signature of either kind: a JSON envelope, or PGP's signed message."""
    text = data.decode(errors="replace")
    if not text.startswith("{"):
        return Signature(
            fingerprint, text.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
        )
    try:
        envelope = parse_json(text)
    except ValueError as error:
        raise HostError(
            f"cannot parse a signature in {image}: {error}", "", _ANOTHER_COPY
        ) from error
    signer, signed = find(envelope, "signatures", 0, "keyid"), find(envelope, "payload")
    if not (isinstance(signer, str) and isinstance(signed, str)):
        raise HostError(f"cannot parse a signature in {image}: it names no key", "", _ANOTHER_COPY)
    return Signature(signer, signed)


def find_signer(image: str, keys: Sequence[str], verify_by: Callable[[str], str]) -> str:
    """The signer by the first of `keys` that `verify_by` accepts; raises SignatureError when there
    is none.
    """
    refusals = []
    for key in keys:
        try:
            return verify_by(key)
        except SignatureError as error:
            refusals.append(error)
    if not refusals:
        raise SignatureError(f"no key is allowed to have signed {image}", "", "name one")
    # That the signature is another key's says less than that the key is right and the image is not.
    raise next((one for one in refusals if not one.what.startswith(_ANOTHER)), refusals[0])


def verify(runtime: str, image: str, key: str, environ: Mapping[str, str]) -> str:
    """The signer, if all that is in `image` is signed by `key`: a public PEM file, or a PGP key's
    fingerprint.

    Raises SignatureError, and HostError for a key that cannot be read or an image with more than
    one partition.
    """
    find_root(image)
    if not read_signatures(image):
        raise SignatureError(f"no signature in {image}", key, "jaxsif image sign makes one")
    with_key = ["--local"] if is_fingerprint(key) else ["--key", key]
    # Variables such as APPTAINER_VERIFY_CERTIFICATE would count more than the key.
    own = {name: value for name, value in environ.items() if "_VERIFY_" not in name}
    done = process.captured([runtime, "verify", *with_key, "--json", image], own)
    if done.returncode:
        raise _refusal(done.stderr, image, key)
    # All objects of all groups were verified; that of the only partition is the root file system,
    # see find_root.
    signers = [one["Signer"] for one in json.loads(done.stdout)["SignerKeys"] or []]
    roots = [signer for signer in signers if signer["Partition"] == "FS" and signer["DataCheck"]]
    if not roots:
        raise SignatureError(
            f"no signature over the root file system of {image}", key, _ANOTHER_COPY
        )
    if not is_fingerprint(key):
        return ", ".join(dict.fromkeys(one.signer for one in read_signatures(image)))
    if key.lower() not in {signer["Fingerprint"].lower() for signer in roots}:
        raise SignatureError(f"{_ANOTHER} signed {image}", key, _ANOTHER_COPY)
    return key.upper()


def _refusal(said: str, image: str, key: str) -> JaxsifError:
    """What the runtime's last words mean."""
    words = next(
        (line[6:].strip() for line in said.splitlines() if line.startswith("FATAL:")), said.strip()
    )
    if _NO_KEY in words:
        return HostError(
            f"cannot use the key {key}: {words.partition(_NO_KEY)[2]}",
            "",
            "a public key in a PEM file is wanted",
        )
    if any(text in words for text in _OTHER_KEY):
        return SignatureError(f"{_ANOTHER} signed {image}", key, _ANOTHER_COPY)
    reason = words.rpartition("integrity: ")[2]
    return SignatureError(
        f"the signature of {image} does not hold: {reason}", key, "copy or build it again"
    )


def sign(runtime: str, image: str, with_key: Sequence[str]) -> tuple[str, bool]:
    """Sign `image` with the runtime's options `with_key`; the signer, and whether it had signed
    this image already.

    The image is replaced when its signed copy is whole. Raises HostError.
    """
    find_root(image)
    before = read_signatures(image)
    target = os.path.realpath(image)
    folder, name = os.path.split(target)
    check_space(folder, os.stat(target).st_size)
    with tempfile.TemporaryDirectory(prefix=".sign-", dir=folder) as scratch:
        copy = os.path.join(scratch, name)
        shutil.copy2(target, copy)
        mode = os.stat(copy).st_mode
        os.chmod(copy, mode | 0o200)  # installed images are often read-only
        status = process.run_plain(
            [runtime, "--quiet", "sign", *with_key, copy], stdout=sys.stderr.buffer
        )
        after = read_signatures(copy)
        if status or len(after) <= len(before):
            raise HostError(
                f"{runtime} sign failed (exit status {status}): {image}", "", "its message is above"
            )
        new = after[-1]
        if new in before:
            return new.signer, True
        _check_together(image, before, new)
        os.chmod(copy, mode)
        os.replace(copy, target)
    return new.signer, False


def _check_together(image: str, before: Sequence[Signature], new: Signature) -> None:
    """Raise HostError where the runtime would refuse the image for its old signatures.

    It takes an image only if all its signatures hold, and knows one PEM key at a time, or the PGP
    keys of a keyring.
    """
    together = [
        one for one in (*before, new) if one.signed == new.signed and is_fingerprint(one.signer)
    ]
    if before and len(together) <= len(before):
        raise HostError(
            f"image has another signature, and both would not hold: {image}",
            before[0].signer,
            "sign the image as it was built, or remove the old signature: apptainer sif list, apptainer sif del",
        )
