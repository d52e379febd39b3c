"""Definition files on top of our image: what a Dockerfile's parts become, and the last guard against injections."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jaxsif.builds.definition import _COPY, Converted, render_definition
from jaxsif.errors import JaxsifError


def test_copies_and_pip_bring_what_they_need() -> None:
    converted = Converted("a", post=('    copy /.jaxsif-copy/2 "/x"', "    pip install y"))
    text = render_definition([converted._replace(files=((".", "/.jaxsif-copy/2/"),))], "Dockerfile", "/c", "/i")
    assert "%files\n    /c/. /.jaxsif-copy/2/all\n" in text
    assert "    copy() (\n" in text
    assert "python3-pip" in text
    assert "python3-venv" not in text
    text = render_definition([Converted("a", post=("    python3 -m venv x",))], "Dockerfile", "/c", "/i")
    assert "python3-venv" in text
    assert "python3-pip" not in text
    text = render_definition([Converted("a", post=("    addgroup b && adduser c",))], "Dockerfile", "/c", "/i")
    assert text.count("--no-install-recommends adduser\n") == 1
    text = render_definition([converted], "Dockerfile", "/c", "/i")
    assert "adduser" not in text
    assert text.rstrip().endswith("    rm -rf /.jaxsif-copy")


def test_poetry_and_uv_install_into_our_environment() -> None:
    """But uv into an environment that the file makes."""
    text = render_definition([Converted("a", post=("    poetry install",))], "Dockerfile", "/c", "/i")
    assert "    export VIRTUAL_ENV=/opt/jax\n    poetry install\n" in text
    for line in ("uv pip install --system x", 'export UV_SYSTEM_PYTHON="1"'):
        text = render_definition([Converted("a", post=(f"    {line}",))], "Dockerfile", "/c", "/i")
        assert "    export UV_PYTHON=/opt/jax/bin/python\n" in text
    text = render_definition([Converted("a", post=("    uv venv && uv pip install x",))], "Dockerfile", "/c", "/i")
    assert "UV_PYTHON" not in text
    assert "VIRTUAL_ENV" not in text


@pytest.mark.starts_processes
def test_a_mode_is_set_below_a_copy(tmp_path: Path) -> None:
    """Of files and folders, which all may still enter, and of nothing that a link leads to."""
    (tmp_path / "from/src/sub").mkdir(parents=True)
    (tmp_path / "from/src/sub/a").touch(0o640)
    (tmp_path / "other").touch(0o640)
    (tmp_path / "from/src/link").symlink_to(tmp_path / "other")
    (tmp_path / "from/src/nowhere").symlink_to("/nowhere")
    subprocess.run(["sh", "-eu", "-c", f"{_COPY}\ncopy from to 0710"], cwd=tmp_path, check=True)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("to", "to/sub", "to/sub/a", "other")}
    assert modes == {"to": 0o711, "to/sub": 0o711, "to/sub/a": 0o710, "other": 0o640}
    assert (tmp_path / "to/nowhere").is_symlink()


@pytest.mark.starts_processes
@pytest.mark.parametrize("mode", ["", "600"])
def test_several_files_get_into_a_folder(tmp_path: Path, mode: str) -> None:
    for name in ("a", "b c", ".d"):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / name).touch()
    script = f"{_COPY}\ncopy from to/one {mode}\nls -A to/one"
    printed = subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    assert sorted(printed.stdout.splitlines()) == [".d", "a", "b c"]


@pytest.mark.starts_processes
@pytest.mark.parametrize("target", ["to", "to/"])
@pytest.mark.parametrize("mode", ["", "640"])
def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path, target: str, mode: str) -> None:
    """As in `COPY etc /etc/`; a new one has the mode of the copied folder."""
    for name in ("a", "b"):
        (tmp_path / name / "src").mkdir(mode=0o700, parents=True)
        (tmp_path / name / "src/file").touch()
    script = f"{_COPY}\ncopy a {target} {mode}\nls -ld to\nchmod 755 to\ncopy b {target} {mode}\nls -ld to"
    printed = subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    first = "drwxr-x--x" if mode else "drwx------"  # not only root can enter it
    assert [line[:10] for line in printed.stdout.splitlines()] == [first, "drwxr-xr-x"]


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("part", ["post", "environment", "labels", "runscript"])
def test_no_part_begins_a_section(part: str, end: str) -> None:
    """The last guard, whatever came through."""
    converted = Converted("a")._replace(**{part: (f"    x{end} %pre{end}touch /tmp/y",)})
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition([converted], "lab.def", "/c", "/i")


@pytest.mark.parametrize("end", ["\n", "\r", "\x85"])
@pytest.mark.parametrize("part", ["post", "environment", "labels", "runscript"])
def test_no_part_begins_a_stage(part: str, end: str) -> None:
    """The runtime begins a stage at this word, wherever it is."""
    converted = Converted("a")._replace(**{part: (f"    x{end}bootStrap : docker",)})
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with Bootstrap:: bootStrap : docker"):
        render_definition([converted], "lab.def", "/c", "/i")


@pytest.mark.parametrize(
    "stage",
    [
        Converted("a\n%setup", is_pulled=True, stage="b"),
        Converted("a", stage="b\n%setup"),
        Converted("a", stage="b", copied=(("c\n%setup", "/d", "/e"),)),
        Converted("a", stage="b", copied=(("c", "/d\n%setup", "/e"),)),
    ],
)
def test_no_stage_begins_a_section(stage: Converted) -> None:
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %setup"):
        render_definition([stage, Converted("a", stage="1")], "lab.def", "/c", "/i")


def test_stages_are_written_in_order() -> None:
    """A pulled image has its own environment, and its own pip."""
    post = ('    copy /.jaxsif-copy/2 "."', "    pip install x")
    pulled = Converted("node:20", (("a", "/.jaxsif-copy/2/"),), post=post, stage="web", is_pulled=True)
    last = Converted("b", copied=(("web", "/x", "/.jaxsif-copy/7/"), ("web", "/y", "/.jaxsif-copy/8/")), stage="1")
    text = render_definition([pulled, last], "Dockerfile", "/c", "/i")
    assert text.split("\n\n")[0] == (
        "# Dockerfile (FROM b) adapted by jaxsif image convert to an image with JAX.\n"
        "Bootstrap: docker\nFrom: node:20\nStage: web"
    )
    assert "    cd /\n    copy() (\n" in text
    assert "python3-pip" not in text
    assert text.endswith(
        "\n\nBootstrap: localimage\nFrom: /i\nStage: 1\n\n"
        "%files from web\n    /x /.jaxsif-copy/7/\n    /y /.jaxsif-copy/8/\n"
    )


@pytest.mark.parametrize("word", ["pipefail", "pipenv", "zip", "useradd", "groupadd"])
def test_other_words_need_nothing(word: str) -> None:
    assert "apt-get" not in render_definition([Converted("a", post=(f"    {word}",))], "D", "/c", "/i")


@pytest.mark.parametrize(("name", "image"), [("a\n%pre", "/i"), ("a", "/i\x85%pre")])
def test_no_name_begins_a_section(name: str, image: str) -> None:
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition([Converted("a")], name, "/c", image)
