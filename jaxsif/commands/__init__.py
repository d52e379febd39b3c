"""One module per command: DESCRIPTION, EPILOG, add_options and call; or a group's module with
VERBS. `cli` imports only the requested module.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

# Adds options to a parser, or to a group of its options.
Options = Callable[[Any], object]
# Calls a command with its arguments and the environment; returns the exit status, None for 0.
Call = Callable[[argparse.Namespace, Mapping[str, str]], "int | None"]

argument = partial(methodcaller, "add_argument")  # a row of a table, as argparse takes it
JSON = argument("--json", action="store_true", help="print JSON")  # docs/json.md has the keys
# The program after the options, or its arguments.
COMMAND = argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def all_of(*rows: Options, usage: str | None = None) -> Options:
    """Combine the rows of a table."""

    def add(parser: argparse.ArgumentParser) -> None:
        if usage:
            parser.usage = usage
        for row in rows:
            row(parser)

    return add


def one_of(*rows: Options, required: bool = False) -> Options:
    """Combine rows that are mutually exclusive."""
    return lambda parser: all_of(*rows)(parser.add_mutually_exclusive_group(required=required))


def titled(title: str, *rows: Options) -> Options:
    """Combine rows that --help lists under a title."""
    return lambda parser: all_of(*rows)(parser.add_argument_group(title))


class Verb(NamedTuple):
    """A command of a group, such as pull of `jaxsif image`."""

    description: str
    add_options: Options
    call: Call
    epilog: str | None = None


class CommandGroup(dict[str, Verb]):
    """The commands of a group, by verb."""

    def verb(
        self,
        name: str,
        description: str,
        *rows: Options,
        usage: str | None = None,
        epilog: str | None = None,
    ) -> Callable[[Call], Call]:
        """Declare the decorated function as a command with the options of these rows."""

        def declare(call: Call) -> Call:
            self[name] = Verb(description, all_of(*rows, usage=usage), call, epilog)
            return call

        return declare
