"""Build time and size of a flavour, cold (nothing cached), beside the plain way (plain.def), one after the other.

    build/venv/bin/python tests/bench/image.py FLAVOUR

Below build/bench-image of the clone; where there is no Apptainer, put tests/cluster/bin on the PATH (make bench-image).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from jaxsif.images.hostsettings import apt_mirror, host_variables, write_settings

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build/bench-image"
WHAT = {"cpu": "jax", "cuda12": "jax[cuda12]", "cuda13": "jax[cuda13]"}


def timed(argv: list[str], environ: dict[str, str], log: Path) -> float:
    """Wall time of a command that must succeed, in seconds."""
    begin = time.perf_counter()
    with log.open("w") as messages:
        subprocess.run(argv, env=environ, stdout=messages, stderr=messages, check=True, cwd=REPOSITORY)
    return time.perf_counter() - begin


def build_ours(flavour: str) -> tuple[float, Path]:
    """`jaxsif image build` with an empty cache."""
    argv = [sys.executable, "-m", "jaxsif", "image", "build", "--flavour", flavour]
    argv += ["--output", str(WORK / "ours"), "--cache", str(WORK / "cache")]
    seconds = timed(argv, dict(os.environ), WORK / "ours.log")
    return seconds, next((WORK / "ours").glob("*.sif"))


def build_plain(flavour: str) -> tuple[float, Path]:
    """The engine with plain.def and its defaults; pip without a cache."""
    stage = WORK / "stage"
    stage.mkdir()
    write_settings(stage, host_variables(os.environ))
    image = WORK / "plain.sif"
    argv = ["apptainer", "build", "--bind", f"{stage}:/mnt", "--build-arg", f"WHAT={WHAT[flavour]}"]
    argv += ["--build-arg", f"MIRROR={apt_mirror()}", str(image), "tests/bench/plain.def"]
    return timed(argv, {**os.environ, "APPTAINER_TMPDIR": str(WORK)}, WORK / "plain.log"), image


def main() -> None:
    flavour = sys.argv[1] if sys.argv[1:] else "cpu"
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    results = {"jaxsif": build_ours(flavour), "plain": build_plain(flavour)}
    for name, (seconds, image) in results.items():
        print(f"{name:8} {seconds:6.1f} s   {image.stat().st_size / 1e6:7.0f} MB", flush=True)
    (ours, image), (plain, plain_image) = results["jaxsif"], results["plain"]
    size = image.stat().st_size / plain_image.stat().st_size
    print(f"{flavour}: 1/{plain / ours:.1f} of the time, {size:.2f} of the size")


if __name__ == "__main__":
    main()
