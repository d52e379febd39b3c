"""Download a file over HTTP, and continue after a broken connection if the file is unchanged.

No body is decoded, and no more is written than the server announced or the image's header
specifies.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple
from urllib.parse import urljoin

import requests  # takes 100 ms: import this module only to download
from urllib3.exceptions import HTTPError

from jaxsif.errors import DISK_FULL, HostError, Notify
from jaxsif.files import check_space, write_file
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.images.sif import HEADER_SIZE, parse_header
from jaxsif.limits import read_number

_TRIES = 5  # in a row without progress
_PROGRESS = 60_000  # bytes: fewer on one connection count as no progress
_CHUNK = 1 << 17  # bytes
# Bytes allowed after the end of an image of unannounced size: removed parts leave some.
_SLACK = 1 << 20
_VERSION = re.compile(r"[!-~][ -~]{0,998}")  # can be sent back in a header
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")

# Statuses of answers.
_WHOLE, _PART, _NOTHING_MORE = 200, 206, 416
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
# Errors that another try would repeat; ValueError is for addresses and headers.
_FINAL = (requests.exceptions.SSLError, requests.TooManyRedirects, ValueError)


class Watch(NamedTuple):
    """How long to wait for a server, and where to report progress."""

    timeout: float  # seconds for a connection, or for the next bytes
    notify: Notify  # prints a note
    progress: Callable[[int, int | None], None]  # bytes received, and in total if known


class Partial(NamedTuple):
    """A locked file with the beginning of a download; its origin is in a note beside it."""

    path: str
    file: IO[bytes]

    @property
    def size(self) -> int:
        """Bytes received so far."""
        return os.fstat(self.file.fileno()).st_size

    @property
    def note(self) -> str:
        """The file that names the address and the version of these bytes."""
        return f"{self.path}.json"

    def recall(self, address: str) -> tuple[int, str]:
        """Return how many bytes from `address` are here already, and their version, or 0 and ''."""
        try:
            origin = parse_json(read_text(self.note, "record of a download"))
        except (FileNotFoundError, ValueError, HostError):
            return 0, ""  # there is no note yet, or a full disk cut it short
        version = find(origin, "version")
        known = isinstance(version, str) and _VERSION.fullmatch(version)
        return (self.size, version) if known and find(origin, "url") == address else (0, "")

    def begin(self, address: str, version: str) -> None:
        """Drop the bytes of another version before the note names this one."""
        self.file.truncate(0)
        write_file(self.note, json.dumps({"url": address, "version": version}).encode())

    def append(self, data: bytes) -> None:
        """Write bytes; raise HostError if that fails. If the disk is full, the file is emptied."""
        try:
            self.file.write(data)
            self.file.flush()
        except OSError as error:
            if error.errno in DISK_FULL:
                self.file.truncate(0)
            what = f"cannot write {self.path}: {error.strerror}"
            raise HostError(what, "", "free some space there") from error

    def remove(self) -> None:
        """Remove the file and its note."""
        for path in (self.path, self.note):
            if os.path.lexists(path):
                os.unlink(path)


@contextmanager
def open_partial(path: str) -> Iterator[Partial]:
    """Open and lock a file for a download; remove it at the end if it is empty.

    Raise HostError for a file that another user may have prepared, or that another download is
    writing.
    """
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            hint = "remove it, or choose another folder"
            raise HostError(f"not a file owned by this user: {path}", "", hint)
    with open(path, "ab", opener=_open_no_link) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            what = f"another download is writing {path}"
            raise HostError(what, "", "wait for it, or end it") from error
        partial = Partial(path, file)
        try:
            yield partial
        finally:
            if partial.size == 0:
                partial.remove()


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


class _Session(requests.Session):
    """Follow no redirect away from https, and do not read the body of a redirect, which requests
    would decode.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Find the address of a redirect, None for any other answer; raise HostError."""
        target = super().get_redirect_target(resp)
        if target:
            resp.close()
            address = urljoin(resp.url, target)
            if resp.url.startswith("https:") and not address.startswith("https:"):
                what = f"{without_password(resp.url)} redirects to an address without https"
                raise HostError(what, without_password(address), "use another one")
        return target


def download(url: str, partial: Partial, watch: Watch) -> None:
    """Download all of `url` into `partial`; if the network fails, raise HostError and keep the
    bytes for another call.
    """
    session = _Session()
    session.max_redirects = 10
    most, tries = partial.size, 0
    while True:
        try:
            _transfer(session, url, partial, watch)
            return
        except (requests.RequestException, HTTPError, ValueError) as error:
            reason, final = _reason(error), isinstance(error, _FINAL)
        size = partial.size
        if size >= most + _PROGRESS:
            most, tries = size, 0
        tries += 1
        if final or tries == _TRIES:
            kept = f"{size} bytes are kept in {partial.path}" if size else ""
            raise _failed(url, reason, kept, "check the URL and the network")
        pause = 2 ** (tries - 1)
        watch.notify(f"{reason}; trying again in {pause} s")
        time.sleep(pause)


def _transfer(session: requests.Session, url: str, partial: Partial, watch: Watch) -> None:
    """Make one request, starting after the bytes received so far, and read the whole answer."""
    address = without_password(url)
    size, version = partial.recall(address)
    headers = {"Accept-Encoding": "identity"}
    if size:  # If-Range: the rest if the file is still that version, all of it otherwise
        headers.update({"Range": f"bytes={size}-", "If-Range": version})
    with session.get(url, headers=headers, stream=True, timeout=watch.timeout) as response:
        _check_answer(url, response, (_WHOLE, _PART, _NOTHING_MORE) if size else (_WHOLE,))
        status, content_range = response.status_code, response.headers.get("Content-Range", "")
        if status == _NOTHING_MORE and content_range == f"bytes */{size}":
            return
        total = read_number(response.headers.get("Content-Length", ""))
        if status == _WHOLE:
            if size:
                watch.notify("the server is sending the file from its beginning")
            partial.begin(address, _version(response))
        else:
            found = _RANGE.fullmatch(content_range)
            first, last, total = map(int, found.groups()) if found else (-1, 0, 0)
            same = _version(response) in (version, "")  # also for a server without If-Range
            if status != _PART or not (same and first == size <= last < total):
                partial.begin(address, "")
                raise requests.ConnectionError("the file changed during the download")
        if total is None:
            _read_image(url, response, partial, watch)
        else:
            check_space(os.path.dirname(partial.path), total - partial.size)
            _read_body(response, partial, total, watch, total)
            if partial.size < total:
                what = f"the connection ended after {partial.size} of {total} bytes"
                raise requests.ConnectionError(what)


def _check_answer(url: str, response: requests.Response, expected: tuple[int, ...]) -> None:
    """Raise HostError for an answer without the file, and ConnectionError for a temporary one."""
    answer = f"{response.status_code} {response.reason}"
    if response.status_code in _TEMPORARY:
        raise requests.ConnectionError(f"the server says {answer[:300]}")
    if response.status_code not in expected:
        raise _failed(url, answer, "the server", "check the address")
    coding = response.headers.get("Content-Encoding", "identity").strip()
    if coding.lower() not in ("", "identity"):
        what = f"the server sends it encoded as {coding[:40]}"
        raise _failed(url, what, "the server", "ask whoever runs the server, or use another one")


def _read_image(url: str, response: requests.Response, partial: Partial, watch: Watch) -> None:
    """Read a body of unannounced size up to the end given by the image's header; raise HostError
    for any other file, leaving nothing behind.
    """
    try:
        _read_body(response, partial, HEADER_SIZE, watch)
        with open(partial.path, "rb") as file:
            header = file.read(HEADER_SIZE)
        end = _parse_end(url, header, partial.path)
        check_space(os.path.dirname(partial.path), end - partial.size)
        _read_body(response, partial, end + _SLACK, watch)
        if partial.size == end + _SLACK:
            raise unexpected(url, f"the server sends more than the image's {end} bytes")
    except HostError:
        partial.file.truncate(0)
        raise


def _parse_end(url: str, header: bytes, path: str) -> int:
    """Parse the end of an image from its header; raise HostError for any other file."""
    try:
        return parse_header(header, path).end
    except HostError as error:
        raise unexpected(url, error.what) from error


def _read_body(
    response: requests.Response,
    partial: Partial,
    limit: int,
    watch: Watch,
    total: int | None = None,
) -> None:
    """Append the body, never decoded, until the file has `limit` bytes."""
    response.raw.enforce_content_length = False  # a short body is continued
    while (left := limit - partial.size) > 0:
        # For a chunk of negative length, Python reads more than the limit.
        data = response.raw.read1(min(left, _CHUNK), decode_content=False)[:left]
        if not data:
            return
        partial.append(data)
        watch.progress(partial.size, total)


def _version(response: requests.Response) -> str:
    """Find the strong ETag, or else the date, or else ''."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _failed(url: str, reason: str, where: str, hint: str) -> HostError:
    return HostError(f"cannot download {without_password(url)}: {reason[:300]}", where, hint)


def unexpected(url: str, problem: str) -> HostError:
    """Make the error for a file other than the expected image."""
    what = f"unexpected file at {without_password(url)}: {problem}"
    return HostError(what, "", "ask whoever publishes it")


def without_password(url: str) -> str:
    """Remove the user and password from an address before it is shown or stored."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def _reason(error: BaseException) -> str:
    """Find the innermost cause, on one line: requests wraps the errors of urllib3, which wrap the
    system's.
    """
    for cause in [getattr(error, "reason", None), *error.args]:
        if isinstance(cause, BaseException):
            return _reason(cause)
    return without_password(" ".join(str(error).split())) or type(error).__name__
