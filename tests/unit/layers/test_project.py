"""Projects among the requirements: how they are named, which of their files are copied, which answers count."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.layers import project as projects
from jaxsif.layers.inside import describe_failure
from jaxsif.layers.project import Project, copy_sources, parse_project
from jaxsif.layers.resolve import read_requirements
from jaxsif.layers.workspace import name_paths, tail

HASH = 40 * "a"


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (".", Project("/home/me/code", "/home/me/code")),
        ("./project", Project("/home/me/code/project", "/home/me/code/project")),
        ("sub/project/", Project("/home/me/code/sub/project", "/home/me/code/sub/project")),
        ("../project[dev,x]", Project("/home/me/project[dev,x]", "/home/me/project", extras="[dev,x]")),
        ("-e .", Project("-e /home/me/code", "/home/me/code", editable=True)),
        ("--editable=/srv/p", Project("-e /srv/p", "/srv/p", editable=True)),
        ("p[x] @ file:///srv/a%20b", Project("p[x] @ file:///srv/a%20b", "/srv/a b", name="p", extras="[x]")),
        (
            "/srv/p ; python_version > '3'",
            Project("/srv/p ; python_version > '3'", "/srv/p", marker=" ; python_version > '3'"),
        ),
    ],
)
def test_folders(requirement: str, expected: Project) -> None:
    assert parse_project(requirement, Path("/home/me/code"), "") == expected
    assert parse_project(expected.requirement, Path("/elsewhere"), "") == expected


@pytest.mark.parametrize(
    ("requirement", "path", "revision", "subdirectory", "name"),
    [
        ("git+https://example.org/u/p", "https://example.org/u/p", "", "", ""),
        ("git+https://example.org/u/p.git@v1.0", "https://example.org/u/p.git", "v1.0", "", ""),
        (f"p[x] @ git+https://example.org/u/p@{HASH}", "https://example.org/u/p", HASH, "", "p"),
        ("git+ssh://git@example.org/u/p@feature/x", "ssh://git@example.org/u/p", "feature/x", "", ""),
        ("-e git+file:///srv/p#egg=q&subdirectory=a/b", "file:///srv/p", "", "a/b", "q"),
        ("git+file:///home/me@site/p@main", "file:///home/me@site/p", "main", "", ""),
    ],
)
def test_repositories(requirement: str, path: str, revision: str, subdirectory: str, name: str) -> None:
    found = parse_project(requirement, Path("/"), "")
    assert found
    assert (found.requirement, found.is_git, found.path) == (requirement, True, path)
    assert (found.revision, found.subdirectory, found.name) == (revision, subdirectory, name)


@pytest.mark.parametrize(
    "requirement",
    [
        *("optax", "optax>=0.2", "rich[jupyter]", "a==1 --hash=sha256:00", "a; python_version > '3'"),
        *("./a.whl", "https://example.org/a.whl", "a @ https://example.org/a.whl", "-r sub/r.txt", "-e"),
    ],
)
def test_other_requirements(requirement: str) -> None:
    assert parse_project(requirement, Path("/"), "") is None


@pytest.mark.parametrize(
    ("requirement", "what"),
    [
        ("hg+https://example.org/p", "not a project: hg+https://example.org/p"),
        ("git+ext::sh -c id", "not a project: git+ext::sh -c id"),
        ("git+http://example.org/p", "not a project: git+http://example.org/p"),
        ("git+https://me:secret@example.org/p", "password or token in the address git+https://example.org/p"),
        ("-e optax", "not a project: optax"),
        ("./a-1.0.tar.gz", "not a project: ./a-1.0.tar.gz"),
        ("https://example.org/a-1.0.zip", "not a project: https://example.org/a-1.0.zip"),
    ],
)
def test_refused_addresses(requirement: str, what: str) -> None:
    with pytest.raises(JaxsifError) as caught:
        read_requirements([], [requirement])
    assert (caught.value.what, caught.value.where) == (what, "the command line")
    assert "secret" not in caught.value.render()


def test_a_project_of_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-e .\n./sub[x]  # mine\n")
    assert read_requirements([str(tmp_path / "r.txt")], []) == (f"-e {tmp_path}", f"{tmp_path}/sub[x]")


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_that_tools_have_made_are_left_out(tmp_path: Path) -> None:
    top = tmp_path / "p"
    kept = ["pyproject.toml", "src/p/__init__.py", "src/p/build/a.py", ".gitignore"]
    made = [".git/config", "build/lib/p.py", "dist/p.whl", "src/p/__pycache__/a.pyc", "src/p.egg-info/SOURCES.txt"]
    made += ["env/pyvenv.cfg", "env/lib/x.py", ".venv/x.py", "tmp/jaxsif-layer-x/log"]
    for name in (*kept, *made):
        write(top / name)
    os.mkfifo(top / "fifo")
    copy_sources(top, tmp_path / "copy", "p")
    found = [str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert sorted(found) == sorted(kept)


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret/key", "secret")
    write(tmp_path / "p/a/real.py")
    for link, end in {"out": "../secret", "key": str(tmp_path / "secret/key"), "a/in.py": "real.py", "b": "a"}.items():
        (tmp_path / "p" / link).symlink_to(end)
    _, links = copy_sources(tmp_path / "p", tmp_path / "copy", "p")
    assert links == ["key", "out"] or links == ["out", "key"]
    assert os.readlink(tmp_path / "copy/a/in.py") == "real.py"
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["a", "b"]


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    write(tmp_path / "p/a.py", "1")
    states = []
    for number, text in enumerate("1122"):
        write(tmp_path / "p/a.py", text)
        states.append(copy_sources(tmp_path / "p", tmp_path / f"copy{number}", "p")[0])
    (tmp_path / "p/a.py").rename(tmp_path / "p/b.py")
    states.append(copy_sources(tmp_path / "p", tmp_path / "copy", "p")[0])
    assert states[0] == states[1] != states[2] == states[3] != states[4]


def test_too_many_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "p/a.py")
    write(tmp_path / "p/data/big", 3_000_000 * "x")
    monkeypatch.setattr(projects, "_MOST_BYTES", 2_000_000)
    with pytest.raises(JaxsifError) as caught:
        copy_sources(tmp_path / "p", tmp_path / "copy", "/home/me/p")
    assert caught.value.what == "/home/me/p has more than 2 MB of sources"
    assert caught.value.where == "data in it is at least 2 MB"
    monkeypatch.undo()
    monkeypatch.setattr(projects, "_MOST_FILES", 1)
    with pytest.raises(JaxsifError, match="/home/me/p has more than 1 files of sources"):
        copy_sources(tmp_path / "p", tmp_path / "copy2", "/home/me/p")


def test_messages_name_what_the_user_named() -> None:
    names = {"requirements.txt": "the requirements", "wheel-1/p-1.whl": "/mnt/me/p"}
    lines = ["Failed to read `p @ file:///mnt/wheel-1/p-1.whl`", "in `/mnt/requirements.txt`", "/mnt/cache/x: no"]
    assert name_paths(lines, names) == ["Failed to read `p @ /mnt/me/p`", "in `the requirements`", "cache/x: no"]
    assert tail(["error: no", "", "hint: give `--no-build` up", "hint: be patient"]) == "error: no\nhint: be patient"


def test_a_failure_names_setup_py_only_where_there_is_one(tmp_path: Path) -> None:
    named: list[list[str]] = []
    for _ in range(2):
        try:
            exec(compile("1 / 0", "<string>", "exec"))
        except ZeroDivisionError as error:
            named.append(describe_failure(error, str(tmp_path)))
        (tmp_path / "setup.py").touch()
    what = "ZeroDivisionError: division by zero"
    assert named == [[what], [f"{tmp_path}/setup.py, line 1", what]]


def test_a_failure_is_described_by_the_lines_of_the_project() -> None:
    try:
        exec(compile("\n1 / 0", "/mnt/build/source/setup.py", "exec"))
    except ZeroDivisionError as error:
        lines = describe_failure(error, "/mnt/build/source")
    assert lines == ["/mnt/build/source/setup.py, line 2", "ZeroDivisionError: division by zero"]
    assert describe_failure(SystemExit("error: no"), "/x") == ["error: no"]
    assert describe_failure(SystemExit(1), "/x") == []


def test_pattern_of_a_wheel() -> None:
    from jaxsif.layers.wheel import _WHEEL

    good = ["p-1.0-py3-none-any.whl", "a_b.c-1!2+local.3-1-py2.py3-none-any.whl", "p-1-cp313-cp313-linux_x86_64.whl"]
    bad = [
        "",
        "None",
        "../p-1-py3-none-any.whl",
        "p-1-py3-none-any.whl/x",
        "p-1-py3-none-any.zip",
        "-p-1-py3-none-any.whl",
    ]
    assert [bool(re.fullmatch(_WHEEL, name)) for name in good + bad] == [True] * len(good) + [False] * len(bad)
