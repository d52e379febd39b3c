"""The steps of making a layer that need the image's own Python; a script that runs in the container
and uses only the standard library.

    python inside.py describe FILE              describe the image in FILE
    python inside.py finish LAYER TREE REPLACED OWN FILE
                                                compile the files under TREE, which will be mounted
                                                over the image's root, and write to FILE which of
                                                the image's files they replace
    python inside.py build JSON FILE            build the wheel of a project, and write to FILE its
                                                name, or why there is none
"""

from __future__ import annotations

import compileall
import filecmp
import importlib
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, distributions
from py_compile import PycInvalidationMode

OWN = "/opt/jaxsif/own"  # in the container


def normalize(name: str) -> str:
    """Return the name of a package in the form that indexes use."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_packages(folders: Iterable[str]) -> list[tuple[str, Distribution]]:
    """Return the packages in some folders with their names; of two with the same name, the first is
    the one that Python imports. A folder that only looks like a package has no name.
    """
    return [
        (normalize(package.metadata["Name"]), package)
        for package in distributions(path=list(folders))
        if "Name" in package.metadata
    ]


def describe() -> dict[str, object]:
    """Return the image's Python, the folders for packages, and the installed packages."""
    schemes = ("purelib", "platlib", "scripts", "data")
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "paths": {name: os.path.realpath(sysconfig.get_path(name)) for name in schemes},
        "packages": {name: package.version for name, package in reversed(find_packages(sys.path))},
    }


def finish(layer: str, tree: str, replaced: str, own: str) -> dict[str, object]:
    """Prepare the tree of a layer for packing; `replaced` are the image's packages that it
    replaces, and `own` the tree's packages from projects, separated by blanks. Return the tree's
    packages, the files of the image that it would hide, and those that it must hide.
    """
    names = replaced.split()
    old = [package for name, package in find_packages(sys.path) if name in names]
    old_files: set[str] = set().union(*map(files_of, old))
    site = {tree + os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    new = find_packages(site)
    hidden = [
        (name, path)
        for name, package in new
        for path in files_of(package, tree)
        if path not in old_files and hides(tree, path)
    ]
    gone = find_gone(old_files, tree)
    for path in gone:
        os.makedirs(os.path.dirname(tree + path), exist_ok=True)
    compile_all(tree)
    ours = [files_of(package, tree) for name, package in new if name in own.split()]
    mark_own(layer, tree, ours)
    versions = {name: package.version for name, package in new}
    return {"hidden": hidden, "gone": gone, "packages": dict(sorted(versions.items()))}


def files_of(package: Distribution, tree: str = "") -> list[str]:
    """Return the files in the RECORD of a package in `tree`, as paths relative to the tree."""
    files = map(package.locate_file, package.files or ())
    return [os.path.normpath(str(path))[len(tree) :] for path in files]


def mark_own(layer: str, tree: str, packages: Iterable[list[str]]) -> None:
    """Mark the modules of the user's own packages: jaxsif/task/failure.py and start.sh take code
    in site-packages for the user's own if OWN has a file with the name of its module or folder. The
    file has the name of the layer, for jaxsif/task/missing.py.
    """
    for path in (path for files in packages for path in files):
        # As task.contract's INSTALLED, which a script in the container cannot import.
        module = re.search("/(?:site|dist)-packages/([^/]+)", path)
        if module and not module[1].endswith((".dist-info", "__pycache__")):
            os.makedirs(tree + OWN, exist_ok=True)
            with open(f"{tree}{OWN}/{module[1]}", "w") as file:
                file.write(layer)


def hides(tree: str, path: str) -> bool:
    """Return whether a new file would replace a different one in the image, or would be reached
    through a link there.
    """
    folder = os.path.dirname(path)
    if not os.path.lexists(tree + path):
        return False
    if os.path.realpath(folder) != folder:
        return True
    same = os.path.isfile(path) and filecmp.cmp(tree + path, path, shallow=False)
    return os.path.lexists(path) and not same


def find_gone(paths: set[str], tree: str) -> list[str]:
    """Return the paths that are missing from the tree; for metadata, the whole folder."""
    return sorted({outermost(path, tree) for path in paths if not os.path.lexists(tree + path)})


def outermost(path: str, tree: str) -> str:
    """Return `path`, or the metadata folder that contains it, if the tree lacks that, too: an empty
    metadata folder would still count as a package.
    """
    match = re.match(r"(.*/[^/]+\.(?:dist|egg)-info)/", path)
    return match[1] if match and not os.path.lexists(tree + match[1]) else path


def compile_all(tree: str) -> None:
    """Compile all Python files, unchecked, as in the image: read-only files need no comparison with
    their source.

    Some packages contain templates that are named like Python files, so files that cannot be
    compiled are left as they are.
    """
    compileall.compile_dir(
        tree,
        quiet=2,
        stripdir=tree,
        prependdir="/",
        workers=min(8, len(os.sched_getaffinity(0))),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def build(given: str) -> dict[str, object]:
    """Build the wheel of a project with its backend, as PEP 517 specifies. Return its name, or the
    backend's additional requirements, or the messages of a failure.
    """
    project = json.loads(given)
    os.chdir(project["folder"])
    sys.path[:0] = project["path"]
    module, _, names = project["build-backend"].partition(":")
    try:
        backend = importlib.import_module(module)
        for name in filter(None, names.split(".")):
            backend = getattr(backend, name)
        find_more = getattr(backend, "get_requires_for_build_wheel", list)
        more: list[str] = [] if project["has_all"] else find_more()
        return {"requires": more} if more else {"wheel": backend.build_wheel(project["target"])}
    except (Exception, SystemExit) as error:
        return {"failure": describe_failure(error, project["folder"])}


def describe_failure(error: BaseException, folder: str) -> list[str]:
    """Return the lines of the project that led to an error, and the error."""
    # setuptools executes setup.py without its name, and a line of its own without such a file.
    setup = f"{folder}/setup.py" if os.path.isfile(f"{folder}/setup.py") else ""
    places = [
        (frame.filename.replace("<string>", setup), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    lines = [f"{path}, line {line}" for path, line in places if path.startswith(f"{folder}/")]
    if isinstance(error, SystemExit):
        return lines if isinstance(error.code, int) else [*lines, str(error)]
    return [*lines, *"".join(traceback.format_exception_only(type(error), error)).splitlines()]


COMMANDS: dict[str, Callable[..., dict[str, object]]] = {
    "describe": describe,
    "finish": finish,
    "build": build,
}


def main(argv: list[str]) -> None:
    """Execute the command named by the first word, and write the answer to the file named by the
    last word.
    """
    command, *arguments, path = argv
    answer = COMMANDS[command](*arguments)
    with open(path, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main(sys.argv[1:])
