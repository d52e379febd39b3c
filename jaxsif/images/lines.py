"""Lines for people, of text that came out of an image and may hold anything."""

from __future__ import annotations


def printable(line: str) -> str:
    """The line, with escapes in place of what would move the cursor, or is no character at all."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
