"""What is tried where a module was not found."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from types import ModuleType

import pytest

from jaxsif.task import missing
from jaxsif.task.missing import suggest


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("No module named 'matplotlib'", "pass --layer NAME after jaxsif layer create NAME matplotlib"),
        ("No module named 'PIL'", "pass --layer NAME after jaxsif layer create NAME pillow"),
        ("No module named 'yaml'", "pass --layer NAME after jaxsif layer create NAME pyyaml"),
        ("No module named 'orbax'", "pass --layer NAME after jaxsif layer create NAME orbax-checkpoint"),
        (
            "No module named 'mymodel'",
            "pass --env PYTHONPATH=FOLDER with the folder that has mymodel, or a layer with it",
        ),
        ("No module named 'jax.nowhere'", "check the version and the location of jax: it has no jax.nowhere"),
        ("No module named 'pip'", "packages go into a layer: pass --layer NAME after jaxsif layer create NAME PACKAGE"),
        ("No module named 'a b'", ""),
        ("jax", ""),
    ],
)
def test_packages(tmp_path: Path, text: str, hint: str) -> None:
    assert suggest(f"ModuleNotFoundError: {text}", [str(tmp_path)]) == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("No module named pip", "packages go into a layer: "),
        ("No module named vit.trian", "check the version and the location of vit: it has no vit.trian"),
        (
            "Error while finding module specification for 'vti.train' (ModuleNotFoundError: No module named 'vti')",
            "pass --env PYTHONPATH=FOLDER with the folder that has vti, ",
        ),
    ],
    ids=["pip", "a misspelt module", "a misspelt package"],
)
def test_a_program_of_a_package(tmp_path: Path, text: str, hint: str) -> None:
    """As `python -m pip install flax`."""
    assert suggest(f"SystemExit: /opt/jax/bin/python3.13: {text}", [str(tmp_path)]).startswith(hint)


@pytest.mark.parametrize(
    ("module", "hint"),
    [("package.sub", "add `import package.sub.deep` to the program"), ("package", ""), ("package.mod", ""), ("no", "")],
)
def test_a_submodule_that_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, hint: str
) -> None:
    (tmp_path / "package/sub").mkdir(parents=True)
    for name in ("__init__", "mod", "sub/__init__", "sub/deep"):
        (tmp_path / f"package/{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("package", "package.mod", "package.sub"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    assert suggest(f"AttributeError: module {module!r} has no attribute 'deep'", [str(tmp_path)]) == hint


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'swarm.gnn'",
        "ImportError: cannot import name 'gnn' from 'swarm' (/opt/lib/python3.13/site-packages/swarm/__init__.py)",
    ],
)
def test_a_project_that_is_newer_than_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(missing, "OWN", str(tmp_path))
    swarm = types.ModuleType("swarm")
    monkeypatch.setitem(sys.modules, "swarm", swarm)
    swarm.__file__ = "/opt/lib/python3.13/site-packages/swarm/__init__.py"
    assert "layer update" not in suggest(text, [])  # it is of the image
    (tmp_path / "swarm").write_text("lab")
    assert suggest(text, []) == "jaxsif layer update lab, if the project has swarm.gnn now"
    swarm.__file__ = "/home/a/src/swarm/__init__.py"
    assert "layer update" not in suggest(text, [])


def test_other_errors(tmp_path: Path) -> None:
    assert suggest("ValueError: No module named 'PIL'", [str(tmp_path)]) == ""


@pytest.mark.parametrize("place", ["", "src", "src/inner"])
def test_a_module_of_the_program(tmp_path: Path, place: str) -> None:
    """It is no package, and a layer would not help."""
    (tmp_path / "src/model").mkdir(parents=True)
    (tmp_path / "src/model/layers.py").touch()
    (tmp_path / "src/inner").mkdir()
    (tmp_path / "wandb").mkdir()  # logs, and no module
    folders = [str(tmp_path / place), str(tmp_path)]
    src = tmp_path / "src"
    assert suggest("ModuleNotFoundError: No module named 'model'", folders) == (
        f"pass --env PYTHONPATH={src}: model is there"
    )
    assert "layer create" in suggest("ModuleNotFoundError: No module named 'wandb'", folders)


def test_a_module_whose_name_is_mistyped(tmp_path: Path) -> None:
    (tmp_path / "observe.py").touch()
    (tmp_path / "physics").mkdir()
    (tmp_path / "physics/waves.py").touch()
    (tmp_path / "pictures").mkdir()
    folders = [str(tmp_path)]
    assert suggest("SystemExit: /opt/jax/bin/python: No module named observ", folders) == "correct the name: observe?"
    (tmp_path / "train-model.py").touch()
    program = "SystemExit: /opt/jax/bin/python: No module named {}"
    assert suggest(program.format("phisics"), folders) == "correct the name: physics?"
    assert suggest(program.format("PHYSICS"), folders) == "correct the name: physics?"
    for name in ("picture", "obs", "train_model"):
        assert suggest(program.format(name), folders).startswith("pass --env PYTHONPATH=FOLDER")
    # Of an import, it may be a package with almost the name of the script.
    text = "ModuleNotFoundError: No module named 'observ'"
    assert suggest(text, folders).startswith("pass --env PYTHONPATH=FOLDER")


def test_a_submodule_whose_name_is_mistyped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in the package that Python has imported."""
    (tmp_path / "physics").mkdir()
    (tmp_path / "physics/waves.py").touch()
    text = "ModuleNotFoundError: No module named 'physics.wave'"
    unknown = "check the version and the location of physics: it has no physics.wave"
    assert suggest(text, [str(tmp_path)]) == unknown
    physics = ModuleType("physics")
    physics.__path__ = [str(tmp_path / "physics")]
    monkeypatch.setitem(sys.modules, "physics", physics)
    assert suggest(text, []) == "correct the name: physics.waves?"
    program = "SystemExit: /opt/jax/bin/python: No module named physics.py"
    assert suggest(program, []) == unknown.replace("wave", "py")
    (tmp_path / "physics/__main__.py").touch()
    assert suggest(program, []) == "correct the name: physics?"


def test_an_experiment_named_after_a_package(tmp_path: Path) -> None:
    (tmp_path / "optax").mkdir()
    (tmp_path / "optax/train.py").touch()
    text, folders = "ModuleNotFoundError: No module named 'optax'", [str(tmp_path / "optax"), str(tmp_path)]
    assert suggest(text, folders) == "pass --layer NAME after jaxsif layer create NAME optax"
    (tmp_path / "optax/__init__.py").touch()
    assert suggest(text, folders) == f"pass --env PYTHONPATH={tmp_path}: optax is there"


def test_the_folder_of_a_script_is_no_package(tmp_path: Path) -> None:
    """Unless it is a regular one; a folder beside it may be without __init__.py."""
    for name in ("meshio", "utils"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fit.py").touch()
    folders = [str(tmp_path / "meshio")]
    text = "ModuleNotFoundError: No module named '{}'"
    assert suggest(text.format("meshio"), folders).startswith("pass --env PYTHONPATH=FOLDER with the folder")
    assert suggest(text.format("utils"), folders) == f"pass --env PYTHONPATH={tmp_path}: utils is there"
    from_above = [*folders, str(tmp_path)]  # python meshio/fit.py, which imports meshio.net
    assert suggest(text.format("meshio"), from_above) == f"pass --env PYTHONPATH={tmp_path}: meshio is there"
    (tmp_path / "meshio/__init__.py").touch()
    assert suggest(text.format("meshio"), folders) == f"pass --env PYTHONPATH={tmp_path}: meshio is there"


def test_a_name_of_a_folder_without_init(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = types.ModuleType("utils")
    utils.__path__ = ["/home/ada/utils"]
    monkeypatch.setitem(sys.modules, "utils", utils)
    text = "ImportError: cannot import name '{}' from '{}' (unknown location)"
    assert (
        suggest(text.format("smooth", "utils"), []) == "import smooth from the file in /home/ada/utils that defines it"
    )
    assert suggest(text.format("batched", "itertools"), []) == ""  # Python's own has no location
    utils.__path__ = ["/opt/lib/python3.13/site-packages/utils"]
    assert suggest(text.format("smooth", "utils"), []) == ""


def test_a_name_that_the_users_own_file_does_not_define() -> None:
    text = "ImportError: cannot import name 'ckptt' from 'graphnet' (/home/ada/graphnet/__init__.py)"
    file = "/home/ada/graphnet/__init__.py"
    assert suggest(text, []) == f"correct the name, or see whether {file} is the file that is meant"


def test_a_file_that_takes_the_place_of_a_module() -> None:
    text = "ImportError: cannot import name 'choice' from 'random' (consider renaming '/home/u/random.py' since it has"
    assert suggest(text, []) == "rename /home/u/random.py, which takes the place of a module with its name"
