"""The variables that --env names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxsif.errors import JaxsifError


def parse_env(
    pairs: Iterable[str], environ: Mapping[str, str], source: str = "--env"
) -> tuple[tuple[str, str], ...]:
    """Return the variables of --env: of 'NAME=VALUE', or of 'NAME' with its value in `environ`;
    raise JaxsifError for another text, and for a NAME that is not set.
    """
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        # A shell, and so --dry-run and the runtime, knows no other letters in names.
        if not (name.isascii() and name.isidentifier()):
            raise JaxsifError(
                f"not a variable: {pair!r}", source, "--env NAME=VALUE, or --env NAME to pass it on"
            )
        if not equals and name not in environ:
            raise JaxsifError(
                f"variable {name} is not set", source, f"export {name}, or --env {name}=VALUE"
            )
        parsed.append((name, value if equals else environ[name]))
    return tuple(parsed)
