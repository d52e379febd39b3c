"""What an image is, from labels and package lists that are given."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jaxsif.images.inspect import PACKAGES, Fact, facts_as_json, from_packages, inspect_image, render_fact
from jaxsif.images.labels import describe_image, read_labels
from jaxsif.text import align

LISTED = "no label; according to its package list"
ROWS = {package.key: package for package in PACKAGES}


def packages(*purls: str) -> list[dict[str, str]]:
    return [{"purl": purl, "version": purl.rpartition("@")[2].partition("?")[0]} for purl in purls]


@pytest.mark.parametrize(
    ("key", "labels", "purls", "value", "note"),
    [
        ("jax", {"io.jaxsif.jax": "0.12.0.1"}, ["pkg:pypi/jax@0.12.0.1"], "0.12.0.1", ""),
        ("jax", {"io.jaxsif.jax": "0.12.0.1"}, ["pkg:pypi/jax@0.7.1"], "0.12.0.1", "its package list says 0.7.1"),
        ("jax", {}, ["pkg:pypi/jaxlib@0.7.0", "pkg:pypi/jax@0.7.1"], "0.7.1", LISTED),
        ("jax", {}, ["pkg:pypi/jaxlib@0.7.0"], "none", "no label; not in its package list"),
        ("python", {}, ["pkg:generic/python@3.12.3"], "3.12.3", ""),
        ("cuda", {}, ["pkg:pypi/nvidia-cuda-runtime-cu12@12.9.79"], "12.9", LISTED),
        ("cuda", {}, ["pkg:pypi/nvidia-cuda-runtime@13.5.37"], "13.5", LISTED),
        ("cuda", {}, ["pkg:deb/ubuntu/cuda-cudart-12-9@12.9.79-1?arch=amd64"], "12.9", LISTED),
        ("nccl", {}, ["pkg:deb/ubuntu/libnccl2@2.27.3-1?arch=amd64"], "2.27.3-1", LISTED),
        ("cudnn", {}, ["pkg:deb/ubuntu/libcudnn9-cuda-12@9.10.1?a=b"], "9.10.1", LISTED),
        ("nccl", {"io.jaxsif.nccl": "2.32.3"}, ["pkg:pypi/nvidia-nccl-cu13@2.32.3"], "2.32.3", ""),
    ],
)
def test_label_or_package(key: str, labels: dict[str, str], purls: list[str], value: str, note: str) -> None:
    fact = from_packages(ROWS[key], labels, packages(*purls), "")
    assert (fact.value, fact.note) == (value, note)


def test_packages_that_cannot_be_listed() -> None:
    assert from_packages(ROWS["jax"], {}, (), "no way") == Fact("jax", "JAX", None, "no label; no way")
    assert from_packages(ROWS["python"], {}, (), "no way") == Fact("python", "Python", None, "no way")


def test_table_and_json() -> None:
    facts = [
        Fact("jax", "JAX", None, "no label"),
        Fact("driver", "driver", "525", "or newer"),
        Fact("signers", "signed by", []),
        Fact("size", "size", 12_400_000),
    ]
    assert list(align(list(map(render_fact, facts)))) == [
        "JAX        unknown (no label)",
        "driver     525 (or newer)",
        "signed by  nobody",
        "size       12 MB",
    ]
    assert facts_as_json(facts) == {
        "jax": None,
        "driver": "525",
        "signers": [],
        "size": 12400000,
        "notes": {"jax": "no label", "driver": "or newer"},
    }


def test_unpacked_image_without_a_runtime(tmp_path: Path) -> None:
    (tmp_path / ".singularity.d").mkdir()
    (tmp_path / ".singularity.d/labels.json").write_text(
        '{"io.jaxsif.driver": "525", "org.label-schema.build-arch": "arm64"}'
    )
    (tmp_path / "file").write_bytes(b"12345")
    facts = {fact.key: fact for fact in inspect_image(str(tmp_path), {"PATH": ""})}
    assert facts["driver"] == Fact("driver", "driver", "525", "or newer")
    assert facts["architecture"].value == "aarch64"
    assert facts["jax"].note == "no label; no container runtime here to list its packages"
    assert facts["size"].value == 5 + (tmp_path / ".singularity.d/labels.json").stat().st_size


@pytest.mark.parametrize(("built", "note"), [("2026-11-20", ""), ("Tuesday", "a label of this image or of its base")])
def test_what_a_derived_image_has_of_its_base(tmp_path: Path, built: str, note: str) -> None:
    """The runtime dates each build, and copies the other labels."""
    (tmp_path / ".singularity.d").mkdir()
    opencontainers = {"created": "2026-11-20", "revision": "024a8aa"}
    labels = {f"org.opencontainers.image.{name}": text for name, text in opencontainers.items()}
    labels["org.label-schema.build-date"] = built
    (tmp_path / ".singularity.d/labels.json").write_text(json.dumps(labels))
    facts = {fact.key: fact for fact in inspect_image(str(tmp_path), {"PATH": ""})}
    assert facts["created"].value == built
    assert facts["revision"] == Fact("revision", "revision", "024a8aa", note)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": 1}'])
def test_labels_that_are_none(tmp_path: Path, text: str) -> None:
    assert read_labels(str(tmp_path)) == {}
    (tmp_path / ".singularity.d").mkdir()
    (tmp_path / ".singularity.d/labels.json").write_text(text)
    assert read_labels(str(tmp_path)) == ({"a": "1"} if "a" in text else {})


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"jax": "0.12.0", "flavour": "cpu", "driver": "none"}, "JAX 0.12.0, cpu"),
        ({"jax": "0.12.0", "flavour": "cuda12", "driver": "525"}, "JAX 0.12.0, cuda12, for driver 525 or newer"),
        ({}, "JAX and driver versions unknown (it has no jaxsif labels; jaxsif image inspect looks inside)"),
    ],
)
def test_what_verbose_says_of_an_image(tmp_path: Path, labels: dict[str, str], said: str) -> None:
    (tmp_path / ".singularity.d").mkdir()
    named = {f"io.jaxsif.{name}": value for name, value in labels.items()}
    (tmp_path / ".singularity.d/labels.json").write_text(json.dumps(named))
    assert describe_image(str(tmp_path)) == f"{said}; unpacked, so without a digest"


def test_labels_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".singularity.d/labels.json").mkdir(parents=True)
    place = f"{tmp_path}/.singularity.d/labels.json"
    assert describe_image(str(tmp_path)) == f"labels file is a folder, not a file: {place}"
    os.rmdir(place)
    Path(place).write_text("{")
    assert describe_image(str(tmp_path)).startswith(f"cannot parse the labels of {tmp_path}: ")
