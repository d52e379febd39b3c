"""What jaxsif did not write: nothing makes a reader wait, and nothing is read without a bound."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif.bench.results import read_results
from jaxsif.errors import HostError
from jaxsif.foreign import MOST_TEXT, find, open_file, parse_json, read_given, read_text
from jaxsif.images.signing import check_key
from jaxsif.launch.launchers.mpirun import _read_hostfile
from jaxsif.layers.resolve import read_requirements

WRONG = {"fifo": "a FIFO", "device": "a device", "socket": "a socket", "folder": "a folder"}


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The path of something that is no file, and what it is."""
    path = tmp_path / "a"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("a")
    return str(path), WRONG[request.param]


def test_texts_that_users_name_are_files(wrong: tuple[str, str]) -> None:
    """Whatever the option, and without waiting."""
    path, kind = wrong
    for read, what in (
        (lambda: read_requirements([path], []), "requirements file"),
        (lambda: _read_hostfile(path, "--hostfile"), "list of hosts"),
        (lambda: read_results(path, "--against"), "results file"),
        (lambda: check_key(path), "key"),
    ):
        if what == "results file" and kind == "a folder":
            continue  # of results
        error = catch(HostError, read)
        assert error.what == f"{what} is {kind}, not a file: {path}"
        assert error.where in ("-r", "--hostfile", "--against", "--key")


@pytest.mark.parametrize("most", [8, 100])
def test_pipe_of_a_shell_is_read_in_bounds(most: int) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"node1\n" * 10)
    os.close(writer)
    path = f"/dev/fd/{reader}"
    try:
        if most < 60:
            with pytest.raises(HostError, match=f"list of hosts has more than 8 bytes: {path}"):
                read_given(path, "list of hosts", "--hostfile", most)
        else:
            assert read_given(path, "list of hosts", "--hostfile", most) == "node1\n" * 10
    finally:
        os.close(reader)


def test_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xffabc")
    with open_file(str(tmp_path / "a"), "image") as file:
        assert file.read() == b"\xffabc"
    assert read_text(str(tmp_path / "a"), "image") == "\ufffdabc"
    with pytest.raises(FileNotFoundError):
        open_file(str(tmp_path / "b"), "image")


def test_text_that_is_too_long(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    error = read_bounded(lambda: read_text(str(tmp_path / "a"), "labels file"))
    assert error.what == f"labels file has more than {MOST_TEXT} bytes: {tmp_path}/a"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "brackets are nested too deeply"),
        ('{"a":' * 100_000, "brackets are nested too deeply"),
        ("9" * 500_000, "a number has 500000 digits"),
        ("", "Expecting value"),
        ('{"a"', "Expecting ':'"),
    ],
    ids=["lists", "objects", "digits", "nothing", "cut short"],
)
def test_json_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


@given(st.text(alphabet='[]{}":,0123456789eE.-aN\\u \n', max_size=60))
def test_any_text_is_json_or_a_value_error(text: str) -> None:
    try:
        parse_json(text * 50)
    except ValueError:
        return


def test_what_lies_below_keys() -> None:
    value = {"a": [{"b": "c"}]}
    assert find(value, "a", 0, "b") == "c"
    assert [find(value, *keys) for keys in (("b",), ("a", "b"), ("a", 1), (0,), ("a", 0, "b", 0))] == [None] * 5
