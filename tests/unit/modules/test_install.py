"""The modules of images: names, what is written, the default, what is refused."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit import siffile
from kit.caught import catch

from jaxsif import __version__, installation
from jaxsif.commands import module as command
from jaxsif.container.policy import SIGNED_BY, RefusedImageError
from jaxsif.errors import HostError, JaxsifError, SignatureError
from jaxsif.images.file import remembered_digest
from jaxsif.images.signing import ChangedImageError, UnsignedError, UnusableKeyError
from jaxsif.modules import install as modules
from jaxsif.modules.modulefile import Module, read_module
from jaxsif.runtime import Runtime, no_runtime

NAME = "0.12.0.1-cpu-sif"
REPOSITORY = Path(__file__).resolve().parents[3]


def write_image(path: Path, labels: object = None) -> str:
    return siffile.write_image(path, b"root", labels=labels)


def labels_of(version: str = "0.12.0.1", flavour: str = "cpu") -> dict[str, str]:
    """Labels as jaxsif.def writes them."""
    return {"io.jaxsif.jax": version, "io.jaxsif.flavour": flavour}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A folder with as much of an installed launcher as modules look at; its name must be quoted."""
    prefix = tmp_path / "a;(b)[d]"
    home = prefix / "jaxsif" / __version__
    for name in ("modulefiles", "bin"):
        (home / name).mkdir(parents=True)
    (home / "bin/jaxsif").write_text("#!/bin/sh\n")
    (home / "bin/jaxsif").chmod(0o755)
    return prefix


@pytest.fixture(autouse=True)
def keep_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands change both."""
    monkeypatch.setattr(installation, "SITE_FOLDER", "")
    monkeypatch.setattr(installation, "_linked_home", None)


def add(prefix: Path, image: str, name: str | None = None, default: bool = False) -> Module:
    """As the command does, without its messages."""
    return modules.add_module(prefix, image, name, default, lambda _line: None)


def contents(prefix: Path) -> dict[str, str]:
    """Every modulefile below `prefix`."""
    folder = prefix / "modulefiles"
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_of_a_module_and_first_one_is_the_default(prefix: Path, tmp_path: Path) -> None:
    image = write_image(tmp_path / "x.sif", labels_of())
    module = add(prefix, image)
    assert module.name == NAME
    assert module.title == "JAX 0.12.0.1 (cpu)"
    files = contents(prefix)
    assert set(files) == {"dl", "dl.lua", "jax/.modulerc", f"jax/{NAME}", f"jax/{NAME}.lua"}
    assert [name for name, text in files.items() if "@" in text] == []
    missing = [f"the image of jax/{NAME} is missing, or you may not read it:" in text for text in files.values()]
    assert sum(missing) == 2  # in Lua and in Tcl
    assert (
        sum(f"the launcher of jax/{NAME} is missing, or you may not read it:" in text for text in files.values()) == 2
    )
    assert f"module-version jax/{NAME} sif default\n" in files["jax/.modulerc"]
    # Environment Modules ignores a file without this, and Lmod must have another one to load.
    assert {name for name, text in files.items() if text.startswith("#%Module\n")} == {
        *("dl", "jax/.modulerc", f"jax/{NAME}")
    }
    assert modules.list_modules(prefix) == [module]
    assert {path.stat().st_mode & 0o777 for path in (prefix / "modulefiles").rglob("*") if path.is_file()} == {0o644}


@pytest.mark.parametrize("names", [("open/x.sif",), ("open",), (), ("open/x.sif", "open", "")])
def test_an_image_that_others_may_not_read(prefix: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Named is all that is closed: the image, and folders above it."""
    (tmp_path / "open").mkdir()
    image = write_image(tmp_path / "open/x.sif", labels_of())
    for path in (image, tmp_path / "open", tmp_path):
        os.chmod(path, 0o755)
    above = modules.find_closed(image)  # pytest's own folder
    for name in names:
        os.chmod(tmp_path / name, 0o640 if name.endswith(".sif") else 0o750)
    closed = modules.find_closed(image)
    assert closed == [*(("a+r" if name.endswith(".sif") else "a+x", str(tmp_path / name)) for name in names), *above]
    told: list[str] = []
    modules.check_site(prefix, add(prefix, image), {"HOME": str(tmp_path)}, told.append)
    remedy = " && ".join(f"chmod {mode} {path}" for mode, path in closed)
    warning = f"jaxsif: warning: not all users may read the image: {remedy}, or move it"
    assert told[:1] == ([warning] if closed else [])


def test_variables_of_the_site_that_every_run_warns_of(prefix: Path, tmp_path: Path) -> None:
    file = prefix / "jaxsif/jaxsif.toml"
    file.write_text("[run]\nenv = ['http_proxy=p', 'PATH=/a:$PATH', 'LANG', 'A: b']\n")
    told: list[str] = []
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    own = [line for line in told if line.endswith(f"; set by run.env in {file}")]
    assert [line.split("=")[0] for line in own] == ["jaxsif: warning: PATH", "jaxsif: warning: http_proxy"]
    unset = f"a run is refused if its user has not set LANG (run.env in {file})"
    assert [line for line in told if "is refused" in line] == [f'jaxsif: warning: {unset}: write "LANG=VALUE" there']


def test_lmod_lists_the_folders_of_modules(prefix: Path, tmp_path: Path) -> None:
    """All users may have to read them, and not only to enter them."""
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    folder = prefix / "modulefiles/jax"
    folder.chmod(0o711)
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert any(f"chmod a+rx {shlex.quote(str(folder))}" in line for line in told)


def test_what_others_change_while_an_image_is_read_is_kept(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = write_image(tmp_path / "x.sif", labels_of())
    for name in ("first", "second"):
        add(prefix, image, name)
    file = prefix / "modulefiles/jax/.modulerc"
    read = modules.digest

    def digest(*words: str) -> str:
        modules.set_default(prefix, "second")
        file.write_text(f"{file.read_text()}module-hide jax/first\n")
        return read(*words)

    monkeypatch.setattr(modules, "digest", digest)
    add(prefix, image, "third")
    default = modules.read_default(prefix)
    assert (default.default, default.hides("first")) == ("second", True)


def test_a_module_that_others_add_while_an_image_is_read(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = write_image(tmp_path / "y.sif", labels_of())
    read = modules.digest

    def digest(*words: str) -> str:
        monkeypatch.setattr(modules, "digest", read)
        add(prefix, theirs, "new")
        return read(*words)

    monkeypatch.setattr(modules, "digest", digest)
    with pytest.raises(JaxsifError, match="jax/new already is the module of another image"):
        add(prefix, write_image(tmp_path / "x.sif", labels_of()), "new")


def test_nobody_can_keep_staff_waiting(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_LOCK_TRIES", 1)
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    folder = os.open(prefix / "modulefiles/jax", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert add(prefix, image, "second").name == "second"
    os.close(folder)


def test_an_image_behind_a_link_whose_folder_others_may_not_enter(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "x.sif").touch()
    link = tmp_path / "x.sif"
    link.symlink_to(closed / "x.sif")
    assert ("a+x", str(closed)) in modules.find_closed(str(link))


NOT_CHECKED = f"jaxsif: warning: not all settings are checked: {no_runtime().what}"


def test_what_of_the_sites_settings_users_cannot_use(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The staff may read everything, and may never run with the fabric of the site's file."""
    image = write_image(tmp_path / "x.sif", labels_of())
    words = argparse.Namespace(prefix=str(prefix), image=image, name=None, default=False)
    site, key = prefix / "jaxsif/jaxsif.toml", prefix / "jaxsif/public.pem"
    launcher = prefix / "jaxsif" / __version__ / "bin/jaxsif"
    closed = {str(path): [("a+r", str(path))] for path in (launcher, site, key)}
    monkeypatch.setattr(modules, "find_closed", lambda path: closed.get(path, []))
    key.write_text("-----BEGIN PUBLIC KEY-----")
    empty = prefix / "jaxsif/empty.pem"
    empty.touch()
    site.write_text("[run]\nfabric = 'none-such'\n[policy]\nsigned-by = ['public.pem', '~/own.pem', 'empty.pem']\n")
    command._add(words, {"HOME": str(tmp_path)})
    lines = capsys.readouterr().err.splitlines()[2:]
    assert lines.pop().startswith("  try:  ")
    assert lines == [
        NOT_CHECKED,
        f"jaxsif: warning: not all users may run {launcher}: chmod -R a+rX {shlex.quote(str(launcher.parents[1]))}",
        "jaxsif: warning: ~/own.pem is in each user's own home: name a path that all users can read",
        f"jaxsif: warning: cannot use the key {empty}: no public key in PEM",
        f"jaxsif: warning: not all users may read {site}: chmod a+r {shlex.quote(str(site))}",
        f"jaxsif: warning: not all users may read the key {key}: chmod a+r {shlex.quote(str(key))}, or move it",
        "jaxsif: warning: users cannot run this image: no fabric profile 'none-such'",
        f"  from: run.fabric in {site}",
    ]


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (
            SignatureError("another key"),
            "list the public key of its signature in policy.signed-by, or sign it with a key that is listed:"
            " jaxsif image sign --help",
        ),
        (UnsignedError("no signature"), "sign it with a key of policy.signed-by: jaxsif image sign --help"),
        (ChangedImageError("changed", "", "copy or build it again"), "copy or build it again"),
        (UnusableKeyError("no keyring"), "for users"),
    ],
)
def test_the_remedy_for_a_refused_image_is_for_the_staff(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: JaxsifError, remedy: str
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedImageError("refused", "", "for users", SIGNED_BY) from cause

    monkeypatch.setattr(modules, "check_policies", refuse)
    monkeypatch.setattr(modules, "find_runtime", lambda environ: Runtime("/bin/true", "APPTAINERENV_"))
    image = write_image(tmp_path / "x.sif", labels_of())
    (prefix / "jaxsif/jaxsif.toml").write_text("[policy]\nsigned-by = ['key.pem']\n")
    with pytest.raises(RefusedImageError) as caught:
        modules.check_site(prefix, add(prefix, image), {"HOME": str(tmp_path)}, lambda _: None)
    assert caught.value.hint == remedy


@pytest.mark.parametrize(
    ("content", "what", "remedy"),
    [(None, "image not found: ", "restore it, "), (b"", "not a SIF image: ", "make image, or ")],
)
def test_an_image_that_is_missing_or_damaged_is_not_refused_by_settings(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, what: str, remedy: str
) -> None:
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    image = Path(write_image(tmp_path / "x.sif", labels_of()))
    module = add(prefix, str(image))
    image.unlink()
    if content is not None:
        image.write_bytes(content)
    (prefix / "jaxsif/jaxsif.toml").write_text("[policy]\nsigned-by = ['key.pem']\n")
    told: list[str] = []
    error = catch(HostError, modules.check_site, prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert (error.what, error.where) == (f"{what}{image}", f"jax/{NAME}")
    assert error.hint.startswith(remedy)
    assert told == []


@pytest.mark.parametrize(("mode", "is_told"), [(None, 1), (0o755, 1), (0o777, 1), (0o1777, 0), (0o2770, 0)])
def test_a_folder_in_which_not_all_users_can_write(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, is_told: bool
) -> None:
    """It is not made here, as it would be closed to them."""
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    monkeypatch.setattr(modules, "_list_closed_above", lambda path: [])
    folder, file = tmp_path / "cache", prefix / "jaxsif/jaxsif.toml"
    if mode:
        folder.mkdir()
        os.chown(folder, -1, os.getgid() or 1)  # root's own group has no users
        folder.chmod(mode)
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    file.write_text(f"[run]\ncompile-cache-folder = '{folder}'\n")
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    remedy = f"install -d -m 1777 {shlex.quote(str(folder))}"
    what = f"not all users can write to {folder} (run.compile-cache-folder in {file}), safe from others"
    assert told == [f"jaxsif: warning: {what}; on a disk that all nodes see: {remedy}"] * is_told
    file.write_text("[run]\ncompile-cache-folder = '~/nope'\n")  # another one for each user
    told.clear()
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told == []
    assert (list(folder.iterdir()) if mode else folder.exists()) in ([], False)


@pytest.mark.starts_processes
def test_files_that_all_users_may_change(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They, and folders above them, also behind a link."""
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    file, key, link = prefix / "jaxsif/jaxsif.toml", prefix / "jaxsif/public.pem", tmp_path / "x.sif"
    (tmp_path / "real").mkdir()
    image = Path(write_image(tmp_path / "real/x.sif", labels_of()))
    link.symlink_to(image)
    module = add(prefix, str(link))
    key.write_text("-----BEGIN PUBLIC KEY-----")
    file.write_text("[policy]\nsigned-by = ['public.pem']\n")
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told == []
    open_to_all = {file: 0o666, key: 0o666, file.parent: 0o777, image: 0o646, image.parent: 0o777}
    for path, mode in {**open_to_all, tmp_path: 0o1777}.items():
        path.chmod(mode)
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert len(told) == len(open_to_all)
    for line in told:
        subprocess.run(["sh", "-c", line.rpartition(": ")[2]], check=True)
    assert not any(path.stat().st_mode & 0o002 for path in open_to_all)


def test_a_folder_below_a_closed_one(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    folder, file = tmp_path / "shared/logs", prefix / "jaxsif/jaxsif.toml"
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    folder.parent.chmod(0o700)
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    file.write_text(f"[run]\ncompile-cache-folder = '{folder}'\n")
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    (line,) = told
    assert line.startswith(
        f"jaxsif: warning: not all users can enter {folder} (run.compile-cache-folder in {file}): chmod a+x "
    )
    assert str(folder.parent) in line.rpartition("chmod")[2].split()
    folder.rmdir()
    told.clear()
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert [line.rpartition(": ")[2].split()[0] for line in told] == ["chmod", "install"]
    folder.mkdir()
    os.chown(folder, -1, os.getgid() or 1)
    folder.chmod(0o2770)  # for a group, which may not enter the folder above, either
    told.clear()
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert [line.rpartition(": ")[2].split()[0] for line in told] == ["chmod"]
    monkeypatch.setattr(modules, "_may_enter", lambda _group, _folder: True)  # also pytest's own
    told.clear()
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told == []


def test_a_file_in_the_place_of_a_folder(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    monkeypatch.setattr(modules, "_list_closed_above", lambda path: [])
    file, place = prefix / "jaxsif/jaxsif.toml", tmp_path / "logs"
    place.touch()
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    file.write_text(f"[run]\ncompile-cache-folder = '{place}'\n")
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    what = f"not a folder: {place} (run.compile-cache-folder in {file})"
    assert told == [f"jaxsif: warning: {what}: move it away, or name another folder"]
    file.write_text(f"[run]\ncompile-cache-folder = '{place}/runs'\n")
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told[1:] == told[:1]
    place.unlink()
    place.symlink_to("nowhere")
    file.write_text(f"[run]\ncompile-cache-folder = '{place}'\n")
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told[2:] == told[:1]
    file.write_text("[run]\nlog-dir = ''\n")  # none
    told.clear()
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert told == []


def test_a_folder_for_the_log_files_of_all_users(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    module, file = add(prefix, write_image(tmp_path / "x.sif", labels_of())), prefix / "jaxsif/jaxsif.toml"
    told: list[str] = []
    file.write_text(f"[run]\nlog-dir = '{tmp_path}'\n")
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    what = f"the log files of all users get into {tmp_path} (run.log-dir in {file})"
    assert told == [f'jaxsif: warning: {what}: write log-dir = "~/logs", a folder for each user']
    file.write_text("[run]\nlog-dir = '~/logs'\n")
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    assert len(told) == 1


def test_modules_are_in_the_order_of_their_versions(prefix: Path, tmp_path: Path) -> None:
    image = write_image(tmp_path / "x.sif")
    for name in ("0.12.0-cpu-sif", "0.2.0-cpu-sif", "ours", "0.2.0-cpu"):
        add(prefix, image, name)
    names = [module.name for module in modules.list_modules(prefix)]
    assert names == ["0.2.0-cpu", "0.2.0-cpu-sif", "0.12.0-cpu-sif", "ours"]


@pytest.mark.starts_processes
def test_an_image_that_the_sites_policy_refuses(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It becomes a module, since the policy may come to allow it; a user's own policy is another matter."""
    (tmp_path / "apptainer").symlink_to("/bin/true")
    environ = {"HOME": str(tmp_path), "JAXSIF_RUNTIME": str(tmp_path / "apptainer")}
    image = write_image(tmp_path / "x.sif", labels_of())
    words = argparse.Namespace(prefix=str(prefix), image=image, name=None, default=False)
    (tmp_path / ".config/jaxsif").mkdir(parents=True)
    (tmp_path / ".config/jaxsif/jaxsif.toml").write_text("[policy]\ndigests = []\n")
    site = prefix / "jaxsif/jaxsif.toml"
    site.write_text(f'[policy]\ndigests = ["{siffile.sha256(b"root")}"]\n')
    command._add(words, environ)
    assert "policy" not in capsys.readouterr().err
    site.write_text("[policy]\ndigests = []\n")
    refusal = f"the policy refuses this run: the digest of {image} is sha256:"
    for call in (command._add, command._default):
        call(argparse.Namespace(prefix=str(prefix), image=image, name=NAME, default=False), environ)
        printed = capsys.readouterr()
        assert printed.out == f"jax/{NAME}\n"
        assert f"jaxsif: warning: users cannot run this image: {refusal}" in printed.err
        assert (
            f"\n  from: policy.digests in {site}; the image is from jax/{NAME}\n  try:  add its digest" in printed.err
        )


def test_help_fits_a_terminal(prefix: Path, tmp_path: Path) -> None:
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    text = contents(prefix)[f"jax/{NAME}.lua"].split("help([[")[1].split("]])")[0]
    assert max(map(len, text.splitlines())) <= 80


def test_paths_are_quoted(prefix: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'a "b" $c'
    folder.mkdir()
    add(prefix, write_image(folder / "x.sif", labels_of()))
    files = contents(prefix)
    assert f'local image = "{tmp_path}/a \\"b\\" $c/x.sif"' in files[f"jax/{NAME}.lua"]
    assert f'set image {tmp_path}/a\\ \\"b\\"\\ \\$c/x.sif' in files[f"jax/{NAME}"]
    assert rf"set home {tmp_path}/a\;\(b\)\[d\]/jaxsif/{__version__}" in files[f"jax/{NAME}"]


@pytest.mark.parametrize("letter", ["\n", "\r", "\x1b", "\0", "\x7f"])
def test_path_that_no_modulefile_can_name(prefix: Path, tmp_path: Path, letter: str) -> None:
    """In the image's path, and in the prefix: nothing is written."""
    path = f"{tmp_path}/a{letter}b"
    for where, place, image in (("IMAGE", prefix, path), ("PREFIX", Path(path), str(tmp_path / "a.sif"))):
        error = catch(JaxsifError, add, place, image)
        assert (error.what, error.where) == (f"path has characters that no module can name: {path}", where)
    assert contents(prefix) == {}


def test_modulefile_that_is_a_fifo(prefix: Path) -> None:
    folder = prefix / "modulefiles/jax"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.lua")
    with pytest.raises(HostError, match=f"^modulefile is a FIFO, not a file: {re.escape(str(folder))}/a.lua$"):
        modules.list_modules(prefix)


def test_modulefile_that_is_removed_while_it_is_read(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another `jaxsif module remove`."""
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    second = add(prefix, write_image(tmp_path / "y.sif"), "ours")

    def read(path: Path) -> Module | None:
        (prefix / f"modulefiles/jax/{NAME}.lua").unlink(missing_ok=True)
        return read_module(path)

    monkeypatch.setattr(modules, "read_module", read)
    (modules.modules_folder(prefix) / "folder.lua").mkdir()  # no module, as for Lmod
    assert modules.list_modules(prefix) == [second]


def test_default_stays_until_it_is_moved(prefix: Path, tmp_path: Path) -> None:
    for flavour in ("cuda12", "cpu", "cuda13"):
        add(prefix, write_image(tmp_path / f"{flavour}.sif", labels_of(flavour=flavour)))
    assert modules.read_default(prefix).default == "0.12.0.1-cuda12-sif"
    modules.set_default(prefix, "jax/0.12.0.1-cuda13-sif")
    assert modules.read_default(prefix).default == "0.12.0.1-cuda13-sif"
    modules.set_default(prefix, NAME)
    assert modules.read_default(prefix).default == NAME
    assert [module.name.split("-")[1] for module in modules.list_modules(prefix)] == ["cpu", "cuda12", "cuda13"]


def test_default_needs_its_image(prefix: Path, tmp_path: Path) -> None:
    for flavour in ("cuda12", "cpu"):
        module = add(prefix, write_image(tmp_path / f"{flavour}.sif", labels_of(flavour=flavour)))
    before = contents(prefix)
    os.unlink(module.image)
    with pytest.raises(HostError, match=f"^image of jax/{NAME} is missing: {module.image}$"):
        modules.set_default(prefix, NAME)
    assert contents(prefix) == before


def test_default_needs_its_launcher(prefix: Path, tmp_path: Path) -> None:
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    shutil.rmtree(module.home)
    error = catch(HostError, modules.set_default, prefix, NAME)
    assert error.what == f"launcher of jax/{NAME} is missing: {module.home}"
    assert error.hint == f"jaxsif module add {shlex.quote(module.image)}, for this launcher"


def test_version_without_flavour_is_the_defaults_flavour(prefix: Path, tmp_path: Path) -> None:
    """And the first flavour, where the default's is not there in that version."""
    for version, flavour in (("1.0", "cuda12"), ("1.0", "cpu"), ("2.0", "cuda12"), ("3.0", "cpu")):
        add(prefix, write_image(tmp_path / f"{version}-{flavour}.sif", labels_of(version, flavour)))

    def short_names() -> dict[str, str]:
        text = (prefix / "modulefiles/jax/.modulerc").read_text()
        lines = [line.split() for line in text.splitlines() if line.startswith("module-version")]
        return {short: line[1][len("jax/") :] for line in lines for short in line[2:]}

    first = {"1.0-sif": "1.0-cuda12-sif", "2.0-sif": "2.0-cuda12-sif", "3.0-sif": "3.0-cpu-sif"}
    assert short_names() == {"sif": "1.0-cuda12-sif", "default": "1.0-cuda12-sif", **first}
    modules.set_default(prefix, "2.0-cuda12-sif")
    assert short_names() == {"sif": "2.0-cuda12-sif", "default": "2.0-cuda12-sif", **first}
    modules.set_default(prefix, "3.0-cpu-sif")
    assert short_names() == {"sif": "3.0-cpu-sif", "default": "3.0-cpu-sif", **first, "1.0-sif": "1.0-cpu-sif"}
    modules.remove_module(prefix, "1.0-cpu-sif")
    assert short_names() == {"sif": "3.0-cpu-sif", "default": "3.0-cpu-sif", **first}
    modules.set_default(prefix, "2.0-cuda12-sif")
    modules.remove_module(prefix, "3.0-cpu-sif")
    add(prefix, write_image(tmp_path / "ours.sif"), "3.0-sif", default=True)  # a module is what it is called
    add(prefix, str(tmp_path / "3.0-cpu.sif"))
    assert short_names() == {
        "sif": "3.0-sif",
        "default": "3.0-sif",
        "1.0-sif": "1.0-cuda12-sif",
        "2.0-sif": "2.0-cuda12-sif",
    }


def test_lines_of_staff_in_the_file_of_the_default_stay(prefix: Path, tmp_path: Path) -> None:
    """As those that hide a module; also when the last module goes, and another one comes."""
    for flavour in ("cuda12", "cpu"):
        add(prefix, write_image(tmp_path / f"{flavour}.sif", labels_of(flavour=flavour)))
    path, written = prefix / "modulefiles/jax/.modulerc", contents(prefix)["jax/.modulerc"]
    lines = f"# ours: \xe9\nmodule-hide jax/{NAME}\n\nmodule-version jax/0.12.0.1-cpu-sif newest\n".encode("latin1")
    path.write_bytes(written.encode() + lines)
    modules.set_default(prefix, NAME)
    modules.set_default(prefix, "0.12.0.1-cuda12-sif")
    add(prefix, f"{tmp_path}/cpu.sif")
    assert path.read_bytes() == written.encode() + lines
    modules.remove_module(prefix, NAME)
    modules.remove_module(prefix, "0.12.0.1-cuda12-sif")
    assert path.read_bytes().endswith(b"it.\n" + lines)
    assert modules.read_default(prefix).default is None
    add(prefix, f"{tmp_path}/cpu.sif")
    assert modules.read_default(prefix).default == NAME
    assert path.read_bytes().endswith(b" 0.12.0.1-sif\n" + lines)


def test_default_is_removed_last(prefix: Path, tmp_path: Path) -> None:
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    add(prefix, write_image(tmp_path / "y.sif"), "jax/ours")
    with pytest.raises(JaxsifError, match=f"jax/{NAME} is the default"):
        modules.remove_module(prefix, NAME)
    modules.set_default(prefix, "ours")
    modules.remove_module(prefix, f"jax/{NAME}")
    modules.remove_module(prefix, "ours")
    assert set(contents(prefix)) == {"dl", "dl.lua"}
    assert modules.read_default(prefix).default is None


def test_again_changes_nothing_but_the_digest(prefix: Path, tmp_path: Path) -> None:
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    before = contents(prefix)
    add(prefix, image)
    assert contents(prefix) == before


@pytest.mark.parametrize("labels", [None, {}, labels_of(version="../x"), labels_of(flavour="")])
def test_foreign_image_needs_a_name(prefix: Path, tmp_path: Path, labels: object) -> None:
    image = write_image(tmp_path / "x.sif", labels)
    with pytest.raises(JaxsifError, match="no name for the module"):
        add(prefix, image)
    assert add(prefix, image, "jax/1.0-ours").name == "1.0-ours"
    assert contents(prefix)["jax/1.0-ours"].count("JAX in") > 0


@pytest.mark.parametrize("name", ["sif", "jax/default", ".x", "a/b", "x.lua", "", "a b"])
def test_bad_names(prefix: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(JaxsifError, match="not a valid module name"):
        add(prefix, write_image(tmp_path / "x.sif"), name)
    assert contents(prefix) == {}


def test_name_of_another_image_is_refused(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, first)
    before = contents(prefix)
    with pytest.raises(JaxsifError, match=f"jax/{NAME} already is the module of another image: {first}") as caught:
        add(prefix, write_image(tmp_path / "y.sif", labels_of()))
    assert contents(prefix) == before
    remove = (
        f"jaxsif module remove --prefix {shlex.quote(str(prefix))} {NAME}"  # by a launcher that is installed elsewhere
    )
    assert caught.value.hint == f"give another --name, or {remove}"
    monkeypatch.setattr(modules, "find_home", lambda: str(prefix / "jaxsif" / __version__))
    error = catch(JaxsifError, modules.check_place, prefix, NAME, str(tmp_path / "y.sif"), has_option=False)
    assert error.hint == f"jaxsif module remove {NAME}"


def test_a_prefix_in_place_of_the_one_that_is_meant(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of an installation, or the launcher's own; never another installation that is above."""
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    error = catch(HostError, add, prefix / "modulefiles", image)
    assert error.hint == f"--prefix {prefix}"
    mistyped = prefix / "nxt"
    assert catch(HostError, add, mistyped, image).hint == f"make install PREFIX={mistyped}"
    monkeypatch.setattr(modules, "find_home", lambda: str(tmp_path / "next/jaxsif" / __version__))
    own = tmp_path / "next"
    assert catch(HostError, add, mistyped, image).hint == f"make install PREFIX={mistyped}, or --prefix {own}"
    assert catch(HostError, add, own, image).hint == f"make install PREFIX={own}"
    for version in ("9.9", "9.10"):
        newer = own / f"jaxsif/{version}/bin/jaxsif"
        newer.parent.mkdir(parents=True)
        newer.touch()
    hint = catch(HostError, add, own, image).hint
    assert hint == f"make install PREFIX={own}, or call its own launcher: {newer}"


def test_a_name_that_stands_for_the_module_of_another_image_is_refused(prefix: Path, tmp_path: Path) -> None:
    """Where it does not stand for one yet, it is a name like others, and stays."""
    short, image, foreign = (
        "0.12.0.1-sif",
        write_image(tmp_path / "x.sif", labels_of()),
        write_image(tmp_path / "y.sif"),
    )
    add(prefix, image)
    with pytest.raises(JaxsifError, match=f"jax/{short} already is the module of another image: {image}") as caught:
        add(prefix, foreign, short)
    assert caught.value.hint == "give another --name"
    modules.remove_module(prefix, NAME)
    for _ in range(2):
        assert add(prefix, foreign, short).name == short
        add(prefix, image)


def test_another_path_of_the_same_image(prefix: Path, tmp_path: Path) -> None:
    """By a link to PREFIX, and after a move of PREFIX with its images: the module takes the new path."""
    (prefix / "images").mkdir()
    write_image(prefix / "images/x.sif", labels_of())
    link, moved = tmp_path / "link", tmp_path / "moved"
    link.symlink_to(prefix)
    for place in (prefix, link):
        assert add(place, f"{place}/images/x.sif").image == f"{place}/images/x.sif"
    prefix.rename(moved)
    add(moved, f"{moved}/images/x.sif")
    assert [module.image for module in modules.list_modules(moved)] == [f"{moved}/images/x.sif"]


def test_a_folder_of_modules_hides_the_default(prefix: Path, tmp_path: Path) -> None:
    """As for a backup: Lmod does not find jax/sif then."""
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    copy = prefix / "modulefiles/jax/old"
    copy.mkdir()
    (copy / ".nfs01").touch()
    module = add(prefix, image)
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, print)
    (copy / f"{NAME}.lua").touch()
    error = catch(JaxsifError, modules.check_site, prefix, module, {"HOME": str(tmp_path)}, print)
    assert error.what == f"not written by jaxsif: {copy}"
    assert error.hint.startswith("move it out of this folder")


@pytest.mark.parametrize(
    "path", ["dl", "dl.lua", f"jax/{NAME}", f"jax/{NAME}.lua", "jax/.modulerc", "jax/.modulerc.lua", "jax/.version"]
)
def test_files_of_others_are_left_alone(prefix: Path, tmp_path: Path, path: str) -> None:
    theirs = prefix / "modulefiles" / path
    theirs.parent.mkdir(parents=True)
    theirs.write_text("#%Module\n")
    with pytest.raises(JaxsifError, match="not written by jaxsif"):
        add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    assert contents(prefix) == {path: "#%Module\n"}


def test_umbrella_without_a_mark_is_replaced(prefix: Path, tmp_path: Path) -> None:
    """As earlier versions wrote it."""
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    marked = contents(prefix)
    for name, mark in (("dl", "# jaxsif: umbrella\n"), ("dl.lua", "-- jaxsif: umbrella\n")):
        assert mark in marked[name]
        (prefix / "modulefiles" / name).write_text(marked[name].replace(mark, ""))
    add(prefix, image)
    assert contents(prefix) == marked


def test_modules_of_other_versions_are_read(prefix: Path, tmp_path: Path) -> None:
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    path = prefix / f"modulefiles/jax/{NAME}.lua"
    text = path.read_text()
    path.write_text(text.replace('"name":', '"added": "later", "name":'))
    assert modules.list_modules(prefix) == [module]
    for other in (text.replace('"digest":', '"no digest":'), text.replace('{"', "{"), text.replace("-- jaxsif:", "--")):
        path.write_text(other)
        assert modules.list_modules(prefix) == []


@pytest.mark.parametrize("suffix", ["", ".lua"])
def test_module_that_has_lost_one_of_its_files(prefix: Path, tmp_path: Path, suffix: str) -> None:
    """The other module system still loads it."""
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    folder = prefix / "modulefiles/jax"
    (folder / f"{NAME}{suffix}").unlink()
    assert modules.list_modules(prefix) == [module]
    modules.remove_module(prefix, NAME)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("content", [b"", b"x" * (2 << 20)], ids=["backup", "long"])
def test_other_files_among_the_modulefiles(prefix: Path, tmp_path: Path, content: bytes) -> None:
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    folder = prefix / "modulefiles/jax"
    (folder / (f"core.{1}" if content else f"{NAME}~")).write_bytes(content or (folder / NAME).read_bytes())
    assert modules.list_modules(prefix) == [module]


def test_copied_modulefile_is_a_module_of_the_files_name(prefix: Path, tmp_path: Path) -> None:
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    folder = prefix / "modulefiles/jax"
    shutil.copy(folder / f"{NAME}.lua", folder / "0.10-old.lua")
    (folder / "latest.lua").symlink_to(f"{NAME}.lua")
    shutil.copy(folder / f"{NAME}.lua", folder / ".hidden.lua")
    assert modules.list_modules(prefix) == [module._replace(name=name) for name in ("0.10-old", NAME, "latest")]
    for name in ("0.10-old", "latest"):
        modules.remove_module(prefix, name)
    assert modules.list_modules(prefix) == [module]


def test_file_in_the_way(prefix: Path, tmp_path: Path) -> None:
    (prefix / "modulefiles").touch()
    with pytest.raises(OSError, match=r"(Not a directory|File exists): '.*/modulefiles/"):
        add(prefix, write_image(tmp_path / "x.sif", labels_of()))


def test_what_is_not_there(prefix: Path, tmp_path: Path) -> None:
    with pytest.raises(JaxsifError, match=r"no module jax/2\.0 in") as caught:
        modules.set_default(prefix, "jax/2.0")
    assert caught.value.hint == "jaxsif module add IMAGE"
    image = write_image(tmp_path / "x.sif", labels_of())
    add(prefix, image)
    with pytest.raises(JaxsifError) as caught:
        modules.remove_module(prefix, "2.0")
    assert caught.value.hint == f"one of {NAME}"
    with pytest.raises(HostError, match="no launcher in"):
        add(tmp_path / "elsewhere", image)
    for path in (tmp_path / "lost.sif", tmp_path):
        with pytest.raises(HostError, match=f"image not found: {path}"):
            add(prefix, str(path))
    with pytest.raises(JaxsifError, match="this launcher is not installed"):
        modules.find_prefix(None)


def test_removal_names_the_image_that_stays(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = argparse.Namespace(prefix=str(prefix), name=NAME)
    image = write_image(tmp_path / "x.sif", labels_of())
    for stays in (f"; its image stays: {image}", ""):
        add(prefix, image)
        if not stays:
            os.unlink(image)
        command._remove(words, {})
        assert capsys.readouterr().err == f"removed jax/{NAME} from {prefix}/modulefiles/jax{stays}\n"


def test_list_marks_what_no_user_can_load(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checks do not know root, who may read everything."""
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    environ = {"HOME": str(tmp_path)}
    closed: list[str] = []
    monkeypatch.setattr(command, "find_closed", lambda path: path in closed)  # pytest's folders are

    def listed() -> tuple[str, str]:
        command._list(argparse.Namespace(prefix=str(prefix), json=False), environ)
        table = capsys.readouterr().out
        command._list(argparse.Namespace(prefix=str(prefix), json=True), environ)
        return json.loads(capsys.readouterr().out)[0]["problem"], table.rstrip().rpartition(module.image)[2].strip()

    launcher = prefix / "jaxsif" / __version__ / "bin/jaxsif"
    assert listed() == ("", "")
    closed.append(str(launcher))
    assert listed() == ("launcher not readable by all users",) * 2
    closed.clear()
    launcher.unlink()
    assert listed() == ("launcher missing", "launcher missing")
    launcher.touch()
    library = launcher.parents[1] / "lib/jaxsif/__init__.py"
    library.parent.mkdir(parents=True)
    library.touch()
    closed.append(str(library))
    assert listed() == ("launcher not readable by all users",) * 2
    closed.clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, _mode: path != module.image)
        assert listed() == ("not readable", "not readable")
    closed.append(module.image)
    assert listed() == ("not readable by all users",) * 2
    for name in (".modulerc", f"{module.name}.lua", module.name):
        closed[:] = [str(prefix / "modulefiles/jax" / name)]
        assert listed() == (f"{name} not readable by all users",) * 2
    closed.clear()
    twin = prefix / f"modulefiles/jax/{NAME}.lua"
    text = twin.read_text()
    twin.unlink()
    assert listed() == (f"no file {NAME}.lua",) * 2
    twin.write_text(text)
    siffile.write_image(tmp_path / "x.sif", b"other", labels=labels_of())
    assert listed() == ("", "")  # as long as nothing has read the image
    remembered_digest(module.image, environ)
    assert listed() == ("a different image from the module's",) * 2
    with open(prefix / "modulefiles/jax/.modulerc", "a") as file:
        file.write(f"module-hide jax/{NAME}0\nmodule-hide --hard jax/{NAME}\n")
    os.unlink(module.image)
    launcher.unlink()
    assert listed() == ("missing, launcher missing", "missing, launcher missing, hidden")
    os.mkdir(module.image)
    assert listed() == ("missing, launcher missing", "missing, launcher missing, hidden")


def test_another_image_in_place_of_the_modules(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_closed", lambda _path: [])  # pytest's folders are
    environ = {"HOME": str(tmp_path)}
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    restore = "it is of jax/0.13.0-cpu-sif by its labels: restore the former one"
    for version, others, remedy in (
        ("0.12.0.1", (), "call jaxsif module add again"),
        ("0.13.0", (), f"{restore}, or call jaxsif module add, and then jaxsif module remove {NAME}"),
        ("0.13.0", ("0.13.0",), restore),  # that module has an image of its own
    ):
        for other in others:
            add(prefix, write_image(tmp_path / "y.sif", labels_of(other)))
        siffile.write_image(tmp_path / "x.sif", f"new {version}".encode(), labels=labels_of(version))
        remembered_digest(module.image, environ)
        command._default(argparse.Namespace(prefix=str(prefix), name=NAME), environ)
        what = f"jaxsif: warning: a different image from the module's: {module.image}: {remedy}"
        assert what in capsys.readouterr().err.splitlines()


def test_a_list_warns_of_what_users_cannot_read(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    site = prefix / "jaxsif/jaxsif.toml"
    site.write_text("[policy]\nsigned-by = ['lost.pem']\n")
    monkeypatch.setattr(modules, "find_closed", lambda path: [("a+r", path)] if path == str(site) else [])
    command._list(argparse.Namespace(prefix=str(prefix), json=False), {"HOME": str(tmp_path)})
    assert capsys.readouterr().err.splitlines() == [
        NOT_CHECKED,
        f"jaxsif: warning: cannot use the key {site.parent}/lost.pem: No such file or directory",
        f"jaxsif: warning: not all users may read {site}: chmod a+r {shlex.quote(str(site))}",
    ]


@pytest.mark.starts_processes
@pytest.mark.parametrize("begin", ["jaxsif: error: ", "Traceback:\nImportError: "])
@pytest.mark.parametrize("status", [0, 2])
def test_a_launcher_that_refuses_all_runs(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, begin: str
) -> None:
    """It is asked without the settings of this user, and in another folder than this one."""
    monkeypatch.setattr(modules, "find_runtime", lambda environ: Runtime("/bin/true", "APPTAINERENV_"))
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    said = f'echo >&2 "{begin}$(echo $0 $* $PWD $JAXSIF_NODES $XDG_CONFIG_HOME)"'
    Path(module.command).write_text(f"#!/bin/sh\n{said}\nexit {status}\n")
    os.chmod(module.command, 0o755)
    told: list[str] = []
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "JAXSIF_NODES": "x"}
    modules.check_site(prefix, module, environ, told.append)
    run = f"{module.command} run --dry-run --no-stage --no-compile-cache --image={module.image} -- true / /nonexistent"
    run = begin.removeprefix("jaxsif: error: ").rpartition("\n")[2] + run
    refused = [line for line in told if "refused" in line]
    assert refused == ([f"jaxsif: warning: a run with the site's settings is refused: {run}"] if status else [])


@pytest.mark.starts_processes
def test_a_launcher_that_nobody_may_run(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "find_closed", lambda path: [])  # pytest's folders are
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    launcher = prefix / "jaxsif" / __version__ / "bin/jaxsif"
    launcher.chmod(0o644)
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    (line,) = told
    subprocess.run(["sh", "-c", f"chmod{line.partition(': chmod')[2]}"], check=True)
    assert launcher.stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_launcher_whose_python_users_cannot_run(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    module = add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    python = str((tmp_path / "python3").resolve())
    Path(python).touch(0o755)
    Path(module.command).write_text(f"#!{python} -IS\n")
    folder = os.path.dirname(python)
    monkeypatch.setattr(modules, "find_closed", lambda path: [("a+x", folder)] * (path == python and is_closed))
    told: list[str] = []
    modules.check_site(prefix, module, {"HOME": str(tmp_path)}, told.append)
    remedy = "install the launcher with another one"
    assert told == [f"jaxsif: warning: not all users may run the launcher's Python, {python}: {remedy}"] * is_closed


def test_another_prefix_with_a_module_of_this_name(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lmod may load that one, even if the module is named in full."""
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    other, link, empty = tmp_path / "others", tmp_path / "link", tmp_path / "empty"
    (other / "jax").mkdir(parents=True)
    (other / f"jax/{NAME}.lua").touch()
    link.symlink_to(prefix / "modulefiles")
    path = f"{prefix}/modulefiles:{other}:{link}:{empty}:"
    command._default(argparse.Namespace(prefix=str(prefix), name=NAME), {"HOME": str(tmp_path), "MODULEPATH": path})
    assert [line for line in capsys.readouterr().err.splitlines() if "MODULEPATH" in line] == [
        f"jaxsif: warning: the folder {other} on MODULEPATH has a module jax/{NAME}, too, and Lmod may load that one:"
        f" module unuse {other}"
    ]


def test_another_prefix_with_a_default(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Users name no version."""
    image, other = write_image(tmp_path / "x.sif", labels_of()), tmp_path / "others"
    for name in (NAME, "2.0-b"):
        add(prefix, image, name)
    (other / "jax").mkdir(parents=True)
    (other / "jax/.modulerc").write_text((prefix / "modulefiles/jax/.modulerc").read_text())
    for name, is_warned in (("2.0-b", True), ("2.0-b", False)):
        command._default(
            argparse.Namespace(prefix=str(prefix), name=name), {"HOME": str(tmp_path), "MODULEPATH": str(other)}
        )
        told = [line for line in capsys.readouterr().err.splitlines() if "MODULEPATH" in line]
        what = f"the folder {other} on MODULEPATH has a module jax/sif, too, and Lmod may load that one"
        assert told == [f"jaxsif: warning: {what}: module unuse {other}"] * is_warned
        (other / "jax/.modulerc").write_text("#%Module\n")


@pytest.mark.parametrize("alias", ["default", "sif"])
def test_a_line_of_the_staff_with_another_default(prefix: Path, tmp_path: Path, alias: str) -> None:
    """Lmod would load it as plain jax, or jax/sif, and Environment Modules would warn every user."""
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    file, line = prefix / "modulefiles/jax/.modulerc", f"module-version jax/0.11.0-cpu-sif {alias}"
    file.write_text(f"{file.read_text()}{line}\n")
    error = catch(JaxsifError, modules.set_default, prefix, NAME)
    assert (error.what, error.where) == (f"not written by jaxsif: {line}", str(file))


def test_a_default_that_is_missing(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where staff set it by a line that looks like jaxsif's; the last one counts for Lmod."""
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    with open(prefix / "modulefiles/jax/.modulerc", "a") as file:
        file.write("module-version jax/9.9-sif sif default\n")
    assert modules.read_default(prefix).default == "9.9-sif"
    command._list(argparse.Namespace(prefix=str(prefix), json=False), {})
    told = "jaxsif: warning: the default jax/9.9-sif is missing: jaxsif module default NAME chooses another\n"
    assert capsys.readouterr().err == told


def test_a_default_that_is_hidden(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = argparse.Namespace(prefix=str(prefix), name=NAME)
    add(prefix, write_image(tmp_path / "x.sif", labels_of()))
    file = prefix / "modulefiles/jax/.modulerc"
    own = file.read_text()
    commands = {
        "": "",
        f"module-hide jax/{NAME}\n": "hides",
        "module-hide jax\n": "hides",
        f"hide-version jax/{NAME}\n": "hides",
        f"module-forbid jax/{NAME}\n": "forbids",
        f"module-forbid --message {{use jax instead}} jax/{NAME}\n": "forbids",
        f"module-forbid --after 2026-01-01 jax/{NAME}\n": "forbids",
        f'module-forbid --before "2026-01-01" --nearly-message {{soon gone}} jax/{NAME}\n': "",
        f'module-forbid --after "2026-01-01" jax/{NAME}\n': "forbids",
        f"module-forbid --before 2099-01-01 --not-user root jax/{NAME}\n": "forbids",
        f"module-forbid --after 2099-01-01 jax/{NAME}\n": "",
        f"module-forbid --before 2026-01-01 jax/{NAME}\n": "",
        f"module-forbid --after 2026-01-01 --user eve jax/{NAME}\n": "",
    }
    others = "module-forbid --message {use jax instead} jax/0.1-sif", f"module-forbid --after 2099-01-01 jax/{NAME}"
    file.write_text(own + "\n".join(others) + "\n")
    command._default(words, {"HOME": str(tmp_path)})
    assert "forbids" not in capsys.readouterr().err
    for line, verb in commands.items():
        file.write_text(own + line)
        command._default(words, {"HOME": str(tmp_path)})
        printed = capsys.readouterr()
        assert printed.out == f"jax/{NAME}\n"
        told = re.findall(f"jaxsif: warning: {re.escape(str(file))} (.*)", printed.err)
        assert told == [f"{verb} jax/{NAME}"] * bool(verb)
    file.write_text(f"{own}module-forbid jax/{NAME}\n")
    command._list(argparse.Namespace(prefix=str(prefix), json=True), {})
    (row,) = json.loads(capsys.readouterr().out)
    assert "forbidden" in row["problem"].split(", ")


def test_list_of_a_prefix_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a folder without modules has an empty list."""
    nowhere = argparse.Namespace(prefix=str(tmp_path / "nope"), json=True, name=NAME)
    for call in (command._list, command._default, command._remove):
        error = catch(HostError, call, nowhere, {})
        assert (error.what, error.where) == (f"folder not found: {tmp_path}/nope", "--prefix")
    command._list(argparse.Namespace(prefix=str(tmp_path), json=True), {})
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert printed.err == f"no jaxsif modules under {tmp_path}/modulefiles/jax\n"


def test_the_folder_of_a_launcher_leads_to_the_wheel(tmp_path: Path) -> None:
    home, share = tmp_path / "sw/jaxsif/0.1.0", tmp_path / "it's/jaxsif/share"
    (share / "slurm/__pycache__").mkdir(parents=True)
    (share / "slurm/a.py").touch()
    (share / "docs").mkdir()
    for name in ("LICENSE", "CONTRIBUTING.md"):
        (share / name).touch()
    for _ in range(2):  # the second time as after another `pip install`
        modules.link_launcher(home, str(share), str(share.parents[1]), "/venv/bin/python")
    assert [path.name for path in (home / "slurm").iterdir()] == ["a.py"]
    assert {"LICENSE", "CONTRIBUTING.md"} <= set(os.listdir(home))
    assert not (home / "slurm").is_symlink()  # which `cp -r` would copy
    command = (home / "bin/jaxsif").read_text()
    assert command.splitlines()[0] == "#!/venv/bin/python -IS"
    assert repr(str(tmp_path / "it's")) in command
    compile(command, "jaxsif", "exec")
    assert (home / "bin/jaxsif").stat().st_mode & 0o111
    assert not modules.is_installed(home)


@pytest.mark.starts_processes
def test_the_launcher_of_a_wheel_reads_the_settings_of_its_site(tmp_path: Path) -> None:
    home = tmp_path / "sw/jaxsif/0.1.0"
    modules.link_launcher(home, str(REPOSITORY), str(REPOSITORY), sys.executable)
    site = home.parent / "jaxsif.toml"
    site.write_text("[policy]\ndigests = []\n")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [home / "bin/jaxsif", *words]
        return subprocess.run(argv, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True)

    shown = call("config", "policy")
    assert f"policy.digests in {site}" in shown.stdout
    assert call("module", "list").stdout == ""  # no --prefix is needed
    assert (home.parent / "images").is_dir()
