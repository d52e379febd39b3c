"""A site's own checks: executables that print findings as JSON, run on each node, in bounds."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from glob import escape, glob

from jaxsif.foreign import check_object, check_text, parse_json
from jaxsif.text import printable
from jaxsif.trust import find_writers

_SECONDS = 5  # for each check; all run at the same time
_MOST = 32  # checks, and findings of each
_LONGEST = 1 << 16  # bytes of output
_TEXT = 300  # characters
_STATES = ("ok", "warning", "failure", "unknown")
_is_finding = check_object({"state": _STATES.__contains__, "evidence": check_text(_TEXT)})
# timeout ends the whole group of processes, and head the writer of an endless output.
_RUN = 'timeout -s KILL "$1" "$2" 2>/dev/null | head -c "$3"'

Row = tuple[str, str, str, str]  # name, state, evidence, remedy


def run_checks(folders: Iterable[str], environ: Mapping[str, str]) -> list[Row]:
    """Run all checks of these folders; return their findings, in the order of their names."""
    rows: list[Row] = []
    paths = [path for folder in folders for path in glob(f"{escape(folder)}/*") or [folder]]

    def run(path: str) -> None:
        rows.extend(run_check(path, environ))

    threads = [
        threading.Thread(target=run, args=(path,), daemon=True) for path in sorted(paths)[:_MOST]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(rows)[: 2 * _MOST]


def run_check(path: str, environ: Mapping[str, str]) -> list[Row]:
    """Run a check, unless others may have written the file; return its findings."""
    if not os.path.isfile(path):
        return [_row(path, "not a file, nor a folder with checks")]
    if not os.access(path, os.X_OK):
        return []  # such as a README
    writers = find_writers(path)
    if writers:
        return [_row(path, f"not run, because others may write it: {writers}")]
    begin = time.monotonic()
    argv = ["sh", "-c", _RUN, "sh", str(_SECONDS), path, str(_LONGEST + 1)]
    done = subprocess.run(
        argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    if time.monotonic() > begin + _SECONDS:
        return [_row(path, f"no answer within {_SECONDS} s")]
    return parse_output(path, done.stdout)


def parse_output(path: str, output: bytes) -> list[Row]:
    """Return the findings in a check's output: an object, or a list of them."""
    if len(output) > _LONGEST:
        return [_row(path, f"more than {_LONGEST >> 10} KiB of output")]
    try:
        found = parse_json(output.decode())
    except ValueError:
        return [_row(path, "its output is not JSON")]
    findings = found if type(found) is list else [found]
    if not all(map(_is_finding, findings)):
        return [_row(path, "its output is not {state, evidence, remedy}")]
    return [
        _row(path, one["evidence"], one["state"], str(one.get("remedy", "")))
        for one in findings[:_MOST]
    ]


def _row(path: str, evidence: str, state: str = "unknown", remedy: str = "") -> Row:
    name, evidence, remedy = (
        printable(text)[:_TEXT] for text in (os.path.basename(path), evidence, remedy)
    )
    return name, state, evidence, remedy
