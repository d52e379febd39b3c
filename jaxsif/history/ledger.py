"""The ledger of a job's suspect nodes: a file for each job, a line of JSON for each finding."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from jaxsif.errors import STUCK_TASK, Notify
from jaxsif.files import user_folder
from jaxsif.foreign import parse_json
from jaxsif.history.folder import OLDEST, require_private
from jaxsif.text import printable

_LASTS = 86400.0  # seconds: a site may repair a node within a day
_MOST_BYTES = 1 << 20  # that are read
# Evidence that counts only if it was found twice, since the program may be the cause.
_WEAK = (STUCK_TASK,)


class Finding(NamedTuple):
    """Evidence against a node."""

    time: float  # seconds since 1970
    node: str
    source: str  # what found it: 'run', 'check'
    evidence: str  # such as 'lost'
    expiry: float  # seconds since 1970, after which it no longer counts


def find_ledger(job: str, environ: Mapping[str, str]) -> str:
    """Return the path of a job's ledger, which may not exist."""
    cluster = re.sub(r"[^\w.-]", "_", environ.get("SLURM_CLUSTER_NAME", ""))
    folder = os.path.join(user_folder(environ, "XDG_STATE_HOME"), "jaxsif/nodes")
    return os.path.join(folder, "-".join(filter(None, (cluster, f"{job}.jsonl"))))


def add_findings(path: str, findings: Sequence[Finding]) -> None:
    """Add findings to a ledger, which others may write at the same time; raise OSError."""
    folder = os.path.dirname(path)
    os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
    require_private(folder)
    is_new = not os.path.lexists(path)
    lines = "".join(f"{json.dumps(finding._asdict())}\n" for finding in findings)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        file.write(lines)
    if is_new:
        _prune(folder)


def suspect(
    path: str, nodes: Iterable[str], source: str, evidence: str, notify: Notify
) -> list[Finding]:
    """Add evidence against each of these nodes, dated now, to a ledger; return that which could not
    be written, and notify the user.
    """
    now = time.time()
    findings = [Finding(now, node, source, evidence, now + _LASTS) for node in nodes]
    try:
        if findings:
            add_findings(path, findings)
    except OSError as error:
        notify(printable(f"warning: cannot record suspect nodes: {error.strerror} ({path})"))
        return findings
    return []


def _prune(folder: str) -> None:
    """Remove ledgers that nobody has written to for 30 days."""
    for entry in os.scandir(folder):
        with suppress(OSError):  # another run has removed it
            if time.time() - entry.stat().st_mtime > OLDEST:
                os.unlink(entry.path)


def read_findings(path: str) -> list[Finding]:
    """Return the findings in a ledger, without malformed lines; [] if there is no ledger, or if it
    cannot be read.
    """
    found = []
    with suppress(OSError), open(path, errors="replace") as file:
        for line in file.read(_MOST_BYTES).splitlines():
            with suppress(ValueError, TypeError, KeyError, ArithmeticError):
                fields = parse_json(line)
                kinds = (float, str, str, str, float)
                values = (kind(fields[name]) for kind, name in zip(kinds, Finding._fields))
                found.append(Finding(*values))
    return found


def find_suspects(findings: Sequence[Finding], now: float) -> dict[str, str]:
    """Return the nodes against which there is enough evidence, each with the latest."""
    valid = [(finding.node, finding.evidence) for finding in findings if finding.expiry > now]
    strong = (pair for pair in valid if pair[1] not in _WEAK or valid.count(pair) > 1)
    return dict(strong)
