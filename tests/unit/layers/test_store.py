"""Layers before a run: which fit the image and one another, and what is said of those that do not."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.caught import catch
from kit.siffile import write_image

from jaxsif.commands.layer import VERBS
from jaxsif.errors import HostError, JaxsifError
from jaxsif.layers.store import (
    Layer,
    describe_layers,
    find_image_key,
    find_layers,
    list_names,
    name_file,
    read_layer,
    suggest_layer,
)
from jaxsif.settings.config import for_staff, staff_files

Make = Callable[..., str]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def image(tmp_path: Path) -> str:
    return write_image(tmp_path / "a.sif", b"one")


@pytest.fixture
def make(tmp_path: Path, environ: dict[str, str], image: str) -> Make:
    """Write a layer for `image`; return the path of its file."""

    def make(name: str, **packages: str) -> str:
        folder = tmp_path / "data/jaxsif/layers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "made").write_bytes(b"hsqs" + bytes(96))
        file = name_file(name, str(folder / "made"))
        (folder / "made").rename(folder / file)
        status = os.stat(image)
        layer = Layer(
            name=name,
            file=file,
            size=100,
            image=image,
            image_key=find_image_key(image, environ),
            image_state=(status.st_size, status.st_mtime_ns),
            python="3.13.5",
            created="2026-11-20T12:00:00+00:00",
            requirements=tuple(packages),
            allow_replace=(),
            packages=packages,
            sources={},
        )
        (folder / f"{name}.json").write_text(json.dumps(layer._asdict()))
        return str(folder / layer.file)

    return make


def test_files_in_order_each_once(environ: dict[str, str], image: str, make: Make) -> None:
    b, a = make("b", optax="1", etils="2"), make("a", flax="1", etils="2")
    assert find_layers(["b", "a", "b"], "--layer", image, environ) == (b, a)
    assert list_names(environ) == ["a", "b"]
    assert read_layer("a", environ, "").packages == {"flax": "1", "etils": "2"}


def test_no_layers_need_nothing(environ: dict[str, str]) -> None:
    assert find_layers([], "--layer", None, environ) == ()
    assert list_names(environ) == []


def test_a_copy_of_the_image_is_the_image(tmp_path: Path, environ: dict[str, str], image: str, make: Make) -> None:
    copy = write_image(tmp_path / "copy.sif", b"one")
    layer = make("a")
    assert find_layers(["a"], "--layer", copy, environ) == (layer,)


@pytest.mark.parametrize("in_place", [True, False])
def test_another_image(tmp_path: Path, environ: dict[str, str], image: str, make: Make, in_place: bool) -> None:
    make("a")
    other = write_image(Path(image) if in_place else tmp_path / "b.sif", b"another")
    error = catch(JaxsifError, find_layers, ["a"], "--layer", other, environ)
    assert error.what == f"layer a was not made for {other}"
    made_for = "another image at that path" if in_place else image
    assert error.where.startswith(f"--layer; it was made for {made_for}, sha256:")
    assert error.hint == f"jaxsif layer update --image {other} a"


def test_an_unpacked_image_is_its_path(tmp_path: Path, environ: dict[str, str]) -> None:
    assert find_image_key(str(tmp_path), environ) == f"folder:{tmp_path.resolve()}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"hsqs" + bytes(95), "has 99 bytes instead of 100"),
        (bytes(100), "is not a squashfs file"),
        (b"hsqs" + bytes(95) + b"x", "has changed"),
    ],
)
def test_damaged_file(environ: dict[str, str], image: str, make: Make, content: bytes | None, reason: str) -> None:
    path = Path(make("a"))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JaxsifError, match="layer a is damaged: ") as caught:
        find_layers(["a"], "--layer", image, environ)
    assert reason in caught.value.what
    assert caught.value.hint == f"jaxsif layer update --image {image} a"


def test_a_file_that_changes_after_it_was_used(environ: dict[str, str], image: str, make: Make) -> None:
    path = Path(make("a"))
    assert find_layers(["a"], "--layer", image, environ) == (str(path),)
    path.write_bytes(b"hsqs" + bytes(95) + b"x")
    with pytest.raises(HostError, match=f"layer a is damaged: {path} has changed"):
        find_layers(["a"], "--layer", image, environ)


def test_a_layer_is_named_with_its_digest(environ: dict[str, str], image: str, make: Make) -> None:
    make("a")
    make("b")
    found = describe_layers(find_layers(["b", "a"], "--layer", image, environ))
    assert re.fullmatch(r"b \(sha256:([0-9a-f]{12})\), a \(sha256:\1\)", found)


@pytest.mark.parametrize("kind", ["FIFO", "folder", "device"])
def test_what_is_no_file(environ: dict[str, str], image: str, make: Make, kind: str) -> None:
    """It is refused without waiting for what a FIFO or a terminal might say."""
    path = Path(make("a"))
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(HostError, match=r"layer a is damaged: .* is not a file$"):
        find_layers(["a"], "--layer", image, environ)


def test_one_bad_layer_does_not_hide_the_others(
    environ: dict[str, str], make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(make("a")).parent
    make("b")
    (folder / "b.json").write_text("[")
    (folder / "not a name.json").touch()
    VERBS["list"].call(argparse.Namespace(json=False), environ)
    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.out.splitlines()] == [["NAME", "STATUS"], ["a", "ok"], ["b", "damaged"]]
    assert said.err.startswith("jaxsif: warning: cannot read layer b: ")
    VERBS["list"].call(argparse.Namespace(json=True), environ)
    assert [layer["status"] for layer in json.loads(capsys.readouterr().out)] == ["ok", "damaged"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "a"}', "\udc80"])
def test_damaged_json(tmp_path: Path, environ: dict[str, str], make: Make, text: str) -> None:
    make("a")
    (tmp_path / "data/jaxsif/layers/a.json").write_bytes(os.fsencode(text))
    with pytest.raises(JaxsifError, match="cannot read layer a: ") as caught:
        read_layer("a", environ, "")
    assert caught.value.hint == "jaxsif layer remove a"


@pytest.mark.parametrize("closed", ["a.json", "a.*.sqfs", "."])
def test_a_layer_that_the_user_may_not_read(
    environ: dict[str, str],
    image: str,
    make: Make,
    closed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is not damaged: the remedy removes and rebuilds nothing. Tests of root may read all files."""
    folder = Path(make("a", optax="1")).parent
    refuse = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    listdir, opened = os.listdir, open

    def list_or_refuse(path: str) -> list[str]:
        if closed == ".":
            raise refuse
        return listdir(path)

    def open_or_refuse(path: str | int, *args: object, **kwargs: object) -> object:
        if isinstance(path, str) and Path(path).parent == folder and (closed == "." or Path(path).match(closed)):
            raise refuse
        return opened(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr("os.listdir", list_or_refuse)
    monkeypatch.setattr("builtins.open", open_or_refuse)
    with pytest.raises(HostError, match=r"^cannot read layer a: Permission denied$") as caught:
        find_layers(["a"], "--layer", image, environ)
    assert caught.value.hint == f"let the owner call: chmod -R a+rX {folder}"
    monkeypatch.setattr("os.access", lambda path, mode: path not in folder.parents[:2])
    with pytest.raises(HostError) as caught:
        find_layers(["a"], "--layer", image, environ)
    above = f"{folder.parents[1]} {folder.parent}"
    assert caught.value.hint == f"let the owner call: chmod a+x {above} && chmod -R a+rX {folder}"
    assert suggest_layer({"optax"}, image, (), environ) == ("--layer a has it" if closed == "a.*.sqfs" else "")
    if closed == ".":
        with pytest.raises(HostError, match=r"^cannot read the layers: Permission denied$"):
            list_names(environ)
        return
    VERBS["list"].call(argparse.Namespace(json=True), environ)
    said = capsys.readouterr()
    assert json.loads(said.out) == [{"name": "a", "status": "unreadable"}]
    assert said.err == "jaxsif: warning: cannot read layer a: Permission denied\n"


def test_two_versions_of_one_package(environ: dict[str, str], image: str, make: Make) -> None:
    make("a", etils="1")
    make("b", etils="2")
    with pytest.raises(JaxsifError, match="layers a and b have different versions of etils, 1 and 2"):
        find_layers(["a", "b"], "--layer", image, environ)


def test_no_layer_of_that_name(environ: dict[str, str], image: str, make: Make) -> None:
    error = catch(JaxsifError, find_layers, ["x"], "run.layers in jaxsif.toml", image, environ)
    assert (error.what, error.hint) == ("no layer x", "jaxsif layer create x PACKAGE...")
    make("a")
    error = catch(JaxsifError, find_layers, ["x"], "run.layers in jaxsif.toml", image, environ)
    assert (error.what, error.hint) == ("no layer x", "one of a")
    assert error.where.startswith("run.layers in jaxsif.toml, ")


def test_a_layer_in_the_sites_file(environ: dict[str, str], image: str, make: Make) -> None:
    """Staff cannot make one for all users."""
    source = f"run.layers in {staff_files()[0]}"
    error = catch(JaxsifError, find_layers, ["x"], source, image, environ)
    remedy = "leave it out there: layers are one user's; packages for all go into an image"
    assert (error.where, error.hint) == (source, for_staff(remedy, source))


@pytest.mark.parametrize("name", ["", ".", "../a", "a.b", "-a", "a b", "ä", "a\n", "a" * 300])
def test_bad_name(environ: dict[str, str], image: str, name: str) -> None:
    with pytest.raises(JaxsifError, match="not a valid layer name") as caught:
        find_layers([name], "--layer", image, environ)
    assert (caught.value.where, caught.value.hint[:4]) == ("--layer", "use ")


def test_a_package_is_found_in_layers(make: Make, environ: dict[str, str], image: str, tmp_path: Path) -> None:
    """For this image, and not mounted already."""
    mounted = make("ml", flax="1", **{"opencv-python-headless": "4"})
    (tmp_path / "data/jaxsif/layers/broken.json").write_text("{")
    assert suggest_layer(["cv2", "opencv_python.headless"], image, (), environ) == "--layer ml has it"
    assert suggest_layer(["mymodel"], image, (), environ) == ""
    make("other", flax="2")
    assert suggest_layer(["flax"], image, (), environ) == "--layer ml or --layer other has it"
    assert suggest_layer(["flax"], image, (mounted,), environ) == "--layer other has it"
    assert suggest_layer(["flax"], write_image(tmp_path / "b.sif", b"two"), (), environ) == ""


def test_layers_in_one_word(environ: dict[str, str], image: str) -> None:
    error = catch(JaxsifError, find_layers, ["a,b"], "--layer", image, environ)
    assert (error.what, error.hint[:23]) == ("not a valid layer name: 'a,b'", "repeat the option for e")
