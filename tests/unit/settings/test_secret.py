"""Which variables of --env look like secrets."""

from __future__ import annotations

import pytest

from jaxsif.settings.secret import find_secrets


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
