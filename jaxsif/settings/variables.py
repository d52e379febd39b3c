"""The variables that --env names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxsif.errors import JaxsifError


def parse_env(
    pairs: Iterable[str], environ: Mapping[str, str], source: str = "--env"
) -> tuple[tuple[str, str], ...]:
    """The values of --env: 'NAME=VALUE', or 'NAME' for the value that it has here; raises
    JaxsifError.
    """
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        # A shell, and so --dry-run and the runtime, knows no other letters in names.
        if not (name.isascii() and name.isidentifier()):
            raise JaxsifError(
                f"not a variable: {pair!r}", source, "--env NAME=VALUE, or --env NAME to pass it on"
            )
        if not equals:
            if name not in environ:
                raise JaxsifError(
                    f"variable {name} is not set", source, f"export {name}, or --env {name}=VALUE"
                )
            value = environ[name]
        parsed.append((name, value))
    return tuple(parsed)
