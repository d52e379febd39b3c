"""Definition files on top of our image: what a Dockerfile's parts become, and the last guard against injections."""

from __future__ import annotations

import pytest

from jaxsif.builds.definition import Converted, render_definition
from jaxsif.errors import JaxsifError


def test_copies_and_pip_bring_what_they_need() -> None:
    converted = Converted("a", (("b/.", "/.jaxsif-copy/2/"),), ('    copy /.jaxsif-copy/2 "/x"', "    pip install y"))
    text = render_definition(converted._replace(files=((".", "/.jaxsif-copy/2/"),)), "Dockerfile", "/c", "/i")
    assert "%files\n    /c/. /.jaxsif-copy/2/all\n" in text
    assert "    copy() {\n" in text
    assert "python3-pip" in text
    assert text.rstrip().endswith("    rm -rf /.jaxsif-copy")


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("part", ["post", "environment", "labels", "runscript"])
def test_no_part_begins_a_section(part: str, end: str) -> None:
    """The last guard, whatever came through."""
    converted = Converted("a")._replace(**{part: (f"    x{end} %pre{end}touch /tmp/y",)})
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition(converted, "lab.def", "/c", "/i")


@pytest.mark.parametrize(("name", "image"), [("a\n%pre", "/i"), ("a", "/i\x85%pre")])
def test_no_name_begins_a_section(name: str, image: str) -> None:
    with pytest.raises(JaxsifError, match="cannot convert a line that begins with %: %pre"):
        render_definition(Converted("a"), name, "/c", image)
