"""`jaxsif image diff` on real images: SIF and unpacked, the same and not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_image_look import OURS, REPOSITORY, check, run, start


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A folder that the runtime's sandbox sees, with our image unpacked and packed again."""
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
    assert found == {"equal": True, "packages": [], "labels": [], "environment": [], "files": [], "notes": []}


def test_unpacked_image_differs_in_what_the_runtime_adds(work: Path) -> None:
    """Every other file is read alike from squashfs and from a folder."""
    done = run("jaxsif", "image", "diff", "--json", OURS, work / "unpacked")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["packages"], found["environment"], found["notes"]) == ([], [], [])
    assert [one["name"] for one in found["files"] if not one["name"].startswith(".singularity.d/")] == []


def test_changes_are_found(work: Path) -> None:
    """A package, a variable, a label, and each kind of change of a file."""
    changed = work / "unpacked"
    site = next((changed / "opt/jax/lib").glob("python3.*/site-packages"))
    shutil.rmtree(next(site.glob("opt_einsum-*.dist-info")))
    (changed / "etc/motd.new").write_text("x\n")
    (changed / "etc/hostname").unlink(missing_ok=True)
    (changed / "etc/passwd").chmod(0o600)
    (changed / "opt/jaxsif/image").write_text("another\n")
    (changed / "bin").unlink()
    (changed / "bin").symlink_to("/usr/bin")
    (changed / ".singularity.d/env/95-more.sh").write_text("export MORE=1\n")
    (changed / ".singularity.d/env/95-more.sh").chmod(0o755)
    labels = json.loads((changed / ".singularity.d/labels.json").read_text())
    (changed / ".singularity.d/labels.json").write_text(json.dumps({**labels, "site": "here"}))
    done = run("jaxsif", "image", "diff", OURS, changed)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    for line in (
        "packages: 1 differs",
        "  + site here",
        "  + MORE 1",
        "  + /.singularity.d/env/95-more.sh (file)",
        "  ~ /bin: usr/bin -> /usr/bin",
        "  + /etc/motd.new (file)",
        "  ~ /etc/passwd: mode 644 -> 600",
    ):
        assert line in lines
    assert any(line.startswith("  - pypi opt-einsum ") for line in lines)
    assert any(line.startswith("  ~ /opt/jaxsif/image: size ") and line.endswith(", content") for line in lines)
    assert any("dist-info (folder, and " in line for line in lines)


def test_image_that_is_damaged(work: Path) -> None:
    """Bytes in its middle overwritten: unsquashfs says so, no half list is compared."""
    damaged = work / "damaged.sif"
    shutil.copy(OURS, damaged)
    with open(damaged, "r+b") as file:
        file.seek(damaged.stat().st_size // 2)
        file.write(b"\xff" * (4 << 20))
    done = run("jaxsif", "image", "diff", OURS, damaged)
    assert done.returncode == 125
    assert f"jaxsif: error: unsquashfs cannot read {damaged}: " in done.stderr
    assert done.stdout == ""


def unpackers() -> str:
    """The processes that read our image now."""
    argv = ["pgrep", "-fa", f"unsquashfs .*{OURS}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0, 0.3])
def test_interrupted_diff_leaves_no_process(work: Path, number: signal.Signals, delay: float) -> None:
    """Also not when the reading process is just being started."""
    with start("jaxsif", "image", "diff", OURS, work / "unpacked") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("reading the files of ")
        time.sleep(delay)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (128 + number, "")
    assert "Traceback" not in err
    assert unpackers() == ""


def test_bad_requests(work: Path) -> None:
    done = run("jaxsif", "image", "diff", OURS, work / "missing.sif")
    assert done.returncode == 125
    assert done.stderr.startswith(f"jaxsif: error: image not found: {work}/missing.sif\n  from: B\n")
    assert run("jaxsif", "image", "diff", OURS).returncode == 2
