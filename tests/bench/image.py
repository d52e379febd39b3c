"""Build time and size of a flavour, one after the other: with nothing cached, the plain way (plain.def), and again
after one package of the lock has changed.

    build/venv/bin/python tests/bench/image.py FLAVOUR [PACKAGE]

Below build/bench-image of the clone; where there is no Apptainer, put tests/cluster/bin on the PATH (make bench-image).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from jaxsif.images.build import find_uv
from jaxsif.images.hostsettings import apt_mirror, host_variables, write_settings
from jaxsif.images.recipe import read_recipe

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build/bench-image"
WHAT = {"cpu": "jax", "cuda12": "jax[cuda12]", "cuda13": "jax[cuda13]"}


def timed(argv: list[str], environ: dict[str, str], log: Path) -> float:
    """Wall time of a command that must succeed, in seconds."""
    _settle()
    begin = time.perf_counter()
    with log.open("w") as messages:
        subprocess.run(argv, env=environ, stdout=messages, stderr=messages, check=True, cwd=REPOSITORY)
    return time.perf_counter() - begin


def _settle() -> None:
    """Each build finds the disk alike: nothing to write, and a minute after the last files were deleted.

    ext4 without a journal does not take their inodes again before (recently_deleted in fs/ext4/ialloc.c), and looks
    for another one so long that each new file takes a millisecond.
    """
    os.sync()
    time.sleep(65)


def copy_source(flavour: str, package: str) -> Path:
    """The sources with a lock in which `package` has an older version than in the clone's."""
    source = WORK / "source"
    for name in ("containers", "jaxsif"):
        shutil.copytree(REPOSITORY / name, source / name)
    shutil.copy(REPOSITORY / "LICENSE", source)
    recipe = read_recipe(source, flavour)
    version = re.search(rf"^{re.escape(package)}==(\S+)", recipe.lock.read_text(), re.MULTILINE)
    if not version:
        sys.exit(f"bench: no {package} in {recipe.lock}")
    older = WORK / "older.txt"
    older.write_text(f"{package}<{version[1]}\n")
    argv = [str(find_uv(os.environ)), "pip", "compile", "--quiet", "--generate-hashes", "--python-version=3.13"]
    argv += [f"--python-platform={recipe.machine}-manylinux_2_28", f"--constraints={older}"]
    argv += [f"--output-file={recipe.lock}", f"{source}/containers/locks/{flavour}.in"]
    timed(argv, {**os.environ, **host_variables(os.environ)}, WORK / "lock.log")
    return source


def build_ours(flavour: str, source: Path) -> tuple[float, Path]:
    """`jaxsif image build` of the sources, in one cache."""
    argv = [sys.executable, "-m", "jaxsif", "image", "build", "--flavour", flavour, "--source", str(source)]
    argv += ["--output", str(WORK / "ours"), "--cache", str(WORK / "cache")]
    seconds = timed(argv, dict(os.environ), WORK / "ours.log")
    return seconds, next((WORK / "ours").glob("*.sif"))


def build_plain(flavour: str) -> tuple[float, Path]:
    """The engine with plain.def and its defaults; pip without a cache."""
    stage = WORK / "stage"
    stage.mkdir(exist_ok=True)
    write_settings(stage, host_variables(os.environ))
    image = WORK / f"plain-{flavour}.sif"
    argv = ["apptainer", "build", "--bind", f"{stage}:/mnt", "--build-arg", f"WHAT={WHAT[flavour]}"]
    argv += ["--build-arg", f"MIRROR={apt_mirror()}", str(image), "tests/bench/plain.def"]
    return timed(argv, {**os.environ, "APPTAINER_TMPDIR": str(WORK)}, WORK / "plain.log"), image


def main() -> None:
    flavour = sys.argv[1] if sys.argv[1:] else "cpu"
    package = sys.argv[2] if sys.argv[2:] else "numpy"
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    source = copy_source(flavour, package)
    cold, plain = build_ours(flavour, source), build_plain(flavour)
    again = build_ours(flavour, REPOSITORY)
    for name, (seconds, image) in (("cold", cold), ("plain", plain), (f"{package} changed", again)):
        print(f"{name:14} {seconds:6.1f} s   {image.stat().st_size / 1e6:7.0f} MB", flush=True)
    size = again[1].stat().st_size / plain[1].stat().st_size
    print(f"{flavour}: 1/{plain[0] / cold[0]:.1f} of the plain way's time, {size:.2f} of its size")
    print(f"{flavour}: 1/{cold[0] / again[0]:.1f} of the cold time after a change of {package}")


if __name__ == "__main__":
    main()
