"""jaxsif history: the table, one run, and requests that cannot be met."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.caught import catch
from kit.runs import BEGIN, a_run

from jaxsif.cli import build_parsers
from jaxsif.commands import history
from jaxsif.errors import HostError, JaxsifError
from jaxsif.history.folder import RUN, write
from jaxsif.history.run import describe_run, render_record


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The variables of a user with three runs, and one that cannot be read."""
    runs = tmp_path / "jaxsif/runs"
    runs.mkdir(parents=True)
    for begin in (BEGIN, BEGIN + 60, BEGIN + 61):
        run = a_run(begin=begin)
        write(str(runs / run.name), RUN, render_record(run))
    (runs / "2020-01-01T00-00-00-0000").mkdir()
    return {"XDG_STATE_HOME": str(tmp_path)}


def call(environ: dict[str, str], *words: str) -> None:
    arguments = build_parsers(("history",))[()].parse_args(["history", *words])
    history.call(arguments, environ)


def test_the_last_runs(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    call(environ)
    assert len(capsys.readouterr().out.splitlines()) == 4
    call(environ, "--last", "1")
    assert a_run(begin=BEGIN + 61).name in capsys.readouterr().out.splitlines()[1]


def test_as_json(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    call(environ, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in found] == ["failed"] * 3
    call(environ, "show", "--json")
    one = json.loads(capsys.readouterr().out)
    assert one["name"] == found[-1]["name"]
    assert one["alarms"][0]["picture"]["groups"][0]["count"] == 1


@pytest.mark.parametrize(("host", "ended"), [("elsewhere", "job runs"), (os.uname().nodename, "unknown")])
@pytest.mark.parametrize("running", [True, False])
def test_a_run_without_an_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host: str,
    ended: str,
    running: bool,
) -> None:
    """Slurm is asked once, and only about runs on other hosts: whoever is gone from this one has not come to an end."""
    asked: list[object] = []

    def list_running(environ: object) -> frozenset[str]:
        asked.append(environ)
        return frozenset(["43"] if running else [])

    monkeypatch.setattr("jaxsif.watch.squeue.list_running", list_running)
    for begin in (BEGIN, BEGIN + 1):
        lost = a_run(begin=begin, end=None, status=None, host=host, pid=1 << 30, variables={"SLURM_JOB_ID": "43"})
        runs = tmp_path / "jaxsif/runs"
        runs.mkdir(parents=True, exist_ok=True)
        write(str(runs / lost.name), RUN, render_record(lost))
    call({"XDG_STATE_HOME": str(tmp_path)})
    assert capsys.readouterr().out.count(f"  {ended if running else 'unknown'}  ") == 2
    assert len(asked) == (host == "elsewhere")


def test_one_run(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    call(environ, "show", a_run().name)
    assert capsys.readouterr().out.startswith(f"run {a_run().name}: it failed")


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call({"XDG_STATE_HOME": str(tmp_path)})
    assert capsys.readouterr().out == f"no runs in {tmp_path}/jaxsif/runs\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--last", "0"), "not a number of runs: '0'"),
        (("--last", "many"), "not a number of runs: 'many'"),
        (("show", "abcd"), "no run 'abcd' in the history"),
        (("show", "0000"), "cannot read the run 2020-01-01T00-00-00-0000: No such file or directory"),
    ],
)
def test_a_request_that_cannot_be_met(environ: dict[str, str], words: tuple[str, ...], what: str) -> None:
    assert catch(JaxsifError, call, environ, *words).what == what


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("text", "not the history of a run: {path}"),
        ("types", "not the history of a run: {path}"),
        ("fifo", "history of a run is a FIFO, not a file: {path}"),
        ("large", "history of a run has more than 16777216 bytes: {path}"),
    ],
)
def test_a_file_that_jaxsif_did_not_write(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, what: str
) -> None:
    path = tmp_path / "jaxsif/runs" / a_run().name / RUN
    whole = json.loads(path.read_text())
    path.unlink()
    if kind == "text":
        path.write_text("{}")
    elif kind == "types":
        path.write_text(json.dumps({**whole, "begin": "now"}))
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 30)
    assert catch(HostError, call, environ, "show", a_run().name).what == what.format(path=path)
    call(environ)
    assert len(capsys.readouterr().out.splitlines()) == 3


LIST, SHOW = (build_parsers(("history",))[()].parse_args(["history", *words]) for words in ((), ("show",)))


@given(
    field=st.sampled_from(sorted(describe_run(a_run()))),
    value=st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3),
)
def test_no_value_of_a_file_makes_the_command_fail(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    folder = tmp_path_factory.getbasetemp() / "edited/jaxsif/runs" / a_run().name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / RUN).write_text(json.dumps({**describe_run(a_run()), field: value}))
    environ = {"XDG_STATE_HOME": str(folder.parents[2])}
    history.call(LIST, environ)
    with suppress(HostError):
        history.call(SHOW, environ)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("6d5f", "jaxsif history show 6d5f"),
        ("last", "jaxsif history show last"),
        ("shw", "jaxsif history --last=N; jaxsif history show RUN"),
    ],
)
def test_a_word_that_is_not_the_verb(environ: dict[str, str], word: str, hint: str) -> None:
    error = catch(JaxsifError, call, environ, word)
    assert (error.what, error.where, error.hint) == (f"unknown command 'history {word}'", "jaxsif history", hint)
