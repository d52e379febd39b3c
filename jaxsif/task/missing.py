"""Remedies for a missing module: a layer with its package, the folder that contains it, or an
import.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

from .contract import INSTALLED
from .failure import OWN, is_installed

# Modules whose packages have different names.
_PACKAGES = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "GitPython",
    "haiku": "dm-haiku",
    "hydra": "hydra-core",
    "IPython": "ipython",
    "ml_collections": "ml-collections",
    "mpl_toolkits": "matplotlib",
    "OpenSSL": "pyopenssl",
    "orbax": "orbax-checkpoint",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "reverb": "dm-reverb",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_probability": "tensorflow-probability",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# Modules whose packages have the same name. Any other name may be the user's own module, and a
# stranger's package.
_SAME_NAMES = """
accelerate aim albumentations ase astropy blackjax brax chex click cloudpickle clu dask datasets
diffrax dill distrax einops equinox evaluate fire flax fsspec gcsfs grain gym gymnasium h5py healpy
httpx imageio jaxopt jaxtyping jinja2 joblib jraph librosa lightgbm lightning lineax matplotlib
mlflow mpi4py msgpack networkx nibabel numba numpy numpyro omegaconf openai opt_einsum optax
optimistix pandas pint plotly polars psutil pyarrow pydantic pytest ray rdkit requests rich s3fs
safetensors scipy seaborn sentencepiece statsmodels sympy tensorboard tensorboardX tensorflow
tensorstore tiktoken timm tokenizers toolz torch torchaudio torchvision tqdm transformers treescope
typer wandb webdataset xarray xgboost zarr
"""
_NO_PACKAGE = re.compile(
    r"(?:SystemExit: .*\()?ModuleNotFoundError: No module named '(\w+(?:\.\w+)*)'\)?$"
)
# python -m NAME
_NO_PROGRAM = re.compile(r"SystemExit: \S*python[\d.]*: No module named (\w+(?:\.\w+)*)$")
_NO_NAME = re.compile(r"ImportError: cannot import name '(\w+)' from '(\w+(?:\.\w+)*)' \((.*)")
_NO_ATTRIBUTE = re.compile(r"AttributeError: module '(\w+(?:\.\w+)*)' has no attribute '(\w+)'$")
_HIDES = re.compile(r"\(consider renaming '([^']+)'")
_MOST_FOLDERS = 200  # to search
_INSTALLERS = ("pip", "conda", "uv")


def suggest(text: str, folders: Sequence[str]) -> str:
    """Suggest a remedy for an exception with this text; return '' for any other exception.

    `folders` are the script's folder and the current one: a module that is in one of them, or just
    above or under one, is the user's own, not a package.
    """
    hides = _HIDES.search(text)
    if hides:
        return f"rename {hides[1]}, which takes the place of a module with its name"
    return _suggest_name(text) or _suggest_package(text, folders)


def _suggest_name(text: str) -> str:
    """Suggest a remedy for a name that a module lacks, or return ''."""
    attribute = _NO_ATTRIBUTE.match(text)
    if attribute:
        name = ".".join(attribute.groups())
        return f"add `import {name}` to the program" if _is_submodule(*attribute.groups()) else ""
    lacking = _NO_NAME.match(text)
    if not lacking:
        return ""
    if lacking[3] == "unknown location)":
        folder = [*getattr(sys.modules.get(lacking[2]), "__path__", ()), ""][0]
        is_own = folder and not is_installed(f"{folder}/")
        return f"import {lacking[1]} from the file in {folder} that defines it" if is_own else ""
    if lacking[3].startswith("/") and not is_installed(lacking[3]):
        return (
            f"correct the name, or see whether {lacking[3].rstrip(')')} is the file that is meant"
        )
    return _suggest_update(lacking[2], f"{lacking[2]}.{lacking[1]}")


def _suggest_package(text: str, folders: Sequence[str]) -> str:
    """Suggest a remedy for a missing module, or return ''."""
    found = _NO_PACKAGE.match(text) or _NO_PROGRAM.match(text)
    if not found:
        return ""
    name, dot, _ = found[1].partition(".")
    if dot:
        near = _find_near_submodule(found[1])
        known = f"check the version and the location of {name}: it has no {found[1]}"
        if near:
            known = f"correct the name: {near}?"
        return _suggest_update(name, found[1]) or known
    if name in _INSTALLERS:
        return "packages go into a layer: pass --layer NAME after jaxsif layer create NAME PACKAGE"
    package = _PACKAGES.get(name) or (name if name in _SAME_NAMES.split() else "")
    folder = _find_module(name, folders, is_known=bool(package))
    if folder:
        return f"pass --env PYTHONPATH={folder}: {name} is there"
    if package:
        return f"pass --layer NAME after jaxsif layer create NAME {package}"
    near = _find_near(name, folders) if _NO_PROGRAM.match(text) else ""
    if near:
        return f"correct the name: {near}?"
    return f"pass --env PYTHONPATH=FOLDER with the folder that has {name}, or a layer with it"


def _is_submodule(package: str, name: str) -> bool:
    """Return whether an imported package has a submodule of this name that is not imported."""
    from importlib.machinery import PathFinder  # here: most failures have no such text

    full = f"{package}.{name}"
    folders = getattr(sys.modules.get(package), "__path__", None)
    return bool(folders and full not in sys.modules and PathFinder.find_spec(full, folders))


def _suggest_update(module: str, lacking: str) -> str:
    """Suggest to update the layer that `module` of the user's own project comes from; return '' for
    any other module.
    """
    place = re.search(INSTALLED, getattr(sys.modules.get(module), "__file__", None) or "")
    with suppress(OSError), open(f"{OWN}/{place[1] if place else ''}") as marker:
        layer = marker.read() or "NAME"  # older ones are empty
        return f"jaxsif layer update {layer}, if the project has {lacking} now"
    return ""


def _find_module(name: str, folders: Sequence[str], is_known: bool) -> str:
    """Return the folder that contains the module: one of `folders`, or a folder directly above or
    under one of them; '' if there is none.

    The folder of a package that `is_known`, and a script's own, have to be regular packages: people
    name their experiments after packages.
    """
    for folder in folders:
        below = [f"{folder}/{entry}" for entry in _list(folder)[:_MOST_FOLDERS]]
        for place in (folder, os.path.dirname(folder), *below):
            package = f"{place}/{name}"
            must_be_regular = is_known or (package in folders and place not in folders)
            is_package = os.path.isfile(f"{package}/__init__.py") or not must_be_regular
            if os.path.isfile(f"{package}.py") or (is_package and _has_python(package)):
                return place
    return ""


def _find_near_submodule(name: str) -> str:
    """Return the module in an imported package whose name is almost this one, or ''."""
    package, _, last = name.rpartition(".")
    places = list(getattr(sys.modules.get(package), "__path__", ()))
    if last == "py":  # the name of a file
        is_program = any(os.path.isfile(f"{place}/__main__.py") for place in places)
        return package if is_program else ""
    near = _find_near(last, places)
    return near and f"{package}.{near}"


def _find_near(name: str, folders: Sequence[str]) -> str:
    """Return the module in these folders whose name is almost this one, or ''."""
    from difflib import get_close_matches  # here: most failures need none

    for folder in dict.fromkeys(folders):
        names = [entry.removesuffix(".py") for entry in _list(folder)[:_MOST_FOLDERS]]
        own = {one.lower(): one for one in filter(str.isidentifier, names)}
        for near in get_close_matches(name.lower(), own, 3, 0.8):
            if _is_module(f"{folder}/{own[near]}"):
                return own[near]
    return ""


def _is_module(path: str) -> bool:
    """Return whether a path without its ending is a module or a package."""
    return os.path.isfile(f"{path}.py") or _has_python(path)


def _has_python(folder: str) -> bool:
    """Return whether a folder contains Python files: wandb, for example, keeps its logs in
    ./wandb.
    """
    return any(name.endswith(".py") for name in _list(folder))


def _list(folder: str) -> list[str]:
    """Return the sorted names in a folder, or [] if the folder cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
