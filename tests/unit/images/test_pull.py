"""Downloads from a real server on loopback that breaks off, changes its file, and lies."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from kit.caught import catch
from kit.pulling import ANY, Pull
from kit.siffile import sha256, write_image
from kit.webserver import Served, serve

from jaxsif.errors import HostError, JaxsifError
from jaxsif.images import download as downloads
from jaxsif.images.file import checksum
from jaxsif.images.pull import Expected, find_target, find_there

ROOT = bytes(range(256)) * 12_000  # 3 MB: more than one piece


@pytest.fixture
def image(tmp_path: Path) -> bytes:
    path = Path(write_image(tmp_path / "origin.sif", ROOT))
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.fixture
def served(image: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("NO_PROXY", "*")
    with serve(image) as one:
        yield one


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which tests need not sit through."""
    seen: list[float] = []
    monkeypatch.setattr(downloads.time, "sleep", seen.append)
    return seen


def test_whole_image(served: Served, tmp_path: Path, image: bytes) -> None:
    done = Pull(served, tmp_path, Expected(sha256(ROOT), hashlib.sha256(image).hexdigest()))
    assert (done.error, done.notes, done.files) == ("", [], ["jax.sif"])
    assert done.target.read_bytes() == image
    assert done.counts[-1] == (len(image), len(image))


@pytest.mark.parametrize("validator", ["ETag", "Last-Modified"])
def test_connection_that_breaks_is_taken_up_again(
    served: Served, tmp_path: Path, image: bytes, validator: str, pauses: list[float]
) -> None:
    served.validator, served.cut_after = validator, [1_500_000, 700_000]
    done = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert served.requests == ["", "bytes=1500000-", "bytes=2200000-"]
    assert pauses == [1, 1]


@pytest.mark.parametrize("fault", ["no Range", "no validator"])
def test_server_that_cannot_go_on(served: Served, tmp_path: Path, fault: str) -> None:
    served.cut_after = [1_500_000]
    served.ranges, served.validator = fault != "no Range", "" if fault == "no validator" else "ETag"
    done = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert len(served.requests) == 2
    assert any("from its beginning" in note for note in done.notes) == (fault == "no Range")


@pytest.mark.parametrize("checks", [True, False], ids=["If-Range", "no If-Range"])
def test_file_that_changes_meanwhile(served: Served, tmp_path: Path, image: bytes, checks: bool) -> None:
    """The rest of one version never comes behind the beginning of another."""
    served.checks_if_range = checks
    served.cut_after = [1_000_000, *[0] * 4]
    assert Pull(served, tmp_path).files == [".jax.sif.part", ".jax.sif.part.json"]
    other = bytearray(image)
    other[-1] ^= 1
    served.content = bytes(other)
    done = Pull(served, tmp_path, Expected(sha256(ROOT[:-1] + bytes([ROOT[-1] ^ 1])), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert done.target.read_bytes() == bytes(other)


def test_server_that_is_gone_for_good(served: Served, tmp_path: Path, pauses: list[float]) -> None:
    served.cut_after = [1_200_000, *[0] * 9]
    done = Pull(served, tmp_path)
    assert done.error == (
        "jaxsif: error: cannot download URL: the connection ended after 1200000 of 3080192 bytes\n"
        "  from: 1200000 bytes are kept in .jax.sif.part\n  try:  check the URL and the network"
    ).replace("3080192", str(len(served.content)))
    assert done.files == [".jax.sif.part", ".jax.sif.part.json"]
    assert pauses == [1, 2, 4, 8]
    served.cut_after = []
    again = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (again.error, again.files) == ("", ["jax.sif"])
    assert served.requests[-1] == "bytes=1200000-"


def test_nobody_listens(served: Served, tmp_path: Path, pauses: list[float]) -> None:
    served.address = "http://127.0.0.1:9/jax.sif"
    done = Pull(served, tmp_path)
    assert "Connection refused" in done.error
    assert (done.files, pauses) == ([], [1, 2, 4, 8])


def test_server_that_falls_silent(served: Served, tmp_path: Path) -> None:
    served.stall.set()
    served.cut_after = [100_000, *[0] * 9]
    done = Pull(served, tmp_path, timeout=0.2)
    assert "Read timed out" in done.error


@pytest.mark.parametrize(
    ("statuses", "error", "requests"),
    [
        ([404], "404 Not Found", 1),
        ([403], "403 Forbidden", 1),
        ([503] * 9, "the server says 503", 5),
        ([503, 502], "", 3),
    ],
)
def test_answers_that_are_no_file(
    served: Served, tmp_path: Path, statuses: list[int], error: str, requests: int
) -> None:
    served.statuses = statuses
    done = Pull(served, tmp_path)
    assert error in done.error
    assert bool(done.error) == bool(error)
    assert len(served.requests) == requests
    assert done.files == ([] if error else ["jax.sif"])


def test_content_length_that_promises_too_much(served: Served, tmp_path: Path) -> None:
    served.length_is_wrong_by = 1000
    done = Pull(served, tmp_path)
    assert (done.error, done.files) == ("", ["jax.sif"])  # asked for the rest, the server says there is none


def test_content_length_that_promises_too_little(served: Served, tmp_path: Path) -> None:
    served.length_is_wrong_by = -1000
    done = Pull(served, tmp_path)
    assert "unexpected file at URL: image is truncated (1000 of " in done.error
    assert done.files == []


def test_length_that_is_not_told(served: Served, tmp_path: Path) -> None:
    served.tells_length = False
    done = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert done.counts[-1] == (len(served.content), None)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (Expected(sha256(b"other"), None), f"its digest is {sha256(ROOT)}"),
        (Expected(None, "0" * 64), "the file has sha256 "),
    ],
    ids=["digest", "sha256"],
)
def test_image_that_was_not_asked_for(served: Served, tmp_path: Path, wanted: Expected, problem: str) -> None:
    (tmp_path / "jax.sif").write_text("the old one")
    done = Pull(served, tmp_path, wanted)
    assert done.error.startswith(f"jaxsif: error: unexpected file at URL: {problem}")
    assert done.files == ["jax.sif"]
    assert done.target.read_text() == "the old one"


def test_one_checksum_in_place_of_the_other(served: Served, tmp_path: Path) -> None:
    whole = hashlib.sha256(served.content).hexdigest()
    wrong = Pull(served, tmp_path, Expected(f"sha256:{whole}", None)).error
    assert f"its digest is {sha256(ROOT)}, and --digest has the SHA-256 of the file: pass it as --sha256" in wrong
    wrong = Pull(served, tmp_path, Expected(None, sha256(ROOT)[7:])).error
    assert f"the file has sha256 {whole}, and --sha256 has its digest: pass it as --digest" in wrong


def test_two_at_once(served: Served, tmp_path: Path) -> None:
    with downloads.open_partial(str(tmp_path / ".jax.sif.part")):
        assert Pull(served, tmp_path).error.startswith("jaxsif: error: another download is writing .jax.sif.part\n")


def test_way_that_leaves_https() -> None:
    response = requests.Response()
    response.url, response.status_code, response.raw = "https://me:secret@user.example/a", 302, io.BytesIO()
    response.headers["Location"] = "http://other/jax.sif"
    with pytest.raises(HostError, match=r"^https://user\.example/a redirects to an address without https$"):
        downloads._Session().get_redirect_target(response)


@pytest.mark.parametrize(
    ("url", "output", "target"),
    [
        ("https://example.org/a/jax.sif?token=1", None, "jax.sif"),
        ("https://example.org/a/..%2Fjax%20one.sif", None, "jax one.sif"),
        ("https://example.org/a/jax.sif", "sub", "sub/jax.sif"),
        ("https://example.org/", "my.sif", "my.sif"),
        ("oras://example.org/site/jax:0.12", None, "jax_0.12.sif"),
        ("docker://debian:13", None, "debian_13.sif"),
    ],
)
def test_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, output: str, target: str) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_target(url, output) == str(tmp_path / target)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    error = catch(JaxsifError, find_target, "https://example.org/a.sif", str(tmp_path / "nope/a.sif"))
    assert (error.what, error.where) == (f"folder not found: {tmp_path}/nope", "--output")
    error = catch(JaxsifError, find_target, "https://example.org/a.sif", f"{tmp_path}/nope/")
    assert (error.what, error.where) == (f"folder not found: {tmp_path}/nope/", "--output")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("ftp://example.org/jax.sif", "not the address of an image: ftp://example.org/jax.sif"),
        ("jax.sif", "not the address of an image: jax.sif"),
        ("https://[1/jax.sif", "not the address of an image: https://[1/jax.sif"),
        ("https://me:secret@example.org/", "no file name in the address https://example.org/"),
        ("https://example.org/a/..", "no file name in the address https://example.org/a/.."),
    ],
)
def test_address_that_is_none(url: str, what: str) -> None:
    assert catch(JaxsifError, find_target, url, None).what == what


def test_what_is_there_already(tmp_path: Path, image: bytes) -> None:
    target = tmp_path / "jax.sif"
    assert find_there(str(target), ANY) is None
    target.write_bytes(image)
    assert find_there(str(target), Expected(sha256(ROOT), checksum(str(target)))) == sha256(ROOT)
    with pytest.raises(JaxsifError, match=r"jax\.sif already exists$"):
        find_there(str(target), ANY)
    with pytest.raises(HostError, match=r"jax\.sif already exists, but is not what was asked for: its digest is "):
        find_there(str(target), Expected(sha256(b"other"), None))
