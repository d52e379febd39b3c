"""Which variables of --env look like secrets."""

from __future__ import annotations

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import staff_files
from jaxsif.settings.fabric import Fabric
from jaxsif.settings.options import Rank, Setting
from jaxsif.settings.read import parse_env
from jaxsif.settings.secret import describe_secrets, describe_secrets_of, find_secrets

FILE = "run.env in /home/user/jaxsif.toml"


@pytest.mark.parametrize(
    "pair",
    [
        *("HF_TOKEN=x1", "TOKEN=s3cret", "MY_SECRET=a b", "DB_PASSWORD=p", "passwd=p", "WANDB_API_KEY=0a1b"),
        *("APIKEY=1a", "AWS_ACCESS_KEY_ID=AKIA", "SSH_PRIVATE_KEY=k", "CREDENTIALS=user:p", "KEY_PASSPHRASE=words"),
        *("ANYTHING=hf_abcdefghijklmnop", "A=ghp_0123456789abcdef", "A=sk-ant-0123456789", "A=AKIAIOSFODNN7EXAMPLE"),
        *("A=glpat-0123456789abcdef", "A=-----BEGIN RSA PRIVATE KEY-----\nMIIE"),
    ],
)
def test_secrets(pair: str) -> None:
    assert find_secrets(["SEED=1", pair]) == [pair.partition("=")[0]]


@pytest.mark.parametrize(
    "pair",
    [
        *("HF_TOKEN", "HF_TOKEN=", "TOKENIZERS_PARALLELISM=false", "MAX_TOKENS=512", "SECRET_FILE=/home/u/secret"),
        *("GOOGLE_APPLICATION_CREDENTIALS=~/key.json", "USE_TOKEN=true", "PAD_TOKEN=<pad>", "XLA_FLAGS=--xla_dump=a"),
        *("KEYBOARD=de", "SKIP=sk-", "PWD=/x", "TOKEN_COUNT=12"),
    ],
)
def test_no_secrets(pair: str) -> None:
    assert find_secrets([pair]) == []


@pytest.mark.parametrize(
    ("source", "rank", "place"),
    [
        ("--env", Rank.COMMAND_LINE, "the list of processes"),
        (FILE, Rank.USER, FILE),
        ("JAXSIF_ENV (environment)", Rank.VARIABLE, None),
    ],
)
def test_a_secret_that_others_may_read_is_named(source: str, rank: Rank, place: str | None) -> None:
    lines = list(describe_secrets(Setting(["SEED=1", "HF_TOKEN=s3cret", "API_KEY"], source, rank)))
    expected = f"warning: HF_TOKEN looks like a secret, and others may read its value in {place}:"
    assert lines == ([f"{expected} export HF_TOKEN, and pass only its name, as in --env HF_TOKEN"] if place else [])


@pytest.mark.parametrize("may_write", [True, False])
def test_a_secret_in_the_sites_file_is_for_its_staff(monkeypatch: pytest.MonkeyPatch, may_write: bool) -> None:
    """There, even the name alone would ask each user for the variable."""
    monkeypatch.setattr("os.access", lambda path, mode: may_write)
    (line,) = describe_secrets(Setting(["HF_TOKEN=s3cret"], f"run.env in {staff_files()[0]}", Rank.SITE))
    remedy = "remove it there, and let whoever needs it export it"
    assert line.endswith(f"jaxsif.toml: {remedy if may_write else f'ask site staff to correct it ({remedy})'}")


@pytest.mark.parametrize(("name", "end"), [("HF_TOKEN", "leave it out there"), ("SEED", 'write "SEED=VALUE" there')])
def test_a_variable_in_a_file_that_is_not_set(name: str, end: str) -> None:
    """A secret is not to be written down."""
    assert catch(JaxsifError, parse_env, [name], {}, FILE).hint == f"export {name}, or {end}"


def test_a_secret_in_a_fabrics_profile() -> None:
    env = {name: Setting(f"{name}=hf_{'x' * 20}", "profile.ib.env in FILE") for name in ("SITE_KEY", "OTHER")}
    env["NCCL_DEBUG"] = Setting("NCCL_DEBUG=INFO", "profile.ib.env in FILE")
    lines = list(describe_secrets_of(Fabric("ib", {}, env)))
    assert [line.partition(" looks like a secret")[0] for line in lines] == ["warning: SITE_KEY", "warning: OTHER"]
