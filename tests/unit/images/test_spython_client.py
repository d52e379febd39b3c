"""spython's client for the engine that was found: its command lines, and what it makes of an image's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.caught import catch
from kit.executables import executable
from kit.siffile import descriptor, write_image

from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.spython_client import ImageMetadata, RuntimeClient, parse_metadata, read_metadata

CLIENT = RuntimeClient(["env", "A=1", "/opt/singularity"], "/a.sif", ["--nv"])


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("exec", ["exec", "--nv"]),
        (["instance", "start"], ["instance", "start", "--nv"]),
        (["instance", "list", "--json"], ["instance", "list", "--json"]),
        ("inspect", ["inspect"]),
    ],
)
def test_command_line(action: Any, words: list[str]) -> None:
    expected = ["env", "A=1", "/opt/singularity", "--quiet", *words]
    assert CLIENT._init_command(action) == expected
    stopped = CLIENT.instance(name="mine", start=False)
    assert stopped._init_command(action) == expected
    assert (stopped.name, stopped._image) == ("mine", "/a.sif")


def test_flags_of_the_engine_itself() -> None:
    assert CLIENT._init_command("run", ["--debug"])[3:] == ["--quiet", "--debug", "run", "--nv"]


def test_two_clients_have_their_own_instances() -> None:
    other = RuntimeClient(["apptainer"], "/b.sif")
    assert other.instance(name="x", start=False)._image == "/b.sif"
    assert CLIENT.instance(name="x", start=False)._image == "/a.sif"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuntimeClient:
    """Its engine prints its own words."""
    engine = executable(
        tmp_path / "apptainer",
        '[ "$5" != silent ] || exit 4; printf "%s|" "$@"; [ "$5" != fail ] || exit 3; [ "$5" != both ] || echo e >&2',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return RuntimeClient([str(engine)], "/a.sif")


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (("python x.py 'a b'",), "--quiet|exec|/a.sif|python|x.py|a b|"),
        ((["python", "a b"],), "--quiet|exec|/a.sif|python|a b|"),
        (("/b.sif", ("python", "a")), "--quiet|exec|/b.sif|python|a|"),
        (("x both",), ["--quiet|exec|/a.sif|x|both|", "e\n"]),
        (("x fail",), {"message": "--quiet|exec|/a.sif|x|fail|", "return_code": 3}),
        (("x silent",), {"message": "", "return_code": 4}),
    ],
)
def test_commands(client: RuntimeClient, arguments: tuple[Any, ...], result: Any) -> None:
    assert client.execute(*arguments) == result


@pytest.mark.parametrize("arguments", [(), ("",), ([],), ("/a.sif", []), (7,)])
def test_a_missing_command_is_an_error_and_no_exit(client: RuntimeClient, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(JaxsifError, match="no command to execute"):
        client.execute(*arguments)


def test_metadata() -> None:
    attributes = {"deffile": "From: a", "labels": {"x": "1"}, "environment": {"/90.sh": "export A=1"}, "test": "true"}
    assert parse_metadata({"attributes": attributes}) == ImageMetadata(
        "From: a", "", {"/90.sh": "export A=1"}, "", "true", {"x": "1"}
    )
    assert parse_metadata({"attributes": {}}) == ImageMetadata("", "", {}, "", "", {})


@pytest.mark.parametrize(
    ("attributes", "field"),
    [({"deffile": 1}, "definition"), ({"labels": ["a"]}, "labels"), ({"environment": {"a": 1}}, "environment")],
)
def test_metadata_of_another_form(attributes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^invalid {field}$"):
        parse_metadata({"attributes": attributes})


def test_image_that_the_engine_would_run(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"squashfs", descriptor(0x4006, 8192, 8))
    with pytest.raises(
        HostError, match=r"image has no inspect-metadata.json, so finding out more means running it: .*a\.sif"
    ):
        read_metadata(image, {})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ({"data": {"attributes": {"deffile": "From: b"}}}, ""),
        ({"data": {"attributes": {"deffile": 1}}}, "cannot parse the metadata of IMAGE: invalid definition"),
        ([], "cannot parse the metadata of IMAGE: list indices must be integers or slices, not str"),
    ],
)
def test_metadata_of_a_file_need_no_engine(tmp_path: Path, text: Any, error: str) -> None:
    data = json.dumps(text).encode()
    row = descriptor(0x4006, 8192, len(data)).replace(b"name".ljust(24, b"\0"), b"inspect-metadata.json\0\0\0")
    image = write_image(tmp_path / "a.sif", data, row)
    if error:
        assert catch(HostError, read_metadata, image, {}).what == error.replace("IMAGE", image)
    else:
        assert read_metadata(image, {}).definition == "From: b"


def test_folder_with_letters_of_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a$(touch b)"
    (folder / ".singularity.d").mkdir(parents=True)
    with pytest.raises(HostError, match="has characters that the runtime's inspect command would pass to a shell"):
        read_metadata(str(folder), {})


def test_folder_with_large_files(tmp_path: Path) -> None:
    (tmp_path / ".singularity.d").mkdir()
    with open(tmp_path / ".singularity.d/Singularity", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HostError, match=r"image is damaged \(the size of its \.singularity\.d is 1099511627776\): "):
        read_metadata(str(tmp_path), {})
