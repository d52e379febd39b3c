"""Dockerfiles with several stages: those that are converted, and what each one inherits and copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxsif.builds.convert import Conversion, convert_file
from jaxsif.errors import JaxsifError

Convert = Callable[..., Conversion]


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    def convert(text: str, target: str = "") -> Conversion:
        file = tmp_path / "Dockerfile"
        file.write_text(text)
        return convert_file(str(file), "/i.sif", target)

    return convert


def heads(found: Conversion) -> list[str]:
    """Base and name of each stage of the definition file."""
    lines = (found.definition or "").splitlines()
    return [
        f"{line.split()[1]} {lines[at + 1].partition(' ')[2]} {lines[at + 2].partition(' ')[2]}"
        for at, line in enumerate(lines)
        if line.startswith("Bootstrap: ")
    ]


def post(found: Conversion) -> list[str]:
    return [line.strip() for line in found.stages[-1].post]


def test_two_stages_of_one_repository_are_built_on_our_image(convert: Convert) -> None:
    found = convert(
        "FROM python:3.12 AS Build\nRUN make\nCMD x\nFROM python:3.12-slim\nCOPY --from=build /out/. /a/b /opt/\n"
    )
    assert heads(found) == ["localimage /i.sif build", "localimage /i.sif 1"]
    assert found.stages[0].runscript == ()
    assert found.stages[1].copied == (("build", "/out", "/.jaxsif-copy/5/"), ("build", "/a/b", "/.jaxsif-copy/5/"))
    assert "%files from build\n    /out /.jaxsif-copy/5/\n    /a/b /.jaxsif-copy/5/\n" in found.definition
    assert post(found) == ['copy /.jaxsif-copy/5 "/opt/"']


def test_one_stage_has_no_name(convert: Convert) -> None:
    assert "Stage:" not in convert("FROM a AS b\nRUN c\n").definition


@pytest.mark.parametrize(
    ("origin", "name"),
    [("web", "web"), ("WEB", "web"), ("0", "web"), ("a.io:5000/b/C", "a.io:5000/b/C:latest"), ("b:V@s:1", "b:V@s:1")],
)
def test_other_images_are_pulled(convert: Convert, origin: str, name: str) -> None:
    """Their stages are built on them; an image to copy from needs no commands, and no shell."""
    found = convert(f"FROM node:20 AS web\nRUN npm i\nFROM x\nCOPY --chown=a --from={origin} b/* c\n")
    assert [head.rpartition(" ")[2] for head in heads(found)] == [name, "1"]
    assert heads(found)[0] == f"docker {'node:20' if name == 'web' else name} {name}"
    assert found.stages[1].copied == ((name, "/b", "/.jaxsif-copy/4/"),)
    assert post(found) == ['copy /.jaxsif-copy/4/b "c"', 'copy /.jaxsif-copy/4 "c"']
    assert "from its registry" in " ".join(found.notes())


@pytest.mark.parametrize(
    ("steps", "is_noted"),
    [
        *(("RUN c\n", True), ("WORKDIR w\nRUN c\n", True), ("COPY c .\nRUN d\n", True)),
        *(("WORKDIR /w\nRUN c\n", False), ("", False), ("COPY c /d\nENV E=f\n", False)),
    ],
)
def test_the_folder_of_a_pulled_image_is_not_known(convert: Convert, steps: str, is_noted: bool) -> None:
    found = convert(f"FROM go:1 AS web\n{steps}FROM x\nCOPY --from=web /go/app /b\n")
    note = "line 2: is relative to /, not to the image's own folder: begin with an absolute WORKDIR"
    assert found.notes().count(note) == is_noted


def test_a_stage_inherits_from_the_stage_it_is_based_on(convert: Convert) -> None:
    """Also variables; its ENTRYPOINT removes an inherited CMD."""
    found = convert(
        'ARG V=1\nARG FROM=base\nFROM python:$V AS base\nARG V\nARG B=2\nENV C=3\nWORKDIR /w\nCMD ["x"]\n'
        'FROM ${FROM} AS next\nRUN a\nENV D=$B$V\nFROM next\nENTRYPOINT ["y"]\n'
    )
    assert len(found.stages) == 1
    assert (found.stages[0].base, found.stages[0].is_pulled) == ("python:1", False)
    assert post(found)[-2:] == ["/bin/sh -c a", 'export D="21"']
    assert [line.strip() for line in found.stages[0].runscript] == ['cd "/w" || exit', "exec y"]
    assert len(found.notes()) == 2


def test_variables_of_from_choose_a_stage(convert: Convert) -> None:
    """Of several forms, with ARG before the first FROM; a variable of an image's tag chooses none."""
    text = "ARG M\nARG V=1\nFROM a AS s_copy\nRUN b\nFROM a AS s_no\nFROM s_{}\nRUN c\n"
    for form, steps in {"${M:-copy}": "bc", "${V:+copy}": "bc", "${M+x}copy": "bc", "${V:-x}": None}.items():
        found = convert(text.replace("{}", form))
        assert "".join(step[-1] for step in post(found)) == (steps or "c")
        assert found.stages[-1].base == ("a" if steps else "s_1")
    assert convert("FROM a\nFROM a:$V-devel\n").refused == ()
    assert convert("ARG V\nFROM $V\nRUN a\nFROM 0\nRUN b\n").refused == ()


def test_stages_without_use_are_left_out_and_not_judged(convert: Convert) -> None:
    text = "FROM a AS b\nRUN c\nFROM b AS docs\nWORKDIR /root\nFROM node AS web\nONBUILD x\nFROM b AS last\nRUN d\n"
    found = convert(text)
    assert found.notes()[1:] == [
        "line 3: stage docs is left out: nothing uses it",
        "line 5: stage web is left out: nothing uses it",
    ]
    assert [one.line for one in convert(text, "DOCS").refused] == [4]
    found = convert(text, "0")
    assert post(found) == ["/bin/sh -c c"]
    assert len(found.notes()) == 4


def test_unknown_target(convert: Convert) -> None:
    with pytest.raises(JaxsifError) as caught:
        convert("FROM a AS b\nFROM c\n", "d")
    assert caught.value.render() == "jaxsif: error: no stage d\n  from: --target\n  try:  name one of: b, 1"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("FROM a AS b\nFROM c AS B\n", 2, "has the name of an earlier stage"),
        ("FROM a\nCOPY --from=$B /c /d\n", 2, "names no stage or image"),
        ("FROM a\nCOPY --from=1 /c /d\n", 2, "names no earlier stage"),
        ("FROM a\nCOPY --from=0 /c /d\n", 2, "names no earlier stage"),
        ("FROM a AS b\nCOPY --from=B /c /d\n", 2, "names no earlier stage"),
        ("FROM a AS b\nCOPY --from=E /c /d\nFROM d AS e\nCOPY --from=b /c /d\n", 2, "names no earlier stage"),
        ("FROM a AS b\nCOPY --from=1 /c /d\nFROM d\nCOPY --from=b /c /d\n", 2, "names no earlier stage"),
        ("FROM a\nCOPY --from=b;c /c /d\n", 2, "names no stage or image"),
        ("FROM $A AS b\nFROM c\nCOPY --from=b /c /d\n", 1, "names no image or stage: write its name, or give"),
        ("FROM a AS s_b\nFROM s_$B\n", 2, "names no image or stage: write its name, or give its variable a value"),
        ("ARG B=b\nFROM a AS s_b\nFROM s_${B%x}\n", 3, "names no image or stage: write its name"),
        ("ARG B=b\nFROM a AS s_b\nFROM ${C:-${B%/}}\n", 3, "names no image or stage: write its name"),
        ("FROM a AS b\nFROM c\nCOPY --from=b / /d\n", 3, "copies a whole image"),
        ("FROM a AS b\nFROM c\nCOPY --from=b /* /d\n", 3, "copies a whole image"),
        ("FROM a AS b\nFROM c\nCOPY --from=b /x/../y /d\n", 3, "has .. in a path"),
        ("FROM a AS b\nFROM c\nCOPY --from=b /$(id) /d\n", 3, "has a path with special characters"),
        ("FROM a AS b\nFROM a\nCOPY --from=b /root/.local /root/.local\n", 3, "copies packages for another Python"),
        ("FROM a AS b\nFROM a\nADD --from=b /c /d\n", 3, "has an option that definition files lack"),
        ("FROM a AS b\nRUN pip install --user x\nFROM a\nCOPY --from=b /c /d\n", 2, "installs for one user"),
    ],
)
def test_refused(convert: Convert, text: str, line: int, reason: str) -> None:
    found = convert(text)
    assert [(one.line, one.reason[: len(reason)]) for one in found.refused] == [(line, reason)]
    assert found.definition is None


def test_programs_of_refused_packages_are_refused_too(convert: Convert) -> None:
    """Our image has them elsewhere, so the build would not find them."""
    text = "FROM a AS b\nFROM a AS c\nFROM a\nCOPY --from=b --chown=x /usr/local/bin/gunicorn /usr/local/bin/\n"
    assert convert(text).refused == ()
    text += "COPY --from=b /usr/local/bin /usr/local/bin\nCOPY --from=c /usr/local/bin/solver /usr/local/bin/\n"
    found = convert(f"{text}COPY --from=b /usr/local/lib/python3.11/site-packages /x\n")
    reasons = [(one.line, one.reason.partition(" for another Python")[0]) for one in found.refused]
    assert reasons == [
        (4, "copies a program from packages"),
        (5, "copies a program from packages"),
        (7, "copies packages"),
    ]


def test_links_out_of_the_folder_are_refused_in_each_stage(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/etc")
    found = convert("FROM a AS b\nCOPY data /x\nFROM a\nCOPY --from=b /x /y\n")
    assert [one.line for one in found.refused] == [2]


def test_another_folder(tmp_path: Path) -> None:
    """COPY reads there, and only there."""
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/data").symlink_to("../train.py")
    (tmp_path / "train.py").write_text("")
    file = tmp_path / "docker/Dockerfile"
    file.write_text("FROM a\nCOPY train.py docker/data /x/\n")
    found = convert_file(str(file), "/i.sif", context=str(tmp_path))
    assert f"    {tmp_path}/train.py /.jaxsif-copy/2/\n" in (found.definition or "")
    file.write_text("FROM a\nCOPY data /x/\n")
    assert [one.line for one in convert_file(str(file), "/i.sif").refused] == [2]
