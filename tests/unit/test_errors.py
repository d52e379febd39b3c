"""The three lines that people see, and the exit codes that scripts see."""

from __future__ import annotations

import pytest

from jaxsif.errors import HostError, JaxsifError, ProgramError, SignatureError

WHOLE = """\
jaxsif: error: image not found: /scratch/jax.sif
  from: JAX_IMAGE (environment)
  try:  make image"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("image not found: /scratch/jax.sif", "JAX_IMAGE (environment)", "make image"), WHOLE),
        (("no command", "jaxsif run"), "jaxsif: error: no command\n  from: jaxsif run"),
        (("no command", "", "pass one"), "jaxsif: error: no command\n  try:  pass one"),
        (("no command",), "jaxsif: error: no command"),
    ],
    ids=["whole", "without a hint", "without an origin", "bare"],
)
def test_render(arguments: tuple[str, ...], text: str) -> None:
    assert JaxsifError(*arguments).render() == text


@pytest.mark.parametrize(
    ("kind", "code"), [(JaxsifError, 2), (SignatureError, 1), (HostError, 125), (ProgramError, 127)]
)
def test_exit_codes_are_those_that_the_help_promises(kind: type[JaxsifError], code: int) -> None:
    assert kind("x").exit_code == code
    assert isinstance(kind("x"), JaxsifError)  # what `cli.main` catches


def test_the_message_alone_is_what_a_traceback_shows() -> None:
    assert str(HostError("no srun", "PATH", "load Slurm")) == "no srun"


def test_texts_of_others_move_no_cursor_and_add_no_line() -> None:
    error = JaxsifError("not found: \x1b[2J\x07\njaxsif: error: forged", "a\rb", "\udc80 é")
    assert error.render() == (
        "jaxsif: error: not found: \\x1b[2J\\x07\\njaxsif: error: forged\n  from: a\\rb\n  try:  \\udc80 é"
    )


def test_the_message_of_another_program_is_shown_line_by_line() -> None:
    error = HostError("uv failed:", "in the container", "see its messages", "error: no\n  cause: \x1b[2J\n")
    assert error.render() == (
        "jaxsif: error: uv failed:\n    error: no\n      cause: \\x1b[2J\n"
        "  from: in the container\n  try:  see its messages"
    )
