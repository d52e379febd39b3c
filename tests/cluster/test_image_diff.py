"""`jaxsif image diff` on real images: SIF and unpacked, the same and not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_image_look import OURS, REPOSITORY, check, run


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees, with our image copied and unpacked."""
    folder = REPOSITORY / "build/test-diff"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(OURS, folder / "copy.sif")
    check("apptainer", "build", "--sandbox", folder / "unpacked", OURS)
    yield folder
    shutil.rmtree(folder)


def test_same_root_file_system(work: Path) -> None:
    done = run("jaxsif", "image", "diff", OURS, work / "copy.sif")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = json.loads(check("jaxsif", "image", "diff", "--json", OURS, work / "copy.sif"))
    assert found == {"equal": True, "packages": [], "labels": [], "definition": [], "notes": []}


def test_unpacked_image_differs_in_what_the_runtime_adds(work: Path) -> None:
    done = run("jaxsif", "image", "diff", "--json", OURS, work / "unpacked")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert (found["packages"], found["notes"]) == ([], [])
    assert [one["name"] for one in found["labels"] if one["name"].startswith("io.jaxsif.")] == []


def test_changes_are_found(work: Path) -> None:
    """A package, a label, and a line of the definition."""
    changed = work / "unpacked"
    site = next((changed / "opt/jax/lib").glob("python3.*/site-packages"))
    shutil.rmtree(next(site.glob("opt_einsum-*.dist-info")))
    labels = json.loads((changed / ".singularity.d/labels.json").read_text())
    (changed / ".singularity.d/labels.json").write_text(json.dumps({**labels, "site": "here"}))
    (changed / ".singularity.d/Singularity").write_text("Bootstrap: localimage\nFrom: another.sif\n")
    done = run("jaxsif", "image", "diff", OURS, changed)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    for line in ("packages: 1 differs", "  + site here", "  + From: another.sif"):
        assert line in lines
    assert any(line.startswith("  - pypi opt-einsum ") for line in lines)


def test_image_without_python(work: Path) -> None:
    """Labels and definition are compared."""
    (work / "bare/.singularity.d").mkdir(parents=True)
    done = run("jaxsif", "image", "diff", OURS, work / "bare")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(f"packages not compared: cannot run python3 in {work}/bare: ")
    assert any(line.startswith("  - io.jaxsif.jax ") for line in lines)


def test_bad_requests(work: Path) -> None:
    done = run("jaxsif", "image", "diff", OURS, work / "missing.sif")
    assert done.returncode == 125
    assert done.stderr.startswith(f"jaxsif: error: image not found: {work}/missing.sif\n  from: B\n")
    assert run("jaxsif", "image", "diff", OURS).returncode == 2
