"""What the image's own Python does for a layer; it runs in the container as a script, with the
standard library alone.

python inside.py describe FILE              write what the image has to FILE python inside.py finish
TREE REPLACED FILE  compile the files below TREE, which will lie over the image's root, and
                                            write what they would replace there to FILE
"""

from __future__ import annotations

import compileall
import filecmp
import json
import os
import re
import sys
import sysconfig
from importlib.metadata import Distribution, distributions
from py_compile import PycInvalidationMode


def normalize(name: str) -> str:
    """The name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(package: Distribution) -> str:
    """A package's name; '' of a folder that only looks like one."""
    return normalize(package.metadata["Name"] or "") if "Name" in package.metadata else ""


def describe() -> dict[str, object]:
    """The image's Python, where packages go, and the packages that are there."""
    # The first of two with one name is the one that Python imports.
    found = [(name_of(one), one.version) for one in distributions() if name_of(one)]
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "paths": {
            name: os.path.realpath(sysconfig.get_path(name))
            for name in ("purelib", "platlib", "scripts", "data")
        },
        "packages": dict(reversed(found)),
    }


def finish(tree: str, replaced: set[str]) -> dict[str, object]:
    """Make the tree ready to be packed; tell the files of the image that it would hide, and those
    that it must.
    """
    old = [one for one in distributions() if name_of(one) in replaced]
    old_files = {path for one in old for path in files_of(one)}
    site = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    new = list(distributions(path=[tree + path for path in site]))
    hidden = [
        [name_of(one), path]
        for one in new
        for path in (name[len(tree) :] for name in files_of(one))
        if path not in old_files and hides(tree, path)
    ]
    gone = sorted({outermost(path, tree) for path in old_files if not os.path.lexists(tree + path)})
    for path in gone:
        os.makedirs(os.path.dirname(tree + path), exist_ok=True)
    compile_all(tree)
    for folder, _, names in os.walk(tree):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)
    versions = {name_of(one): one.version for one in new}
    return {"hidden": hidden, "gone": gone, "packages": dict(sorted(versions.items()))}


def files_of(package: Distribution) -> list[str]:
    """The files that a package's RECORD lists."""
    return [os.path.normpath(str(package.locate_file(name))) for name in package.files or ()]


def hides(tree: str, path: str) -> bool:
    """Whether a new file would replace another one of the image, or lie behind a link there."""
    if not os.path.lexists(tree + path):
        return False
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
        return True
    return os.path.lexists(path) and not (
        os.path.isfile(path) and filecmp.cmp(tree + path, path, shallow=False)
    )


def outermost(path: str, tree: str) -> str:
    """`path`, or the metadata folder that it is in: an empty one would still count as a package."""
    found = re.match(r"(.*/[^/]+\.(?:dist|egg)-info)/", path)
    return found[1] if found and not os.path.lexists(tree + found[1]) else path


def compile_all(tree: str) -> None:
    """Unchecked, as in the image: what is read-only need not be compared with its source.

    Some packages carry templates with the names of Python files, so what cannot be compiled is left
    as it is.
    """
    compileall.compile_dir(
        tree,
        quiet=2,
        stripdir=tree,
        prependdir="/",
        workers=min(8, len(os.sched_getaffinity(0))),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def main(argv: list[str]) -> None:
    """Do what the first word says, and write the answer to the file that the last one names."""
    answer = describe() if argv[0] == "describe" else finish(argv[1], set(argv[2].split()))
    with open(argv[-1], "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main(sys.argv[1:])
