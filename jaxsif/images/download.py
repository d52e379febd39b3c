"""One file over HTTP, taken up again where the connection broke, as long as it is still the same file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import requests

from jaxsif.errors import HostError
from jaxsif.images.disk import check_space

_TRIES = 5  # without a new byte, before we give up
_CHUNK = 1 << 17  # bytes; of a connection that breaks, so many may be lost
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that another try may better

Show = Callable[[str], None]  # a note, for people
Count = Callable[[int, "int | None"], None]  # bytes that are there, and in all


class Partial(NamedTuple):
    """A file that is not whole yet; beside it, what it is a part of."""

    path: str

    @property
    def origin(self) -> str:
        """The file that says of which version of which address these bytes are."""
        return f"{self.path}.json"

    def recall(self, url: str) -> tuple[int, str]:
        """The bytes of `url` that are there, and what names the version that they are of; or 0 and ''."""
        try:
            with open(self.origin) as file:
                origin = json.load(file)
            if origin["url"] == without_password(url) and origin["version"]:
                return os.path.getsize(self.path), origin["version"]
        except (FileNotFoundError, ValueError):
            pass  # the first time, or cut short by a full disk
        return 0, ""

    def begin(self, url: str, version: str) -> None:
        """Nothing is there, of this version; emptied first, so that old bytes never count as this version's."""
        os.truncate(self.path, 0)
        with open(self.origin, "w") as file:
            json.dump({"url": without_password(url), "version": version}, file)

    def remove(self) -> None:
        """Forget it."""
        for path in (self.path, self.origin):
            if os.path.exists(path):
                os.unlink(path)


@contextmanager
def only_one(partial: Partial) -> Iterator[None]:
    """Nobody else downloads this file meanwhile; raises HostError when somebody does. Nothing is left of nothing."""
    with open(partial.path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(f"another download writes {partial.path}", "", "wait for it, or end it") from error
        try:
            yield
        finally:
            if os.path.exists(partial.path) and os.path.getsize(partial.path) == 0:
                partial.remove()


class _BrokenError(Exception):
    """The transfer ended too early, and may be taken up again."""


def download(url: str, partial: Partial, timeout: float, show: Show, count: Count) -> None:
    """The whole of `url` in `partial`; raises HostError. What is there then stays, for the next time.

    `timeout`: seconds to wait for a connection, or for the next bytes.
    """
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"  # bytes as they are in the file
    most, tries = os.path.getsize(partial.path), 0
    while True:
        try:
            _transfer(session, url, partial, timeout, show, count)
            return
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            reason, final = _reason(error), isinstance(error, requests.exceptions.SSLError)
        except requests.RequestException as error:
            reason, final = _reason(error), True
        except _BrokenError as error:
            reason, final = str(error), False
        size = os.path.getsize(partial.path)
        grown, most = size > most, max(most, size)
        tries = 1 if grown else tries + 1
        if tries == _TRIES or (final and not grown):
            kept = f"{size} bytes are kept in {partial.path}" if size else ""
            raise HostError(f"cannot download {without_password(url)}: {reason}", kept, "look at address and network")
        pause = 2 ** (tries - 1)
        show(f"{reason}; again in {pause} s")
        time.sleep(pause)


def _transfer(session: requests.Session, url: str, partial: Partial, timeout: float, show: Show, count: Count) -> None:
    """One request, from where the file ends to the end of the answer."""
    there, version = partial.recall(url)
    # If-Range: the rest if the file is still that version, all of it otherwise.
    wanted = {"Range": f"bytes={there}-", "If-Range": version} if there else {}
    with session.get(url, headers=wanted, stream=True, timeout=timeout) as response:
        _check_answer(url, response)
        total = _total(response)
        if response.status_code == 416 and total == there:  # nothing is behind what we have
            return
        if response.status_code == 200:
            if there:
                show("the server sends the file from its beginning")
            there = 0
            partial.begin(url, _version(response))
        elif not _continues(response, there, version):
            partial.begin(url, "")
            raise _BrokenError("the file changed meanwhile")
        check_space(os.path.dirname(partial.path), (total or 0) - there)
        response.raw.enforce_content_length = False  # too few bytes are bytes too; they are counted below
        with open(partial.path, "ab") as file:
            for data in response.iter_content(_CHUNK):
                _write(file, data, partial)
                there += len(data)
                count(there, total)
        if total is not None and there != total:
            raise _BrokenError(f"the connection ended after {there} of {total} bytes")


def _write(file: Any, data: bytes, partial: Partial) -> None:
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            partial.remove()  # lest the disk stays full
        raise HostError(f"cannot write {partial.path}: {error.strerror}", "", "make room there") from error


def _check_answer(url: str, response: requests.Response) -> None:
    status = f"{response.status_code} {response.reason}"
    if url.startswith("https:") and not response.url.startswith("https:"):
        raise HostError(
            f"{without_password(url)} leads to an address without https",
            without_password(response.url),
            "use another one",
        )
    if response.status_code in _PASSING:
        raise _BrokenError(f"the server says {status}")
    if response.status_code not in (200, 206, 416):
        raise HostError(f"cannot download {without_password(url)}: {status}", "the server", "check the address")


def _continues(response: requests.Response, there: int, version: str) -> bool:
    """Whether an answer has what follows on the bytes that are there, also from a server that knows no If-Range."""
    begins = response.headers.get("Content-Range", "").startswith(f"bytes {there}-")
    return response.status_code == 206 and begins and _version(response) in (version, "")


def _total(response: requests.Response) -> int | None:
    """The size of the whole file, where the server tells."""
    if response.status_code == 200:
        size = response.headers.get("Content-Length", "")
    else:
        size = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdecimal() else None


def _version(response: requests.Response) -> str:
    """What names this version of the file: its strong ETag, or its date; '' where the server tells neither."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def without_password(url: str) -> str:
    """An address as it may be shown and written."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def _reason(error: BaseException) -> str:
    """The innermost cause, in one line: requests wraps the errors of urllib3, which wrap the system's."""
    while True:
        causes = [getattr(error, "reason", None), *error.args]
        inner = next((one for one in causes if isinstance(one, BaseException)), None)
        if inner is None:
            return without_password(" ".join(str(error).split())) or type(error).__name__
        error = inner
