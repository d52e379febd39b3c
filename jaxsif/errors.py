"""Errors for a person: the problem, its origin, and a remedy.

JaxsifError            2    a bad request: options, layout
├── SignatureError     1    an image is not signed as required
├── HostError        125    this host, image or cluster cannot run it
├── ProgramError     127    the program to run does not exist
└── RunError         the program's status, or that of whatever ended it
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from jaxsif.text import printable

Notify = Callable[[str], None]  # prints a line for the user
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of a stream on a full disk or a lost terminal: a program continues, although its output is
# lost.
UNWRITABLE = (*DISK_FULL, errno.EIO)


class Fault(Enum):
    """The kind of failure, by which `jaxsif run --max-restarts` decides."""

    REQUEST = "request"  # the run cannot work as it was requested
    OUTSIDE = "outside"  # Slurm or a signal ended the run
    NODE = "node"  # a node failed
    HANG = "hang"  # tasks waited for ever
    TASK = "task"  # a task failed


# What speaks against a node, see jaxsif/history/ledger.py.
LOST_NODE, REFUSED_TASK, STUCK_TASK = "lost", "refused a task", "stopped or hung"


class Cause(NamedTuple):
    """The facts of a failure, for the decision whether to start again."""

    fault: Fault = Fault.TASK
    nodes: tuple[str, ...] = ()  # where it happened, as far as that is known
    evidence: str = ""  # what speaks against these nodes; '' for nothing
    mark: tuple[str, ...] = ()  # failures with equal marks are the same; () if unknown
    # Iterations of the enclosing loops, the outermost first, of the task that got farthest, and of
    # the one that failed first.
    turns: tuple[int, ...] = ()
    reached: tuple[int, ...] = ()


# Exit statuses after which starting the same again is useless: the first after a failure that has
# come twice, the others for a request, a host or a program that cannot work.
USELESS = 93
ALL_USELESS = (2, USELESS, 125, 126, 127)
PIPE_CLOSED = 141  # the exit status that SIGPIPE gives: nobody reads our output any more


class JaxsifError(Exception):
    """A failure with its origin and its remedy; caught once, in `cli.main`."""

    exit_code = 2
    cause = Cause(Fault.REQUEST)

    def __init__(self, what: str, where: str = "", hint: str = "", message: str = "") -> None:
        super().__init__(what)
        self.what = what  # one line, names the thing at fault
        self.where = where  # the option, variable, file or process that it came from
        self.hint = hint  # what to do next
        self.message = message  # the message of another program, in any number of lines

    def render(self, prefix: str = "jaxsif: error: ") -> str:
        """Return the message, in up to three lines, the first after `prefix`. Names and foreign
        texts in it can neither move the cursor nor add lines.

        Another program's message follows the first line, indented, so that none of its lines can
        pass for ours.
        """
        lines = [
            f"{prefix}{self.what}",
            *(f"    {line}" for line in self.message.splitlines()),
        ]
        if self.where:
            lines.append(f"  from: {self.where}")
        if self.hint:
            lines.append(f"  try:  {self.hint}")
        return "\n".join(map(printable, lines))


class SignatureError(JaxsifError):
    """An image is not signed, is signed by another key, or has changed since."""

    exit_code = 1


class HostError(JaxsifError):
    """This host, its image or its Slurm cannot run the request."""

    exit_code = 125


class PortTakenError(HostError):
    """The port for JAX's coordinator is taken on the first task's node; another port will do."""

    cause = Cause()


class FolderTakenError(HostError):
    """The folder for this user's staged images is open to others or belongs to somebody else; a run
    can do without that folder.
    """


class ProgramError(JaxsifError):
    """The program to run does not exist."""

    exit_code = 127


class RunError(JaxsifError):
    """A run has failed; jaxsif ends with its exit status."""

    cause = Cause()

    def __init__(self, what: str, where: str, hint: str, exit_code: int) -> None:
        super().__init__(what, where, hint)
        self.exit_code = exit_code


@contextmanager
def raise_as(error: JaxsifError, *kinds: type[Exception]) -> Iterator[None]:
    """Raise `error`, with the reason at the end of its first line, in place of an exception of
    these kinds; by default, of an OSError or a UnicodeDecodeError.
    """
    kinds = kinds or (OSError, UnicodeDecodeError)
    try:
        yield
    except kinds as cause:
        is_binary = isinstance(cause, UnicodeDecodeError)
        reason = "it is not text" if is_binary else getattr(cause, "strerror", None) or cause
        raise type(error)(f"{error.what}: {reason}", error.where, error.hint) from cause
