"""Make a layer: resolve against the image, install the missing packages beside it, compile, pack;
all or nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from jaxsif import process
from jaxsif.builds.messages import timed, when_full
from jaxsif.errors import HostError, JaxsifError, Notify
from jaxsif.files import scratch_folder
from jaxsif.layers.project import SCRATCH, Sources, fetch_sources
from jaxsif.layers.resolve import Resolution, resolve, uv_install, write_requirements
from jaxsif.layers.store import Layer, find_image_key, find_image_state, layers_folder, name_file
from jaxsif.layers.wheel import build_wheel, is_built
from jaxsif.layers.workspace import SEEN_AS, Workspace, no_space, run, tail
from jaxsif.runtime import Runtime
from jaxsif.text import count_of


class Wanted(NamedTuple):
    """A layer to make."""

    name: str
    requirements: tuple[str, ...]
    allow_replace: tuple[str, ...]  # packages of the image, in the form that indexes use


def make_layer(
    wanted: Wanted,
    image: str,
    runtime: Runtime,
    environ: Mapping[str, str],
    notify: Notify,
    made_of: Mapping[str, str] | None = None,
) -> None:
    """Make the layer for `image`, replacing any layer of the same name, unless that one was
    `made_of` the projects in their present state; on failure, keep that one and raise JaxsifError.
    """
    show_timed = timed(notify)
    temporary = environ.get("TMPDIR") or "/tmp"
    with _scratch(temporary, SCRATCH, "set TMPDIR to a larger folder") as scratch:
        projects = fetch_sources(wanted.requirements, scratch, environ, notify)
        sources = {one.project.requirement: one.state for one in projects}
        if sources == made_of:
            notify(f"layer {wanted.name} already exists")
            return
        mksquashfs = find_mksquashfs(runtime, environ)
        folder = Path(layers_folder(environ))
        folder.mkdir(parents=True, exist_ok=True)
        key, state = find_image_key(image, environ), find_image_state(image)
        if key.startswith("folder:"):
            notify(
                f"note: {image} is a folder, which has no digest: "
                "the layer is for whatever is at this path"
            )
        container = Workspace(runtime, image, scratch, environ)
        described, plan = _install(container, wanted, projects, image, show_timed)
        show_timed("compiling")
        finished = _finish(container, wanted.name, described, plan)
        show_timed("packing")
        with _scratch(str(folder), f".{wanted.name}-", "remove unneeded files there") as beside:
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
                sources=sources,
            )
            _put(layer, beside, folder)
    show_timed(
        f"layer {layer.name}: {count_of(len(layer.packages), 'package')}, {layer.size / 1e6:.1f} MB"
    )


@contextmanager
def _scratch(place: str, prefix: str, hint: str) -> Iterator[Path]:
    """Yield a folder in `place` that is always removed at the end; raise HostError with `hint` for
    a full disk.
    """
    with when_full(no_space(Path(place), hint)), scratch_folder(place, prefix) as folder:
        yield Path(folder)


def _install(
    container: Workspace,
    wanted: Wanted,
    projects: Sequence[Sources],
    image: str,
    notify: Notify,
) -> tuple[dict[str, Any], Resolution]:
    """Install the packages that the image lacks under scratch/tree, laid out like the image's
    root; return the description of the image, and the installed packages.
    """
    described = container.run_inside("describe")
    built = {}
    for one in projects:
        notify(f"building {one.project.path}")
        built[one.project.requirement] = build_wheel(container, described, one)
    requirements = [built.get(requirement, requirement) for requirement in wanted.requirements]
    counted = count_of(len(requirements), "requirement")
    notify(f"resolving {counted} against {os.path.basename(image)}")
    container.names.update(write_requirements(requirements, container.scratch))
    plan = resolve(container, described, wanted.allow_replace)
    if not plan.install:
        raise JaxsifError(
            f"the image already meets all requirements: {', '.join(wanted.requirements)}",
            image,
            "run without a layer",
        )
    notify(f"installing {count_of(len(plan.install), 'package')}")
    (container.scratch / "install.txt").write_text("\n".join(plan.install.values()))
    files = [f"--requirements={SEEN_AS}/install.txt", f"--constraint={SEEN_AS}/hashes.txt"]
    install = (*uv_install(described), "--no-deps", f"--prefix={SEEN_AS}/prefix", *files)
    container.check("cannot install the packages", *install)
    _arrange(container.scratch / "prefix", container.scratch / "tree", described["paths"])
    return described, plan


def _arrange(prefix: Path, tree: Path, paths: Mapping[str, str]) -> None:
    """Move the installed files to the folders of the image's Python."""
    places = {
        **dict.fromkeys(prefix.glob("lib/python*/site-packages"), paths["purelib"]),
        **dict.fromkeys(prefix.glob("lib64/python*/site-packages"), paths["platlib"]),
        prefix / "bin": paths["scripts"],
    }
    for source, path in places.items():
        if source.is_dir():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
    for folder in (*prefix.glob("lib*/python*"), *prefix.glob("lib*")):
        if not any(folder.iterdir()):
            folder.rmdir()
    shutil.copytree(prefix, tree / paths["data"].lstrip("/"), symlinks=True, dirs_exist_ok=True)


def _finish(
    container: Workspace, name: str, described: Mapping[str, Any], plan: Resolution
) -> dict[str, Any]:
    """Compile the packages; return them, and the files of the image to hide. Raise JaxsifError for
    files that must stay.
    """
    own = (package for package, requirement in plan.install.items() if is_built(requirement))
    words = (name, f"{SEEN_AS}/tree", " ".join(plan.replaced), " ".join(own))
    answer = container.run_inside("finish", *words, python=described["executable"])
    for package, path in answer["hidden"]:
        raise JaxsifError(
            f"{package} would replace {path} in the image",
            "requirements",
            f"leave {package} out, or use an image without the package that has this file",
        )
    return answer


def _put(layer: Layer, made: Path, folder: Path) -> None:
    """Move a layer's file to its final path, then NAME.json, which puts it into use; remove the old
    file.
    """
    (made / "json").write_text(json.dumps(layer._asdict(), indent=1) + "\n")
    os.chmod(made / "layer", 0o644)
    (made / "layer").replace(folder / layer.file)
    (made / "json").replace(folder / f"{layer.name}.json")
    remove_files(layer.name, folder, but=layer.file)


def remove_files(name: str, folder: Path, but: str = "") -> None:
    """Remove the squashfs files of a layer; layer names contain no dots."""
    for path in folder.glob(f"{name}.*.sqfs"):
        if path.name != but:
            path.unlink()


# As in the cpu image: small blocks make starts faster.
_SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "3", "-b", "128K")


def find_mksquashfs(runtime: Runtime, environ: Mapping[str, str]) -> str:
    """Return mksquashfs, which the runtime also needs, from the PATH, the folders of root's
    programs or the runtime's own folder; raise HostError.
    """
    executable = shutil.which(runtime.command, path=environ.get("PATH")) or runtime.command
    prefix = Path(os.path.realpath(executable)).parents[1]
    own = [str(prefix / f"libexec/{name}/bin") for name in ("apptainer", "singularity")]
    folders = [environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin", *own]
    mksquashfs = shutil.which("mksquashfs", path=os.pathsep.join(folders))
    if not mksquashfs:
        raise HostError(
            "mksquashfs is not on the PATH",
            "PATH",
            "install squashfs-tools, or load the module that has it",
        )
    return mksquashfs


def pack(
    mksquashfs: str, tree: Path, hidden: Sequence[str], target: Path, environ: Mapping[str, str]
) -> None:
    """Pack `tree` into `target`, readable by everybody; it will hide the files `hidden` in the
    image. Raise HostError.
    """
    process.output("chmod", "--recursive", "ug-s,u=rwX,go=rX", str(tree))
    # A character device 0/0 marks a missing file in an overlay.
    devices = "".join(f'"{path.lstrip("/")}" c 0644 0 0 0 0\n' for path in hidden)
    (tree.parent / "devices").write_text(devices)
    processors = str(min(8, len(os.sched_getaffinity(0))))  # on a login node, only a few
    argv = [
        *(mksquashfs, str(tree), str(target), *_SQUASHFS, "-all-root", "-no-xattrs", "-noappend"),
        *("-quiet", "-no-progress", "-processors", processors),
        *("-pf", str(tree.parent / "devices")),
    ]
    full = no_space(target.parents[1], "remove unneeded files there")
    status, lines = run(argv, environ, tree.parent, full)
    if status:
        raise HostError("mksquashfs failed:", mksquashfs, "see its messages", tail(lines))
