"""The program of a run: what shows here that it cannot be executed, and what to try when a node
could not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from jaxsif.diagnose.symptoms import NO_FOLDER, NOT_FOUND, find_symptoms
from jaxsif.errors import JaxsifError, ProgramError

_HEAD = 4096  # bytes of a file, enough for the #SBATCH lines at its beginning
_CANNOT_EXECUTE, _NOT_FOUND = 126, 127  # exit statuses of a shell
_NO_SCRIPT = 2  # exit status of Python
_GENERAL = "the program must be in the image or below a folder that is bound into it"
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
# What a shell does itself. A few are on the PATH, too, but change nothing outside of their own
# process.
_OF_THE_SHELL = frozenset(
    (
        ".",
        "alias",
        "cd",
        "eval",
        "exec",
        "export",
        "module",
        "set",
        "source",
        "ulimit",
        "umask",
        "unalias",
        "unset",
    )
)
_INSTALLERS = ("pip", "pip3", "conda", "mamba", "micromamba", "uv", "apt", "apt-get", "dnf", "yum")
_WELL_KNOWN = (
    "python",
    "python3",
    "ipython",
    "bash",
    "sh",
    "env",
    "nvidia-smi",
    "nsys",
    "ncu",
    "torchrun",
    "jupyter",
)


def check_program(command: Sequence[str]) -> None:
    """Raise ProgramError, or JaxsifError for a job script, for what cannot run on a node either.

    A name without a slash is looked for in the image, and an absolute path may exist there alone.
    So most names are not certain here; `suggest` has a remedy for these.
    """
    program, *arguments = command
    if os.path.isfile(program) and _is_job_script(program):
        raise JaxsifError(f"{program} is a job script, not a program", _here(), f"sbatch {program}")
    _check_word(command)
    if "/" in program:
        _check_file(program)
    elif os.path.isfile(program) and program.endswith((".py", ".sh")):
        raise ProgramError(
            f"{program} is not on the PATH: it is a file of this folder", _here(), _call(program)
        )
    if (
        os.path.basename(program).startswith("python")
        and arguments
        and not arguments[0].startswith("-")
    ):
        _check_exists(arguments[0])


def _here() -> str:
    return f"looked for in {os.getcwd()}"


def _check_word(command: Sequence[str]) -> None:
    """Refuse a command line in one word, and what only a shell can do."""
    program = command[0]
    if re.search(r"\s", program) and not os.path.exists(program):
        several = re.search(r"[&|;<>$`]", program)
        remedy = f"sh -c {_quote(program)}" if several else f"-- {program}, without the quotes"
        what = f"a program's name with a blank: {program!r}"
        raise ProgramError(what, "the first word behind --", remedy)
    if program in _OF_THE_SHELL:
        line = " ".join([*map(_quote, command), "&& COMMAND"])
        remedy = f"do it before jaxsif, or in a shell: sh -c {_quote(line)}"
        what = f"{program} is a part of the shell, not a program"
        raise ProgramError(what, "the first word behind --", remedy)


def _quote(word: str) -> str:
    """Return a word as a shell reads it back."""
    import shlex  # 1 ms, which only a wrong program needs

    return shlex.quote(word)


def _check_file(path: str) -> None:
    """Of a relative path: it is a file, and may be executed."""
    if os.path.isabs(path):
        return
    _check_exists(path)
    if os.path.isdir(path):
        error = ProgramError(f"{path} is a folder, not a program", _here(), "name a program in it")
    elif not os.access(path, os.X_OK):
        error = ProgramError(
            f"no permission to execute {path}", _here(), f"chmod +x {path}, or {_call(path)}"
        )
    else:
        return
    error.exit_code = _CANNOT_EXECUTE
    raise error


def _check_exists(path: str) -> None:
    if not os.path.isabs(path) and not os.path.exists(path):
        remedy = f"{path}.py" if os.path.isfile(f"{path}.py") else "check its path"
        raise ProgramError(f"script not found: {path}", _here(), remedy)


def _call(path: str) -> str:
    """How to run a file of this folder."""
    if path.endswith(".py"):
        return f"python {path}"
    if os.access(path, os.X_OK):
        return path if "/" in path else f"./{path}"
    return f"bash {path}"


def _is_job_script(path: str) -> bool:
    """Whether a file is for sbatch, by its name or by #SBATCH lines at its beginning."""
    if path.endswith((".sbatch", ".slurm")):
        return True
    try:
        with open(path, "rb") as file:
            lines = file.read(_HEAD).split(b"\n")
    except OSError:
        return False  # the runtime will say what it cannot read
    interpreter = re.match(rb"#!.*?([^/\s]+)\s*(?:-\S*)?$", lines[0])
    if lines[0].startswith(b"#!") and not (
        interpreter and interpreter[1].decode(errors="replace") in _SHELLS
    ):
        return False
    for line in lines:
        if line.startswith(b"#SBATCH "):
            return True
        if line.strip() and not line.startswith(b"#"):
            return False
    return False


def suggest(command: Sequence[str], error: JaxsifError, errors: Sequence[str]) -> str:
    """What to try when a task failed with `error`, which has no hint; '' where nothing is known.

    `errors` is what srun and the runtime complained of.
    """
    no_folder = next(find_symptoms([NO_FOLDER], errors), NOT_FOUND)
    if no_folder is not NOT_FOUND:
        return no_folder.remedy
    if error.where:
        return ""  # it failed at a line of its own
    if error.exit_code == _NO_SCRIPT:
        return _suggest_for_script(command)
    if error.exit_code in (_CANNOT_EXECUTE, _NOT_FOUND):
        return _suggest_for_program(command, error.exit_code)
    return ""


def _suggest_for_script(command: Sequence[str]) -> str:
    """Of a Python that has executed nothing: it could not open the script, or does not know an
    option.
    """
    if (
        not os.path.basename(command[0]).startswith("python")
        or len(command) == 1
        or command[1].startswith("-")
    ):
        return ""
    if os.path.isfile(command[1]):
        return f"put {command[1]} on a disk that all nodes see, if the node does not find it"
    return _GENERAL


def _suggest_for_program(command: Sequence[str], status: int) -> str:
    program, name = command[0], os.path.basename(command[0])
    if name in _SHELLS:
        return (
            "see above which command of the script the shell could not execute or find in the image"
        )
    if status == _CANNOT_EXECUTE:
        return (
            f"see its permissions: chmod +x {program};"
            f" or name its interpreter, as in python {program}"
        )
    if name in _INSTALLERS:
        given = command[2:] if "install" in command else ()
        packages = " ".join(word for word in given if not word.startswith("-")) or "PACKAGE"
        return f"packages go into a layer: jaxsif layer create NAME {packages}, then --layer NAME"
    if "/" in program and os.path.isfile(program):
        return f"see the first line of {program}: the interpreter behind #! must be in the image"
    if os.path.isfile(program):
        return f"{_call(program)}: it is a file of this folder, and not on the PATH"
    import difflib  # 5 ms, after the end of a run

    near = difflib.get_close_matches(program, _WELL_KNOWN, n=1, cutoff=0.8)
    if near and near[0] != program:
        return f"{near[0]}?"
    return _GENERAL
