"""Words, variables and paths, from the command line and from files, on their way through a real bash, unchanged.

Each case asks `jaxsif run` or `jaxsif submit` for the text with --dry-run, and a real bash runs that text; in the place
of srun is a program that tells what it was given. 10,000 cases in all.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.siffile import sif_header

from jaxsif import cli

SRUN = "#!/bin/sh\nprintf '%s\\0' \"$@\" -- && exec env -0\n"
SPECIAL = "ab $`'\"\\!#&|;<>()[]{}*?~=,%^@\n\t\r-é"
# Any bytes that a process can be given, as Python has them in its own argv and environment.
BYTES = st.binary(max_size=12).filter(lambda data: b"\0" not in data).map(os.fsdecode)
TEXT = st.text(SPECIAL, max_size=8)
WORDS = (BYTES | TEXT | st.sampled_from(["--", "-c", "$(exit 3)", "`exit 3`", "'", "\\'", "EOF"])).filter(
    lambda word: word != ":"  # which srun would take for its own, and jaxsif refuses
)
NAMES = st.text(SPECIAL.replace("\r", ""), min_size=1, max_size=8)  # of files
VARIABLES = st.dictionaries(st.from_regex(r"T_[A-Za-z0-9_]{1,4}", fullmatch=True), BYTES | TEXT, max_size=2)


class Case(NamedTuple):
    """What is asked for."""

    words: list[str]
    image: str  # a file's name
    cache: str  # likewise
    binds: list[str]
    variables: dict[str, str]


CASES = st.builds(
    Case,
    words=st.lists(WORDS, max_size=4),
    image=NAMES,
    cache=NAMES,
    binds=st.lists(NAMES.map(lambda name: f"/{name}"), max_size=2),
    variables=VARIABLES,
)


def toml(value: object) -> str:
    """A value as TOML has it: JSON's escapes are among its own, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def fits_file(paths: list[str], pairs: list[str]) -> bool:
    """Whether they are what a TOML file can have; in its paths, jaxsif refuses variables."""
    letters = "".join(pairs)
    return not any("\ud800" <= letter <= "\udfff" for letter in letters) and "$" not in "".join(paths)


def ask(command: str, options: list[str], words: list[str]) -> bytes:
    """Standard output of `jaxsif COMMAND --dry-run`."""
    output, kept = io.TextIOWrapper(io.BytesIO()), sys.stdout
    sys.stdout = output
    try:
        status = cli.main([command, "--dry-run", *options, "--", "program", *words])
    finally:
        sys.stdout = kept
    assert status == 0
    output.flush()
    return output.buffer.getvalue()


@pytest.mark.parametrize("source", ["command line", "file"])
@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_real_bash_changes_nothing(
    command: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("srun", "apptainer"):
        (programs / name).write_text(SRUN)
        (programs / name).chmod(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    environ = {"PATH": f"{programs}:{os.defpath}", "HOME": str(tmp_path), "SLURMD_NODENAME": "node1"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    sif = tmp_path / "jax.sif"
    sif.write_bytes(sif_header(1 << 10, 1 << 10) + bytes(1 << 12))

    @settings(max_examples=2500, deadline=None, database=None, derandomize=True)
    @given(CASES)
    def check(case: Case) -> None:
        image, cache = tmp_path / f"{case.image}.sif", tmp_path / f"{case.cache} cache"
        if not image.exists():
            image.hardlink_to(sif)
        pairs = [f"{name}={value}" for name, value in case.variables.items()]
        options = [f"--image={image}", f"--compile-cache-folder={cache}"]
        options += [f"--bind={bind}" for bind in case.binds] + [f"--env={pair}" for pair in pairs]
        if source == "file" and fits_file([case.image, case.cache, *case.binds], pairs):
            settings = {"image": str(image), "compile-cache-folder": str(cache), "binds": case.binds, "env": pairs}
            lines = [f"{key} = {toml(value)}\n" for key, value in settings.items()]
            Path("jaxsif.toml").write_text("".join(["[run]\n", *lines]), encoding="utf-8")
            options = []
        else:
            Path("jaxsif.toml").unlink(missing_ok=True)
        text = ask(command, options, case.words)
        done = subprocess.run(["bash"], input=text, env=environ, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        given = [os.fsdecode(word) for word in done.stdout.split(b"\0")]
        arguments = given[: len(given) - 1 - given[::-1].index("--")]
        variables = dict(word.split("=", 1) for word in given[len(arguments) + 1 : -1])
        assert arguments[len(arguments) - len(case.words) - 1 :] == ["program", *case.words]
        before = arguments[: arguments.index(str(image))]
        binds = [after for option, after in zip(before, before[1:]) if option == "--bind"]
        assert [bind for bind in binds if bind in case.binds] == case.binds
        set_here = {name.partition("_")[2]: value for name, value in variables.items() if "ENV_T_" in name}
        assert set_here == case.variables
        assert variables["APPTAINERENV_JAX_COMPILATION_CACHE_DIR"].startswith(f"{cache}/")

    check()
