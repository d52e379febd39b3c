"""The documentation holds what it promises: links lead somewhere, and options and error texts are all described."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest

from jaxsif.cli import COMMANDS, _parse, build_parsers
from jaxsif.diagnose import symptoms
from jaxsif.job.srun_options import PassedOptions

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("slurm/**/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The page of a command, by its first words.
PAGE_OF = {
    "run": "run.md",
    "history": "history.md",
    "explain": "explain.md",
    "stacks": "stacks.md",
    "doctor": "doctor.md",
    "config": "config.md",
    "image": "image.md",
    "image build": "build.md",
    "image convert": "convert.md",
    "image lock": "build.md",
    "image sign": "publish.md",
    "image verify": "publish.md",
    "image pull": "publish.md",
    "layer": "layers.md",
    "bench": "bench.md",
    **dict.fromkeys(("submit", "shell", "jupyter"), "jobs.md"),
    **dict.fromkeys(("module", "home", "completion", "help", "version"), "modules.md"),
}
MOST_WORDS = 1000  # of prose on a page; troubleshooting.md is looked up, and has limits of its own
MOST_WORDS_OF_README = 900  # all of it
MOST_WORDS_OF_TROUBLESHOOTING = 6000  # all of it
MOST_WORDS_OF_ENTRY = 120
WORDS_OF_INDEX = 3  # of each entry
_ERRORS = (
    "JaxsifError",
    "HostError",
    "ProgramError",
    "SignatureError",
    "AnotherKeyError",
    "UnusableKeyError",
    "RunError",
)
_SYMPTOMS = [*(row for row in vars(symptoms).values() if isinstance(row, symptoms.Symptom)), *symptoms.SIGNALS.values()]


# Words that a reader with school English stumbles over; CONTRIBUTING.md has the rule.
_BANNED = re.compile(
    r"\b(anew|lest|mends?|mended|for people|of ours|of others|as ever|says so|by itself|in vain)\b", re.IGNORECASE
)


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as code hosts make them: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return set(map(_anchor, headings))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _pattern(text: ast.expr) -> str | None:
    """A pattern for the text of an error, '.+' for what is filled in; None for one that is made elsewhere."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    constants = [str(part.value).strip() if isinstance(part, ast.Constant) else None for part in parts]
    return " ?".join(re.escape(text) if text else ".+" for text in constants) if any(constants) else None


def _error_texts() -> set[str]:
    """Patterns of the texts that jaxsif raises errors with."""
    trees = [ast.parse(path.read_text()) for path in (REPOSITORY / "jaxsif").rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    texts = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in _ERRORS]
    found = set(filter(None, map(_pattern, texts)))
    # '{node} has no {bind}' -> '.+ has no .+'
    return found | {re.sub(r"\\{\w+\\}", ".+", re.escape(row.what)) for row in _SYMPTOMS if row.what}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not fragment or fragment in _anchors(target), link
        if page.parent.name == "docs":  # a launcher's folder has it, and these
            place = target.resolve().relative_to(REPOSITORY)
            assert place.parts[0] in ("docs", "slurm") or str(place) == f"{place.stem}.md", link


def test_words_are_plain() -> None:
    files = [*PAGES, *REPOSITORY.glob("jaxsif/**/*.py"), *REPOSITORY.glob("jaxsif/**/*.sh")]
    files.remove(REPOSITORY / "CONTRIBUTING.md")  # it lists them
    lines = [(_name(file), line) for file in files for line in file.read_text().splitlines()]
    assert [(name, line) for name, line in lines if _BANNED.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_lines_of_text_are_short(page: Path) -> None:
    """Rows of tables, and lines with a link alone, cannot be broken."""
    lines = [line for line in page.read_text().splitlines() if len(line) > 120 and not line.startswith("|")]
    assert [line for line in lines if not re.fullmatch(r"- \[[^\]]*\]\(\S+\)", line)] == []


def _options(*command: str) -> list[str]:
    parser = build_parsers(command)[()]
    for name in command:
        actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        parser = actions[0].choices[name]
    own = [action for action in parser._actions if not isinstance(action, PassedOptions)]  # docs/srun.md has others
    return [option for action in own for option in action.option_strings]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_options_are_described_once(command: tuple[str, ...]) -> None:
    """Options that a command shares with `jaxsif run` stand on the page of `jaxsif run` alone."""
    name = " ".join(command)
    text = (REPOSITORY / "docs" / (PAGE_OF.get(name) or PAGE_OF[command[0]])).read_text()
    shared = set(_options("run")) if command != ("run",) else set()
    options = set(_options(*command)) - shared - {"-h", "--help"}
    assert {option for option in options if not re.search(rf"^\| .*`{option}[ `]", text, re.MULTILINE)} == set()


def _commands(text: str) -> list[list[str]]:
    """The words after each `jaxsif` that begins a line of a script, up to what is the shell's own."""
    lines = re.findall(r"^ *(?:\$ )?(?:\w+=\S+ )*(?:exec )?jaxsif ([a-z-].*)", text.replace("\\\n", " "), re.MULTILINE)
    split = (shlex.split(line, comments=True) for line in lines)
    own = [takewhile(lambda word: not re.match(r"[|;&<>]", word), words) for words in split]
    return [[word for word in words if word != "$options"] for words in own]


@pytest.mark.parametrize("file", [*PAGES, *sorted(REPOSITORY.glob("slurm/**/*.sbatch"))], ids=_name)
def test_commands_are_right(file: Path) -> None:
    """Those of pages' blocks and of job scripts: their options and arguments are jaxsif's."""
    text = file.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    scripts = [block for language, block in blocks if not language] if file.suffix == ".md" else [text]
    for command in _commands("\n".join(scripts)):
        if "--help" not in command:
            _parse(command)


def _prose(text: str) -> str:
    """The text without blocks of code, tables and headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#")))


@pytest.mark.parametrize("page", sorted(REPOSITORY.glob("docs/*.md")), ids=_name)
def test_page_is_short(page: Path) -> None:
    assert page.name == "troubleshooting.md" or len(_prose(page.read_text()).split()) <= MOST_WORDS


def test_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) <= MOST_WORDS_OF_README


def _troubleshooting() -> str:
    return (REPOSITORY / "docs/troubleshooting.md").read_text()


def _messages(text: str) -> list[str]:
    """The messages in the headings of entries, each in its backticks; a heading without a message as it is."""
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    return [message for heading in headings for message in re.findall(r"`[^`]+`", heading) or [heading]]


def _list_entries(text: str) -> str:
    """The index of docs/troubleshooting.md: a line for each entry, with the first words of its heading, or the last."""
    headings = re.findall(r"^### (.+)\n(?:### .+\n)*", text, re.MULTILINE)
    words = [re.findall(r"`[^`]+`|[^`]+", heading)[0].strip("`").split() for heading in headings]
    starts = [word_list[:WORDS_OF_INDEX] for word_list in words]
    titles = [_shorten(word_list, starts.count(start) == 1) for word_list, start in zip(words, starts)]
    return "".join(f"- [{title}](#{_anchor(heading)})\n" for title, heading in zip(titles, headings))


def _shorten(words: list[str], first: bool) -> str:
    if len(words) <= WORDS_OF_INDEX:
        return " ".join(words)
    return f"{' '.join(words[:WORDS_OF_INDEX])}…" if first else f"…{' '.join(words[-WORDS_OF_INDEX:])}"


def test_all_entries_are_listed(compare: Callable[[Path, str], None]) -> None:
    """`make golden` writes the list."""
    before, heading, rest = _troubleshooting().partition("## Index\n\n")
    _, section, after = rest.partition("\n## ")
    index = _list_entries(section + after)
    compare(REPOSITORY / "docs/troubleshooting.md", before + heading + index + section + after)


def test_troubleshooting_is_short() -> None:
    assert len(_troubleshooting().split()) <= MOST_WORDS_OF_TROUBLESHOOTING


def test_entries_are_short_and_differ() -> None:
    entries = re.split(r"^(?=#{2,3} )", _troubleshooting(), flags=re.MULTILINE)
    long = [entry for entry in entries if len(_prose(entry).split()) > MOST_WORDS_OF_ENTRY]
    assert [entry for entry in long if not entry.startswith("## Index\n")] == []
    anchors = [_anchor(entry.partition("\n")[0].lstrip("# ")) for entry in entries]
    assert [anchor for anchor in anchors if anchors.count(anchor) > 1] == []


@pytest.mark.parametrize("pattern", sorted(_error_texts()))
def test_error_text_is_described(pattern: str) -> None:
    assert any(re.search(pattern, message) for message in _messages(_troubleshooting())), f"no entry: {pattern}"


@pytest.mark.parametrize("page", sorted({row.page for row in (*_SYMPTOMS, *symptoms.EXPLAINED) if row.page}))
def test_known_message_is_described(page: str) -> None:
    path, _, anchor = page.rpartition("#")
    assert anchor in _anchors(REPOSITORY / "docs" / (path or "troubleshooting.md"))
