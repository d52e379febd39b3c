"""What the shells' scripts are written with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def fill(template: str, words: Mapping[str, Sequence[str]]) -> str:
    """Return the template, with lines for each @NAME@."""
    return re.sub("@([A-Z]+)@", lambda found: "\n".join(words[found[1]]), template)
