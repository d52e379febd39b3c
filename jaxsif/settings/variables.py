"""The variables that --env names, and those whose names begin as jaxsif's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxsif.errors import JaxsifError
from jaxsif.settings.options import OPTIONS
from jaxsif.task import contract

_PREFIX = "JAXSIF_"
# That a user sets and that are no options; modules set the second one, too.
_OF_USERS = ("JAXSIF_RUNTIME", "JAXSIF_IMAGES", contract.INDEPENDENT)
_OF_MODULES = ("JAXSIF_HOME",)
_SIMILAR = 0.75  # of 1, from which on a name is taken for a typing error


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


def check_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for each variable JAXSIF_… that nothing reads; raise JaxsifError for one
    that resembles the name of a setting.

    In a task, the run around it has checked them, and perhaps set some of another version.
    """
    names = [name for name, value in environ.items() if name.startswith(_PREFIX) and value]
    if not names or contract.STEP in environ:
        return ()
    known = {option.variable for option in OPTIONS}.union(_OF_USERS, _OF_MODULES)
    known.update(value for value in vars(contract).values() if isinstance(value, str))
    unknown = sorted(set(names) - known)
    for name in unknown:
        near = _find_near(name)
        if near:
            what = f"no setting has the variable {name}"
            raise JaxsifError(what, f"{name} (environment)", f"{near}?")
    return tuple(f"warning: no setting has the variable {name}" for name in unknown)


def _find_near(name: str) -> str:
    """Return the variable that is meant: of the option with this name, or the nearest one."""
    from difflib import get_close_matches  # here: 5 ms, and few runs have such a name

    by_flag = {_PREFIX + one.flag[2:].replace("-", "_").upper(): one.variable for one in OPTIONS}
    if name in by_flag:
        return by_flag[name]
    variables = (*by_flag.values(), *_OF_USERS)
    endings = {one.removeprefix(_PREFIX): one for one in variables}
    found = get_close_matches(name.removeprefix(_PREFIX), endings, 1, _SIMILAR)
    return endings[found[0]] if found else ""
