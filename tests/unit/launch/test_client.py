"""The client of `jaxsif.client()`: its options and its environment, as words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jaxsif
from jaxsif.launch.client import list_options, list_variables
from jaxsif.runtime import Runtime


def test_options() -> None:
    assert list_options(0, ()) == ("--no-eval",)
    assert list_options(2, ("/a.sqfs", "/b.sqfs")) == (
        *("--no-eval", "--nv"),
        *("--overlay", "/a.sqfs:ro", "--overlay", "/b.sqfs:ro"),
    )


def test_variables() -> None:
    """What `jaxsif run --cleanenv` takes away, and what says which task this process is."""
    environ = {"HOME": "/h", "MINE": "1", "XLA_FLAGS": "--a,b", "SLURM_PROCID": "0", "PMI_RANK": "0", "http_proxy": "p"}
    words = list(list_variables(Runtime("apptainer", "APPTAINERENV_"), environ))
    assert words[0] == "env"
    unset = {word.partition("=")[2] for word in words if word.startswith("--unset=")}
    assert unset == {"MINE", "SLURM_PROCID", "PMI_RANK", "http_proxy"}
    assert {"HTTP_PROXY=p", "APPTAINERENV_LC_ALL=C.UTF-8", "APPTAINERENV_PYTHONNOUSERSITE=1"} <= set(words)


@pytest.mark.starts_processes
def test_import_of_jaxsif_imports_nothing() -> None:
    root = Path(jaxsif.__file__).parents[1]
    program = "import sys; before = set(sys.modules); import jaxsif; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-Sc", program], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert set(done.stdout.split()) == {"jaxsif", "__future__"}
