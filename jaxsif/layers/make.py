"""Make a layer: resolve against the image, install what it lacks beside it, compile, pack; whole or
not at all.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.layers.container import SEEN_AS, Container, no_space
from jaxsif.layers.pack import find_mksquashfs, pack
from jaxsif.layers.requirements import write_requirements
from jaxsif.layers.resolve import Plan, resolve, uv_install
from jaxsif.layers.store import Layer, find_image_key, find_image_state, layers_folder, name_file
from jaxsif.runtime import Runtime

_ENDING = (signal.SIGINT, signal.SIGTERM)

Show = Callable[[str], None]  # a line of progress, for people


class Wanted(NamedTuple):
    """What to make."""

    name: str
    requirements: tuple[str, ...]
    allow_replace: tuple[str, ...]  # packages of the image, as indexes write them


def make_layer(
    wanted: Wanted, image: str, runtime: Runtime, environ: Mapping[str, str], show: Show
) -> Layer:
    """Make the layer for `image`, in place of one of the same name; raises JaxsifError, and leaves
    that one then.
    """
    begin = time.monotonic()

    def show_timed(line: str) -> None:
        show(f"{time.monotonic() - begin:6.1f} s  {line}")

    mksquashfs = find_mksquashfs(runtime, environ)
    folder = Path(layers_folder(environ))
    folder.mkdir(parents=True, exist_ok=True)
    key, state = find_image_key(image, environ), find_image_state(image)
    if key.startswith("folder:"):
        show(
            f"note: {image} is a folder, which has no digest: the layer is for whatever is at this path"
        )
    with _scratch(
        environ.get("TMPDIR") or "/tmp", "jaxsif-", "set TMPDIR to a larger folder"
    ) as scratch:
        container = Container(runtime, image, scratch, environ)
        described, plan = _install(container, wanted, image, show_timed)
        show_timed("compiling")
        finished = _finish(container, described, plan)
        show_timed("packing")
        with _scratch(str(folder), f".{wanted.name}-", "remove what is not needed there") as beside:
            pack(mksquashfs, scratch / "tree", finished["gone"], beside / "layer", environ)
            layer = Layer(
                name=wanted.name,
                file=name_file(wanted.name, str(beside / "layer")),
                size=(beside / "layer").stat().st_size,
                image=os.path.realpath(image),
                image_key=key,
                image_state=state,
                python=described["python"],
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                requirements=wanted.requirements,
                allow_replace=wanted.allow_replace,
                packages=finished["packages"],
            )
            _put(layer, beside, folder)
    show_timed(f"layer {layer.name}: {len(layer.packages)} package(s), {layer.size / 1e6:.1f} MB")
    return layer


@contextmanager
def _scratch(place: str, prefix: str, hint: str) -> Iterator[Path]:
    """A folder in `place` that is removed at the end, however that comes; a full disk is told with
    `hint`.
    """
    try:
        folder = tempfile.mkdtemp(prefix=prefix, dir=place)
        try:
            yield Path(folder)
        finally:
            # A signal that comes now is heard when the folder is gone.
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            shutil.rmtree(folder)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(Path(place), hint) from error
        raise


def _install(
    container: Container, wanted: Wanted, image: str, show: Show
) -> tuple[dict[str, Any], Plan]:
    """Install what the image lacks below scratch/tree, as it will lie over the image's root."""
    described = container.ask("describe")
    show(f"resolving {len(wanted.requirements)} requirement(s) against {os.path.basename(image)}")
    write_requirements(wanted.requirements, container.scratch, SEEN_AS)
    plan = resolve(container, described, wanted.allow_replace)
    if not plan.install:
        raise JaxsifError(
            f"the image has all of it already: {', '.join(wanted.requirements)}",
            image,
            "no layer is needed for that",
        )
    show(f"installing {len(plan.install)} package(s)")
    (container.scratch / "install.txt").write_text(
        "".join(f"{one}\n" for one in plan.install.values())
    )
    options = [
        "--no-deps",
        "--prefix",
        f"{SEEN_AS}/prefix",
        "--requirements",
        f"{SEEN_AS}/install.txt",
    ]
    container.check("uv", *uv_install(described), *options, "--constraint", f"{SEEN_AS}/hashes.txt")
    _arrange(container.scratch / "prefix", container.scratch / "tree", described["paths"])
    return described, plan


def _arrange(prefix: Path, tree: Path, paths: Mapping[str, str]) -> None:
    """Move what uv installed to where the image's Python has such files."""
    places = [*((site, paths["purelib"]) for site in prefix.glob("lib/python*/site-packages"))]
    places += [(site, paths["platlib"]) for site in prefix.glob("lib64/python*/site-packages")]
    places.append((prefix / "bin", paths["scripts"]))
    for source, path in places:
        if source.is_dir():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
    for folder in (*prefix.glob("lib*/python*"), *prefix.glob("lib*")):
        if not any(folder.iterdir()):
            folder.rmdir()
    shutil.copytree(prefix, tree / paths["data"].lstrip("/"), symlinks=True, dirs_exist_ok=True)


def _finish(container: Container, described: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Compile; return the packages, and the files of the image to hide. Raises JaxsifError for
    those that must stay.
    """
    replaced = " ".join(plan.replaced)
    answer = container.ask("finish", f"{SEEN_AS}/tree", replaced, python=described["executable"])
    for package, path in answer["hidden"]:
        raise JaxsifError(
            f"{package} would replace {path} of the image",
            "requirements",
            f"leave {package} out, or use an image without the package that has this file",
        )
    return answer


def _put(layer: Layer, made: Path, folder: Path) -> None:
    """Move a layer's file to its place, and then NAME.json, which makes it the one in use; remove
    the one before.
    """
    (made / "json").write_text(json.dumps(layer._asdict(), indent=1) + "\n")
    os.chmod(made / "layer", 0o644)
    (made / "layer").replace(folder / layer.file)
    (made / "json").replace(folder / f"{layer.name}.json")
    remove_files(layer.name, folder, but=layer.file)


def remove_files(name: str, folder: Path, but: str = "") -> None:
    """Remove the squashfs files of a layer; no name of a layer has a dot."""
    for path in folder.glob(f"{name}.*.sqfs"):
        if path.name != but:
            path.unlink()
