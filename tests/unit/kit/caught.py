"""What a caught error shows."""

from __future__ import annotations

import pytest

from jaxsif.errors import JaxsifError


def error_of(caught: pytest.ExceptionInfo[JaxsifError]) -> tuple[int, str]:
    """The exit status and the whole text."""
    return caught.value.exit_code, caught.value.render()
