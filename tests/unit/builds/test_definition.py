"""Definition files: what goes on top of our image, and what is refused by line."""

from __future__ import annotations

import pytest

from jaxsif.builds.converted import Converted, render_definition
from jaxsif.builds.definition import check_sections, convert_definition, split_sections
from jaxsif.errors import JaxsifError

WHOLE = """\
# a lab's
BootStrap: docker
From: Nvcr.io/NVIDIA/jax:23.10-py3

%help
  Bootstrap your models.

%files
    data/a.txt /opt/a.txt
    /abs/b

%labels
    site here

%environment
    if [ -z "$A" ]; then
        export A=1
    fi

%post
    cat >/opt/x <<EOF
one
  two
EOF

%runscript
#!/bin/bash
python /opt/x "$@"

%test
    test -e /opt/x
"""


def test_whole() -> None:
    sections = split_sections(WHOLE)
    assert check_sections(sections, WHOLE) == []
    assert (
        render_definition(convert_definition(sections), "lab.def", "/home/me", "/sw/jax.sif")
        == """\
# lab.def (FROM Nvcr.io/NVIDIA/jax:23.10-py3) by jaxsif image convert, on top of an image with JAX.
Bootstrap: localimage
From: /sw/jax.sif

%files
    /home/me/data/a.txt /opt/a.txt
    /abs/b /abs/b

%post
    export PATH=/opt/jax/bin:$PATH
    cd /
    cat >/opt/x <<EOF
one
  two
EOF

%environment
    if [ -z "$A" ]; then
        export A=1
    fi

%labels
    site here

%runscript
#!/bin/bash
    if [ "$#" -gt 0 ]; then exec "$@"; fi
python /opt/x "$@"

%test
    test -e /opt/x

%help
  Bootstrap your models.
"""
    )


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("Bootstrap: docker\nFrom: a\nStage: one\n", 3, "begins a stage"),
        ("Bootstrap: docker\nFrom: a\n%post\n  x\nBootstrap: docker\nFrom: b\n", 5, "begins a stage"),
        ("Bootstrap: yum\nMirrorURL: a\n", 2, "is not taken over"),
        ("From: a\n%post\n  x\n", 1, "has no Bootstrap"),
        ("Bootstrap: docker\nFrom: a\n%setup\n  x\n", 3, "runs on the host"),
        ("Bootstrap: docker\nFrom: a\n%post\n    %setup\n  x\n", 4, "runs on the host"),
        ("Bootstrap: docker\nFrom: a\n%arguments\n  A=1\n", 3, "has build arguments"),
        ("Bootstrap: docker\nFrom: a\n%startscript\n  x\n", 3, "is for instances"),
        ("Bootstrap: docker\nFrom: a\n%apprun foo\n  x\n", 3, "is not taken over"),
        ("Bootstrap: docker\nFrom: a\n%files from one\n  x\n", 3, "has words behind its name"),
        ("Bootstrap: docker\nFrom: a\n%post\n  echo {{ A }}\n", 4, "has a build argument"),
        ("Bootstrap: docker\nFrom: a\n%files\n  $(x) /y\n", 4, "has a path with special letters"),
        ("Bootstrap: docker\nFrom: a\n%files\n  a;do>b;done;while>c\n", 4, "has a path with special letters"),
        ("Bootstrap: docker\nFrom: a\n%files\n  src/.* /y\n", 4, "has a pattern that also finds .."),
        ("Bootstrap: docker\nFrom: a\n%post\n  rm -rf /tmp/*\n", 4, "empties /tmp"),
        ("Bootstrap: docker\nFrom: a\xa0\n", 2, "has an invisible character (U+00A0): take it out"),
        ("Bootstrap: docker\n# \u200d\nFrom: a\n", 2, "has an invisible character (U+200D)"),
        ("Bootstrap: docker\nFrom: a\n%post\u3000\n  x\n", 3, "has an invisible character (U+3000)"),
        ("Bootstrap: docker\nFrom: a\n%help\n  x\n  y\u2028%post\n", 5, "has an invisible character (U+2028)"),
        ("Bootstrap: docker\nFrom: a\n%post\n  x\r  y\n", 4, "has an invisible character (U+000D)"),
    ],
)
def test_refused(text: str, line: int, reason: str) -> None:
    found = check_sections(split_sections(text), text)
    assert [one.line for one in found] == [line]
    assert found[0].reason.startswith(reason)


def test_copies_and_pip_bring_what_they_need() -> None:
    converted = Converted("a", (("b/.", "/.jaxsif-copy/2/"),), ('    copy /.jaxsif-copy/2 "/x"', "    pip install y"))
    text = render_definition(converted._replace(files=((".", "/.jaxsif-copy/2/"),)), "Dockerfile", "/c", "/i")
    assert "%files\n    /c/. /.jaxsif-copy/2/all\n" in text
    assert "    copy() {\n" in text
    assert "python3-pip" in text
    assert text.rstrip().endswith("    rm -rf /.jaxsif-copy")


def test_line_ends_of_other_systems() -> None:
    sections = split_sections(WHOLE.replace("\n", "\r\n"))
    assert check_sections(sections, WHOLE.replace("\n", "\r\n")) == []
    assert convert_definition(sections) == convert_definition(split_sections(WHOLE))


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("part", ["post", "environment", "labels", "runscript", "test", "help"])
def test_no_part_begins_a_section(part: str, end: str) -> None:
    """The last guard, whatever came through."""
    converted = Converted("a")._replace(**{part: (f"    x{end} %pre{end}touch /tmp/y",)})
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition(converted, "lab.def", "/c", "/i")


@pytest.mark.parametrize(("name", "image"), [("a\n%pre", "/i"), ("a", "/i\x85%pre")])
def test_no_name_begins_a_section(name: str, image: str) -> None:
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition(Converted("a"), name, "/c", image)
