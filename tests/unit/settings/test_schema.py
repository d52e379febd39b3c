"""The JSON Schema for jaxsif.toml takes what the reader takes, and refuses what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import builtin_profiles, parse_settings
from jaxsif.settings.options import DEFAULTS, OPTIONS
from jaxsif.settings.schema import build_schema
from jaxsif.settings.tomlfile import parse_toml

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = re.findall(r"```toml\n(.*?)```", (DOCS / "config.md").read_text(), re.DOTALL)
VALIDATOR = jsonschema.Draft202012Validator(build_schema())

GOOD = (
    "",
    "[run]\ngpus-per-node = 4",
    '[run]\ngpus-per-node = "a100:4"',
    '[run]\nhang-timeout = "off"\nheartbeat-timeout = 30',
    '[run]\nhang-timeout = "5m"\nheartbeat-timeout = "90s"\ngpus = "0"',
    '[run]\nbinds = ["/scratch"]\nstage = true',
    '[policy]\ndigests = ["sha256:0000000000000000000000000000000000000000000000000000000000000000"]',
    '[profile.my-ib]\ninherits = "ib"\nenv = ["A=1"]',
)
BAD = (
    "[runs]",
    "run = 1",
    "[run]\nnodse = 2",
    "[run]\nnodes = 0",
    "[run]\nnodes = true",
    "[run]\nnodes = 2.5",
    '[run]\nstage = "yes"',
    '[run]\nbinds = "/scratch"',
    "[run]\nbinds = [1]",
    '[run]\nlauncher = "ssh"',
    '[run]\nhang-timeout = "never"',
    '[run]\nhang-timeout = "5d"',
    '[run]\ninit-timeout = "off"',
    '[run]\nimage = "a\\u0000b"',
    "[policy]\ndigests = 1",
    '[policy]\ndigests = ["sha256:00"]',
    "[profile.ib]\nnames = []",
    '[profile."1 a"]',
    "[profile]\nib = 1",
)


def is_read(text: str) -> bool:
    try:
        parse_settings(text.encode(), "/p/jaxsif.toml")
    except JaxsifError:
        return False
    return True


def is_valid(text: str) -> bool:
    return VALIDATOR.is_valid(parse_toml(text.encode(), "jaxsif.toml") if text else {})


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(build_schema())
    assert json.loads(json.dumps(build_schema())) == build_schema()


def test_the_page_has_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("text", [*EXAMPLES, *GOOD])
def test_what_is_read_is_valid(text: str) -> None:
    assert (is_read(text), is_valid(text)) == (True, True)


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused_is_not_valid(text: str) -> None:
    assert (is_read(text), is_valid(text)) == (False, False)


def test_the_profiles_of_jaxsif_are_valid() -> None:
    assert is_valid(Path(builtin_profiles()).read_text())


def test_each_option_has_its_help_and_a_valid_default() -> None:
    found = build_schema()["properties"]["run"]["properties"]
    assert list(found) == [option.key for option in OPTIONS]
    assert all(one["description"] for one in found.values())
    assert {key: one["default"] for key, one in found.items() if "default" in one} == DEFAULTS
    for key, value in DEFAULTS.items():
        jsonschema.validate(value, found[key])
