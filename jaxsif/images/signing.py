"""Signatures of images: the runtime makes and verifies them, and manages keys, keyrings and
passphrases.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jaxsif import process
from jaxsif.errors import HostError, JaxsifError, SignatureError, raise_as
from jaxsif.files import check_space, scratch_folder
from jaxsif.foreign import find, open_file, parse_json
from jaxsif.images.file import find_root, read_parts
from jaxsif.runtime import Runtime

# The runtime's words for a key that is not the signer's: for a PEM key, for a PGP key, for a key of
# the other kind.
_UNKNOWN = "made by unknown entity"
_CHANGED = "integrity: "  # before the reason, for an image that has changed
_OTHER_KEY = re.compile(
    f"accepted signatures do not match threshold|{_UNKNOWN}|key material not provided"
)
_ANOTHER_COPY = "use the key that it was signed with, or another image"
_REMOVE = "remove the old signature: apptainer sif list, apptainer sif del"
_NO_KEY = "Failed to load key material: "
_FATAL = re.compile(r"^FATAL:(.*)", re.MULTILINE)
_KEY = 1 << 16  # bytes in which a key has to begin
_FINGERPRINT = re.compile("[0-9a-fA-F]{40}")


class AnotherKeyError(SignatureError):
    """An image is signed, but not by the given key."""


class UnsignedError(SignatureError):
    """An image has no signature."""


class ChangedImageError(SignatureError):
    """An image has changed since it was signed."""


class UnusableKeyError(HostError):
    """A key is in no keyring of this user or host, or is not the path of a public key."""


class Signature(NamedTuple):
    """A signature in an image, unverified: `verify` checks it."""

    signer: str  # SHA256:… of a PEM key, as ssh-keygen -l prints it; the fingerprint of a PGP key
    signed: str  # text with the signed digests


def is_fingerprint(key: str) -> bool:
    """Return whether `key` is the fingerprint of a PGP key, not the path of a PEM file."""
    return bool(_FINGERPRINT.fullmatch(key))


def check_key(path: str) -> None:
    """Raise HostError for a key that is not a file, such as a FIFO, which the runtime would wait
    for, or that this user may not read; the runtime itself reports a missing key.
    """
    if os.path.exists(path):
        with raise_as(HostError(f"cannot read the key {path}", "--key", "call it as its owner")):
            open_file(path, "key", "--key").close()


def read_signatures(image: str) -> tuple[Signature, ...]:
    """Return the signatures in an image, in the order in which they were made; raise HostError."""
    return tuple(
        _parse_signature(image, data, part.fingerprint)
        for part, data in read_parts(image, "signature")
    )


def _parse_signature(image: str, data: bytes, fingerprint: str) -> Signature:
    """Return a signature of either kind: a JSON envelope, or PGP's signed message."""
    text = data.decode(errors="replace")
    if not text.startswith("{"):
        message = text.partition("\n\n")[2]
        return Signature(fingerprint, message.partition("-----BEGIN PGP SIGNATURE")[0])
    with raise_as(HostError(f"cannot parse a signature in {image}", "", _ANOTHER_COPY), ValueError):
        envelope = parse_json(text)
        signer, signed = find(envelope, "signatures", 0, "keyid"), find(envelope, "payload")
        if not (isinstance(signer, str) and isinstance(signed, str)):
            raise ValueError("it names no key")
        return Signature(signer, binascii.a2b_base64(signed).decode())


def find_private(
    runtime: Runtime, fingerprints: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return the fingerprints of PGP keys that are not in the host's keyring, which counts for all
    users; [] if the runtime cannot list that.
    """
    done = process.captured((runtime.command, "key", "list", "--global"), environ)
    listed = done.stdout.upper()
    return [] if done.returncode else [key for key in fingerprints if key.upper() not in listed]


def find_flaw(path: str) -> str:
    """Return why a file is no public key in PEM, or ''."""
    try:
        with open_file(path, "key") as file:
            is_key = re.search(rb"^-----BEGIN (RSA )?PUBLIC KEY-----", file.read(_KEY), re.M)
    except OSError as error:
        return error.strerror or "unreadable"
    except HostError as error:
        return error.what
    return "" if is_key else "no public key in PEM"


def is_as_signed(signatures: Sequence[Signature], digest: str) -> bool:
    """Return whether the root file system with this digest is one that was signed; True without
    signatures.
    """
    return not signatures or any(digest in one.signed for one in signatures)


def find_signer(image: str, keys: Sequence[str], verify_by: Callable[[str], str]) -> str:
    """Return the signer according to the first of `keys` that `verify_by` accepts; if it accepts
    none, raise the most informative error: SignatureError, or HostError for an unusable key.
    """
    refusals: list[JaxsifError] = []
    for key in keys:
        try:
            return verify_by(key)
        except (SignatureError, HostError) as error:
            refusals.append(error)
    if not refusals:
        raise SignatureError(f"no signing key is accepted for {image}", "", "name one")
    # "Signed by another key" says less than "this key cannot be used", and that says less than "the
    # key is right, but the image is not".
    kinds = (AnotherKeyError, HostError)
    raise min(refusals, key=lambda refusal: [isinstance(refusal, kind) for kind in kinds])


def verify(runtime: Runtime, image: str, key: str, environ: Mapping[str, str]) -> str:
    """Return the signer, if everything in `image` is signed by `key`: a public PEM file, or a PGP
    key's fingerprint.

    Raise SignatureError if it is not, and HostError for a key that cannot be read or an image with
    more than one partition.
    """
    find_root(image)
    signatures = read_signatures(image)
    if not signatures:
        raise UnsignedError(f"no signature in {image}", key, "jaxsif image sign makes one")
    by_pgp = is_fingerprint(key)
    argv = runtime.verify_argv(image, ["--local"] if by_pgp else ["--key", key])
    # Variables such as APPTAINER_VERIFY_CERTIFICATE would override the key.
    own = {name: value for name, value in environ.items() if "_VERIFY_" not in name}
    done = process.captured(argv, own)
    if done.returncode:
        raise _refusal(done, image, key, [one.signer for one in signatures])
    roots = _find_roots(done.stdout)
    if not roots:
        raise SignatureError(
            f"no signature over the root file system of {image}", key, _ANOTHER_COPY
        )
    if not by_pgp:
        return ", ".join(dict.fromkeys(one.signer for one in signatures))
    if key.lower() not in roots:
        raise _another_key(image, key)
    return key.upper()


def _find_roots(verified: str) -> set[str]:
    """Return the fingerprints of the keys with a valid signature over the root file system, in
    lower case; any text for a PEM key.

    The runtime verified all objects of all groups; the object of the only partition is the root
    file system, see find_root.
    """
    signers = [entry["Signer"] for entry in json.loads(verified)["SignerKeys"] or []]
    return {
        signer["Fingerprint"].lower()
        for signer in signers
        if signer["Partition"] == "FS" and signer["DataCheck"]
    }


def _another_key(image: str, key: str) -> AnotherKeyError:
    return AnotherKeyError(f"{image} was signed with another key", key, _ANOTHER_COPY)


def _refusal(
    done: subprocess.CompletedProcess[str], image: str, key: str, signers: Sequence[str]
) -> JaxsifError:
    """Return the error for the runtime's last message; it stops at the first key in no keyring."""
    fatal = _FATAL.search(done.stderr)
    words = (fatal[1] if fatal else done.stderr).strip()
    if _NO_KEY in words:
        reason = words.partition(_NO_KEY)[2]
        return UnusableKeyError(
            f"cannot use the key {key}: {reason}", "", "give a public key in a PEM file"
        )
    if _UNKNOWN in words and key.upper() in signers:
        verified = re.findall('"Fingerprint": "([0-9a-f]{40})"', done.stdout)
        unknown = [one for one in filter(is_fingerprint, signers) if one.lower() not in verified]
        which = f"the key {unknown[0]}, which" if unknown else "every key that"
        return UnusableKeyError(
            f"no keyring here has {which} signed {image}",
            key,
            "apptainer key import PUBLIC_KEY; as root, for all users, with --global",
        )
    if _OTHER_KEY.search(words):
        return _another_key(image, key)
    kind = ChangedImageError if _CHANGED in words else SignatureError
    return _describe_failure(kind, image, words.rpartition(_CHANGED)[2], key)


def _describe_failure(
    kind: type[SignatureError], image: str, reason: str, key: str
) -> SignatureError:
    what = f"signature verification failed for {image}: {reason}"
    return kind(what, key, "copy or build it again")


def sign(runtime: Runtime, image: str, key_options: Sequence[str]) -> tuple[str, bool]:
    """Sign `image` with the key that the runtime's options name; return the signer, and whether it
    had already signed this image.

    The image is replaced once its signed copy is complete. Raise HostError or SignatureError.
    """
    find_root(image)
    before = read_signatures(image)
    target = os.path.realpath(image)
    folder, name = os.path.split(target)
    status = os.stat(target)
    check_space(folder, status.st_size)
    with scratch_folder(folder, ".sign-") as scratch:
        copy = os.path.join(scratch, name)
        shutil.copy2(target, copy)
        os.chmod(copy, status.st_mode | 0o200)  # installed images are often read-only
        new = _sign_copy(runtime, image, copy, len(before), key_options)
        if new in before:
            return new.signer, True
        _check_together(image, before, new)
        with suppress(PermissionError):  # only root may give a file away
            os.chown(copy, status.st_uid, status.st_gid)
        os.chmod(copy, status.st_mode)  # after chown, which may clear bits of the mode
        os.replace(copy, target)
    return new.signer, False


def _sign_copy(
    runtime: Runtime, image: str, copy: str, before: int, key_options: Sequence[str]
) -> Signature:
    """Return the signature that the runtime adds to a copy, which has `before` signatures so far;
    raise HostError.
    """
    status = process.run_plain(runtime.sign_argv(copy, key_options), stdout=sys.stderr.buffer)
    signatures = read_signatures(copy)
    if status or len(signatures) <= before:
        raise HostError(
            f"{runtime.command} sign failed (exit status {status}): {image}",
            "",
            "see its message above; a checksum failure means a wrong passphrase; --key takes a"
            " private key in PEM without a passphrase, --pgp one of `apptainer key list --secret`;"
            " `apptainer key newpair` makes one",
        )
    return signatures[-1]


def _check_together(image: str, before: Sequence[Signature], new: Signature) -> None:
    """Raise SignatureError if the image has changed since this key signed it, and HostError if the
    runtime would refuse the image because of its old signatures.

    It accepts an image only if all signatures are valid, and checks them against one PEM key at a
    time, or against the PGP keys of a keyring.
    """
    if any(one.signer == new.signer and one.signed != new.signed for one in before):
        reason = "it has changed since this key signed it"
        error = _describe_failure(ChangedImageError, image, reason, new.signer)
        error.hint += f"; or, if you changed it, {_REMOVE}"
        raise error
    hold = all(one.signed == new.signed and is_fingerprint(one.signer) for one in (*before, new))
    if before and not hold:
        raise HostError(
            f"image has another signature, and Apptainer would refuse both: {image}",
            before[0].signer,
            f"sign the image as it was built, or {_REMOVE}",
        )
