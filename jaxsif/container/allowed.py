"""The image that the policies allow, as nodes and job scripts know it again."""

from __future__ import annotations

from typing import NamedTuple


class Allowed(NamedTuple):
    """An image that each policy allows."""

    digest: str
    state: str  # of the file that has it, as `find_state` of images/file.py tells
    reasons: tuple[str, ...] = ()  # why each policy allows it, in words
