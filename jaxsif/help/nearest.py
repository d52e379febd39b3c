"""The nearest options and commands to those that do not exist; imported after the error only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches


def suggest_options(words: Sequence[str], known: Collection[str], of_run: Iterable[str]) -> str:
    """Return what to try in the place of options, such as '--nodes?'; '' where none is near.

    `known` are the options of the command, `of_run` those of `jaxsif run`.
    """
    names = (word.partition("=")[0] for word in words)
    flags = [name for name in names if name not in ("--", *known)]
    elsewhere = {flag: f"jaxsif run {flag}" for flag in of_run}
    close = {flag: elsewhere.get(flag) or _find_near(flag, sorted(known)) for flag in flags}
    found = {flag: near for flag, near in close.items() if near}
    if len(flags) == 1:
        return "".join(f"{near}?" for near in found.values())
    return ", ".join(f"{near} for {flag}" for flag, near in found.items())


def _find_near(flag: str, known: Sequence[str]) -> str:
    """Return the options that a flag abbreviates, if these are few, or else the one nearest to
    it; '' without.
    """
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
