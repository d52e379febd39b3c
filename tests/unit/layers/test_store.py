"""Layers before a run: which fit the image and one another, and what is said of those that do not."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from bounds import read_bounded
from hypothesis import given
from hypothesis import strategies as st
from siffile import descriptor, sif_header

from jaxsif.commands.layer import list as list_command
from jaxsif.errors import HostError, JaxsifError
from jaxsif.layers.store import (
    Layer,
    describe_layers,
    find_image_key,
    find_layers,
    list_names,
    name_file,
    read_layer,
)

ROOT = bytes([1, 0, 0, 0, 2, 0, 0, 0]) + b"02\0"
Make = Callable[..., str]


def write_image(path: Path, content: bytes) -> str:
    table = descriptor(0x4004, 40_000, len(content), ROOT)
    path.write_bytes((sif_header(40_000, len(content)) + table).ljust(40_000, b"\0") + content)
    return str(path)


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
    with pytest.raises(JaxsifError) as caught:
        find_layers(["a"], "--layer", other, environ)
    assert caught.value.what == f"layer a was made for another image than {other}"
    assert caught.value.where.startswith(f"--layer; it was made for {image}, sha256:")
    assert caught.value.hint == f"jaxsif layer update --image {other} a"


def test_an_unpacked_image_is_its_path(tmp_path: Path, environ: dict[str, str]) -> None:
    assert find_image_key(str(tmp_path), environ) == f"folder:{tmp_path.resolve()}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"hsqs" + bytes(95), "has 99 bytes instead of 100"),
        (bytes(100), "is no squashfs file"),
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
@pytest.mark.parametrize("suffix", ["json", "sqfs"])
def test_what_is_no_file(
    tmp_path: Path, environ: dict[str, str], image: str, make: Make, kind: str, suffix: str
) -> None:
    """It is refused without waiting for what a FIFO or a terminal might say."""
    file = Path(make("a"))
    path = file if suffix == "sqfs" else file.parent / "a.json"
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(
        HostError,
        match=r"layer a.*: .* is (no file$|a FIFO, not a file: |a folder, not a file: |a device, not a file: )",
    ):
        find_layers(["a"], "--layer", image, environ)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        *(("file", file, "its name or file is not that of a") for file in ("/etc/a.0.sqfs", "../a.0.sqfs", "b.0.sqfs")),
        ("file", "a.0.sqfs\0", "its file is not what it must be"),
        ("file", 5, "its file is not what it must be"),
        ("name", "b", "its name or file is not that of a"),
        ("name", "a\x1b[2J", "its name or file is not that of a"),
        ("size", "100", "its size is not what it must be"),
        ("size", True, "its size is not what it must be"),
        ("size", 10**19, "its size is not what it must be"),
        ("size", 10**25, "its size is not what it must be"),
        ("image_key", None, "its image_key is not what it must be"),
        ("image", "\ud800", "its image is not what it must be"),
        ("image_state", [1], "its image_state is not what it must be"),
        ("requirements", "flax", "its requirements is not what it must be"),
        ("packages", ["flax"], "its packages is not what it must be"),
        ("packages", {"flax": 1}, "its packages is not what it must be"),
        ("more", 1, "it has a field 'more', which no layer has"),
    ],
)
def test_a_field_that_is_not_what_it_must_be(
    environ: dict[str, str], image: str, make: Make, field: str, value: object, problem: str
) -> None:
    path = Path(make("a")).parent / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    error = read_bounded(lambda: find_layers(["a"], "--layer", image, environ))
    assert error is not None
    assert (error.what, error.where) == (f"cannot read layer a: {problem}", str(path))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@given(field=st.sampled_from(Layer._fields), value=ANY_JSON)
def test_any_value_of_a_field(tmp_path_factory: pytest.TempPathFactory, field: str, value: object) -> None:
    folder = tmp_path_factory.mktemp("layers")
    environ = {"XDG_DATA_HOME": str(folder)}
    path = folder / "jaxsif/layers/a.json"
    path.parent.mkdir(parents=True)
    layer = Layer("a", "a.0.sqfs", 1, "/a.sif", "sha256:0", (1, 2), "3.13", "2026", (), (), {})
    path.write_text(json.dumps({**layer._asdict(), field: value}))
    error = read_bounded(lambda: read_layer("a", environ, "--layer"))
    assert error is None or (field in error.what and error.where == str(path))


@given(
    data=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.builds(
        lambda text, count: text * count, st.sampled_from([b"[", b"9", b'{"a":', b'"']), st.integers(1, 300_000)
    )
)
def test_any_json_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("layers")
    path = folder / "jaxsif/layers/a.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    error = read_bounded(lambda: read_layer("a", {"XDG_DATA_HOME": str(folder)}, "--layer"))
    assert error is not None
    assert error.what.startswith("cannot read layer a: ")
    assert error.where == str(path)


def test_a_json_that_is_too_large(environ: dict[str, str], make: Make) -> None:
    path = Path(make("a")).parent / "a.json"
    with open(path, "r+b") as file:
        file.truncate(3 << 30)
    error = read_bounded(lambda: read_layer("a", environ, "--layer"))
    assert error is not None
    assert error.what == f"cannot read layer a: its JSON has more than {1 << 20} bytes: {path}"


def test_one_bad_layer_does_not_hide_the_others(
    environ: dict[str, str], make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(make("a")).parent
    make("b")
    (folder / "b.json").write_text("[" * 100_000)
    (folder / "not a name.json").touch()
    assert list_command.call(argparse.Namespace(json=False), environ) == 0
    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.out.splitlines()] == [["NAME", "STATUS"], ["a", "ok"], ["b", "damaged"]]
    assert said.err.startswith("jaxsif: warning: cannot read layer b: ")
    assert list_command.call(argparse.Namespace(json=True), environ) == 0
    assert [layer["status"] for layer in json.loads(capsys.readouterr().out)] == ["ok", "damaged"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "a"}'])
def test_damaged_json(tmp_path: Path, environ: dict[str, str], make: Make, text: str) -> None:
    make("a")
    (tmp_path / "data/jaxsif/layers/a.json").write_text(text)
    with pytest.raises(JaxsifError, match="cannot read layer a: ") as caught:
        read_layer("a", environ, "")
    assert caught.value.hint == "jaxsif layer remove a"


def test_two_versions_of_one_package(environ: dict[str, str], image: str, make: Make) -> None:
    make("a", etils="1")
    make("b", etils="2")
    with pytest.raises(JaxsifError, match="layers a and b have etils in two versions, 1 and 2"):
        find_layers(["a", "b"], "--layer", image, environ)


def test_no_layer_of_that_name(environ: dict[str, str], image: str, make: Make) -> None:
    with pytest.raises(JaxsifError) as caught:
        find_layers(["x"], "run.layers in jaxsif.toml", image, environ)
    assert (caught.value.what, caught.value.hint) == ("no layer x", "jaxsif layer create x PACKAGE...")
    make("a")
    with pytest.raises(JaxsifError) as caught:
        find_layers(["x"], "run.layers in jaxsif.toml", image, environ)
    assert (caught.value.what, caught.value.hint) == ("no layer x", "one of a")
    assert caught.value.where.startswith("run.layers in jaxsif.toml, ")


@pytest.mark.parametrize("name", ["", ".", "../a", "a.b", "-a", "a b", "ä", "a\n", "a" * 300])
def test_bad_name(environ: dict[str, str], image: str, name: str) -> None:
    with pytest.raises(JaxsifError, match="not a name of a layer") as caught:
        find_layers([name], "--layer", image, environ)
    assert (caught.value.where, caught.value.hint[:4]) == ("--layer", "use ")
