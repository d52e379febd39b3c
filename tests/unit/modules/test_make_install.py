"""What `make install` refuses before it changes anything, and what it removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import siffile

from jaxsif import __version__

REPOSITORY = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.starts_processes


def install(*words: str, clone: Path = REPOSITORY) -> list[str]:
    """Call the script that `make install` calls, which must fail; return the lines of its error."""
    done = subprocess.run([clone / "modulefiles/install", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which an image of the flavour cpu, and the launcher's libraries, are built."""
    clone, version = tmp_path / "clone", f"{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("jaxsif", "modulefiles", "containers", "docs", "slurm"):
        shutil.copytree(REPOSITORY / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, clone)
    lock = "cpu.txt" if os.uname().machine == "x86_64" else f"cpu-{os.uname().machine}.txt"
    (clone / "containers/locks" / lock).write_text("jax==1.0\n")
    for folder in (f"launcher-lib/{version}/lib", "images", "venv/bin"):
        (clone / "build" / folder).mkdir(parents=True)
    (clone / f"build/launcher-lib/{version}/oldest").write_text("3.9\n")
    (clone / "build/venv/bin/uv").touch()
    labels = {"io.jaxsif.jax": "1.0", "io.jaxsif.flavour": "cpu"}
    siffile.write_image(clone / "build/images/jax-1.0-cpu.sif", b"root", labels=labels)
    return clone


@pytest.mark.parametrize("python", ["python3", "bin/python3", "/opt/a b/python3"])
def test_python_that_no_first_line_of_a_script_can_name(tmp_path: Path, python: str) -> None:
    prefix = tmp_path / "sw"
    error, hint = install(str(prefix), "cpu", python)
    assert error == f"install: error: INSTALL_PYTHON is not an absolute path without blanks: {python}"
    assert hint == "  try:  write the path of another one: INSTALL_PYTHON=/path/to/python3"
    assert not prefix.exists()


def test_python_that_is_not_there(tmp_path: Path) -> None:
    lines = install(f"{tmp_path}/sw", "cpu", f"{tmp_path}/python9")
    assert lines[0] == f"install: error: INSTALL_PYTHON not found: {tmp_path}/python9"
    assert len(lines) == 2


@pytest.mark.parametrize("letter", [" ", ":", ",", "'", '"', "`", "$", "\\", "ü"])
def test_prefix_that_modules_cannot_name(tmp_path: Path, letter: str) -> None:
    prefix = f"{tmp_path}/a{letter}b"
    error, *_, hint = install(prefix, "cpu", sys.executable)
    assert error == f"jaxsif: error: path has characters that no module can name: {prefix}"
    assert hint == "  try:  use a folder whose path is ASCII without blanks, commas, colons, quotes, $, backslashes"
    assert not os.path.exists(prefix)


@pytest.mark.parametrize(
    ("prefix", "error"),
    [
        ("", "install: error: PREFIX is empty"),
        ("s w's", "install: error: PREFIX is not an absolute path: s w's"),
        ("/it's", "jaxsif: error: path has characters that no module can name: /it's"),
        ("$$HOME;exit 7", "install: error: PREFIX is not an absolute path: $HOME;exit 7"),  # $$ is make's $
    ],
)
def test_make_passes_each_word_on(prefix: str, error: str) -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "install", f"PREFIX={prefix}", "--assume-old=build/venv/.ready"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert recipe.stderr.splitlines()[0] == error


def test_make_asks_for_ref_before_it_builds_anything() -> None:
    argv = ["make", "--no-print-directory", "--dry-run", "bench-beside", "REF="]
    recipe = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert recipe.stdout.startswith("echo 'make: error: no REF'")


@pytest.mark.parametrize("default", ["0", "no", "true"])
def test_only_one_word_makes_the_default(tmp_path: Path, default: str) -> None:
    error, hint = install(f"{tmp_path}/sw", "cpu", sys.executable, default)
    assert error == f"install: error: DEFAULT is neither 1 nor empty: {default}"
    assert hint == "  try:  leave DEFAULT out; DEFAULT=1 changes what jax/sif loads for all users"


def test_what_is_no_python(tmp_path: Path) -> None:
    error, hint = install(f"{tmp_path}/sw", "cpu", "/bin/sh")
    assert error == "install: error: /bin/sh is not Python 3.9 or newer"
    assert hint == "  try:  write the path of another one: INSTALL_PYTHON=/path/to/python3"


@pytest.mark.parametrize(("flavour", "said"), [("gpu", "no flavour gpu"), ("", "FLAVOUR is empty")])
def test_flavour_that_is_not_there(tmp_path: Path, flavour: str, said: str) -> None:
    error, hint = install(f"{tmp_path}/sw", flavour, sys.executable)
    assert error == f"install: error: {said}"
    assert hint == "  try:  write FLAVOUR=NAME, with one of: cpu cuda12 cuda13"


@pytest.mark.parametrize("locked", ["", "<<<<<<< HEAD\njax==1.0\n=======\njax==2.0\n>>>>>>> new\n"])
def test_a_lock_without_one_version_of_jax(clone: Path, tmp_path: Path, locked: str) -> None:
    """As with the marks of a conflict in git."""
    (lock,) = (clone / "containers/locks").glob("cpu.txt" if os.uname().machine == "x86_64" else "cpu-*.txt")
    lock.write_text(locked)
    argv = [clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    error, hint = done.stderr.splitlines()
    assert error == f"install: error: not one version of jax in containers/locks/{lock.name}"
    assert hint == "  try:  restore it, or remove it and call make lock FLAVOUR=cpu"


@pytest.mark.parametrize("signed", ["old", "both", "same"])
def test_an_unsigned_image_in_place_of_a_signed_one(clone: Path, tmp_path: Path, signed: str) -> None:
    """A signed one of the same digest stays."""
    labels = {"io.jaxsif.jax": "1.0", "io.jaxsif.flavour": "cpu"}
    built, old = clone / "build/images/jax-1.0-cpu.sif", tmp_path / "sw/jaxsif/images/jax-1.0-cpu.sif"
    old.parent.mkdir(parents=True)
    for image in [old, built] if signed == "both" else [old]:
        content = b"root" if image == built or signed == "same" else b"another root"
        siffile.write_signed(image, content, labels)
    before = old.read_bytes()
    os.utime(old, (1, 1))
    stays = f"install: {built.name} stays: it is signed, and the built image has the same digest"
    would = f"install: error: {old} is signed, and the build/images/{built.name} that would replace it is not"
    argv = [clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == (signed == "old"), lines
    assert (stays in lines) == (signed == "same"), lines
    assert (would in lines) == (signed == "old"), lines
    assert old.read_bytes() == (built.read_bytes() if signed == "both" else before)
    launcher = tmp_path / f"sw/jaxsif/{__version__}"
    assert launcher.exists() == (signed != "old")


@pytest.mark.parametrize("write", [siffile.write_image, siffile.write_signed])
@pytest.mark.parametrize("content", [b"root", b"another root"])
def test_a_newer_installed_image_stays(
    clone: Path, tmp_path: Path, content: bytes, write: Callable[..., object]
) -> None:
    """It is said of another image, and not of the same one, which may have been signed there."""
    labels = {"io.jaxsif.jax": "1.0", "io.jaxsif.flavour": "cpu"}
    built, installed = clone / "build/images/jax-1.0-cpu.sif", tmp_path / "sw/jaxsif/images/jax-1.0-cpu.sif"
    installed.parent.mkdir(parents=True)
    write(installed, content, labels=labels)
    os.utime(built, (1, 1))
    argv = [clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    remedy = f"; to replace it: touch build/images/{built.name}"
    if write is siffile.write_signed:
        remedy = (
            f", and signed; to replace it: build/venv/bin/jaxsif image sign --key private.pem build/images/{built.name}"
        )
    stays = f"install: {built.name} stays: it is newer than the built image{remedy}"
    assert (stays in done.stderr.splitlines()) == (content != b"root"), done.stderr


def test_a_newer_installed_image_of_another_jax(clone: Path, tmp_path: Path) -> None:
    """Someone has copied it over the one that its name promises: nothing is changed."""
    built, installed = clone / "build/images/jax-1.0-cpu.sif", tmp_path / "sw/jaxsif/images/jax-1.0-cpu.sif"
    installed.parent.mkdir(parents=True)
    siffile.write_image(installed, b"another root", labels={"io.jaxsif.jax": "2.0", "io.jaxsif.flavour": "cpu"})
    os.utime(built, (1, 1))
    lines = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    what = f"{installed} is newer than the built image, and of another JAX by its labels"
    assert lines == [f"install: error: {what}", "  try:  move it away"]
    assert not (tmp_path / f"sw/jaxsif/{__version__}").exists()
    os.utime(built)
    argv = [clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable]
    subprocess.run(argv, capture_output=True, check=True)
    assert installed.read_bytes() == built.read_bytes()


@pytest.mark.parametrize("time", [1, 1 << 32])
@pytest.mark.parametrize("damage", ["truncated", "not as signed", "without a root file system"])
def test_a_damaged_installed_image_is_replaced(clone: Path, tmp_path: Path, time: int, damage: str) -> None:
    built, installed = clone / "build/images/jax-1.0-cpu.sif", tmp_path / "sw/jaxsif/images/jax-1.0-cpu.sif"
    installed.parent.mkdir(parents=True)
    if damage == "truncated":
        installed.write_bytes(built.read_bytes()[:-1])
    elif damage == "without a root file system":  # as after `apptainer sif del`
        content = built.read_bytes()
        installed.write_bytes(content[:132] + b"\0" + content[133:])
    else:
        siffile.write_signed(installed, b"roat", None, signed=b"root")
    os.utime(installed, (time, time))
    argv = [clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert f"install: {built.name} is replaced: the installed one is damaged" in done.stderr.splitlines()
    assert installed.read_bytes() == built.read_bytes()


def test_a_built_image_that_has_changed_since_it_was_signed(clone: Path, tmp_path: Path) -> None:
    built = clone / "build/images/jax-1.0-cpu.sif"
    labels = {"io.jaxsif.jax": "1.0", "io.jaxsif.flavour": "cpu"}
    siffile.write_signed(built, b"roat", labels, signed=b"root")
    lines = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert lines == [
        f"install: error: build/images/{built.name} has changed since it was signed",
        "  try:  remove it, and build it again",
    ]
    assert not (tmp_path / f"sw/jaxsif/{__version__}").exists()


def test_a_damaged_built_image_is_not_installed(clone: Path, tmp_path: Path) -> None:
    built = clone / "build/images/jax-1.0-cpu.sif"
    built.write_bytes(built.read_bytes()[:-1])
    lines = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert lines[0].startswith("jaxsif: error: image is truncated (1 of ")
    assert not (tmp_path / f"sw/jaxsif/{__version__}").exists()


def test_a_folder_in_the_place_of_the_image(clone: Path, tmp_path: Path) -> None:
    installed = tmp_path / "sw/jaxsif/images/jax-1.0-cpu.sif"
    installed.mkdir(parents=True)
    assert install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone) == [
        f"install: error: {installed} is a folder",
        "  try:  move it away",
    ]
    assert not list(installed.iterdir())
    assert not (tmp_path / f"sw/jaxsif/{__version__}").exists()


def test_a_file_in_the_place_of_the_launcher(clone: Path, tmp_path: Path) -> None:
    home = tmp_path / f"sw/jaxsif/{__version__}"
    home.parent.mkdir(parents=True)
    home.touch()
    lines = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert lines == [f"install: error: {home} is no folder", "  try:  move it away"]


@pytest.mark.parametrize("python", ["true", "echo"])
def test_a_program_that_is_no_python(tmp_path: Path, python: str) -> None:
    lines = install(f"{tmp_path}/sw", "cpu", f"/bin/{python}")
    assert lines[0] == f"install: error: /bin/{python} is not Python 3.9 or newer"


def test_a_launcher_that_was_moved(clone: Path, tmp_path: Path) -> None:
    subprocess.run([clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable], check=True)
    (tmp_path / "sw").rename(tmp_path / "new")
    argv = [tmp_path / f"new/jaxsif/{__version__}/bin/jaxsif", "version"]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    home = tmp_path / f"sw/jaxsif/{__version__}"
    assert done.returncode == 125
    assert done.stderr == (
        f"jaxsif: error: no jaxsif in {home}, where it was installed\n"
        "  try:  make install PREFIX=FOLDER, with the folder where it is to be now\n"
    )


def test_files_that_cannot_be_compiled_have_one_line(clone: Path, tmp_path: Path) -> None:
    for name in "abc":
        (clone / f"jaxsif/{name}.py").write_text("(\n")
    reason, error, _ = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert reason.startswith("SyntaxError: ")
    assert error == f"install: error: cannot write below {tmp_path}/sw, see above: nothing was changed"


@pytest.mark.parametrize("path", ["dl.lua", "jax/.modulerc", "jax/1.0-cpu-sif.lua"])
def test_modulefiles_of_others_are_found_before_anything_is_copied(clone: Path, tmp_path: Path, path: str) -> None:
    theirs = tmp_path / "sw/modulefiles" / path
    theirs.parent.mkdir(parents=True)
    theirs.write_text("#%Module\n")
    lines = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert lines == [
        f"jaxsif: error: not written by jaxsif: {theirs}",
        f"  from: {theirs.parent}",
        "  try:  move it away, or use another PREFIX",
    ]
    assert [path.name for path in (tmp_path / "sw").iterdir()] == ["modulefiles"]


def test_a_template_that_is_missing_is_found_before_anything_is_copied(clone: Path, tmp_path: Path) -> None:
    (clone / "modulefiles/jax.tcl.in").unlink()
    assert install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone) == [
        f"jaxsif: error: cannot read {clone}/modulefiles/jax.tcl.in: No such file or directory",
        "  try:  git checkout modulefiles, or install again",
    ]
    assert not (tmp_path / "sw").exists()


def test_words_of_a_site_in_a_template_stay(clone: Path, tmp_path: Path) -> None:
    """As in an address; jaxsif replaces only its own."""
    for name in ("jax.lua.in", "jax.help.in"):
        with open(clone / "modulefiles" / name, "a") as file:
            file.write("-- help@SITE@ for @NAME@\n")
    subprocess.run([clone / "modulefiles/install", f"{tmp_path}/sw", "cpu", sys.executable], check=True)
    text = (tmp_path / "sw/modulefiles/jax/1.0-cpu-sif.lua").read_text()
    assert text.count("-- help@SITE@ for 1.0-cpu-sif\n") == 2


def test_file_in_the_way(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "sw").touch()
    *_, error, hint = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert error == f"install: error: cannot write below {tmp_path}/sw, see above: nothing was changed"
    assert "a file in the way" in hint


def test_another_install_is_not_disturbed(clone: Path, tmp_path: Path) -> None:
    half_made = tmp_path / "sw/jaxsif/.0.1.0.new/bin"
    half_made.mkdir(parents=True)
    with open(tmp_path / "sw/jaxsif/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error, hint = install(f"{tmp_path}/sw", "cpu", sys.executable, clone=clone)
    assert error == f"install: error: another install is writing below {tmp_path}/sw"
    assert hint == "  try:  wait until it has ended"
    assert half_made.is_dir()


def test_what_earlier_installs_have_left_is_removed(clone: Path, tmp_path: Path) -> None:
    """Of other versions, too; a replaced launcher stays, but for no more than one install."""
    sw = tmp_path / "sw"
    for name in (".0.0.1.old", ".0.0.2.new"):
        (sw / "jaxsif" / name / "bin").mkdir(parents=True)
    (sw / "jaxsif/images").mkdir()
    (sw / "jaxsif/images/.jax-0.9-cpu.sif.new").touch()
    done = subprocess.run(
        [clone / "modulefiles/install", f"{sw}/", "cpu", sys.executable], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith(f"module use {sw}/modulefiles && module load jax/1.0-cpu-sif\n")
    assert {path.name for path in (sw / "jaxsif").iterdir() if not path.name[0].isdigit()} == {".lock", "images"}
    assert [path.name for path in (sw / "jaxsif/images").iterdir()] == ["jax-1.0-cpu.sif"]
