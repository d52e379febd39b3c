"""The runtime's argument vector and variables, the header of an image, the values of --env."""

from __future__ import annotations

import struct

import pytest

from jaxsif.apptainer import SIF_HEADER_SIZE, Runtime, check_sif, parse_env
from jaxsif.errors import HostError, JaxsifError

IMAGE = "/scratch/jax.sif"
SOURCE = "JAX_IMAGE (environment)"


@pytest.mark.parametrize(
    ("command", "real_path", "prefix"),
    [
        ("apptainer", "/usr/bin/apptainer", "APPTAINERENV_"),
        ("singularity", "/usr/bin/apptainer", "APPTAINERENV_"),
        ("singularity", "/opt/singularity-ce/bin/singularity", "SINGULARITYENV_"),
        ("/opt/bin/singularity", "/opt/bin/singularity-4.1", "SINGULARITYENV_"),
    ],
    ids=["Apptainer", "Apptainer's link", "SingularityCE", "with its version"],
)
def test_runtime_is_told_by_what_the_command_really_is(command: str, real_path: str, prefix: str) -> None:
    assert Runtime.from_executable(command, real_path) == Runtime(command, prefix)


def test_variables_for_the_container() -> None:
    runtime = Runtime("apptainer", "APPTAINERENV_")
    assert runtime.environ([("XLA_FLAGS", "--a=1,--b='x'"), ("EMPTY", "")]) == {
        "APPTAINERENV_XLA_FLAGS": "--a=1,--b='x'",
        "APPTAINERENV_EMPTY": "",
    }


def test_run_argv() -> None:
    argv = Runtime("/opt/bin/apptainer", "APPTAINERENV_").run_argv(
        IMAGE, ["/a:/b:ro", "/c d"], ["python", "-c", "1; 2"]
    )
    options = ("--quiet", "run", "--nv", "--no-eval", "--bind", "/a:/b:ro", "--bind", "/c d")
    assert argv == ("/opt/bin/apptainer", *options, IMAGE, "python", "-c", "1; 2")


def sif_header(data_offset: int, data_size: int, magic: bytes = b"SIF_MAGIC\x00") -> bytes:
    """A header as the SIF format's specification lays it out."""
    launch = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
    ends = struct.pack("<8q", 1, 1, 40, 48, 128, 40 * 585, data_offset, data_size)
    return launch + magic + b"01\x00" + b"02\x00" + b"\x07" * 16 + ends


@pytest.mark.parametrize("size", [4096 + 100, 4096 + 101], ids=["exact", "longer"])
def test_whole_image(size: int) -> None:
    check_sif(sif_header(4096, 100), size, IMAGE, SOURCE)


@pytest.mark.parametrize(("size", "missing"), [(4195, 1), (128, 4068)], ids=["by one byte", "right behind the header"])
def test_truncated_image(size: int, missing: int) -> None:
    with pytest.raises(HostError) as caught:
        check_sif(sif_header(4096, 100), size, IMAGE, SOURCE)
    assert caught.value.render() == (
        f"jaxsif: error: image is truncated, {missing} of 4196 bytes are missing: /scratch/jax.sif\n"
        "  from: JAX_IMAGE (environment)\n"
        "  try:  copy or build it again"
    )


@pytest.mark.parametrize(
    "header",
    [b"", b"hsqs" + bytes(200), sif_header(0, 0)[: SIF_HEADER_SIZE - 1], sif_header(0, 0, b"SIF_MAGIK\x00")],
    ids=["empty", "squashfs", "shorter than a header", "another magic"],
)
def test_not_an_image(header: bytes) -> None:
    with pytest.raises(HostError) as caught:
        check_sif(header, len(header), IMAGE, SOURCE)
    assert caught.value.render() == (
        "jaxsif: error: not a SIF image: /scratch/jax.sif\n"
        "  from: JAX_IMAGE (environment)\n"
        "  try:  make image, or pass --image PATH to a .sif file"
    )


@pytest.mark.parametrize(
    ("pairs", "parsed"),
    [
        ([], ()),
        (["A=1", "B=2"], (("A", "1"), ("B", "2"))),
        (["XLA_FLAGS=--a=1,--b=2"], (("XLA_FLAGS", "--a=1,--b=2"),)),
        (["EMPTY="], (("EMPTY", ""),)),
        (["WANDB_MODE"], (("WANDB_MODE", "offline"),)),
        (["A=1", "A=2"], (("A", "1"), ("A", "2"))),
    ],
    ids=["none", "two", "more equals signs", "empty", "passed on", "twice"],
)
def test_env(pairs: list[str], parsed: tuple[tuple[str, str], ...]) -> None:
    assert parse_env(pairs, {"WANDB_MODE": "offline"}) == parsed


@pytest.mark.parametrize("pair", ["", "=1", "2A=1", "A-B=1", "A B", "Größe=1"])
def test_env_that_is_no_variable(pair: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        parse_env([pair], {"A B": "1"})
    assert caught.value.render() == (
        f"jaxsif: error: not a variable: {pair!r}\n  from: --env\n  try:  --env NAME=VALUE, or --env NAME to pass it on"
    )


def test_env_to_pass_on_that_is_not_set() -> None:
    with pytest.raises(JaxsifError) as caught:
        parse_env(["WANDB_MODE"], {})
    assert caught.value.render() == (
        "jaxsif: error: variable WANDB_MODE is not set\n"
        "  from: --env\n"
        "  try:  export WANDB_MODE, or --env WANDB_MODE=VALUE"
    )
