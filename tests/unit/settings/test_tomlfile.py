"""TOML files: what is in them, and that none takes long, much memory, or anything but a JaxsifError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import parse_settings
from jaxsif.settings.tomlfile import MOST_BYTES, parse_toml

# More dots and digits than keys and numbers have, where they are neither.
FINE = '''\
[run] # 1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18
env = ["A=1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16.17.18", 'B="\\"." . . . . . . . . . . . . . . . . .', "C=%s"]
time = """
"quoted". . . . . . . . . . . . . . . . . . . .\\""" \\
end"""""
''' % ("9" * 200)


def test_dots_and_digits_of_strings_and_comments_do_not_count() -> None:
    run = parse_toml(FINE.encode(), "FILE")["run"]
    assert [len(value) for value in run["env"]] == [46, 41, 202]
    assert run["time"].startswith('"quoted". .')
    assert run["time"].endswith('""" end""')


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#" * (MOST_BYTES + 1), "it has more than 65536 bytes"),
        (b"[run]\n\n\xff", "line 3 is not UTF-8"),
        (b"[run]\nnodes = " + b"9" * 5000, "line 2 has a number of more than 100 digits"),
        (b"nodes = " + b"9_" * 5000 + b"9", "line 1 has a number of more than 100 digits"),
        (b'a = """\n' + b"\n" * 7 + b'"""\nb = ' + b"9" * 5000, "line 10 has a number of more than 100 digits"),
        (b"a = " + b"[" * 5000, "brackets are nested too deeply"),
        (b"a = " + b"{a=" * 5000, "brackets are nested too deeply"),
        (b"a." * 30000 + b"a = 1", "line 1 has a key of more than 16 parts"),
        (b"[run]\n[" + b'"."."." .\t' * 5000 + b"a]", "line 2 has a key of more than 16 parts"),
        (b"""a = {b = '''\n' ''', """ + b"c." * 5000 + b"c = 1, d = ''}", "line 2 has a key of more than 16 parts"),
        (b"a = '\0'", "Found invalid character '\\x00' (at line 1, column 6)"),
        (b'a = "' + b'\\"' * 30000, "Unterminated string (at end of document)"),
        (b"a = 1\r\nb = ]", "Invalid value (at line 2, column 5)"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else None,
)
def test_refused_at_once_with_file_and_line(content: bytes, reason: str) -> None:
    error = read_bounded(lambda: parse_toml(content, "FILE"))
    assert (error.what, error.where) == (f"cannot read FILE: {reason}", "FILE")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fabric = “none”", "put texts in straight quotes"),
        ("# “the site”\nfabric = none", "correct that line, such as by quotes around a text"),
        ("a = {x = 1, x = 2}", "write each name once"),
        ("a = 1\na = 2", "write each name once"),
        ("a = True  # on", "write true or false, in lower case"),
        ("a = true\na = true", "write each name once"),
        ("a = [1\nb = true", "put commas between the values of that list, and ] at its end"),
        ("a = 'b\n", "close a text with the quotes that begin it"),
        ('a = """b\n', "close a text with the quotes that begin it"),
        ('a = "b\\d"', r"write \\ for \, or put the text in single quotes"),
        ("a = yes", "write true or false, in lower case"),
        ("a = none", "correct that line, such as by quotes around a text"),
        ("[run\na = 1", "end the table's name with ]; it has letters, digits, - and _"),
        ("a = ['b'\nc = 1", "put commas between the values of that list, and ] at its end"),
    ],
)
def test_the_remedy_for_a_line_that_is_not_toml(text: str, hint: str) -> None:
    assert catch(JaxsifError, parse_toml, text.encode(), "FILE").hint.startswith(f"{hint}; ")


SIGNS = (*"[]{}.,=#'\"\\\n\t\0_9ax-", '"""', "'''", " . ", "\r\n", "[[", "é", "\\u0000", "\\ud800")
WORDS = (
    "[run]\n",
    "\n[profile.",
    "run.",
    "nodes = ",
    "env = [",
    "image = '",
    "0x",
    "1e9",
    "true",
    "12:00:00",
    "2026-02-30",
)
PIECES = st.sampled_from(SIGNS + WORDS)


@given(st.lists(st.tuples(PIECES, st.integers(1, 4) | st.just(3000)), max_size=20))
def test_any_file_is_read_or_refused_in_bounds(pieces: list[tuple[str, int]]) -> None:
    content = "".join(text * times for text, times in pieces).encode(errors="surrogatepass")
    error = read_bounded(lambda: parse_settings(content, "FILE"))
    assert error is None or error.where == "FILE"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    read_bounded(lambda: parse_settings(b"[run]\n" + content, "FILE"))
