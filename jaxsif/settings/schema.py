"""A JSON Schema for jaxsif.toml, generated from the options, which lets editors complete and check
it.
"""

from __future__ import annotations

from typing import Any

from jaxsif.limits import MOST_COUNT
from jaxsif.settings import options
from jaxsif.settings.config import TABLES
from jaxsif.settings.options import DEFAULTS, Option

_COUNT = {"type": "integer", "minimum": 1, "maximum": MOST_COUNT}
_STRING = {"type": "string", "pattern": r"^[^\u0000]*$"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": MOST_COUNT}
_KINDS: dict[str, dict[str, Any]] = {
    options.COUNT.words: _COUNT,
    options.COUNT_FROM_0.words: _NUMBER,
    options.TEXT.words: {"anyOf": [_STRING, _NUMBER]},  # gpus-per-node = 4
    options.PATH.words: {"type": "string", "pattern": r"^[^\u0000]+$"},
    options.OPTIONAL_PATH.words: _STRING,
    **{
        kind.words: {"anyOf": [_COUNT, {"type": "string", "pattern": f"^({kind.pattern})$"}]}
        for kind in (
            *(options.TIMEOUT, options.SECONDS),
            *(options.NODES, options.GPUS, options.NO_GPUS),
        )
    },
    options.DIGESTS.words: {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{options.DIGEST_PATTERN}$"},
    },
    options.LIST.words: {"type": "array", "items": _STRING},
    options.SWITCH.words: {"type": "boolean"},
}


def build_schema() -> dict[str, Any]:
    """Return the schema of a whole file."""
    tables = {
        name: _table({key: _describe(option) for key, option in keys.items()})
        for name, keys in TABLES.items()
    }
    tables["profile"] = {
        "type": "object",
        "propertyNames": {"pattern": r"^(?![0-9])[\w-]+$"},
        "additionalProperties": tables["profile"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "jaxsif.toml",
        **_table(tables),
    }


def _table(keys: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "additionalProperties": False}


def _describe(option: Option) -> dict[str, Any]:
    """Return the schema of a value."""
    values = {"enum": list(option.choices)} if option.choices else _KINDS[option.kind.words]
    help_text = {"description": option.help.replace("%%", "%")} if option.help else {}
    default = {"default": DEFAULTS[option.key]} if option.key in DEFAULTS else {}
    return {**values, **help_text, **default}
