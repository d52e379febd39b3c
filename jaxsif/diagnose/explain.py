"""Find known messages in what programs printed, also without jaxsif, and say what they mean; pure.

A match is an observation: it explains a line, and does not decide why a program failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from jaxsif.diagnose.facts import match_symptoms
from jaxsif.diagnose.symptoms import (
    CAUSE,
    CONSEQUENCE,
    DIFFERENT,
    EITHER,
    ENDINGS,
    EXPLAINED,
    Symptom,
)
from jaxsif.errors import JaxsifError
from jaxsif.limits import LONGEST_LINE
from jaxsif.task.contract import INITIALIZED, SPAWNED, ellipsize
from jaxsif.text import count_of, printable

ERROR = "error"  # the role of what jaxsif itself said
_ROLES = (CAUSE, EITHER, CONSEQUENCE)  # in the order of the output
_WIDTH = 80  # columns
_ROOM = _WIDTH - len("  line: ")
_LATER = (".*", "(?i).*", "F.*")  # begin patterns of words that may be late in a line
_LONGEST_MESSAGE = 2000  # characters
_MOST_ALIKE = 20  # explanations by one row, which differ by a name
_COMPARED = 60  # characters of a message that an error may have named
_WORDS = {"node": "the node"}  # for patterns without its name
_MOST_SHAPES = 1000  # of lines, whose rows are kept
_TEXTS = tuple(dict.fromkeys(text.encode() for row in EXPLAINED for text in row.texts))
_OWN = "jaxsif: "  # begins the lines of jaxsif itself
# An error of jaxsif, as JaxsifError.render writes it; a message of another program is in it.
_OWN_TEXT = b"jaxsif: error: "
_OWN_ERROR = re.compile(
    rb"(?m)^ *jaxsif: error: (?P<what>.*)(?:\n    .*)*"
    rb"(?:\n  from: (?P<where>.*))?(?:\n  try:  (?P<hint>.*))?"
)
# The failure of an attempt, after which jaxsif started the program again.
_OWN_ATTEMPT = re.compile(rb"(?m)^ *jaxsif: (attempt \d+ failed: .*)")
_LONGEST_ERROR = 1 << 13  # bytes
# Differ in lines that are otherwise equal; no pattern has one.
_NUMBERS = re.compile(r"\d+\.\d+|\d{4,}|0x[0-9a-f]+")
# Colours, titles, movements of the cursor.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*\x07?|[@-Z\\^_])")
# A frame of a Python traceback, perhaps after a label, and the lines of source code after it.
_LABEL = rb"(?:\d{1,9}: |\[[\d,]{1,20}\]<std(?:out|err)>: ?)?"  # of srun or mpirun
_FRAME = re.compile(_LABEL + rb' {2}File "[^\n]*", line \d+, in ')
_INDENTED = re.compile(_LABEL + rb" {4}")
_MOST_SOURCE = 50  # lines of one expression
# A Python traceback, and the exception after it.
_TRACEBACK = re.compile(
    rb"(?m)^(?P<label>" + _LABEL + rb")Traceback \(most recent call last\):\n"
    rb"(?:(?P=label)(?: .*)?\n)*(?P=label)(?P<text>[A-Za-z_][\w.]*(?:: .*)?)$"
)
_NOT_OWN = (
    "-packages/",
    "/lib/python3",
    "/lib64/python3",
    "<frozen",
    ".pyx:",
)  # in the names of files
_PLACE = re.compile(r' {2}File "([^"\n]*)", line (\d+)')
_RAISED = "a Python program raised an exception"
_PAGE_OF_RAISED = "docs/troubleshooting.md#task-n-on-node-failed-text"
# What others write before a message.
_BEFORE = re.compile(
    r"""(?x)(?:
    \d{1,9}:\s  # srun --label
    |\[[^\]]{0,80}\]:?  # mpirun's and other labels; seconds since the boot; a time
    |<std(?:out|err)>:
    |\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[\d.,:+-]*Z?
    |\d\d:\d\d:\d\d[\d.,]*\s
    |[A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d\ (?:\S+\ kernel:)?
    |[\s|│+-]  # the frame of a traceback
    |(?:[A-Za-z_]\w*\.)+(?=\w*(?:Error|Exception)\b)  # the module of an exception
    )*"""
)


class Explanation(NamedTuple):
    """A known message, with the first of its lines; or an error of jaxsif."""

    role: str  # ERROR, CAUSE, EITHER or CONSEQUENCE
    meaning: str
    remedy: str
    page: str  # of the documentation; '' for an error
    # The line, printable, from about where the message is; where an error came from.
    text: str
    file: str
    line: int  # from 1; 0 for an error that the file does not have
    times: int = 0  # lines that mean the same
    files: int = 0  # with such lines; 0 for an error


class Log:
    """Collects the known messages of files, in bounded memory."""

    def __init__(self) -> None:
        self._errors: dict[str, Explanation] = {}  # of jaxsif, by their words
        self._found: dict[str, Explanation] = {}  # by meaning
        self.last: dict[str, int] = {}  # the last line of a file with a meaning
        self._last_file: dict[str, str] = {}  # with a meaning
        self._alike: Counter[str] = Counter()  # by pattern
        self._rows: dict[str, Symptom | None] = {}  # by shape
        self._attempt: list[Explanation] = []  # the last one that failed
        self.tells_end = False  # jaxsif says how the run ended

    @property
    def explanations(self) -> list[Explanation]:
        """The explanations, causes first, those of one role in the order of their first lines.

        Errors of jaxsif come before all others, and take the place of messages that mean the same,
        and of what Slurm says of an end. An unknown exception counts where nothing says more.
        """
        hidden = {*self._errors, *(ENDINGS if self.tells_end else ())}
        if self.tells_end or any(one.role == CAUSE for one in self._found.values()):
            hidden.add(_RAISED)
        found = [one for meaning, one in self._found.items() if meaning not in hidden]
        found.sort(key=lambda one: _ROLES.index(one.role))
        return [*self._attempt, *self._errors.values(), *found]

    def add_error(self, what: str, where: str, hint: str, file: str, line: int = 0) -> None:
        """Add an error of jaxsif."""
        self.tells_end = True
        what, where, hint = map(printable, (what, where, hint))
        one = self._errors.get(what) or Explanation(ERROR, what, hint, "", where, file, line)
        if one.times or len(self._errors) < _MOST_ALIKE:
            self._errors[what] = one._replace(times=one.times + 1)

    def read(self, file: str, blocks: Iterable[bytes]) -> None:
        """Search the content of a file."""
        number, rest = 1, b""
        for block in chain(blocks, [b""]):
            data = rest + block
            end = data.rfind(b"\n") + 1
            if not block or (not end and len(data) > LONGEST_LINE):
                end = len(data)
            elif block:
                end = _keep_error(data, end)
            number = self._search(file, number, data[:end])
            rest = data[end:]

    def _search(self, file: str, number: int, data: bytes) -> int:
        """Search lines of which the first has this number; return the number of the next one."""
        errors = list(_OWN_ERROR.finditer(data)) if _OWN_TEXT in data else []
        for match in _OWN_ATTEMPT.finditer(data) if b"jaxsif: attempt " in data else ():
            text = printable(match[1][:_LONGEST_MESSAGE].decode(errors="replace"))
            begin = number + data.count(b"\n", 0, match.start())
            self._attempt = [Explanation(ERROR, text, "", "", "", file, begin, times=1)]
        for error in errors:
            parts = (part[:_LONGEST_MESSAGE].decode(errors="replace") for part in error.groups(b""))
            what, where, hint = parts
            place = (file, number + data.count(b"\n", 0, error.start()))
            self.add_error(what, where, hint, *place)
        found = reversed(list(_TRACEBACK.finditer(data)) if b"Traceback" in data else [])
        last = next((match for match in found if not self._is_known(match)), None)
        if last:  # the program may have handled earlier ones
            self._add_exception(file, number + data.count(b"\n", 0, last.start("text")), last)
        before = 0
        for begin, end in sorted(_find_spans(data, errors)):
            number += data.count(b"\n", before, begin)
            before = begin
            line = _ESCAPES.sub("", data[begin:end].decode(errors="replace"))
            for part in line.split("\r"):  # a progress bar has many
                self._add(file, number, part[:_LONGEST_MESSAGE])
        return number + data.count(b"\n", before)

    def _add(self, file: str, number: int, line: str) -> None:
        """Add the known message of a line, if it has one."""
        message = line[_BEFORE.match(line).end() :].rstrip()  # type: ignore[union-attr]
        row = self._find_row(message)
        if row is None or (message.startswith(_OWN) and row is not DIFFERENT):
            return
        for match in match_symptoms([row], [message], **_WORDS):
            meaning = printable(row.meaning.format(**match.words) or match.what)
            if meaning not in self._found:
                if self._alike[row.pattern] == _MOST_ALIKE:
                    return
                self._alike[row.pattern] += 1
                page = row.page if "#" in row.page else f"troubleshooting.md#{row.page}"
                facts = (printable(match.remedy), f"docs/{page}", _cut_begin(row, message))
                self._found[meaning] = Explanation(row.role, meaning, *facts, file, number)
            one = self._found[meaning]
            files = one.files + (self._last_file.get(meaning) != file)
            self._found[meaning] = one._replace(times=one.times + 1, files=files)
            self.last[meaning], self._last_file[meaning] = number, file

    def _add_exception(self, file: str, number: int, match: re.Match[bytes]) -> None:
        """Add an exception that is no known message, in place of an earlier one."""
        text = match["text"][:_LONGEST_MESSAGE].decode(errors="replace")
        places = [":".join(place) for place in _PLACE.findall(match[0].decode(errors="replace"))]
        own = [place for place in places if not any(map(place.__contains__, _NOT_OWN))] or places
        where = f"{printable(own[-1])}, and " if own else ""
        remedy = f"see {where}the traceback above this line"
        facts = (_RAISED, remedy, _PAGE_OF_RAISED, printable(text), file, number)
        self._found[_RAISED] = Explanation(EITHER, *facts, times=1, files=1)

    def _is_known(self, match: re.Match[bytes]) -> bool:
        """Return whether the exception of a traceback is a known message."""
        text = match["text"][:_LONGEST_MESSAGE].decode(errors="replace")
        return bool(self._find_row(text[_BEFORE.match(text).end() :]))  # type: ignore[union-attr]

    def _find_row(self, message: str) -> Symptom | None:
        """Find the row of a message, faster for a message that differs from an earlier one only in
        numbers.
        """
        shape = _NUMBERS.sub("#", message)
        if shape not in self._rows:
            if len(self._rows) == _MOST_SHAPES:
                self._rows.clear()
            rows = [row for row in EXPLAINED if any(map(message.__contains__, row.texts))]
            found = next(match_symptoms(rows, [message], **_WORDS), None)
            self._rows[shape] = found.symptom if found else None
        return self._rows[shape]


def _cut_begin(row: Symptom, message: str) -> str:
    """Return a message, printable; without its beginning if the pattern matches further on."""
    end = re.match(row.pattern, message).end()  # type: ignore[union-attr]
    if end > _ROOM and row.pattern.startswith(_LATER):
        message = "… " + message[end - _ROOM :].partition(" ")[2]
    return printable(message)


def _keep_error(data: bytes, end: int) -> int:
    """Return where to cut `data`, so that an error of jaxsif, or a traceback, near its end stays
    whole.
    """
    first = max(0, end - _LONGEST_ERROR)
    begin = max(data.rfind(text, first, end) for text in (_OWN_TEXT, b"Traceback (most"))
    return data.rfind(b"\n", 0, begin) + 1 if begin >= 0 else end


def _find_lines(text: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each line with `text`; of a long line, the part around
    it.
    """
    at = data.find(text)
    while at >= 0:
        first = max(0, at - LONGEST_LINE)
        begin = data.rfind(b"\n", first, at) + 1 or first
        end = data.find(b"\n", at, at + LONGEST_LINE)
        end = end if end >= 0 else min(len(data), at + LONGEST_LINE)
        yield begin, end
        at = data.find(text, end)


def _find_spans(data: bytes, errors: Sequence[re.Match[bytes]]) -> set[tuple[int, int]]:
    """Return the beginnings and ends of lines with a known text, outside of jaxsif's own errors."""
    spans = {span for text in _TEXTS if text in data for span in _find_lines(text, data)}
    own = {span for span in spans for one in errors if one.start() <= span[0] <= one.end()}
    return {span for span in spans - own if not _is_source(data, *span)}


def _is_source(data: bytes, begin: int, end: int) -> bool:
    """Return whether a line is source code of the program in a Python traceback: text there was not
    printed for its own sake. JAX's own code counts, as where it asserts something.
    """
    for _ in range(_MOST_SOURCE):
        if begin == 0 or not _INDENTED.match(data, begin, end):
            return False
        begin, end = data.rfind(b"\n", 0, begin - 1) + 1, begin
        if _FRAME.match(data, begin, end):
            return b"-packages/" not in data[begin:end]
    return False


def render_explanations(found: Sequence[Explanation]) -> Iterator[str]:
    """Yield the lines of all explanations, none wider than 80 columns but for a file's path."""
    for one in found:
        if one.role == ERROR:
            yield from _render_error(one)
            continue
        times = f", {count_of(one.times, 'time')}" if one.times > 1 else ""
        times += f" in {one.files} files" if one.files > 1 else ""
        place = f"{one.file}:{one.line}{times}"
        yield from _wrap(f"{one.role}: ", one.meaning, "  ")
        yield f"  line: {ellipsize(one.text, _ROOM)}"
        yield f"  from: {place}"  # whole, to be copied
        yield from _wrap("  try:  ", one.remedy, " " * 8)
        yield f"  page: {one.page if len(one.page) <= _ROOM else one.page.partition('#')[0]}"
    if found and all(one.role == CONSEQUENCE or one.meaning in ENDINGS for one in found):
        is_known = any(one.role != CONSEQUENCE for one in found)
        what = "if none of these is the cause" if is_known else "no known message gives the cause"
        yield f"{what}: read what the first failed task printed"


def _render_error(one: Explanation) -> Iterator[str]:
    yield from _wrap("jaxsif: error: ", one.meaning, "  ")
    if one.text:
        yield from _wrap("  from: ", one.text, " " * 8)
    if one.remedy:
        yield from _wrap("  try:  ", one.remedy, " " * 8)


def _wrap(begin: str, text: str, indent: str) -> list[str]:
    import textwrap  # here: a failed run renders nothing

    return textwrap.wrap(begin + text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def find_unnamed_cause(output: bytes, error: JaxsifError) -> tuple[str, str]:
    """Return a line about the last known cause in the output of a run that ended with `error`, and
    a remedy for it: the line if the error does not name a cause, the remedy if it quotes one and
    has none; else '' for each.
    """
    log = Log()
    log.read("", [output])
    causes = [one for one in log.explanations if one.role == CAUSE]
    if not causes or _is_told(causes, error):
        return "", ""
    quoted = _find_quoted(causes, error.what)
    if quoted:
        return "", "" if error.hint else quoted[0].remedy
    last = max(causes, key=lambda one: log.last[one.meaning])  # programs handle earlier ones
    return f"seen in the output, perhaps the cause: {last.meaning}; try: {last.remedy}", ""


def _is_told(causes: Sequence[Explanation], error: JaxsifError) -> bool:
    """Return whether the error names one of these causes, or what has led to all of them: processes
    that should not have connected, or not so.
    """
    is_root = any(phrase in error.what for phrase in (*SPAWNED, INITIALIZED))
    return is_root or any(error.hint == one.remedy or one.meaning in error.what for one in causes)


def _find_quoted(causes: Iterable[Explanation], what: str) -> list[Explanation]:
    """Return the causes of which an error, `TASK failed: EXCEPTION`, has the line, or one that
    means the same: each task may print another name.
    """
    log = Log()
    log.read("", [what.partition(": ")[2].encode()])
    meanings = {one.meaning for one in log.explanations}
    return [one for one in causes if one.meaning in meanings or _shorten(one.text) in what]


def _shorten(line: str) -> str:
    """Return the part of a message that an error may have."""
    return line.lstrip("… ").rpartition("error: ")[2][:_COMPARED]
