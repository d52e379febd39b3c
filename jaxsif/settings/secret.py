"""Finds and hides values of variables that look like secrets, such as passwords and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jaxsif.settings.config import for_staff, is_of_site
from jaxsif.settings.fabric import Fabric
from jaxsif.settings.options import HIDDEN, Rank, Setting

_PASSWORD = re.compile("PASSWORD|PASSWD|PASSPHRASE", re.IGNORECASE)  # which may be a number
_NAME = re.compile(
    rf"{_PASSWORD.pattern}|TOKEN(?![A-Z])|SECRET|CREDENTIAL"
    r"|(API|ACCESS|PRIVATE|AUTH|SIGNING)[_-]?KEY",
    re.IGNORECASE,
)
# How the tokens of well-known services begin: Hugging Face, GitHub, GitLab, OpenAI and Anthropic,
# AWS, Slack, Google.
_VALUE = re.compile(
    r"(hf_|gh[opsu]_|github_pat_|glpat-|sk-|AKIA|ASIA|xox[abprs]-|AIza)[\w-]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
# Harmless values of a variable with such a name: nothing, a path, a switch, a special token of a
# text model; and a number.
_HARMLESS = re.compile(r"|[/~.<\[].*|true|false|yes|no|on|off", re.IGNORECASE | re.DOTALL)


# A name and a password in an address.
_LOGIN = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
# NAME=VALUE and --NAME VALUE, as in a script.
_PAIR = re.compile(r"""([\w.-]+=|--[\w-]+[ ]+(?!-))('[^']*'|"[^"]*"|[^\s'";|&]+)""")


def hide_secrets(text: str) -> str:
    """Return a text with HIDDEN in place of each token, login and secret value in it."""
    return _PAIR.sub(_hide_value, _LOGIN.sub(HIDDEN, _VALUE.sub(HIDDEN, text)))


def _hide_value(found: re.Match[str]) -> str:
    """Return a name with HIDDEN in place of its value, or of the secret parts of the value."""
    name, value = found.groups()
    if _is_secret(name, value.strip("'\"")):
        return f"{name}{HIDDEN}"
    return name + _PAIR.sub(_hide_value, value)


def find_secrets(pairs: Iterable[str]) -> list[str]:
    """Return the names in 'NAME=VALUE' whose values look like secrets; a bare 'NAME' shows no
    value.
    """
    parts = (pair.partition("=") for pair in pairs)
    return [name for name, _, value in parts if _is_secret(name, value)]


def describe_secrets(env: Setting) -> Iterator[str]:
    """Yield a warning for each secret set by --env or by files, which others can read, unlike those
    in JAXSIF_ENV.
    """
    place = "the list of processes" if env.rank == Rank.COMMAND_LINE else env.source
    for name in find_secrets([] if env.rank == Rank.VARIABLE else env.value):
        remedy = f"export {name}, and pass only its name, as in --env {name}"
        if is_of_site(env.source):  # where a name alone would ask all users for it
            remedy = for_staff("remove it there, and let whoever needs it export it", env.source)
        what = f"{name} looks like a secret, and others may read its value in {place}"
        yield f"warning: {what}: {remedy}"


def describe_secrets_of(fabric: Fabric) -> Iterator[str]:
    """Yield a warning for each secret that a fabric's profile sets."""
    for one in fabric.env.values():
        yield from describe_secrets(one._replace(value=[one.value]))


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name may have a secret value."""
    return bool(_NAME.search(name))


def _is_secret(name: str, value: str) -> bool:
    is_number = value.isdecimal() and not _PASSWORD.search(name)
    is_harmless = is_number or _HARMLESS.fullmatch(value)
    return bool(_VALUE.match(value) or (is_secret_name(name) and not is_harmless))
