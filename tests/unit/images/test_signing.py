"""What an image says of its signatures, and which of several refusals is told."""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kit.caught import catch
from kit.siffile import descriptor, write_image

from jaxsif.commands import image as command
from jaxsif.errors import HostError, JaxsifError, SignatureError
from jaxsif.images.signing import (
    AnotherKeyError,
    Signature,
    _check_together,
    find_flaw,
    find_private,
    find_signer,
    is_fingerprint,
    read_signatures,
    sign,
    verify,
)
from jaxsif.runtime import Runtime

FINGERPRINT = "DE90813DA85423FB5CDF9434F4CBF70844051B26"
PEM = Signature("SHA256:abc", "digests")
PGP = Signature(FINGERPRINT, "digests")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [(FINGERPRINT, True), (FINGERPRINT.lower(), True), (FINGERPRINT[1:], False), ("x" * 40, False), ("key.pem", False)],
)
def test_fingerprint_or_file(text: str, is_one: bool) -> None:
    assert is_fingerprint(text) == is_one


def write_signed(path: Path) -> str:
    """Write an image with a signature of each kind."""
    envelope = json.dumps({"payload": "e30=", "signatures": [{"keyid": "SHA256:abc", "sig": "x"}]}).encode()
    message = (
        b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{}\n-----BEGIN PGP SIGNATURE-----\n\nwsFzBAEB\n"
        b"-----END PGP SIGNATURE-----\n"
    )
    made_by = struct.pack("<i20s", 1, bytes.fromhex(FINGERPRINT))
    rows = [
        descriptor(0x4005, 9000, len(envelope), struct.pack("<i20s", 1, bytes(20))),
        descriptor(0x4005, 9500, len(message), made_by),
    ]
    image = write_image(path, b"squashfs", *rows)
    with open(image, "r+b") as file:
        for offset, data in ((9000, envelope), (9500, message)):
            file.seek(offset)
            file.write(data)
    return image


@pytest.mark.parametrize("call", [command._sign, command._verify])
def test_an_image_that_is_not_there(tmp_path: Path, call: Callable[..., None]) -> None:
    words = argparse.Namespace(image=f"{tmp_path}/gone.sif", key=None, pgp=[FINGERPRINT], keyidx=None, json=False)
    error = catch(HostError, call, words, {"JAXSIF_RUNTIME": "/bin/true"})
    assert (error.what, error.where) == (f"image not found: {tmp_path}/gone.sif", "IMAGE")


def test_signatures_of_both_kinds(tmp_path: Path) -> None:
    image = write_signed(tmp_path / "a.sif")
    assert read_signatures(image) == (Signature("SHA256:abc", "{}"), Signature(FINGERPRINT, "{}\n"))


@pytest.mark.parametrize("may_give", [True, False])
def test_a_signed_image_keeps_owner_and_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_give: bool) -> None:
    """As for root, who may give a file to its former owner, and for others, who may not."""
    signed = write_signed(tmp_path / "signed.sif")
    image = Path(write_image(tmp_path / "a.sif", b"squashfs"))
    image.chmod(0o440)
    before = image.stat()
    given: list[tuple[int, int]] = []

    def chown(path: str, owner: int, group: int) -> None:
        given.append((owner, group))
        os.chmod(path, 0)  # the kernel may clear bits
        if not may_give:
            raise PermissionError

    def run(argv: Sequence[str], **_options: object) -> int:
        Path(argv[-1]).write_bytes(Path(signed).read_bytes())
        return 0

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr("jaxsif.process.run_plain", run)
    assert sign(Runtime("apptainer", "APPTAINERENV_"), str(image), ["--key", "k"]) == (FINGERPRINT, False)
    assert given == [(before.st_uid, before.st_gid)]
    assert image.stat().st_mode == before.st_mode
    assert image.read_bytes() == Path(signed).read_bytes()


@pytest.mark.parametrize("key", [FINGERPRINT, FINGERPRINT.lower(), "A" * 40])
def test_signer_in_no_keyring_is_not_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """The image names its signer, so that a key that did not sign is known without a keyring."""
    image, said = write_signed(tmp_path / "a.sif"), "openpgp: signature made by unknown entity"
    fatal = f"FATAL:   Failed to verify container: integrity: signature object 4 not valid: {said}\n"
    done = subprocess.CompletedProcess((), 255, "", fatal)
    monkeypatch.setattr("jaxsif.process.captured", lambda *_arguments: done)
    error = catch(JaxsifError, verify, Runtime("apptainer", "APPTAINERENV_"), image, key, {})
    if key == "A" * 40:
        assert error.what == f"{image} was signed with another key"
    else:
        assert error.what == f"no keyring here has the key {FINGERPRINT}, which signed {image}"
        assert error.hint.startswith("apptainer key import ")


def refuse(what: str) -> str:
    if "another key" in what:
        raise AnotherKeyError(what)
    if what.startswith("cannot use the key"):
        raise HostError(what)
    raise SignatureError(what)


@pytest.mark.parametrize(
    "bad", ["a.sif was signed with another key", "cannot use the key bad.pem", "no signature in a.sif"]
)
@pytest.mark.parametrize("first", [True, False])
def test_the_order_of_keys_does_not_matter(bad: str, first: bool) -> None:
    keys = [bad, "good.pem"] if first else ["good.pem", bad]
    assert find_signer("a.sif", keys, lambda key: key if key == "good.pem" else refuse(key)) == "good.pem"


def test_first_key_that_signed() -> None:
    assert find_signer("a.sif", ["no", "yes", "also"], lambda key: refuse(key) if key == "no" else key) == "yes"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ([], "no signing key is accepted for a.sif"),
        (["a.sif was signed with another key", "no signature in a.sif"], "no signature in a.sif"),
        (
            ["a.sif was signed with another key", "a.sif was signed with another key again"],
            "a.sif was signed with another key",
        ),
        (["a.sif was signed with another key", "cannot use the key bad.pem"], "cannot use the key bad.pem"),
        (["cannot use the key bad.pem", "no signature in a.sif"], "no signature in a.sif"),
    ],
    ids=["no key", "right key", "other keys", "bad key", "right key after a bad one"],
)
def test_refusal_that_says_most(keys: list[str], told: str) -> None:
    assert catch(JaxsifError, find_signer, "a.sif", keys, refuse).what == told


@pytest.mark.parametrize(("before", "new"), [([], PEM), ([], PGP), ([PGP], PGP._replace(signer="A" * 40))])
def test_signatures_that_hold_together(before: list[Signature], new: Signature) -> None:
    _check_together("a.sif", before, new)


@pytest.mark.parametrize(
    ("before", "new"),
    [
        ([PEM], PEM._replace(signer="SHA256:def")),
        ([PEM], PGP),
        ([PGP], PEM),
        ([PGP], PGP._replace(signer="A" * 40, signed="others")),
    ],
    ids=["two PEM keys", "PEM, then PGP", "PGP, then PEM", "changed since, another PGP key"],
)
def test_signatures_that_do_not_hold_together(before: list[Signature], new: Signature) -> None:
    with pytest.raises(HostError, match=r"^image has another signature, and Apptainer would refuse both: a\.sif$"):
        _check_together("a.sif", before, new)


@pytest.mark.parametrize("before", [PEM, PGP])
def test_an_image_that_has_changed_since_the_same_key_signed_it(before: Signature) -> None:
    error = catch(SignatureError, _check_together, "a.sif", [before], before._replace(signed="others"))
    assert error.what == "signature verification failed for a.sif: it has changed since this key signed it"
    assert error.where == before.signer


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        ("-----BEGIN PUBLIC KEY-----\n", ""),
        ("a comment\n-----BEGIN RSA PUBLIC KEY-----\n", ""),
        ("-----BEGIN CERTIFICATE-----\n", "no public key in PEM"),
        ("", "no public key in PEM"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_a_public_key(tmp_path: Path, content: str | None, flaw: str) -> None:
    key = tmp_path / "public.pem"
    if content is not None:
        key.write_text(content)
    assert find_flaw(str(key)) == flaw


def test_a_fifo_is_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    assert find_flaw(str(tmp_path / "key")) == f"key is a FIFO, not a file: {tmp_path}/key"


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("listed", "is_there"),
    [(f"echo 'Fingerprint: {FINGERPRINT}'", True), ("echo 'Public key listing:'", False), ("exit 255", True)],
)
def test_a_key_of_the_hosts_keyring(tmp_path: Path, listed: str, is_there: bool) -> None:
    """Where the runtime cannot list it, nothing is said."""
    script = tmp_path / "apptainer"
    script.write_text(f'#!/bin/sh\n[ "$*" = "key list --global" ] || exit 0\n{listed}\n')
    script.chmod(0o755)
    runtime = Runtime(str(script), "APPTAINERENV_")
    missing = [] if is_there else [FINGERPRINT.lower()]
    assert find_private(runtime, [FINGERPRINT.lower()], dict(os.environ)) == missing
