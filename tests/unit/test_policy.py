"""Policies on digests, and what no policy allows; those on signatures are tested in the cluster, with the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_imagefile import sha256, write_image

from jaxsif.config import Config, Setting
from jaxsif.errors import HostError
from jaxsif.imagefile import find_state
from jaxsif.policy import Allowed, Subject, check_policies, find_checksum

GOOD, BAD = sha256(b"good"), sha256(b"bad")


def check(folder: Path, image: str | None, *policies: tuple[str, object]) -> Allowed:
    """`check_policies` for these (key, value), each of a file of its own."""
    config = Config({}, tuple((key, Setting(value, f"/{n}.toml")) for n, (key, value) in enumerate(policies)))
    subject = Subject(image, "--image", "apptainer" if image else None)
    return check_policies(config, subject, {"XDG_CACHE_HOME": str(folder / "cache")})


def refusal(folder: Path, image: str | None, *policies: tuple[str, object]) -> str:
    with pytest.raises(HostError) as caught:
        check(folder, image, *policies)
    return caught.value.render()


def test_digests_of_all_files_hold(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    held = check(tmp_path, image, ("policy.digests", [BAD, GOOD]), ("policy.digests", [GOOD]))
    reasons = tuple(f"policy.digests of /{n}.toml holds: {GOOD}" for n in (0, 1))
    assert held == Allowed(GOOD, find_state(image), reasons)


def test_an_image_that_changes_after_the_policy_allowed_it(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    allowed = check(tmp_path, image, ("policy.digests", [GOOD]))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert len(find_checksum(image, allowed.state, "--image", environ)) == 64
    write_image(tmp_path / "a.sif", b"bad")
    with pytest.raises(HostError, match=r"the image changed while the policy looked at it: .*/a\.sif"):
        find_checksum(image, allowed.state, "--image", environ)


def test_digest_of_one_file_does_not_hold(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert refusal(tmp_path, image, ("policy.digests", [GOOD]), ("policy.digests", [BAD])) == (
        f"jaxsif: error: the policy refuses this run: the digest of {image} is {GOOD}\n"
        "  from: policy.digests in /1.toml; the image is from --image\n"
        "  try:  run an image that the policy allows, or ask who set it"
    )


def test_image_that_was_replaced_is_looked_at_again(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    check(tmp_path, image, ("policy.digests", [GOOD]))
    write_image(tmp_path / "a.sif", b"bad")
    assert f"is {BAD}" in refusal(tmp_path, image, ("policy.digests", [GOOD]))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("policy.digests", [], "the digest of "),
        ("policy.signed-by", [], "no key is allowed to have signed "),
        ("policy.signed-by", ["gone.pem"], "cannot read the key /gone.pem: No such file or directory\n"),
    ],
)
def test_policy_that_nothing_fulfils(tmp_path: Path, key: str, value: list[str], reason: str) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert refusal(tmp_path, image, (key, value)).startswith(f"jaxsif: error: the policy refuses this run: {reason}")


@pytest.mark.parametrize("key", ["policy.digests", "policy.signed-by"])
def test_no_folder_and_no_run_without_a_container(tmp_path: Path, key: str) -> None:
    said = refusal(tmp_path, str(tmp_path), (key, [GOOD]))
    assert f"this run: {tmp_path} is a folder, and has neither digest nor signature\n" in said
    assert "this run: there is no container here\n" in refusal(tmp_path, None, (key, [GOOD]))
