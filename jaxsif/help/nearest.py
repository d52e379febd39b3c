"""The nearest options and commands to those that do not exist; imported after the error only."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from difflib import get_close_matches


def suggest_options(words: Sequence[str], known: Collection[str], of_run: Iterable[str]) -> str:
    """Return what to try in the place of options, such as '--nodes?'; '' where none is near.

    `known` are the options of the command, `of_run` those of `jaxsif run`.
    """
    names = (word.partition("=")[0] for word in words)
    flags = [name for name in names if name not in ("--", *known)]
    endings = {flag: f" for {flag}" for flag in flags}
    if len(flags) == 1:
        endings = {flags[0]: "?"}
    elsewhere = set(of_run)
    found = {flag: _find_near(flag, sorted(known), elsewhere) for flag in endings}
    return ", ".join(f"{near}{endings[flag]}" for flag, near in found.items() if near)


def _find_near(flag: str, known: Sequence[str], of_run: Container[str]) -> str:
    """Return the options that a flag abbreviates, if these are few, or else the one nearest to
    it; '' without.
    """
    if flag in of_run:
        return f"jaxsif run {flag}"
    longer = [name for name in known if name.startswith(flag) and flag.startswith("--")]
    if len(longer) in (1, 2):
        return " or ".join(longer)
    long_names = [name for name in known if name.startswith("--")]
    return "".join(get_close_matches(flag, long_names, 1)) if flag.startswith("-") else ""


def suggest_command(word: str, names: Sequence[str], commands: Iterable[Sequence[str]]) -> str:
    """Return what to try in the place of a command.

    `names` are those that could stand there; a word that is the last one of some `commands` means
    these.
    """
    whole = [" ".join(name) for name in commands if name[-1] == word]
    close = whole or get_close_matches(word, names, 1)
    return f"{' or '.join(close)}?" if close else f"one of {', '.join(names)}"
