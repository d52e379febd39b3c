"""What differs between two images, in words and as JSON."""

from __future__ import annotations

import json

from jaxsif.errors import printable
from jaxsif.images.diff import (
    SECTIONS,
    Comparison,
    Difference,
    comparison_as_json,
    find_differences,
    render_comparison,
)
from jaxsif.images.files import Entry

FOLDER = Entry("folder", "755", "0:0", 0, "")
FILE = Entry("file", "644", "0:0", 10, "00")


def compare(**sections: list[Difference]) -> Comparison:
    return Comparison({section: sections.get(section, []) for section in SECTIONS}, ("a note",))


def test_differences() -> None:
    assert find_differences({"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "2", "d": "1"}) == [
        Difference("a", "1", None),
        Difference("c", "1", "2"),
        Difference("d", None, "1"),
    ]


def test_text() -> None:
    before = {
        "lost": FOLDER,
        "lost/a": FOLDER,
        "lost/a/b": FILE,
        "tool": FILE,
        "link": Entry("link", "", "0:0", 0, "a"),
    }
    after = {
        "new\nline": FILE,
        "tool": Entry("file", "755", "0:42", 12, "11"),
        "link": Entry("link", "", "0:0", 0, "b"),
    }
    found = compare(
        packages=find_differences({"pypi jax": "1"}, {"pypi jax": "2"}), files=find_differences(before, after)
    )
    lines = [
        "packages: 1 differs",
        "  ~ pypi jax 1 -> 2",
        "files: 6 differ",
        "  ~ /link: a -> b",
        "  - /lost (folder, and 2 below it)",
        "  + /new\\nline (file)",
        "  ~ /tool: mode 644 -> 755, owner 0:0 -> 0:42, size 10 -> 12, content",
        "a note",
    ]
    assert [printable(line) for line in render_comparison(found, show_all=False)] == lines
    lines[4:5] = ["  - /lost (folder)", "  - /lost/a (folder)", "  - /lost/a/b (file)"]
    assert [printable(line) for line in render_comparison(found, show_all=True)] == lines


def test_text_of_an_image_moves_no_cursor() -> None:
    assert printable("\x1b[2Jé\udcff\r…") == "\\x1b[2Jé\\udcff\\r…"


def test_long_lists_are_cut() -> None:
    found = compare(files=find_differences({}, {f"f{number:02}": FILE for number in range(25)}))
    lines = list(render_comparison(found, show_all=False))
    assert lines[0] == "files: 25 differ"
    assert lines[20:] == ["  + /f19 (file)", "  … and 5 more lines; --all shows them", "a note"]
    assert len(list(render_comparison(found, show_all=True))) == 27


def test_json() -> None:
    assert comparison_as_json(compare())["equal"] is True
    found = compare(files=[Difference("tool", FILE, None)], labels=[Difference("x", "1", "2")])
    assert json.loads(json.dumps(comparison_as_json(found))) == {
        "equal": False,
        "packages": [],
        "labels": [{"name": "x", "a": "1", "b": "2"}],
        "environment": [],
        "files": [
            {
                "name": "tool",
                "a": {"kind": "file", "mode": "644", "owner": "0:0", "size": 10, "content": "00"},
                "b": None,
            }
        ],
        "notes": ["a note"],
    }
