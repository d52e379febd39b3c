"""The options of srun that a command line passes on, and those that are refused, for argparse."""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any, NoReturn

from jaxsif.errors import JaxsifError
from jaxsif.job.srun_options import (
    BARE,
    BY_FLAG,
    MAYBE,
    REFUSED,
    TABLE,
    VALUE,
    SrunOption,
    flag_of,
    split_options,
)

FIELD = "passed"  # the name in the namespace: flag -> the word for srun
_TITLE = "also srun's own"
_TEXT = """\
  -J --job-name, -q --qos, --mem, --mem-per-cpu, --gres, --exclusive, --reservation,
  -w --nodelist, -x --exclude, -d --dependency, --begin, --nice, -L --licenses, --signal,
  --comment, -m --distribution, --cpu-bind, --mpi, ...: docs/srun.md lists them"""


class PassedOptions(argparse.Action):
    """Options of srun that have a value alike; argparse knows many as fast as one."""

    def __init__(self, options: Iterable[SrunOption], **how: Any) -> None:
        super().__init__(help=argparse.SUPPRESS, **how)
        self.options = tuple(options)

    @property
    def parts(self) -> list[argparse.Action]:
        """Return an action for each option, as completion and man pages describe it."""
        how: dict[str, Any] = {"nargs": self.nargs, "metavar": self.metavar, "help": "as for srun"}
        return [argparse.Action(one.names[::-1], self.dest, **how) for one in self.options]

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the option that was said, with its value if it has one."""
        words = [option_string or "", *([values] if isinstance(values, str) else [])]
        self._take(parser, namespace, words)

    def _take(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Sequence[str]
    ) -> None:
        """Keep the word for srun, in the place of an earlier one for the same option."""
        for given in split_options(words):
            word = given.flag if given.value is None else f"{given.flag}={given.value}"
            before = getattr(namespace, self.dest) or {}
            setattr(namespace, self.dest, {**before, given.flag: word})


class _RefusedOptions(PassedOptions):
    """Options of srun that mean nothing to a command, or that jaxsif has in another form."""

    @property
    def parts(self) -> list[argparse.Action]:
        """Return nothing: none of them is offered."""
        return []

    def _take(
        self, parser: argparse.ArgumentParser, _namespace: argparse.Namespace, words: Sequence[str]
    ) -> NoReturn:
        """Raise JaxsifError with what to use."""
        option = BY_FLAG[flag_of(words[0])]
        hint = _find_hint(parser, option.instead or option.flag)
        raise JaxsifError(f"{option.flag} is not for {parser.prog}", option.flag, hint)


def _find_hint(parser: argparse.ArgumentParser, instead: str) -> str:
    """Return what to use in this command; `instead` is what `jaxsif run` would."""
    if instead == parser.prog:
        return f"leave it out: {instead} does so always"
    if not instead.startswith("--"):
        return instead
    known = {
        name
        for name, action in parser._option_string_actions.items()
        if not isinstance(action, _RefusedOptions)
    }
    ways = [way for way in instead.split(", or ") if re.split("[ =]", way)[0] in known]
    return ", or ".join(ways) or f"jaxsif run {instead}"


def add_srun_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of srun that it does not have itself.

    Those that jaxsif has elsewhere are refused here.
    """
    group = parser.add_argument_group(_TITLE, _TEXT)
    known = parser._option_string_actions
    how: dict[str, Any] = {"dest": FIELD, "default": None, "metavar": VALUE}
    for kind, rows in _sort_options(known).items():
        action = _RefusedOptions if kind == REFUSED else PassedOptions
        nargs = None if kind == VALUE else 0
        names = _names(rows, known)
        group.add_argument(*names, action=action, options=rows, nargs=nargs, **how)


def _sort_options(known: Container[str]) -> dict[str, list[SrunOption]]:
    """Return the options that are not known by the values of those that are passed on, and as
    REFUSED the others.
    """
    found: dict[str, list[SrunOption]] = {kind: [] for kind in (BARE, VALUE, MAYBE, REFUSED)}
    for option in TABLE:
        if option.flag not in known:
            found[option.value if option.is_passed else REFUSED].append(option)
    return found


def _names(options: Iterable[SrunOption], known: Container[str]) -> list[str]:
    return [name for option in options for name in option.names if name not in known]


def admit_values(parser: argparse.ArgumentParser, words: Iterable[str]) -> None:
    """Let options that have a value only behind '=' have one, such as --nice=100.

    argparse would take the next word for the value of --nice, which can be the program.
    """
    known = parser._option_string_actions
    for word in words:
        name = flag_of(word)
        action = known.get(name)
        if isinstance(action, PassedOptions) and action.nargs == 0 and BY_FLAG[name].value != BARE:
            known.setdefault(word, action)
