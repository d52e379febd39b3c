"""Look for known vulnerabilities in all locks: `make audit` calls this.

    audit.py [--osv-url URL] [FOLDER]

Each package of FOLDER/*.txt (containers/locks) is looked up by pip-audit, in OSV's database or else in PyPI's.
FOLDER/exceptions.toml has those that we live with, each with a reason and the day on which it ends.

exit status:
  0  nothing is known that has no exception      1  something is, or an exception has ended or is not needed
  2  exceptions.toml is not right                3  not checked: no source answered, or not for all packages
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.text import printable, shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCKS = Path(__file__).resolve().parent / "locks"
FOUND, BAD_EXCEPTIONS, NOT_CHECKED = 1, 2, 3
Pin = tuple[str, str]  # package, version


def read_pins(text: str) -> list[Pin]:
    """Parse each package of a lock with its version; several where the version depends on the Python."""
    return re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)", text, re.MULTILINE)


class Found(NamedTuple):
    """A known vulnerability of a package in a lock."""

    pin: Pin
    names: frozenset[str]  # its number in each database
    repaired: tuple[str, ...]  # versions without it
    text: str


class Exemption(NamedTuple):
    """A vulnerability that we live with."""

    pin: Pin
    name: str
    until: datetime.date
    reason: str

    def covers(self, found: Found) -> bool:
        """Return whether it is about this vulnerability."""
        return self.pin == found.pin and self.name in found.names


class Answer(NamedTuple):
    """What a source of advisories said."""

    checked: frozenset[Pin]
    found: tuple[Found, ...]
    problem: str  # why there is no answer, or ''


def main() -> int:
    """Print what is known, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osv-url", metavar="URL", help="where OSV's database answers, for mirrors")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=LOCKS)
    arguments = parser.parse_args()
    try:
        exemptions = read_exemptions(arguments.folder / "exceptions.toml")
    except JaxsifError as error:
        print(error.render(), file=sys.stderr)
        return BAD_EXCEPTIONS
    locks = {path.name: read_pins(path.read_text()) for path in sorted(arguments.folder.glob("*.txt"))}
    pins = sorted({pin for lock in locks.values() for pin in lock})
    answer = ask(pins, arguments.osv_url)
    status = FOUND if report(answer, locks, exemptions, datetime.date.today()) else 0
    missing = [pin for pin in pins if pin not in answer.checked]
    if missing:
        print(
            f"not checked: {len(missing)} of {len(pins)} packages: {printable(answer.problem)}",
            file=sys.stderr,
        )
        print("  try:  a host with the network, or --osv-url URL of a mirror (docs/site.md)", file=sys.stderr)
        return status or NOT_CHECKED
    print(f"{len(pins)} packages in {len(locks)} locks checked")
    return status


def read_exemptions(path: Path) -> list[Exemption]:
    """Read exceptions.toml; raises JaxsifError for a table that is not whole."""
    try:
        tables = tomllib.loads(path.read_text()).get("exception", []) if path.exists() else []
    except tomllib.TOMLDecodeError as error:
        raise JaxsifError(f"cannot read {path}: {error}", "", "correct the file") from error
    return [_read_exemption(table, f"[[exception]] {number} in {path}") for number, table in enumerate(tables, 1)]


def _read_exemption(table: Mapping[str, Any], where: str) -> Exemption:
    kinds = {"package": str, "version": str, "id": str, "until": datetime.date, "reason": str}
    for key, kind in kinds.items():
        if type(table.get(key)) is not kind or not table[key]:
            raise JaxsifError(f"an exception has no {key}", where, f"give {', '.join(kinds)}")
    return Exemption((table["package"], table["version"]), table["id"], table["until"], table["reason"])


def ask(pins: Sequence[Pin], osv_url: str | None) -> Answer:
    """Ask the sources one after the other; return the first answer, or why there is none."""
    problems = []
    sources = [("osv", "--osv-url", osv_url)] if osv_url else [("osv",), ("pypi",)]
    for source, *options in sources:
        answer = _ask(source, options, pins)
        if answer.checked:
            return answer
        problems.append(f"{source}: {shorten(answer.problem)}")
    return Answer(frozenset(), (), "; ".join(problems))


def _ask(source: str, options: Sequence[str], pins: Sequence[Pin]) -> Answer:
    """Ask one source, by pip-audit."""
    with tempfile.TemporaryDirectory(prefix="jaxsif-audit-") as folder:
        # Not the locks themselves: of those pip-audit takes only what this Python would install.
        (Path(folder) / "pylock.toml").write_text(_render_pylock(pins))
        argv = [sys.executable, "-m", "pip_audit", "--locked", "--format=json", "--progress-spinner=off", "--aliases"]
        argv += [f"--vulnerability-service={source}", f"--cache-dir={folder}/cache", *options, folder]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)["dependencies"]
    except ValueError:  # it ended without an answer
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Answer(frozenset(), (), lines[-1])
    return parse_answer(said)


def _render_pylock(pins: Sequence[Pin]) -> str:
    """Return a lock of PEP 751, which may name a package several times."""
    packages = (f"[[packages]]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\n" for name, version in pins)
    return 'lock-version = "1.0"\ncreated-by = "jaxsif"\n' + "".join(packages)


def parse_answer(dependencies: Sequence[Mapping[str, Any]]) -> Answer:
    """Return what the JSON of pip-audit says; it counts a package that the source does not know as without fault."""
    skipped = [one["skip_reason"] for one in dependencies if "skip_reason" in one]
    checked = [one for one in dependencies if "skip_reason" not in one]
    found = (
        Found(
            (one["name"], one["version"]),
            frozenset((vulnerability["id"], *vulnerability["aliases"])),
            tuple(vulnerability["fix_versions"]),
            vulnerability.get("description", ""),
        )
        for one in checked
        for vulnerability in one["vulns"]
    )
    return Answer(frozenset((one["name"], one["version"]) for one in checked), tuple(found), "; ".join(skipped[:1]))


def report(
    answer: Answer, locks: Mapping[str, Sequence[Pin]], exemptions: Sequence[Exemption], today: datetime.date
) -> bool:
    """Print each vulnerability; return whether one has no exception, or an exception is of no use."""
    bad = list(_find_bad(answer, locks, exemptions, today))
    for line in bad:
        print(printable(line))
    for exemption in exemptions:
        if any(map(exemption.covers, answer.found)) and exemption.until >= today:
            name = f"{exemption.name} in {'=='.join(exemption.pin)}"
            print(f"excepted until {exemption.until}: {name}: {exemption.reason}")
    return bool(bad)


def _find_bad(
    answer: Answer, locks: Mapping[str, Sequence[Pin]], exemptions: Sequence[Exemption], today: datetime.date
) -> Iterator[str]:
    for found in answer.found:
        ends = [exemption.until for exemption in exemptions if exemption.covers(found)]
        if ends and max(ends) >= today:
            continue
        where = ", ".join(name for name, pins in locks.items() if found.pin in pins)
        ended = f", whose exception ended on {max(ends)}" if ends else ""
        repaired = f"repaired in {', '.join(found.repaired)}" if found.repaired else "no version repairs it"
        yield f"{'=='.join(found.pin)} ({where}): {', '.join(sorted(found.names))}{ended}, {repaired}: {found.text}"
    for exemption in exemptions:
        locked = any(exemption.pin in pins for pins in locks.values())
        if not locked or (exemption.pin in answer.checked and not any(map(exemption.covers, answer.found))):
            yield f"the exception for {exemption.name} in {'=='.join(exemption.pin)} is not needed: remove it"


if __name__ == "__main__":
    sys.exit(main())
