"""One image over HTTP, taken up again where the connection broke, as long as it is still the same
file.

Nothing that a server says is taken on trust: no coding is undone, no more is written than was
announced, and a server that sends next to nothing is left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urljoin

from jaxsif.errors import HostError
from jaxsif.files import check_space
from jaxsif.foreign import find, parse_json, read_text
from jaxsif.images.sif import HEADER_SIZE, parse_header

if TYPE_CHECKING:
    import requests  # in functions: it takes 100 ms, and --help needs none

_TRIES = 5  # without new bytes, before we give up
_CHUNK = 1 << 17  # bytes; of a connection that breaks, so many may be lost
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that another try may better
_REDIRECTS = 10
_LEAST_RATE = 1000  # bytes a second, over at least
_WINDOW = 60.0  # seconds
# Seconds that an answer, or the next bytes, may take beyond the timeout, whatever trickles in.
_STEP = 240.0
# Bytes behind the end of an image whose size the server does not tell: what was removed of it.
_SLACK = 1 << 20
_SIZE = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_VERSION = re.compile(r"[!-~][ -~]{0,998}")  # what may be sent back in a header

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
        """The bytes of `url` that are there, and what names the version that they are of; or 0 and
        ''.
        """
        try:
            origin = parse_json(read_text(self.origin, "note of a download"))
        except (FileNotFoundError, ValueError, HostError):
            return 0, ""  # the first time, or cut short by a full disk
        version = find(origin, "version")
        if (
            find(origin, "url") == without_password(url)
            and isinstance(version, str)
            and _VERSION.fullmatch(version)
        ):
            return os.path.getsize(self.path), version
        return 0, ""

    def begin(self, url: str, version: str) -> None:
        """Nothing is there, of this version; emptied first, so that old bytes never count as this
        version's.
        """
        import json

        os.truncate(self.path, 0)
        with _open_own(self.origin, "w") as file:
            json.dump({"url": without_password(url), "version": version}, file)

    def remove(self) -> None:
        """Forget it."""
        for path in (self.path, self.origin):
            if os.path.lexists(path):
                os.unlink(path)


def _open_own(path: str, mode: str) -> IO[Any]:
    """Open a file to write; raise HostError for what somebody else may have put there to be written
    or changed.
    """
    if os.path.lexists(path):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise HostError(
                f"not a file of this user: {path}", "", "remove it, or choose another folder"
            )
    return open(
        path,
        mode,
        opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666),
    )


@contextmanager
def only_one(partial: Partial) -> Iterator[None]:
    """Nobody else downloads this file meanwhile; raises HostError when somebody does. Nothing is
    left of nothing.
    """
    with _open_own(partial.path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(
                f"another download writes {partial.path}", "", "wait for it, or end it"
            ) from error
        try:
            yield
        finally:
            if os.path.exists(partial.path) and os.path.getsize(partial.path) == 0:
                partial.remove()


class _BrokenError(Exception):
    """The transfer ended too early, and may be taken up again."""


class Pace:
    """Whether the bytes of one answer come as fast as the least rate, over a minute or the timeout."""

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self._clock, self._window = clock, max(_WINDOW, timeout)
        self._begin, self._bytes = clock(), 0

    def add(self, count: int) -> None:
        """Take note of new bytes; raise _BrokenError where there were too few."""
        self._bytes += count
        now = self._clock()
        if now - self._begin < self._window:
            return
        if self._bytes < _LEAST_RATE * self._window:
            raise _BrokenError(f"the server sent {self._bytes} bytes in {now - self._begin:.0f} s")
        self._begin, self._bytes = now, 0


def download(
    url: str,
    partial: Partial,
    timeout: float,
    show: Show,
    count: Count,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """The whole of `url` in `partial`; raises HostError. What is there then stays, for the next
    time.

    `timeout`: seconds to wait for a connection, or for the next bytes. To be called in the main
    thread, see `_at_most`.
    """
    import requests
    from urllib3.exceptions import HTTPError

    broken = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        HTTPError,
    )
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"  # bytes as they are in the file
    most, tries = os.path.getsize(partial.path), 0
    while True:
        try:
            _transfer(session, url, partial, timeout, show, count, Pace(timeout, clock))
            return
        except broken as error:
            reason, final = _reason(error), isinstance(error, requests.exceptions.SSLError)
        except requests.RequestException as error:
            reason, final = _reason(error), True
        except _BrokenError as error:
            reason, final = str(error), False
        size = os.path.getsize(partial.path)
        grown = size >= most + _LEAST_RATE * _WINDOW  # a few bytes a connection are no progress
        most = max(most, size) if grown else most
        tries = 1 if grown else tries + 1
        if tries == _TRIES or (final and not grown):
            kept = f"{size} bytes are kept in {partial.path}" if size else ""
            raise _failed(url, reason, kept, "look at address and network")
        pause = 2 ** (tries - 1)
        show(f"{reason}; again in {pause} s")
        time.sleep(pause)


def _failed(url: str, reason: str, where: str, hint: str) -> HostError:
    return HostError(f"cannot download {without_password(url)}: {reason[:300]}", where, hint)


def not_wanted(url: str, problem: str) -> HostError:
    """The error for a file that is another one than was asked for."""
    return HostError(
        f"what {without_password(url)} has is not what was asked for: {problem}",
        "",
        "ask who publishes it",
    )


def _transfer(
    session: requests.Session,
    url: str,
    partial: Partial,
    timeout: float,
    show: Show,
    count: Count,
    pace: Pace,
) -> None:
    """One request, from where the file ends to the end of the answer."""
    there, version = partial.recall(url)
    # If-Range: the rest if the file is still that version, all of it otherwise.
    wanted = {"Range": f"bytes={there}-", "If-Range": version} if there else {}
    with _get(session, url, wanted, timeout) as response:
        _check_answer(url, response, there > 0)
        total = _total(url, response)
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
        limit = _find_limit(url, partial, there) if total is None else total
        # Too few bytes are bytes too; they are counted below.
        response.raw.enforce_content_length = False
        with _open_own(partial.path, "ab") as file:
            while there < limit:
                data = _read(response, limit - there, timeout)
                if not data:
                    break
                _write(file, data, partial)
                there += len(data)
                count(there, total)
                pace.add(len(data))
                if total is None and there == limit:
                    limit = _find_limit(url, partial, there)
        if total is not None and there != total:
            raise _BrokenError(f"the connection ended after {there} of {total} bytes")


def _get(
    session: requests.Session, url: str, headers: dict[str, str], timeout: float
) -> requests.Response:
    """The answer behind all redirects. No body is read: requests would read those of redirects, and
    decode them.
    """
    import requests
    from requests.utils import get_auth_from_url

    address, credentials = url, get_auth_from_url(url)
    for _ in range(_REDIRECTS + 1):
        _check_way(url, address)
        auth = (
            credentials
            if any(credentials) and not session.should_strip_auth(url, address)
            else None
        )
        request = session.prepare_request(
            requests.Request("GET", address, headers=headers, auth=auth)
        )
        settings = session.merge_environment_settings(address, {}, True, None, None)
        with _at_most(timeout + _STEP):
            response = session.get_adapter(address).send(request, timeout=timeout, **settings)
        try:
            target = session.get_redirect_target(response)
            following = urljoin(response.url, requests.utils.requote_uri(target)) if target else ""
        except ValueError as error:  # no UTF-8, or a bracket without its other one
            response.close()
            raise _failed(
                url, "the server redirects to an invalid address", "the server", "check the address"
            ) from error
        if not following:
            return response
        session.cookies.update(response.cookies)
        response.close()
        address = following
    raise _failed(url, f"more than {_REDIRECTS} redirects", "the server", "check the address")


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _BrokenError when the body of the `with` takes longer.

    A timeout of a socket begins anew at each byte. The signal ends also what waits in a library, in
    the main thread.
    """

    def give_up(_number: int, _frame: object) -> NoReturn:
        raise _BrokenError(f"no answer within {seconds:.0f} s")

    former = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def _read(response: requests.Response, most: int, timeout: float) -> bytes:
    """The next bytes as they come, never decoded; none at the end."""
    with _at_most(timeout + _STEP):
        data: bytes = response.raw.read1(min(most, _CHUNK), decode_content=False)
    return data[:most]  # of a chunk of negative length, Python reads more


def _find_limit(url: str, partial: Partial, there: int) -> int:
    """How far to read an answer that does not tell its size: to the end of the header, then of the
    image it describes.

    Raise HostError, and leave nothing, where that is no image, where it has no room, or where it
    has an end already.
    """
    if there < HEADER_SIZE:
        return HEADER_SIZE
    with open(partial.path, "rb") as file:
        header = file.read(HEADER_SIZE)
    try:
        end = parse_header(header, partial.path).end
    except HostError as error:
        partial.remove()
        raise not_wanted(url, error.what) from error
    if there >= end + _SLACK:
        partial.remove()
        raise not_wanted(url, f"more than the {end} bytes of the image come")
    try:
        check_space(os.path.dirname(partial.path), end - there)
    except HostError:
        partial.remove()
        raise
    return end + _SLACK


def _write(file: Any, data: bytes, partial: Partial) -> None:
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            partial.remove()  # lest the disk stays full
        raise HostError(
            f"cannot write {partial.path}: {error.strerror}", "", "make room there"
        ) from error


def _check_way(url: str, address: str) -> None:
    """Raise HostError for a redirect to what others could listen and write to."""
    if url.startswith("https:") and not address.startswith("https:"):
        raise HostError(
            f"{without_password(url)} leads to an address without https",
            without_password(address),
            "use another one",
        )


def _check_answer(url: str, response: requests.Response, for_a_part: bool) -> None:
    """Raise HostError or _BrokenError for an answer that is not the file, or the part of it that
    was asked for.
    """
    status = f"{response.status_code} {response.reason}"
    if response.status_code in _PASSING:
        raise _BrokenError(f"the server says {status[:300]}")
    if response.status_code == 206 and not for_a_part:
        raise _failed(
            url,
            "the server sends a part of the file, and was asked for all of it",
            "the server",
            _OTHER,
        )
    if response.status_code not in ((200, 206, 416) if for_a_part else (200,)):
        raise _failed(url, status, "the server", "check the address")
    coding = response.headers.get("Content-Encoding", "identity").strip()
    if coding.lower() not in ("", "identity"):
        raise _failed(url, f"the server sends it encoded, by {coding[:40]}", "the server", _OTHER)


_OTHER = "ask who runs the server, or use another one"


def _continues(response: requests.Response, there: int, version: str) -> bool:
    """Whether an answer has what follows on the bytes that are there, also from a server that knows
    no If-Range.
    """
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code != 206 or not found or int(found[1]) != there or int(found[2]) < there:
        return False
    inside = found[3] == "*" or int(found[2]) < int(found[3])
    return inside and _version(response) in (version, "")


def _total(url: str, response: requests.Response) -> int | None:
    """The size of the whole file, where the server tells; raise HostError for one that no file has."""
    if response.status_code == 200:
        size = response.headers.get("Content-Length", "")
    else:
        size = response.headers.get("Content-Range", "").rpartition("/")[2]
    if size.isdecimal() and not _SIZE.fullmatch(size):
        raise _failed(
            url, f"the server announces a size of {len(size)} digits", "the server", _OTHER
        )
    return int(size) if size.isdecimal() else None


def _version(response: requests.Response) -> str:
    """What names this version of the file: its strong ETag, or its date; '' where the server tells
    neither.
    """
    tag = response.headers.get("ETag", "")
    version = tag if tag.startswith('"') else response.headers.get("Last-Modified", "")
    return version if _VERSION.fullmatch(version) else ""


def without_password(url: str) -> str:
    """An address as it may be shown and written."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def _reason(error: BaseException) -> str:
    """The innermost cause, in one line: requests wraps the errors of urllib3, which wrap the
    system's.
    """
    while True:
        causes = [getattr(error, "reason", None), *error.args]
        inner = next((one for one in causes if isinstance(one, BaseException)), None)
        if inner is None:
            return without_password(" ".join(str(error).split())) or type(error).__name__
        error = inner
