"""The image's %test, on a machine with or without a GPU. Arguments: the version of JAX that is locked, what to check.

jax: JAX computes over two CPU devices. libraries: every shared library of the installed wheels finds every library that
it needs, but for those that come with the driver of the host. Both, unless told otherwise; a build checks the libraries
where they are installed, and JAX in the finished image.
"""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Bound in by `apptainer --nv`, never a part of an image.
DRIVER_LIBRARIES = {"libcuda.so.1", "libnvidia-ml.so.1"}
LINKER = next(Path("/").glob("lib*/ld-linux-*.so.*"))  # the dynamic linker of x86_64 is in lib64, of aarch64 in lib


def shared_libraries(folder: Path) -> Iterator[Path]:
    """The ELF files below `folder` whose names say that they are libraries."""
    for path in folder.rglob("*.so*"):
        if path.is_file():  # or, in a build, a link to one
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def missing_libraries(library: Path) -> list[str]:
    """What the dynamic linker does not find of `library`'s needs, the driver's libraries aside."""
    # As ldd does, without its shell; `--list` would end at the first library that is not found.
    environ = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    done = subprocess.run([LINKER, library], env=environ, capture_output=True, text=True, check=False)
    names = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("=> not found")]
    return sorted(set(names) - DRIVER_LIBRARIES)


def check_libraries(folder: Path) -> list[str]:
    """One line for each library below `folder` that could not be loaded."""
    libraries = list(shared_libraries(folder))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = zip(libraries, pool.map(missing_libraries, libraries))
        return [f"{library} needs {', '.join(missing)}" for library, missing in found if missing]


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
    return [f"sum of 0…7 over {jax.device_count()} devices: {total}"] if wrong else []


def check(version: str, names: list[str]) -> list[str]:
    """All that is wrong; both checks at once, because each waits for the disk most of the time."""
    os.environ.update(JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES="2")
    site = Path(sysconfig.get_path("purelib"))
    checks = {"jax": lambda: check_jax(version), "libraries": lambda: check_libraries(site)}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: checks[name](), names or checks)
        return [line for lines in found for line in lines]


if __name__ == "__main__":
    sys.exit("\n".join(check(sys.argv[1], sys.argv[2:])) or 0)
