"""spython's client for the engine that was found: its command lines, and what it makes of an image's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from siffile import descriptor, write_image

from jaxsif.errors import HostError
from jaxsif.images.client import ImageMetadata, RuntimeClient, parse_metadata, read_metadata
from jaxsif.runtime import Runtime

RUNTIME = Runtime("/opt/singularity", "SINGULARITYENV_")
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
    with pytest.raises(ValueError, match=f"its {field} is not what it must be"):
        parse_metadata({"attributes": attributes})


def test_image_that_the_engine_would_run(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"squashfs", descriptor(0x4006, 8192, 8))
    with pytest.raises(
        HostError, match=r"image has no inspect-metadata.json, so to tell more means to run it: .*a\.sif"
    ):
        read_metadata(RUNTIME, image)


def test_folder_with_letters_of_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a$(touch b)"
    (folder / ".singularity.d").mkdir(parents=True)
    with pytest.raises(HostError, match="has letters that the engine's inspect takes for the shell's"):
        read_metadata(RUNTIME, str(folder))


def test_folder_with_large_files(tmp_path: Path) -> None:
    (tmp_path / ".singularity.d").mkdir()
    with open(tmp_path / ".singularity.d/Singularity", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HostError, match=r"image is damaged, the size of its \.singularity\.d is 1099511627776: "):
        read_metadata(RUNTIME, str(tmp_path))
