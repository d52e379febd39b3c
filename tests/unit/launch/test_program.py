"""What shows here that a program cannot be executed; what to try where a node could not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError, ProgramError
from jaxsif.launch.program import check_program, find_doubts, name_program, reads_program, suggest

HOME = os.path.expanduser("~")
SEE_THE_SCRIPT = "see above which command in the script the shell could not execute or find in the image"
GENERAL = "{} must be in the image, in a layer (--layer), or in a folder that is bound into it"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with some files."""
    monkeypatch.chdir(tmp_path)
    files = {
        "q.py": (0o644, "print()\n"),
        **{f"pkg/{name}.py": (0o644, "") for name in ("__init__", "train")},
        "headed.py": (0o644, "#!/usr/bin/env python3\n"),
        "with blank.py": (0o644, ""),
        "train.sh": (0o755, "#!/bin/bash\npython q.py\n"),
        "plain.sh": (0o644, "python q.py\n"),
        "c.toml": (0o644, "a = 1\n"),
        "tool": (0o755, "#!/usr/bin/env nowhere\n"),
        "job.sbatch": (0o644, "#!/bin/bash\n"),
        "job.slurm": (0o644, "#!/bin/bash\n"),
        "job": (0o644, "#!/bin/bash -l\n# mine\n\n#SBATCH --nodes=2\nsrun hostname\n"),
        "job.sh": (0o755, "#!/usr/bin/env bash\n#SBATCH --nodes=2\n"),
        "job.py": (0o755, "#!/usr/bin/env python3\n#SBATCH --nodes=2\n"),
        "late.sh": (0o755, "#!/bin/sh\necho\n#SBATCH --nodes=2\n"),
        "binary": (0o755, "\x7fELF\n#SBATCH \n"),
    }
    for folder in ("folder", "pkg"):
        (tmp_path / folder).mkdir()
    for name, (mode, text) in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("python", True),
        ("/opt/jax/bin/python3.13", True),
        ("bash", True),
        ("python -i", False),
        ("python train.py", False),
        ("train", False),
    ],
)
def test_programs_without_a_script(command: str, reads: bool) -> None:
    assert reads_program(command.split()) == reads


@pytest.mark.parametrize(
    ("command", "status", "what", "hint"),
    [
        ("q.py", 127, "q.py is not on the PATH: it is a file in this folder", "python q.py"),
        ("train.sh", 127, "train.sh is not on the PATH: it is a file in this folder", "./train.sh"),
        ("plain.sh", 127, "plain.sh is not on the PATH: it is a file in this folder", "bash plain.sh"),
        ("./q.py", 126, "no permission to execute ./q.py", "python ./q.py"),
        ("./headed.py", 126, "no permission to execute ./headed.py", "chmod +x ./headed.py, or python ./headed.py"),
        ("./folder", 126, "./folder is a folder, not a program", "name a program in it"),
        ("/usr", 126, "/usr is a folder, not a program", "name a program in it"),
        ("..", 126, ".. is a folder, not a program", "name a program in it"),
        ("./nowhere", 127, "script not found: ./nowhere", "check its path"),
        ("lost.sbatch", 127, "script not found: lost.sbatch", "check its path"),
        ("./q", 127, "script not found: ./q", "./q.py"),
        ("job.sbatch", 2, "job.sbatch is a job script, not a program", "sbatch job.sbatch"),
        ("./job.slurm", 2, "./job.slurm is a job script, not a program", "sbatch ./job.slurm"),
        ("job", 2, "job is a job script, not a program", "sbatch job"),
        ("./job.sh", 2, "./job.sh is a job script, not a program", "sbatch ./job.sh"),
    ],
)
def test_files(folder: Path, command: str, status: int, what: str, hint: str) -> None:
    error = catch(JaxsifError, check_program, (command, "an argument"))
    assert (error.exit_code, error.what, error.hint) == (status, what, hint)
    assert error.where == f"looked for in {folder}"


@pytest.mark.parametrize(
    ("command", "what", "hint"),
    [
        (("python q.py",), "the program's name contains a space: 'python q.py'", "-- python q.py, without the quotes"),
        (("a && b",), "the program's name contains a space: 'a && b'", "sh -c 'a && b'"),
        (
            ("cd", "/tmp"),
            "cd is a shell command, not a program",
            "do it before jaxsif, or in a shell: bash -c 'cd /tmp && COMMAND'",
        ),
        (
            ("module", "load", "cuda"),
            "module is a shell command, not a program",
            "do it before jaxsif: the container has none of the host's modules",
        ),
        (("\u2013n", "2"), "\u2013n is not a program", "type - or --, not a dash of printed text"),
        (
            ("-", "python", "a.py"),
            "- is not a program",
            "put jaxsif's options before --, and the program's own after the program",
        ),
        (
            ("--config=c.toml", "python", "a.py"),
            "--config=c.toml is not a program",
            "put jaxsif's options before --, and the program's own after the program",
        ),
        (
            ("cd", "my x", "&&", "python", "a.py"),
            "cd is a shell command, not a program",
            """do it before jaxsif, or in a shell: bash -c 'cd '"'"'my x'"'"' && python a.py'""",
        ),
        (("bash", "nowhere.sh"), "script not found: nowhere.sh", "check its path"),
        (("python", "pkg.train", "--steps=3"), "script not found: pkg.train", "python -m pkg.train"),
        (("python", "pkg/train"), "script not found: pkg/train", "pkg/train.py"),
        (("python", f"{HOME}/nowhere.py"), f"script not found: {HOME}/nowhere.py", "check its path"),
        (("python", "~/q.py"), "script not found: ~/q.py", "~/q.py, without the quotes"),
    ],
)
def test_words(command: tuple[str, ...], what: str, hint: str) -> None:
    error = catch(JaxsifError, check_program, command)
    assert (error.exit_code, error.what, error.hint) == (127, what, hint)


@pytest.mark.parametrize(
    "command",
    [
        *(("python", "q.py"), ("python", "with blank.py"), ("./train.sh",), ("./tool",), ("tool",), ("nowhere",)),
        *(("./job.py",), ("./late.sh",), ("./binary",), ("/nowhere/job.sbatch",), ("true",), ("pip", "list")),
        *(("test",), ("python",), ("python", "-c", "nowhere.py"), ("python", "-m", "nowhere")),
        *(("python", "-u", "q.py"), ("python", "-X", "nowhere", "q.py"), ("python", "-uc", "nowhere.py")),
        *(("python", "-u"), ("python", "-X"), ("python", "-u", "-", "nowhere.py"), ("python", "-um", "nowhere")),
        *(("bash", "job.sh"), ("sh", "-c", "cd /tmp"), ("python", "folder"), ("pyhton", "q.py")),
    ],
    ids=" ".join,
)
def test_programs_that_may_run(command: tuple[str, ...]) -> None:
    check_program(command)


@pytest.mark.parametrize(
    ("command", "doubts"),
    [
        (
            ("python", "q.py", "--seed", "$SLURM_ARRAY_TASK_ID"),
            ["the program gets $SLURM_ARRAY_TASK_ID itself, not its value: "],
        ),
        (
            ("python", "q.py", "--out=${SLURM_JOB_ID}"),
            ["the program gets --out=${SLURM_JOB_ID} itself, not its value: "],
        ),
        (("sh", "-c", "python q.py --seed $SLURM_ARRAY_TASK_ID"), []),
        (("python", "q.py", "--price=$5"), []),
        (("timeout", "60", "bash", "-c", "echo $SLURM_JOB_ID"), []),
        (("nowhere.sh",), ["there is no nowhere.sh here"]),
        (("/opt/nowhere.sh",), []),
        (("nowhere",), []),
    ],
    ids=str,
)
def test_doubts_about_a_program_that_starts_later(command: tuple[str, ...], doubts: list[str]) -> None:
    assert [doubt[: len(begin)] for doubt, begin in zip(find_doubts(command), doubts, strict=True)] == doubts


@pytest.mark.parametrize(
    ("command", "status", "hint"),
    [
        (("nowhere",), 127, GENERAL.format("nowhere")),
        (("/opt/nowhere",), 127, GENERAL.format("/opt/nowhere")),
        (("pyhton", "q.py"), 127, "python? pyhton was not found"),
        (("pkg.train", "--steps=3"), 127, "python -m pkg.train: it is a module in this folder"),
        ((f"{HOME}/pkg/train",), 127, GENERAL.format(f"{HOME}/pkg/train")),
        (("c.toml",), 127, "name the program that reads c.toml: it is a file in this folder"),
        (("pythn3", "q.py"), 127, "python3? pythn3 was not found"),
        (("srun", "-n", "4", "python", "q.py"), 127, "leave out srun and its options: jaxsif itself starts the tasks"),
        (("python",), 127, GENERAL.format("python")),
        (("bash", "job.sh"), 127, f"{SEE_THE_SCRIPT}; sbatch job.sh, if it is a job script"),
        (
            ("bash", "late.sh"),
            127,
            SEE_THE_SCRIPT,
        ),
        (("apptainer", "exec"), 127, "leave out apptainer and its options: jaxsif itself starts the container"),
        (("tool",), 127, "./tool: it is a file in this folder, and not on the PATH"),
        (("./tool",), 127, "check the first line of ./tool: the interpreter after #! must be in the image"),
        (
            ("pip", "install", "-U", "flax", "optax"),
            127,
            "packages go into a layer: pass --layer NAME after jaxsif layer create NAME flax optax",
        ),
        (
            ("/usr/bin/python3", "x.py"),
            1,
            "the image's own Python, which has JAX, is `python`; /usr/bin/python3 may be another one",
        ),
        (("python", "x.py"), 1, ""),
        (("conda", "list"), 127, "packages go into a layer: pass --layer NAME after jaxsif layer create NAME PACKAGE"),
        (
            ("sh", "-c", "nowhere"),
            127,
            SEE_THE_SCRIPT,
        ),
        (
            ("/opt/tool",),
            126,
            "check its permissions: chmod +x /opt/tool; or name its interpreter, as in python /opt/tool",
        ),
        (("./q.py",), 126, "python ./q.py"),
    ],
)
def test_suggestions(command: tuple[str, ...], status: int, hint: str) -> None:
    assert suggest(command, status) == hint


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("python", "q.py", "--x"), "put q.py on a disk that all nodes see, if the node does not find it"),
        (("python3", "/opt/nowhere.py"), GENERAL.format("/opt/nowhere.py")),
        (("python", "-m", "nowhere"), ""),
        (("python",), ""),
        (("./train.sh",), ""),
    ],
    ids=" ".join,
)
def test_a_python_that_opened_no_script(command: tuple[str, ...], hint: str) -> None:
    assert suggest(command, 2) == hint


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (("python", "nowhere.py"), "nowhere.py"),
        (("/usr/bin/python3", "src/nowhere.py", "-v"), "src/nowhere.py"),
        (("python", "-u", "nowhere.py"), "nowhere.py"),
        (("python", "-OO", "-sB", "nowhere.py", "q.py"), "nowhere.py"),
        (("python", "-X", "dev", "-Wignore", "-uW", "error", "nowhere.py"), "nowhere.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_program_that_is_certainly_missing(folder: Path, command: tuple[str, ...], missing: str) -> None:
    error = catch(JaxsifError, check_program, command)
    assert (error.exit_code, error.render()) == (
        127,
        f"jaxsif: error: script not found: {missing}\n  from: looked for in {folder}\n  try:  check its path",
    )


def test_script_and_arguments_in_one_word(folder: Path) -> None:
    error = catch(ProgramError, check_program, ("python", "q.py --steps 3"))
    assert (error.what, error.hint) == ("script not found: q.py --steps 3", "q.py --steps 3, without the quotes")


def test_an_image_before_the_program(folder: Path) -> None:
    (folder / "jax.sif").touch()
    error = catch(ProgramError, check_program, ("./jax.sif", "python", "a b.py"))
    assert (error.what, error.hint) == ("./jax.sif is an image, not a program", "--image ./jax.sif -- python 'a b.py'")


def test_a_package_that_is_called_like_a_program(folder: Path) -> None:
    (folder / "fit").mkdir()
    assert suggest(("fit", "--steps=3"), 127) == GENERAL.format("fit")
    (folder / "fit/__main__.py").touch()
    assert suggest(("fit", "--steps=3"), 127) == "python -m fit: it is a package in this folder"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py"), "train"),
        (("python", "-u", "sub dir/my train.py", "other.py"), "my-train"),
        (("./run.sh", "--x"), "run"),
        (("hostname",), "hostname"),
        (("python", "-c", "print()"), "python"),
        (("/bin/…",), "job"),
        (("python3", "-m", "pkg.train", "--x"), "pkg.train"),
        (("python3", "-u", "-m", "pkg.train", "data.py"), "pkg.train"),
        (("git", "-m", "words"), "git"),
    ],
)
def test_name_of_a_program(command: tuple[str, ...], name: str) -> None:
    assert name_program(command) == name


def test_a_variable_before_the_program() -> None:
    caught = catch(ProgramError, check_program, ["OMP_NUM_THREADS=1", "python", "my train.py"])
    error = "jaxsif: error: a variable assignment before the program: OMP_NUM_THREADS=1"
    remedy = "  try:  --env OMP_NUM_THREADS=1 -- python 'my train.py'"
    assert caught.render().splitlines()[::2] == [error, remedy]


def test_a_script_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "secret.py").touch()
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.R_OK)
    with pytest.raises(ProgramError, match=r"no permission to read secret\.py") as caught:
        check_program(["python", "secret.py"])
    assert caught.value.hint == "chmod u+r secret.py"


def test_a_script_with_an_absolute_path_is_looked_for_only_there(tmp_path: Path) -> None:
    home = os.path.expanduser("~")
    error = catch(JaxsifError, check_program, ("python", f"{home}/nowhere/train.py"))
    assert (error.what, error.where) == (f"script not found: {home}/nowhere/train.py", "")
