"""Libraries of the host: which they are, where they go, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.caught import catch
from kit.elffile import elf_library

from jaxsif.container.libraries import Libraries, check_libraries, find_libraries
from jaxsif.errors import HostError
from jaxsif.images import execute as inside
from jaxsif.runtime import Runtime
from jaxsif.settings.options import Setting

RUNTIME = Runtime("apptainer", "APPTAINERENV_")
SOURCE = "profile.ours.libraries in FILE"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An unpacked image of which a process in it tells that it has glibc 2.36 and two libraries."""
    monkeypatch.setattr(inside, "read_system", lambda _runtime, _image: "2.36\nlibc.so.6\nlibm.so.6\n")
    (tmp_path / "image").mkdir()
    return str(tmp_path / "image")


def find(*patterns: str) -> Libraries:
    return find_libraries(Setting(list(patterns), SOURCE))


def write(path: Path, needed: tuple[str, ...] = ("libc.so.6",), versions: tuple[str, ...] = ()) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(elf_library(needed, versions))
    return path


def test_files_go_into_one_folder_and_folders_stay(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one/liba.so.1"), write(tmp_path / "two/libb.so")
    found = find(f"{tmp_path}/one/liba.so*", str(other.parent))
    assert found.binds == (f"{one}:/opt/jaxsif/fabric/liba.so.1:ro", f"{other.parent}:{other.parent}:ro")
    assert found.folders == ("/opt/jaxsif/fabric", str(other.parent))


def test_a_pattern_that_stands_for_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"no library on this host matches .*/lib\*") as caught:
        find(f"{tmp_path}/lib*")
    assert caught.value.where == SOURCE


OF_LIBC = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld64.so.2", "libc-2.31.so", "libnss_files.so.2")


@pytest.mark.parametrize("place", ["lib", *(f"lib/{name}" for name in OF_LIBC)])
def test_the_c_library_and_its_folder_are_refused(tmp_path: Path, place: str) -> None:
    for name in OF_LIBC:
        write(tmp_path / "lib" / name)
    with pytest.raises(HostError, match=rf"the host's C library would take the place of the image's: .*/{place}$"):
        find(f"{tmp_path}/{place}")


def test_libraries_that_fit(tmp_path: Path, image: str) -> None:
    write(tmp_path / "lib/liba.so.1", ("libc.so.6", "libb.so.1", "libcuda.so.1"), ("GLIBC_2.36",))
    write(tmp_path / "lib/libb.so.1", ("libc.so.6", "libm.so.6"), ("GLIBC_2.4",))
    (tmp_path / "lib/libb.so").write_text("GROUP ( libb.so.1 )")
    (tmp_path / "lib/empty.so").touch()
    assert check_libraries(find(f"{tmp_path}/lib"), RUNTIME, image, {}) == ()


def test_a_library_that_needs_a_newer_glibc_is_refused(tmp_path: Path, image: str) -> None:
    write(tmp_path / "lib/liba.so.1", versions=("GLIBC_2.37",))
    newest = write(tmp_path / "lib/libb.so.1", versions=("GLIBC_2.38", "GLIBC_2.4"))
    assert catch(HostError, check_libraries, find(f"{tmp_path}/lib"), RUNTIME, image, {}).render() == (
        f"jaxsif: error: {newest} needs glibc 2.38, but the image has 2.36\n"
        f"  from: {SOURCE}; the image is {image}\n"
        "  try:  run an image with a newer system, or build the library on an older one"
    )


def test_libraries_that_nobody_has_are_named(tmp_path: Path, image: str) -> None:
    path = write(tmp_path / "lib/liba.so.1", ("libc.so.6", "libcxi.so.1", "libnl-3.so.200"))
    assert check_libraries(find(str(path)), RUNTIME, image, {}) == (
        f"warning: {path} needs libcxi.so.1, libnl-3.so.200, found neither in the image nor in {SOURCE}",
    )


def label(image: str, cuda: str) -> None:
    (Path(image) / ".singularity.d").mkdir()
    (Path(image) / ".singularity.d/labels.json").write_text(json.dumps({"io.jaxsif.cuda": cuda}))


def test_a_library_for_another_cuda_is_refused(tmp_path: Path, image: str) -> None:
    label(image, "13.0.2")
    path = write(tmp_path / "lib/libnccl-net.so", ("libc.so.6", "libcudart.so.12"))
    error = catch(HostError, check_libraries, find(str(path)), RUNTIME, image, {})
    assert error.what == f"{path} needs libcudart.so.12, but the image has CUDA 13.0.2"


@pytest.mark.parametrize("cuda", ["12.9.1", "none"])
def test_a_library_for_the_same_cuda_fits(tmp_path: Path, image: str, cuda: str) -> None:
    label(image, cuda)
    path = write(tmp_path / "lib/libnccl-net.so", ("libc.so.6", "libcudart.so.12"))
    assert check_libraries(find(str(path)), RUNTIME, image, {}) == ()


@pytest.mark.parametrize("told", ["", "musl", "9" * 5000, "2", "x.y", "\x1b[2J"])
def test_image_that_tells_no_glibc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """Whether it says so now, or so it is remembered."""
    monkeypatch.setattr(inside, "read_system", lambda *_: told)
    (tmp_path / "jax.sif").write_bytes(b"image")
    found = find(str(write(tmp_path / "lib/liba.so.1")))
    for _ in range(2):
        with pytest.raises(HostError, match="does not report its glibc version"):
            check_libraries(found, RUNTIME, str(tmp_path / "jax.sif"), {"HOME": str(tmp_path)})


def test_of_a_file_the_system_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(inside, "read_system", lambda *_: asked.append(1) or "2.36\nlibc.so.6\n")
    (tmp_path / "jax.sif").write_bytes(b"image")
    found = find(str(write(tmp_path / "lib/liba.so.1")))
    for _ in range(2):
        assert check_libraries(found, RUNTIME, str(tmp_path / "jax.sif"), {"HOME": str(tmp_path)}) == ()
    assert asked == [1]
