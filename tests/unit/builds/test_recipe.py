"""What an image is made of, in a checkout that the tests write; its digest, and the commit that it is of."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.builds.recipe import Recipe, Revision, find_revision, read_recipe
from jaxsif.errors import JaxsifError

ROOT = Path(__file__).parents[3]

FILES = {
    "containers/jaxsif.def": "Bootstrap: {{ BOOTSTRAP }}\n",
    "containers/flavours/cpu.args": "# why\nFLAVOUR=cpu\n\n  \nPACKAGES=python3 tzdata\nOPTIONS=--a=1 --b=2\n",
    "containers/flavours/cuda12.args": "FLAVOUR=cuda12\n",
    "containers/locks/cpu.txt": "# made by uv\njax==0.12.0 \\\n    --hash=sha256:00\njaxlib==0.12.0.1\n",
    "containers/check.py": "import jax\n",
    "containers/sbom.py": "import json\n",
    "containers/compile.py": "import py_compile\n",
    "LICENSE": "Apache\n",
    "jaxsif/task/__init__.py": "",
    "jaxsif/task/start.sh": "#!/bin/sh\n",
    "jaxsif/task/site/sitecustomize.py": "import sys\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def text_of(error: JaxsifError) -> str:
    assert error.exit_code == 2
    return error.render()


def test_recipe(root: Path) -> None:
    recipe = read_recipe(root, "cpu", "x86_64")
    arguments = {"FLAVOUR": "cpu", "PACKAGES": "python3 tzdata", "OPTIONS": "--a=1 --b=2"}
    assert recipe == Recipe(root, "cpu", arguments, "0.12.0")
    assert recipe.name == "jax-0.12.0-cpu.sif"
    assert recipe.packages == "python3 tzdata"
    assert recipe.lock.is_file()
    assert recipe.definition.is_file()


@pytest.mark.parametrize("flavour", [path.stem for path in (ROOT / "containers/flavours").glob("*.args")])
def test_recipes_of_this_checkout_are_whole(flavour: str) -> None:
    recipe = read_recipe(ROOT, flavour)
    assert recipe.arguments["FLAVOUR"] == flavour
    assert recipe.packages
    assert len(recipe.digest()) == 64


def test_another_machine_has_a_lock_of_its_own(root: Path) -> None:
    lock = root / "containers/locks/cpu-aarch64.txt"
    said = text_of(catch(JaxsifError, read_recipe, root, "cpu", "aarch64"))
    assert said.startswith(f"jaxsif: error: no locked version of jax in {lock}\n")
    lock.write_text("jax==0.12.1\n")
    recipe = read_recipe(root, "cpu", "aarch64")
    assert (recipe.jax_version, recipe.lock, recipe.machine) == ("0.12.1", lock, "aarch64")


def test_versions_of_nvidias_packages(root: Path) -> None:
    recipe = read_recipe(root, "cpu")
    assert (recipe.cuda_version, recipe.version("cudnn"), recipe.version("nccl")) == ("none", "none", "none")
    with recipe.lock.open("a") as lock:
        lock.write("nvidia-cuda-runtime-cu12==12.9.79\nnvidia-cudnn-cu12==9.27.0.5\nnvidia-nccl-cu12==2.32.3\n")
    assert (recipe.cuda_version, recipe.version("cudnn"), recipe.version("nccl")) == ("12.9", "9.27.0.5", "2.32.3")


def test_unknown_flavour(root: Path) -> None:
    said = text_of(catch(JaxsifError, read_recipe, root, "rocm"))
    assert said == "jaxsif: error: no flavour rocm\n  from: --flavour\n  try:  one of cpu, cuda12"


def test_no_checkout(tmp_path: Path) -> None:
    assert text_of(catch(JaxsifError, read_recipe, tmp_path, "cpu")) == (
        f"jaxsif: error: no definition files in {tmp_path}/containers\n"
        f"  from: {tmp_path}\n"
        "  try:  name a jaxsif checkout with --source"
    )


@pytest.mark.parametrize("lock", [None, "jaxlib==0.12.0\nmyjax==1\n"], ids=["no lock", "no jax in it"])
def test_no_locked_jax(root: Path, lock: str | None) -> None:
    path = root / "containers/locks/cuda12.txt"
    if lock:
        path.write_text(lock)
    assert text_of(catch(JaxsifError, read_recipe, root, "cuda12")) == (
        f"jaxsif: error: no locked version of jax in {path}\n  from: flavour cuda12\n  try:  make lock FLAVOUR=cuda12"
    )


def test_line_that_is_no_argument(root: Path) -> None:
    path = root / "containers/flavours/cpu.args"
    path.write_text("FLAVOUR=cpu\nPACKAGES python3\n")
    assert text_of(catch(JaxsifError, read_recipe, root, "cpu")) == (
        f"jaxsif: error: not a build argument: 'PACKAGES python3'\n  from: {path}:2\n"
        "  try:  write NAME=VALUE on each line"
    )


def test_flavour_without_packages(root: Path) -> None:
    path = root / "containers/flavours/cpu.args"
    path.write_text("FLAVOUR=cpu\n")
    assert text_of(catch(JaxsifError, lambda: read_recipe(root, "cpu").packages)) == (
        f"jaxsif: error: flavour cpu names no packages\n  from: {path}\n  try:  add a line PACKAGES=NAME NAME…"
    )


INPUTS = sorted(set(FILES) - {"containers/flavours/cuda12.args"})


@pytest.mark.parametrize("name", INPUTS)
def test_digest_changes_with_every_input(root: Path, name: str) -> None:
    before = read_recipe(root, "cpu").digest()
    (root / name).write_text(FILES[name] + "# more\n")
    assert read_recipe(root, "cpu").digest() != before


def test_digest_changes_with_what_more_is_given(root: Path) -> None:
    recipe = read_recipe(root, "cpu")
    digests = {recipe.digest(), recipe.digest(""), recipe.digest("a"), recipe.digest("a", "b"), recipe.digest("a b")}
    assert len(digests) == 5


def test_digest_is_the_same_elsewhere_and_beside_other_files(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = read_recipe(root, "cpu").digest()
    (root / "containers/flavours/cuda12.args").write_text("FLAVOUR=cuda13\n")
    (root / "jaxsif/task/devices.pyc").write_text("compiled")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "checkout"
    root.rename(elsewhere)
    assert read_recipe(elsewhere, "cpu").digest() == before


def test_digest_of_an_input_that_is_missing(root: Path) -> None:
    recipe = read_recipe(root, "cpu")
    (root / "containers/check.py").unlink()
    assert text_of(catch(JaxsifError, recipe.digest)) == (
        f"jaxsif: error: cannot read {root}/containers/check.py: No such file or directory\n"
        f"  from: {root}\n"
        "  try:  name a jaxsif checkout with --source"
    )


DATES = {"GIT_AUTHOR_DATE": "1000000000 +0200", "GIT_COMMITTER_DATE": "1000000000 +0200"}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    argv = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(argv, env={**os.environ, **DATES}, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    for name in ("input", "other"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    return tmp_path


@pytest.mark.starts_processes
def test_the_last_commit_that_touched_an_input(repository: Path) -> None:
    first = Revision(git(repository, "rev-parse", "HEAD").strip(), 1_000_000_000)
    assert find_revision(repository, [repository / "input"], {}, print) == first
    assert first.date == "2001-09-09T01:46:40+00:00"
    (repository / "other").write_text("2\n")
    assert find_revision(repository, [repository / "input"], {}, print) == first
    git(repository, "commit", "--quiet", "--all", "--message=another")
    assert find_revision(repository, [repository / "input"], {}, print) == first
    (repository / "input").write_text("2\n")
    assert find_revision(repository, [repository / "input"], {}, print) == (f"{first.commit}-dirty", first.created)


@pytest.mark.starts_processes
def test_source_date_epoch_sets_the_time(repository: Path) -> None:
    assert find_revision(repository, [repository / "input"], {"SOURCE_DATE_EPOCH": "5"}, print).created == 5
    for wrong in ("yesterday", "-1", str(1 << 32)):
        with pytest.raises(JaxsifError, match="not a time"):
            find_revision(repository, [repository / "input"], {"SOURCE_DATE_EPOCH": wrong}, print)


@pytest.mark.starts_processes
def test_a_checkout_of_another_user(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Git does not trust it, and jaxsif names the remedy."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setattr(os, "geteuid", lambda: repository.stat().st_uid + 1)
    assert find_revision(repository, [repository / "input"], {}, print) == ("unknown", 0)
    assert capsys.readouterr().out == (
        f"the image's revision is unknown: {repository} belongs to another user, so git may not trust it;"
        f" try: git config --global --add safe.directory {repository}\n"
    )


@pytest.mark.starts_processes
def test_outside_a_repository_and_below_another_one(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert find_revision(elsewhere, [elsewhere / "input"], {}, print) == ("unknown", 0)
    (repository / "installed").mkdir()
    assert find_revision(repository / "installed", [repository / "installed/input"], {}, print) == ("unknown", 0)
