"""What a recipe copies lies in its folder: links out of it are refused, by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.builds.convert import convert_file, find_escape, refuse
from jaxsif.errors import HostError, JaxsifError


def test_a_context_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n")
    error = catch(JaxsifError, convert_file, str(tmp_path / "Dockerfile"), "/i.sif", context=str(tmp_path / "nowhere"))
    assert (error.what, error.where) == (f"folder not found: {tmp_path}/nowhere", "--context")


LEADS = "outside the folder: replace it with a copy, or remove it"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with links inside of it and out of it."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("KEY")
    folder = tmp_path / "repository"
    for name in ("plain/deep", "hidden/deep", "hop"):
        (folder / name).mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "plain/b.txt").symlink_to("../a.txt")
    (folder / "plain/deep/round").symlink_to("../..")
    (folder / "hidden/deep/hop").symlink_to("../../hop")
    for name, target in {
        "data": "../home/.ssh",
        "key.txt": "../home/.ssh/id",
        "hop/out": str(tmp_path / "home"),
        "gone": "/no/such",
    }.items():
        (folder / name).symlink_to(target)
    return folder


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a.txt", ""),
        ("hidden/deep/hop/out/.ssh/id", "hidden/deep/hop/out/.ssh/id"),
        ("data", "data"),
        ("data/id", "data/id"),
        ("hop", "hop/out"),
        ("hidden", "hidden/deep/hop/out"),
        ("gone", "gone"),
    ],
)
def test_links_out_of_a_folder_are_found(repository: Path, source: str, found: str) -> None:
    assert find_escape(str(repository / source), str(repository)) == (found and str(repository / found))


def test_links_within_a_folder_may_go_round(repository: Path) -> None:
    for name in ("data", "key.txt", "hop/out", "gone"):
        (repository / name).unlink()
    assert find_escape(str(repository), str(repository)) == ""
    (repository.parent / "link").symlink_to("repository")
    assert find_escape(str(repository.parent / "link/plain"), str(repository.parent / "link")) == ""


@pytest.mark.parametrize(
    ("text", "line", "leads"),
    [
        ("FROM a\nCOPY data /opt/data\n", "2: COPY data /opt/data", "data points to {home}/.ssh"),
        ("FROM a\nRUN x\nADD *.txt \\\n /opt/\n", "3: ADD *.txt \\", "key.txt points to {home}/.ssh/id"),
        ("FROM a\nCOPY a.txt hidden /x/\n", "2: COPY a.txt hidden /x/", "hidden/deep/hop/out points to {home}"),
        ("FROM a\nCOPY hop/.. /x/\n", "2: COPY hop/.. /x/", None),
    ],
)
def test_recipes_that_copy_from_elsewhere(repository: Path, text: str, line: str, leads: str | None) -> None:
    file = repository / "Recipe"
    file.write_text(text)
    found = convert_file(str(file), "/i.sif")
    assert (found.stages, found.definition) == ((), None)
    error = refuse("Recipe", found.refused)
    if leads:
        assert error.message == f"Recipe:{line}: {leads.format(home=repository.parent / 'home')}, {LEADS}"
    else:
        assert error.message.startswith(f"Recipe:{line}: has .. in a path")


def test_all_refused_lines_are_named_at_once(repository: Path) -> None:
    """But for those that depend on a refused one."""
    file = repository / "Recipe"
    text = "FROM a\nWORKDIR /tmp\nWORKDIR /root\nCOPY data /x\nRUN rm -rf * /var/tmp && rm -rf /tmp\nCMD [1]\n"
    file.write_text(f"{text}ENV A=b\nCOPY $A $C/\nONBUILD RUN c\n")
    error = refuse("Recipe", convert_file(str(file), "/i.sif").refused)
    assert error.what == "cannot convert 6 lines of Recipe"
    begins = ["3: WORKDIR", "4: COPY", "5: RUN", "5: RUN", "6: CMD", "8: COPY", "9: ONBUILD"]
    lines = error.message.split("\n")
    assert [line[: len(f"Recipe:{begin}")] for begin, line in zip(begins, lines)] == [f"Recipe:{one}" for one in begins]
    assert len(lines) == len(begins)
    tmp = "the host's while an image is built: remove this command"
    assert [line.partition("/tmp: ")[2] for line in lines[2:4]] == [
        f"'rm -rf * /var/tmp' empties /var/tmp, {tmp}",
        f"'rm -rf /tmp' empties /tmp, {tmp}",
    ]
    file.write_text(f"{text}ENV A=`b`\nCOPY $A /c/\nONBUILD RUN c\n")
    assert [one.line for one in convert_file(str(file), "/i.sif").refused] == [3, 6, 7, 9]


def test_recipe_that_copies_from_its_folder(repository: Path) -> None:
    file = repository / "Recipe"
    (repository / "plain/deep/round").unlink()
    file.write_text("FROM a\nCOPY a.txt plain* none* /x/\n")
    found = convert_file(str(file), "/i.sif")
    assert found.refused == ()
    assert found.definition
    assert str(repository / "plain") in found.definition


def test_links_that_lead_nowhere_are_noted(repository: Path) -> None:
    """The runtime copies what a link leads to: the first one of each path is named."""
    file = repository / "Recipe"
    (repository / "plain/deep/round").unlink()
    (repository / "plain/deep/old").symlink_to("../lost")
    (repository / "top").symlink_to("loop")
    (repository / "loop").symlink_to("top")
    file.write_text("FROM a\nRUN b\nCOPY a.txt plain /x/\nCOPY to* /x/\n")
    found = convert_file(str(file), "/i.sif")
    end = "which does not exist: apptainer build would stop there"
    assert found.notes()[1:] == [
        f"line 3: plain/deep/old points to {repository}/plain/lost, {end}",
        f"line 4: top points to {repository}/top, {end}",
    ]


def test_a_folder_is_no_dockerfile(tmp_path: Path) -> None:
    error = catch(HostError, convert_file, str(tmp_path), "/i.sif")
    assert error.what == f"Dockerfile is a folder, not a file: {tmp_path}"


def test_definition_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.def"
    file.write_text("# a lab's\nBootStrap : docker\nFrom: a\n%post\n  x\n")
    assert catch(JaxsifError, convert_file, str(file), "/i.sif").render() == (
        f"jaxsif: error: {file} is a definition file, not a Dockerfile\n"
        '  from: FILE\n  try:  write "Bootstrap: localimage" and "From: /i.sif" at its top by hand'
    )
