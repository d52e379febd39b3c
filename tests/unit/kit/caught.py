"""Errors that a call raises, and what they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from jaxsif.errors import JaxsifError

E = TypeVar("E", bound=BaseException)


def catch(kind: type[E], call: Callable[..., object], *arguments: object, **named: object) -> E:
    """Return the error of this kind that the call raises."""
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    return caught.value


def error_of(error: JaxsifError) -> tuple[int, str]:
    """The exit status and the whole text."""
    return error.exit_code, error.render()
