"""One file over HTTP, continued where the connection broke, as long as it is still the same file.

Nothing that a server says is taken on trust: no coding is undone, no more is written than was
announced, and a server that sends next to nothing is left.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import urljoin

from jaxsif.errors import HostError, Show
from jaxsif.files import check_space
from jaxsif.images.partial import Partial, is_version, open_own
from jaxsif.images.sif import HEADER_SIZE, parse_header
from jaxsif.limits import is_decimal

if TYPE_CHECKING:
    import requests  # in functions: it takes 100 ms, and --help needs none

_TRIES = 5  # without new bytes, before we give up
_CHUNK = 1 << 17  # bytes; of a connection that breaks, so many may be lost
_REDIRECTS = 10
_LEAST_RATE = 1000  # bytes a second, over at least
_WINDOW = 60.0  # seconds
# Seconds that an answer, or the next bytes, may take beyond the timeout, whatever trickles in.
_STEP = 240.0
# Bytes after the end of an image whose size the server does not tell: what was removed of it.
_SLACK = 1 << 20
_SIZE = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")

# Statuses of answers.
_WHOLE, _PART, _NOTHING_MORE = 200, 206, 416
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # another try may have a better answer

# Who is at fault, and what to do.
_SERVER = "the server"
_ADDRESS = "check the address"
_OTHER = "ask who runs the server, or use another one"


class Watch(NamedTuple):
    """How long to wait for a server, and whom to tell what comes."""

    timeout: float  # seconds for a connection, or for the next bytes
    show: Show  # prints a note
    progress: Callable[
        [int, int | None], None
    ]  # bytes that are there, and in all, if that is known
    clock: Callable[[], float] = time.monotonic  # seconds


class _BrokenError(Exception):
    """The transfer ended too early, and may be taken up again."""


class Pace:
    """Whether the bytes of one answer come at the least rate, over a minute or the timeout."""

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


def download(url: str, partial: Partial, watch: Watch) -> None:
    """Bring the whole of `url` into `partial`; raise HostError. What is there then stays, for the
    next time.

    To be called in the main thread, see `_at_most`.
    """
    import requests
    from urllib3.exceptions import HTTPError

    broken = (
        _BrokenError,
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        HTTPError,
    )
    transfer = _Transfer(url, partial, watch)
    most, tries = partial.size, 0
    while True:
        try:
            transfer.run()
            return
        except (*broken, requests.RequestException) as error:
            reason = _reason(error)
            final = isinstance(error, requests.exceptions.SSLError) or not isinstance(error, broken)
        size = partial.size
        grown = size >= most + _LEAST_RATE * _WINDOW  # a few bytes a connection are no progress
        if grown:
            most, tries = size, 0
        tries += 1
        if tries == _TRIES or (final and not grown):
            kept = f"{size} bytes are kept in {partial.path}" if size else ""
            raise _failed(url, reason, kept, "check the URL and the network")
        pause = 2 ** (tries - 1)
        watch.show(f"{reason}; again in {pause} s")
        time.sleep(pause)


def _failed(url: str, reason: str, where: str, hint: str) -> HostError:
    return HostError(f"cannot download {without_password(url)}: {reason[:300]}", where, hint)


def not_wanted(url: str, problem: str) -> HostError:
    """Return the error for a file that is another one than was asked for."""
    return HostError(
        f"what {without_password(url)} has is not what was asked for: {problem}",
        "",
        "ask who publishes it",
    )


class _Transfer:
    """The requests for one file, and where its bytes go."""

    def __init__(self, url: str, partial: Partial, watch: Watch) -> None:
        import requests
        from requests.utils import get_auth_from_url

        self.url, self.partial, self.watch = url, partial, watch
        self.folder = os.path.dirname(partial.path)
        self.session = requests.Session()
        self.session.headers["Accept-Encoding"] = "identity"  # bytes as they are in the file
        credentials = get_auth_from_url(url)
        self.auth = credentials if any(credentials) else None

    def run(self) -> None:
        """Make one request, from where the file ends, and read to the end of the answer."""
        address = without_password(self.url)
        there, version = self.partial.recall(address)
        # If-Range: the rest if the file is still that version, all of it otherwise.
        wanted = {"Range": f"bytes={there}-", "If-Range": version} if there else {}
        pace = Pace(self.watch.timeout, self.watch.clock)
        with self._get(wanted) as response:
            _check_answer(self.url, response, there > 0)
            total = _total(self.url, response)
            if response.status_code == _NOTHING_MORE and total == there:
                return
            if response.status_code == _WHOLE:
                if there:
                    self.watch.show("the server sends the file from its beginning")
                there = 0
                self.partial.begin(address, _version(response))
            elif not _continues(response, there, version):
                self.partial.begin(address, "")
                raise _BrokenError("the file changed meanwhile")
            self._read_body(response, there, total, pace)

    def _get(self, headers: dict[str, str]) -> requests.Response:
        """Return the answer after all redirects. No body is read: requests would read those of
        redirects, and decode them.
        """
        address = self.url
        for _ in range(_REDIRECTS + 1):
            _check_way(self.url, address)
            response = self._send(address, headers)
            following = self._find_redirect(response)
            if not following:
                return response
            self.session.cookies.update(response.cookies)
            response.close()
            address = following
        raise _failed(self.url, f"more than {_REDIRECTS} redirects", _SERVER, _ADDRESS)

    def _send(self, address: str, headers: dict[str, str]) -> requests.Response:
        """Return the answer of one server; the password goes to its own server alone."""
        import requests

        session = self.session
        auth = None if session.should_strip_auth(self.url, address) else self.auth
        request = requests.Request("GET", address, headers=headers, auth=auth)
        prepared = session.prepare_request(request)
        settings = session.merge_environment_settings(address, {}, True, None, None)
        timeout = self.watch.timeout
        with _at_most(timeout + _STEP):
            return session.get_adapter(address).send(prepared, timeout=timeout, **settings)

    def _find_redirect(self, response: requests.Response) -> str:
        """Return the address that an answer leads to; '' where it leads nowhere."""
        from requests.utils import requote_uri

        try:
            target = self.session.get_redirect_target(response)
            return urljoin(response.url, requote_uri(target)) if target else ""
        except ValueError as error:  # no UTF-8, or a bracket without its other one
            response.close()
            raise _failed(
                self.url, "the server redirects to an invalid address", _SERVER, _ADDRESS
            ) from error

    def _read_body(
        self, response: requests.Response, there: int, total: int | None, pace: Pace
    ) -> None:
        """Append what comes after the bytes that are there; raise _BrokenError where it is less
        than announced.
        """
        # Too few bytes are bytes too; they are counted below.
        response.raw.enforce_content_length = False
        limit = self._find_limit(there, total)
        with open_own(self.partial.path, "ab") as file:
            while there < limit:
                data = self._read(response, limit - there)
                if not data:
                    break
                self._write(file, data)
                there += len(data)
                self.watch.progress(there, total)
                pace.add(len(data))
                if there == limit:
                    limit = self._find_limit(there, total)
        if total is not None and there != total:
            raise _BrokenError(f"the connection ended after {there} of {total} bytes")

    def _find_limit(self, there: int, total: int | None) -> int:
        """Return how far to read: to the announced end, or else to the end of the header, then of
        the image it describes.

        Raise HostError where the file has no room; where its size is not announced, also for what
        is no image or has an end already, and leave nothing then.
        """
        if total is not None:
            check_space(self.folder, total - there)
            return total
        if there < HEADER_SIZE:
            return HEADER_SIZE
        try:
            end = self._find_end(there)
            check_space(self.folder, end - there)
        except HostError:
            self.partial.remove()
            raise
        return end + _SLACK

    def _find_end(self, there: int) -> int:
        """Return where the image ends whose header is there; raise HostError for what is no image,
        and when too much is after its end.
        """
        with open(self.partial.path, "rb") as file:
            header = file.read(HEADER_SIZE)
        try:
            end = parse_header(header, self.partial.path).end
        except HostError as error:
            raise not_wanted(self.url, error.what) from error
        if there >= end + _SLACK:
            raise not_wanted(self.url, f"more than the {end} bytes of the image come")
        return end

    def _read(self, response: requests.Response, most: int) -> bytes:
        """Return the next bytes as they come, never decoded; none at the end."""
        with _at_most(self.watch.timeout + _STEP):
            data: bytes = response.raw.read1(min(most, _CHUNK), decode_content=False)
        return data[:most]  # of a chunk of negative length, Python reads more

    def _write(self, file: IO[bytes], data: bytes) -> None:
        """Append bytes; raise HostError, and leave nothing on a full disk."""
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.partial.remove()
            raise HostError(
                f"cannot write {self.partial.path}: {error.strerror}", "", "make room there"
            ) from error


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _BrokenError when the body of the `with` takes longer.

    A timeout of a socket begins again at each byte. The signal ends also what waits in a library,
    in the main thread.
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
    status, said = response.status_code, f"{response.status_code} {response.reason}"
    if status in _PASSING:
        raise _BrokenError(f"the server says {said[:300]}")
    if status == _PART and not for_a_part:
        what = "the server sends a part of the file, and was asked for all of it"
        raise _failed(url, what, _SERVER, _OTHER)
    if status not in ((_WHOLE, _PART, _NOTHING_MORE) if for_a_part else (_WHOLE,)):
        raise _failed(url, said, _SERVER, _ADDRESS)
    coding = response.headers.get("Content-Encoding", "identity").strip()
    if coding.lower() not in ("", "identity"):
        raise _failed(url, f"the server sends it encoded, by {coding[:40]}", _SERVER, _OTHER)


def _continues(response: requests.Response, there: int, version: str) -> bool:
    """Return whether an answer has what follows on the bytes that are there, also from a server
    that knows no If-Range.
    """
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code != _PART or not found:
        return False
    begin, last = int(found[1]), int(found[2])
    size = last + 1 if found[3] == "*" else int(found[3])
    return there == begin <= last < size and _version(response) in (version, "")


def _total(url: str, response: requests.Response) -> int | None:
    """Return the size of the whole file, None where the server does not tell; raise HostError for
    one that no file has.
    """
    if response.status_code == _WHOLE:
        size = response.headers.get("Content-Length", "")
    else:
        size = response.headers.get("Content-Range", "").rpartition("/")[2]
    if not is_decimal(size):
        return None
    if not _SIZE.fullmatch(size):
        what = f"the server announces a size of {len(size)} digits"
        raise _failed(url, what, _SERVER, _OTHER)
    return int(size)


def _version(response: requests.Response) -> str:
    """Return what names this version of the file: its strong ETag, or its date; '' where the server
    tells neither.
    """
    tag = response.headers.get("ETag", "")
    version = tag if tag.startswith('"') else response.headers.get("Last-Modified", "")
    return version if is_version(version) else ""


def without_password(url: str) -> str:
    """Return an address as it may be shown and written."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def _reason(error: BaseException) -> str:
    """Return the innermost cause, in one line: requests wraps the errors of urllib3, which wrap the
    system's.
    """
    causes = [getattr(error, "reason", None), *error.args]
    for cause in causes:
        if isinstance(cause, BaseException):
            return _reason(cause)
    return without_password(" ".join(str(error).split())) or type(error).__name__
