"""Downloads from a server of lies on loopback: each is told, in bounded time, and nothing half-written is left."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.pulling import Pull
from kit.siffile import sha256, sif_header, write_image
from kit.webserver import Served, Write, serve

from jaxsif.images import download as downloads
from jaxsif.images.pull import Expected

ROOT = bytes(range(256)) * 1000
MEGABYTE = bytes(1 << 20)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Path(write_image(tmp_path_factory.mktemp("origin") / "jax.sif", ROOT)).read_bytes()


@pytest.fixture
def served(image: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(downloads.time, "sleep", lambda _seconds: None)
    with serve(image) as one:
        yield one


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "Connection: close", "", ""]).encode("latin-1")


def endless(write: Write, piece: bytes = MEGABYTE) -> None:
    """Until the other side has had enough."""
    while True:
        write(piece)


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip"])
def test_body_that_is_encoded(served: Served, tmp_path: Path, coding: str) -> None:
    """3 MB that would become 3 GB: nothing is decoded."""
    bomb = gzip.compress(bytes(64 << 20), 1)

    def lie(write: Write, _wanted: str) -> None:
        write(head(f"Content-Encoding: {coding}", f"Content-Length: {len(bomb)}"))
        endless(write, bomb)

    served.lie = lie
    done = Pull(served, tmp_path)
    assert done.error == (
        f"jaxsif: error: cannot download URL: the server sends it encoded as {coding}\n"
        "  from: the server\n  try:  ask whoever runs the server, or use another one"
    )
    assert (done.files, done.counts, len(served.requests)) == ([], [], 1)


def test_identity_is_no_coding(served: Served, tmp_path: Path, image: bytes) -> None:
    served.lie = lambda write, _: write(head("Content-Encoding: identity", f"Content-Length: {len(image)}") + image)
    assert Pull(served, tmp_path, Expected(sha256(ROOT), None)).error == ""


def interrupted(served: Served, folder: Path) -> int:
    """The bytes that are there of a download that broke off."""
    served.cut_after = [100_000, *[0] * 9]
    assert Pull(served, folder).files == [".jax.sif.part", ".jax.sif.part.json"]
    served.requests.clear()
    return 100_000


@pytest.mark.parametrize(
    "said",
    [
        "bytes 0-9/10",
        "bytes 99999-264191/264192",
        "bytes 100000-99999/264192",
        "bytes 100000-264192/264192",
        "bytes 100000-264191/9",
        "bytes -100000-264191/264192",
        "bytes 100000-" + "9" * 5000 + "/264192",
        "",
    ],
    ids=range(8),
)
def test_range_that_does_not_fit(served: Served, tmp_path: Path, image: bytes, said: str) -> None:
    """It is not appended: all of the file is asked for."""
    interrupted(served, tmp_path)

    def lie(write: Write, wanted: str) -> None:
        if not wanted:
            write(head(f"Content-Length: {len(image)}") + image)
            return
        write(head(f"Content-Range: {said}", f"ETag: {served.version}", status="206 Partial Content"))
        endless(write)

    served.lie = lie
    done = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert done.notes == ["the file changed during the download; trying again in 1 s"]
    assert served.requests == ["bytes=100000-", ""]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("200 OK", "unexpected file at URL: not a SIF image: .jax.sif.part\n"),
        ("206 Partial Content", "cannot download URL: 206 Partial Content\n"),
        ("416 Range Not Satisfiable", "cannot download URL: 416 Range Not Satisfiable\n"),
    ],
)
def test_size_of_5000_digits(served: Served, tmp_path: Path, answer: str, error: str) -> None:
    """It counts as none."""
    interrupted(served, tmp_path)
    size = "9" * 5000

    def lie(write: Write, _wanted: str) -> None:
        write(head(f"Content-Length: {size}", f"Content-Range: bytes 100000-100001/{size}", status=answer))
        endless(write)

    served.lie = lie
    done = Pull(served, tmp_path)
    assert done.error.startswith(f"jaxsif: error: {error}")
    assert done.files == []


@pytest.mark.parametrize("coding", ["chunks", "none"])
def test_more_than_was_announced(served: Served, tmp_path: Path, image: bytes, coding: str) -> None:
    """The rest of a file, and then more: what is behind the announced size is not read."""
    there = interrupted(served, tmp_path)
    size = len(image)

    def lie(write: Write, _wanted: str) -> None:
        lines = [f"Content-Range: bytes {there}-{size - 1}/{size}", f"ETag: {served.version}"]
        write(head(*lines, *(["Transfer-Encoding: chunked"] * (coding == "chunks")), status="206 Partial Content"))
        chunk = b"%x\r\n" % (1 << 40) if coding == "chunks" else b""
        write(chunk + image[there:])
        endless(write)

    served.lie = lie
    done = Pull(served, tmp_path, Expected(sha256(ROOT), None))
    assert (done.error, done.files) == ("", ["jax.sif"])
    assert max(done.counts) == (size, size)


@pytest.mark.parametrize(
    ("begin", "problem"),
    [
        (sif_header(4096, 100_000, rows=0), "the server sends more than the image's 104096 bytes"),
        (b"<html>" * 100, "not a SIF image: .jax.sif.part"),
        (sif_header(-1, 5, rows=0), "image is damaged (the offset of its data is -1): .jax.sif.part"),
        (sif_header(2**62, 5, rows=0), "no room for "),
    ],
    ids=["image", "page", "damaged", "huge"],
)
@pytest.mark.parametrize("length", ["", "Content-Length: -5", "Transfer-Encoding: chunked"])
def test_body_without_an_end(served: Served, tmp_path: Path, length: str, begin: bytes, problem: str) -> None:
    """Where the server does not tell the size, the image does."""

    def lie(write: Write, _wanted: str) -> None:
        write(head(*filter(None, [length])) + (b"%x\r\n" % (1 << 60) if "chunked" in length else b"") + begin)
        endless(write)

    served.lie = lie
    found: list[Pull] = []
    assert read_bounded(lambda: found.append(Pull(served, tmp_path))) is None
    assert problem in found[0].error
    assert found[0].files == []
    assert max([0, *(done for done, _ in found[0].counts)]) <= 104_096 + (1 << 20)


@pytest.mark.parametrize("what", ["header", "headers", "chunk size", "reason"])
def test_line_without_an_end(served: Served, tmp_path: Path, what: str) -> None:
    def lie(write: Write, _wanted: str) -> None:
        if what == "headers":
            for number in itertools.count():
                write(f"{'' if number else 'HTTP/1.1 200 OK'}\r\nA{number}: b".encode())
        write(b"HTTP/1.1 200 " if what == "reason" else b"HTTP/1.1 200 OK\r\n")
        if what == "chunk size":
            write(b"Transfer-Encoding: chunked\r\n\r\n5;")
        endless(write, b"x" * 60_000)

    served.lie = lie
    found: list[Pull] = []
    assert read_bounded(lambda: found.append(Pull(served, tmp_path))) is None
    assert found[0].error.startswith("jaxsif: error: cannot download URL: ")
    assert (found[0].files, len(served.requests)) == ([], 5)


def test_body_of_a_redirect_is_not_read(served: Served, tmp_path: Path, image: bytes) -> None:
    """requests itself would read all of it into memory, decoded."""
    whole = head(f"Content-Length: {len(image)}") + image

    def lie(write: Write, _wanted: str) -> None:
        if len(served.requests) > 1:
            write(whole)
            return
        write(head("Location: /other%20name", "Content-Encoding: gzip", "Set-Cookie: a=b; Path=/", status="302 Found"))
        endless(write, gzip.compress(MEGABYTE))

    served.lie = lie
    found: list[Pull] = []
    assert read_bounded(lambda: found.append(Pull(served, tmp_path, Expected(sha256(ROOT), None)))) is None
    assert (found[0].error, found[0].files) == ("", ["jax.sif"])
    assert served.paths == ["/images/jax.sif", "/other%20name"]
    assert served.cookies == ["", "a=b"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/images/jax.sif", "Exceeded 10 redirects."),
        ("file:///etc/passwd", "No connection adapters were found for 'file:///etc/passwd'"),
        ("http://[1/", "Invalid IPv6 URL"),
        ("\xff\xfe", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
    ids=["circle", "file", "bracket", "no UTF-8"],
)
def test_redirect_that_leads_nowhere(served: Served, tmp_path: Path, target: str, reason: str) -> None:
    served.lie = lambda write, _: write(head(f"Location: {target}", "Content-Length: 0", status="302 Found"))
    done = Pull(served, tmp_path)
    assert done.error.startswith(f"jaxsif: error: cannot download URL: {reason}\n")
    assert done.files == []


def test_password_goes_to_its_own_host_alone(served: Served, tmp_path: Path, image: bytes) -> None:
    with serve(image) as other:
        own = served.address
        served.address = own.replace("http://", "http://me:secret@")
        served.lie = lambda write, _: write(
            head(
                f"Location: {own.replace('jax', 'b') if len(served.requests) == 1 else other.address}",
                status="302 Found",
            )
        )
        assert Pull(served, tmp_path, Expected(sha256(ROOT), None)).error == ""
        assert served.authorizations == ["Basic bWU6c2VjcmV0"] * 2
        assert other.authorizations == [""]


def test_reason_with_escapes(served: Served, tmp_path: Path) -> None:
    """And one of 60,000 letters."""
    for status, said in (
        ("404 \x1b[2J\x07gone", "404 \\x1b[2J\\x07gone\n"),
        (f"404 {'x' * 60_000}", f"404 {'x' * 296}\n"),
    ):
        served.lie = lambda write, _, status=status: write(head(status=status))  # type: ignore[misc]
        assert f"cannot download URL: {said}" in Pull(served, tmp_path).error
    served.lie = lambda write, _: write(head(status="503 \x1b[2J"))
    done = Pull(served, tmp_path)
    assert done.notes[0] == "the server says 503 \x1b[2J; trying again in 1 s"  # Progress.note makes it printable


@pytest.mark.parametrize("tag", [f'"{"x" * 5000}"', '"\xe9"', '"\x01"'], ids=["long", "not ASCII", "control"])
def test_version_that_could_not_be_sent_back(served: Served, tmp_path: Path, image: bytes, tag: str) -> None:
    """It counts as none: the next try begins anew, and does not fail for it."""

    def lie(write: Write, _wanted: str) -> None:
        body = image[:100_000] if len(served.requests) == 1 else image
        write(head(f"ETag: {tag}", f"Content-Length: {len(image)}") + body)

    served.lie = lie
    assert Pull(served, tmp_path, Expected(sha256(ROOT), None)).error == ""
    assert served.requests == ["", ""]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[" * 100_000, "9" * 5000, '{"url": "http://other/", "version": "a"}', "OTHER", "LINES", "LIST"],
    ids=range(8),
)
def test_note_of_a_download_that_is_none(served: Served, tmp_path: Path, text: str) -> None:
    versions = {"OTHER": 5, "LINES": '"a"\r\nX: y', "LIST": ["a"]}
    if text in versions:
        text = json.dumps({"url": served.address, "version": versions[text]})
    if text == "ELSEWHERE":
        text = json.dumps({"url": "http://other/", "version": served.version})
    (tmp_path / ".jax.sif.part").write_bytes(b"x" * 1000)
    (tmp_path / ".jax.sif.part.json").write_text(text)
    assert Pull(served, tmp_path, Expected(sha256(ROOT), None)).error == ""
    assert served.requests == [""]


@pytest.mark.parametrize("kind", ["link", "fifo", "file of another"])
def test_place_that_somebody_else_has_prepared(
    served: Served, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = tmp_path / "folder", ".jax.sif.part"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    if kind == "link":
        (folder / name).symlink_to("../precious")
    elif kind == "fifo":
        os.mkfifo(folder / name)
    else:
        (folder / name).write_text("")
        monkeypatch.setattr(downloads.os, "getuid", lambda: 12345)
    done = Pull(served, folder)
    assert f"not a file owned by this user: {name}\n" in done.error
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_note_that_somebody_else_has_prepared(served: Served, tmp_path: Path, kind: str) -> None:
    """It is replaced, and not written through."""
    note = tmp_path / ".jax.sif.part.json"
    (tmp_path / "precious").write_text("mine")
    if kind == "link":
        note.symlink_to("precious")
    else:
        os.mkfifo(note)
    assert Pull(served, tmp_path, Expected(sha256(ROOT), None)).files == ["jax.sif", "precious"]
    assert (tmp_path / "precious").read_text() == "mine"


HEADERS = st.sampled_from(
    ["Content-Length", "Content-Range", "Content-Encoding", "Transfer-Encoding", "ETag", "Location"]
)
VALUES = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30),
    st.integers(-10, 2**70).map(str),
    st.builds("bytes {}-{}/{}".format, *[st.integers(-1, 2**64)] * 3),
    st.sampled_from(["chunked", "gzip", "identity", "*", "bytes */5", '"a"', "http://127.0.0.1:1/", "file:///x"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["200", "206", "302", "416", "503", "abc", "99999"]),
    st.dictionaries(HEADERS, VALUES, max_size=4),
    st.one_of(st.binary(max_size=300), st.just(sif_header(200, 50, rows=0) + bytes(300))),
)
def test_any_answer(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, fields: dict[str, str], body: bytes
) -> None:
    """Whatever a server says, people read an error, and a file that is no image does not come to its place."""
    monkeypatch.setattr(downloads, "_TRIES", 2)
    served.lie = lambda write, _: write(
        head(*(f"{name}: {value}" for name, value in fields.items()), status=status) + body
    )
    found: list[Pull] = []
    assert read_bounded(lambda: found.append(Pull(served, tmp_path, timeout=1))) is None
    assert found[0].error.startswith("jaxsif: error: ")
    assert "jax.sif" not in found[0].files
    part = tmp_path / ".jax.sif.part"
    size = fields.get("Content-Length", "")
    assert not part.exists() or not size.isdecimal() or part.stat().st_size <= int(size)
    for name in found[0].files:
        (tmp_path / name).unlink()


@pytest.mark.starts_processes
def test_help_needs_no_library_of_others() -> None:
    """requests takes 0.1 s to import, and completion asks every command for its help."""
    program = "import sys, jaxsif.commands.image; print('requests' in sys.modules, 'urllib3' in sys.modules)"
    root = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "False False\n"
