"""The image's %test, on a machine with or without a GPU. Arguments: the version of JAX that is locked, what to check.

jax: JAX computes over two CPU devices, and loads the CUDA libraries that it loads by name. libraries: all those that
the wheels list are there, but for those left out on purpose, and each finds every library that it needs, but for those
that come with the driver of the host; the drivers of libibverbs can be loaded. Both, unless told otherwise; a build
checks the libraries where they are installed, and JAX in the finished image.
"""

from __future__ import annotations

import concurrent.futures
import csv
import ctypes
import fnmatch
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

# Bound in by `apptainer --nv`, never a part of an image.
DRIVER_LIBRARIES = {"libcuda.so.1", "libnvidia-ml.so.1"}
# Patterns of what the build has removed, a line each, relative to site-packages.
LEFT_OUT = Path(__file__).with_name("left-out")
LINKER = next(Path("/").glob("lib*/ld-linux-*.so.*"))  # the dynamic linker of x86_64 is in lib64, of aarch64 in lib


def shared_libraries(folder: Path) -> Iterator[Path]:
    """The ELF files below `folder` whose names say that they are libraries."""
    for path in folder.rglob("*.so*"):
        if path.is_file():  # or, in a build, a link to one
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def missing_libraries(library: Path) -> list[str]:
    """What the dynamic linker does not find of `library`'s needs, the driver's aside, or why it cannot look."""
    # As ldd does, without its shell; `--list` would end at the first library that is not found.
    environ = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    environ["LD_TRACE_LOADED_OBJECTS"] = "1"
    done = subprocess.run([LINKER, library], env=environ, capture_output=True, text=True, check=False)
    names = {line.split()[0] for line in done.stdout.splitlines() if line.endswith("=> not found")}
    versions = {line.split(": ", 1)[1] for line in done.stderr.splitlines() if "not found (required by" in line}
    if done.returncode:
        versions.add(f"a linker that can read it: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return sorted(names - DRIVER_LIBRARIES) + sorted(versions)


def is_left_out(name: str, left_out: list[str]) -> bool:
    """Whether a file, or a folder that it is in, fits a pattern; a star stands for no slash, as in a shell."""
    parts = name.split("/")
    if "tests" in parts[:-1]:  # these folders are removed from all wheels
        return True
    patterns = (pattern.split("/") for pattern in left_out)
    return any(len(parts) >= len(those) and all(map(fnmatch.fnmatch, parts, those)) for those in patterns)


def lost_libraries(site: Path, left_out: list[str]) -> list[str]:
    """The libraries in the wheels' own lists that are not there as listed, and not `left_out`."""
    lost = []
    for record in sorted(site.glob("*.dist-info/RECORD")):
        with record.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row and ".so" in Path(row[0]).suffixes]
        for name, _, size in rows:
            found = (site / name).stat().st_size if (site / name).exists() else -1
            if found != int(size or found) and not is_left_out(name, left_out):
                what = "is not there" if found < 0 else f"has {found} bytes"
                lost.append(f"{name} of {record.parent.name} {what}")
    return lost


def check_libraries(folder: Path) -> list[str]:
    """One line for each library below `folder` that could not be loaded."""
    libraries = list(shared_libraries(folder))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = zip(libraries, pool.map(missing_libraries, libraries))
        return [f"{library} needs {', '.join(missing)}" for library, missing in found if missing]


def check_drivers(folder: Path) -> list[str]:
    """One line for each driver of libibverbs that cannot be loaded: it would only warn where there is such hardware."""
    wrong = []
    for driver in sorted(folder.glob("*/libibverbs/*.so")):
        try:
            ctypes.CDLL(str(driver))
        except OSError as error:
            wrong.append(str(error))
    return wrong


def check_all_libraries(site: Path) -> list[str]:
    """What is wrong with the libraries of the wheels, and with the base system's for InfiniBand."""
    left_out = LEFT_OUT.read_text().split()
    return [*lost_libraries(site, left_out), *check_libraries(site), *check_drivers(Path("/usr/lib"))]


def check_cuda() -> list[str]:
    """What JAX's plugin for CUDA does not find of what it loads by name; it says nothing of that itself."""
    import jax_plugins

    wrong = []
    load = ctypes.cdll.LoadLibrary

    def load_or_tell(name: str) -> ctypes.CDLL:
        try:
            return load(name)
        except OSError as error:
            if not any(library in str(error) for library in DRIVER_LIBRARIES):
                wrong.append(f"JAX cannot load a library: {error}")
            raise

    ctypes.cdll.LoadLibrary = load_or_tell
    for module in pkgutil.iter_modules(jax_plugins.__path__):
        if module.name.startswith("xla_cuda"):
            importlib.import_module(f"jax_plugins.{module.name}")._load_nvidia_libraries()
            package = module.name.replace("xla_cuda", "jax-cuda") + "-plugin"
            wanted = [need.split(";") for need in metadata.requires(package) or [] if "with-cuda" in need]
            names = [re.split(r"[^\w.-]", need.strip())[0] for need, *_ in wanted]
            wrong += [f"{package} needs {name}, which is not installed" for name in names if not is_installed(name)]
    return wrong


def is_installed(package: str) -> bool:
    """Whether a Python package is there."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_jax(version: str) -> list[str]:
    """What is wrong with JAX itself, over two CPU devices."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    if jax.__version__ != version:
        return [f"JAX {jax.__version__} is installed, {version} is locked"]
    mesh = jax.make_mesh((jax.device_count(),), ("i",))
    numbers = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("i")))
    total = jax.jit(jnp.sum)(numbers)
    wrong = total != 28.0 or jax.device_count() != 2
    lines = [f"sum of 0…7 over {jax.device_count()} devices: {total}"] if wrong else []
    return lines + check_cuda() if importlib.util.find_spec("jax_plugins") else lines


def check(version: str, names: list[str]) -> list[str]:
    """All that is wrong; both checks at once, because each waits for the disk most of the time."""
    os.environ.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="2")
    site = Path(sysconfig.get_path("purelib"))
    checks = {"jax": lambda: check_jax(version), "libraries": lambda: check_all_libraries(site)}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: checks[name](), names or checks)
        return [line for lines in found for line in lines]


if __name__ == "__main__":
    sys.exit("\n".join(check(sys.argv[1], sys.argv[2:])) or 0)
