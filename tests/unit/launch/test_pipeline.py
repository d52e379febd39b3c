"""Secrets that others may read."""

from __future__ import annotations

import pytest

from jaxsif.launch.pipeline import warn_of_secrets
from jaxsif.settings.config import Setting

FILE = "run.env in /home/user/jaxsif.toml"


@pytest.mark.parametrize(
    ("source", "place"),
    [("--env", "the list of processes"), (FILE, FILE), ("JAXSIF_ENV (environment)", None)],
)
def test_a_secret_that_others_may_read_is_named(source: str, place: str | None) -> None:
    lines: list[str] = []
    warn_of_secrets({"env": Setting(["SEED=1", "HF_TOKEN=s3cret", "API_KEY"], source)}, lines.append)
    expected = f"warning: HF_TOKEN looks like a secret, and others may read its value in {place}:"
    assert lines == ([f"{expected} export HF_TOKEN, and name it alone, as in --env HF_TOKEN"] if place else [])


def test_no_variables() -> None:
    lines: list[str] = []
    warn_of_secrets({}, lines.append)
    assert lines == []
