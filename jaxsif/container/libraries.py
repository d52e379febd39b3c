"""Libraries of the host for the container: find them, place them, and check that they fit the
image's system.
"""

from __future__ import annotations

import glob
import itertools
import mmap
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsif.container.elf import Needs, read_needs
from jaxsif.errors import HostError, raise_as
from jaxsif.foreign import MOST_TEXT
from jaxsif.images.file import remembered
from jaxsif.limits import is_decimal
from jaxsif.runtime import Runtime
from jaxsif.settings.options import Setting

FOLDER = "/opt/jaxsif/fabric"  # in the container, for individual files
_LIBC = "libc.so.6"
# The usual files of the C library, which fit only each other.
_OF_LIBC = re.compile(
    r"(ld|ld64|ld-linux.*|lib(c|m|mvec|dl|rt|util|anl|pthread|thread_db|resolv|nss_(files|dns)))"
    r"(-\d[\d.]*)?\.so(\.\d+)?"
)
_GLIBC = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?=[.\s]|$)")
_CUDA = "libcudart.so."
# Prefixes of libraries that come with the driver, or are loaded before NCCL loads its plugin.
_COME_LATER = ("libcuda.so", _CUDA, "libnvidia-ml.so", "libnccl.so", "ld-linux")


class Libraries(NamedTuple):
    """The host's libraries for the container."""

    paths: tuple[str, ...]  # files and folders
    source: str  # the setting that names them

    @property
    def binds(self) -> tuple[str, ...]:
        """Return values for --bind. A folder keeps its path: libraries find each other by paths
        that were built into them.
        """
        return tuple(f"{path}:{_place(path)[1]}:ro" for path in self.paths)

    @property
    def folders(self) -> tuple[str, ...]:
        """Return their folders in the container."""
        return tuple(dict.fromkeys(_place(path)[0] for path in self.paths))


def _place(path: str) -> tuple[str, str]:
    """Return, for a path on the host, the container's folder for its libraries, and the place of
    the path itself.
    """
    if os.path.isdir(path):
        return path, path
    return FOLDER, f"{FOLDER}/{os.path.basename(path)}"


def find_libraries(setting: Setting) -> Libraries:
    """Expand the patterns of paths on this host; raise HostError for a pattern without a match, and
    for the host's C library.
    """
    paths: dict[str, None] = {}
    for pattern in setting.value:
        found = sorted(glob.glob(pattern, recursive=True))
        if not found:
            raise HostError(
                f"no library on this host matches {pattern}",
                setting.source,
                "correct the path; if only the compute nodes have it, run this in a job",
            )
        paths.update(dict.fromkeys(found))
    for path in paths:
        is_of_libc = _OF_LIBC.fullmatch(os.path.basename(path))
        if is_of_libc or os.path.exists(os.path.join(path, _LIBC)):
            raise HostError(
                f"the host's C library would take the place of the image's: {path}",
                setting.source,
                "name the individual libraries that the fabric needs, but none that belong to the C"
                " library",
            )
    return Libraries(tuple(paths), setting.source)


def check_libraries(
    libraries: Libraries, runtime: Runtime, image: str, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Raise HostError if a library needs a newer glibc or a different CUDA than the image has.

    Return warnings about needed libraries that neither the host's libraries nor the image include.
    """
    needs = {path: found for path in _files(libraries.paths) if (found := _read(path))}
    if not needs:
        return ()
    glibc, theirs = _system(runtime, image, environ)
    newest, needed = max(needs.items(), key=lambda item: item[1].glibc)
    if needed.glibc > glibc:
        raise HostError(
            f"{newest} needs glibc {_join(needed.glibc)}, but the image has {_join(glibc)}",
            f"{libraries.source}; the image is {image}",
            "run an image with a newer system, or build the library on an older one",
        )
    _check_cuda(needs, libraries.source, image)
    return tuple(_missing(needs, theirs, libraries.source))


def _check_cuda(needs: Mapping[str, Needs], source: str, image: str) -> None:
    """Raise HostError if a library was built for a CUDA version other than the image label's."""
    of_cuda = {
        name: path for path, (names, _) in needs.items() for name in names if name.startswith(_CUDA)
    }
    if not of_cuda:
        return
    from jaxsif.images.labels import read_labels  # here: few libraries want CUDA

    version = read_labels(image).get("io.jaxsif.cuda", "")
    major = version.partition(".")[0]
    if not is_decimal(major):
        return
    for name, path in of_cuda.items():
        if name[len(_CUDA) :].split(".")[0] != major:
            raise HostError(
                f"{path} needs {name}, but the image has CUDA {version}",
                f"{source}; the image is {image}",
                "use a library built for the image's CUDA, or an image with the library's CUDA",
            )


def _missing(needs: Mapping[str, Needs], theirs: Iterable[str], source: str) -> Iterable[str]:
    """Yield a warning for each library that needs others that are missing."""
    there = {*map(os.path.basename, needs), *theirs}
    for path, (names, _) in needs.items():
        absent = [n for n in names if n not in there and not n.startswith(_COME_LATER)]
        if absent:
            missing = ", ".join(absent)
            yield f"warning: {path} needs {missing}, found neither in the image nor in {source}"


def _files(paths: Iterable[str]) -> list[str]:
    """Return the libraries, including those in folders, under all of their names."""
    files = [[path, *sorted(glob.glob(f"{glob.escape(path)}/*.so*"))] for path in paths]
    return [path for path in itertools.chain(*files) if os.path.isfile(path)]


def _read(path: str) -> Needs | None:
    """Return the needs of a file, or None if it is not a library."""
    unreadable = HostError(f"cannot read {path}", "a fabric's libraries", "check permissions")
    with raise_as(unreadable), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_needs(data)


def _system(
    runtime: Runtime, image: str, environ: Mapping[str, str]
) -> tuple[tuple[int, int], list[str]]:
    """Return the image's glibc version and the names of its libraries, cached if the image is a
    file.
    """
    if os.path.isdir(image):
        answer = _ask(runtime, image)
    else:
        answer = remembered(image, "system", environ, lambda: _ask(runtime, image))
    version = _GLIBC.match(answer)
    if not version:
        raise HostError(
            f"{image} does not report its glibc version: {answer[:40]!r}",
            "a fabric's libraries",
            "apptainer exec IMAGE getconf GNU_LIBC_VERSION",
        )
    return (int(version[1]), int(version[2])), answer.split()[1:]


def _join(glibc: tuple[int, int]) -> str:
    return f"{glibc[0]}.{glibc[1]}"


def _ask(runtime: Runtime, image: str) -> str:
    # Here: it takes 10 ms to import, and the answer is usually cached.
    from jaxsif.images.execute import read_system

    return read_system(runtime, image)[:MOST_TEXT]
