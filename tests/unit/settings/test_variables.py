"""Variables with jaxsif's names that nothing reads: an error for a typing error, else a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import check_variables
from jaxsif.settings.options import OPTIONS

ROOT = Path(__file__).parents[3]
FOLDERS = ("jaxsif", "modulefiles", "containers", "slurm")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("JAXSIF_LAYER", "JAXSIF_LAYERS"),
        ("JAXSIF_BIND", "JAXSIF_BINDS"),
        ("JAXSIF_NODE", "JAXSIF_NODES"),
        ("JAXSIF_HANGTIMEOUT", "JAXSIF_HANG_TIMEOUT"),
        ("JAXSIF_IMAGE", "JAX_IMAGE"),
        ("JAXSIF_RUNTIMES", "JAXSIF_RUNTIME"),
        ("JAXSIF_INDEPENDANT", "JAXSIF_INDEPENDENT"),
    ],
)
def test_what_resembles_a_setting_is_refused(name: str, meant: str) -> None:
    assert catch(JaxsifError, check_variables, {"JAXSIF_NODES": "2", name: "/nope"}).render() == (
        f"jaxsif: error: no setting uses the variable {name}\n  from: {name} (environment)\n  try:  {meant}?"
    )


def test_any_other_is_named() -> None:
    environ = {"JAXSIF_OF_MY_OWN": "1", "JAXSIF_EMPTY": "", "JAX_PLATFORMS": "cpu", "NOT_JAXSIF_NODE": "1"}
    assert check_variables(environ) == ("warning: no setting uses the variable JAXSIF_OF_MY_OWN",)


def test_every_name_of_ours_is_known() -> None:
    """Those of the code, of modules, of the image and of job scripts, also of a later table."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path.read_text(errors="replace") for path in files if path.suffix != ".pyc"]
    names = {name for text in texts for name in re.findall(r"\bJAXSIF_[A-Z][A-Z_]*[A-Z]\b", text)}
    assert len(names) > 20
    assert check_variables(dict.fromkeys([*names, *(option.variable for option in OPTIONS)], "1")) == ()
    for name in names - {"JAXSIF_STEP"}:
        assert check_variables({name: "1"}) == ()


def test_in_a_task_of_another_version_all_are_taken() -> None:
    assert check_variables({"JAXSIF_STEP": "a1b2", "JAXSIF_STEPS": "1", "JAXSIF_NODE": "2"}) == ()


@pytest.mark.starts_processes
def test_known_names_take_no_time() -> None:
    """difflib is imported for an unknown name only."""
    code = "import sys; from jaxsif.settings.config import check_variables as check; check({'JAXSIF_NODES': '2'})"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'difflib' not in sys.modules"], cwd=ROOT, check=True)
