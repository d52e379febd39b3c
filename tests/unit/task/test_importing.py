"""What is done around modules that a program imports."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from jaxsif.task import importing

FAIL = "import pathlib\nif pathlib.Path(__file__).with_name('fail').exists():\n    raise ImportError('for now')\n"


@pytest.fixture
def changed(packages: Path) -> list[str]:
    """The names that `stand_in` had whenever it was changed; its import fails while the file `fail` is there."""
    (packages / "stand_in.py").write_text(FAIL)
    names: list[str] = []
    importing.after("stand_in", lambda module: names.append(module.__name__))
    return names


def test_a_module_is_changed_when_it_is_imported(changed: list[str]) -> None:
    assert importlib.util.find_spec("stand_in") is not None  # as libraries do to know what is installed
    assert changed == []
    importlib.import_module("stand_in")
    importlib.import_module("stand_in")
    assert changed == ["stand_in"]


def test_an_import_that_failed_may_succeed_later(changed: list[str], tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(ImportError, match="for now"):
        importlib.import_module("stand_in")
    assert changed == []
    (tmp_path / "fail").unlink()
    importlib.import_module("stand_in")
    assert changed == ["stand_in"]


def test_others_of_the_same_loader_are_left_alone(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a zip file loads all that is in it."""
    with zipfile.ZipFile(packages / "app.zip", "w") as archive:
        archive.writestr("one_zipped.py", "")
        archive.writestr("other_zipped.py", "")
    monkeypatch.syspath_prepend(str(packages / "app.zip"))
    names: list[str] = []
    importing.after("one_zipped", lambda module: names.append(module.__name__))
    for name in ("one_zipped", "other_zipped"):
        importlib.import_module(name)
    # Before Python 3.10 the loader of zip files has another way to execute a module, and it is imported as ever.
    assert names == (["one_zipped"] if sys.version_info >= (3, 10) else [])


def test_several_around_one_module(changed: list[str]) -> None:
    """The last to come is the outermost."""
    order: list[str] = []

    def step(module: ModuleType, execute: importing.Step) -> None:
        order.append("begin")
        execute(module)
        order.extend([*changed, "end"])

    importing.around("stand_in", step)
    importlib.import_module("stand_in")
    assert order == ["begin", "stand_in", "end"]


def test_one_thread_imports_while_another_looks(changed: list[str]) -> None:
    errors: list[Exception] = []

    def look() -> None:
        try:
            while not changed:
                importlib.util.find_spec("stand_in")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    importlib.import_module("stand_in")
    for thread in threads:
        thread.join()
    assert (changed, errors) == (["stand_in"], [])


@pytest.fixture
def missing(changed: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told to be missing."""
    texts: list[str] = []
    monkeypatch.setattr(importing, "_emits", [])
    importing.report_missing({"SLURM_PROCID": "0"}, lambda fields: texts.append(fields["text"]))
    return texts


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("pathlib.Path", (), None),
        ("pathlib.Path.absolute", ("self",), None),
        ("pathlib.Path.home.__func__", ("cls",), None),
        ("no_such_name", ("self",), "stand_in.no_such_name"),
        ("pathlib.Path.no_such_name", (), "stand_in.pathlib.Path.no_such_name"),
        ("pathlib.Path.absolute", ("self", "key"), "stand_in.pathlib.Path.absolute(self, key)"),
        ("pathlib.Path.__class__.mro", ("path",), "stand_in.pathlib.Path.__class__.mro(path)"),
    ],
    ids=str,
)
def test_what_is_missing_is_told(missing: list[str], name: str, parameters: tuple[str, ...], text: str | None) -> None:
    importing.after("stand_in", lambda module: importing.find(module, name, *parameters))
    importlib.import_module("stand_in")
    assert missing == ([text] if text else [])


def test_parameters_must_come_in_their_order() -> None:
    def put(self: object, key: str, value: str) -> None: ...

    module = ModuleType("one")
    module.put = put  # type: ignore[attr-defined]
    assert importing.find(module, "put", "self", "value") is put
    with pytest.raises(importing.MissingError, match=r"one\.put\(value, key\)"):
        importing.find(module, "put", "value", "key")

    @functools.wraps(put)
    def count(*arguments: str) -> None: ...

    module.put = count  # type: ignore[attr-defined]
    assert importing.find(module, "put", "self", "value") is count
    module.nothing = None  # type: ignore[attr-defined]
    assert importing.find(module, "nothing") is None


def test_a_change_that_fails_does_not_reach_the_program(missing: list[str]) -> None:
    importing.after("stand_in", lambda module: module.pathlib.Path(None))
    assert importlib.import_module("stand_in").__name__ == "stand_in"
    assert missing[0].startswith("stand_in (TypeError: ")


def test_other_modules_are_found_as_ever(changed: list[str]) -> None:
    assert importlib.util.find_spec("no_such_module") is None
    assert isinstance(importlib.import_module("colorsys"), ModuleType)
    assert changed == []
