"""Check on this host that the program of a run can be executed; suggest a remedy if a node could
not execute it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from jaxsif.errors import JaxsifError, ProgramError
from jaxsif.text import shorten

_HEAD = 4096  # bytes of a file, enough for the #SBATCH lines at its beginning
_CANNOT_EXECUTE, NOT_FOUND = 126, 127  # exit statuses of a shell
_FAILED, NO_SCRIPT = 1, 2  # exit statuses of Python
_NONE = "-"  # in place of a script: Python reads its standard input
# Python's options that leave a script to follow: -u, -OO, -X dev, -Wignore. The group is the value
# of -X or -W, '' if the next word has it.
_BEFORE_SCRIPT = r"-(?:[bBdEiIOPqRsSuvx]+|[bBdEiIOPqRsSuvx]*[XW](.*))"
_SEE_THE_SCRIPT = (
    "see above which command in the script the shell could not execute or find in the image"
)
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_BLANK = r"[^\S\n]"
# The beginning of a script for sbatch: a shell after #!, or no such line, then comments and empty
# lines, and #SBATCH. Compiled on use.
_JOB_SCRIPT = (
    rf"((?!#!)|#!(.*(/|{_BLANK}))?({'|'.join(_SHELLS)})({_BLANK}+-\S*|{_BLANK}*)\n)"
    rf"(#.*\n|{_BLANK}*\n)*#SBATCH "
).encode()
# Commands that a shell executes itself. A few are also on the PATH, but change nothing outside
# their own process.
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
_JOINS = frozenset(("&&", "||", ";", "|"))
_INSTALLERS = ("pip", "pip3", "conda", "mamba", "micromamba", "uv", "apt", "apt-get", "dnf", "yum")
_STARTERS = {  # programs that start what jaxsif itself starts
    **dict.fromkeys(("srun", "mpirun", "mpiexec", "torchrun", "sbatch", "salloc"), "the tasks"),
    **dict.fromkeys(("apptainer", "singularity", "docker", "podman", "jaxsif"), "the container"),
}
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
    """Raise ProgramError, or JaxsifError for a job script, if the program cannot run on any node.

    A name without a slash is searched for in the image, and an absolute path may exist only there.
    So most names cannot be checked here; `suggest` has remedies for those.
    """
    program = command[0]
    is_file = os.path.isfile(program)
    if is_file:
        _check_file(command)
    _check_word(command)
    if "/" in program or program == "..":
        _check_path(program)
    elif is_file and program.endswith((".py", ".sh")):
        raise ProgramError(
            f"{program} is not on the PATH: it is a file in this folder", _here(), _call(program)
        )
    elif program.endswith((".sbatch", ".slurm")):  # no image has such a program
        _check_exists(program)
    is_of_shell = os.path.basename(program) in _SHELLS
    script = _first_argument(command) if is_of_shell else find_script(command)
    if not script.startswith(("-", "+")):
        _check_exists(script)


def _first_argument(command: Sequence[str]) -> str:
    return command[1] if len(command) > 1 else _NONE


def find_doubts(command: Sequence[str]) -> Iterator[str]:
    """Yield what may be wrong with a program that starts only later."""
    program, *words = command
    is_script = "/" not in program and program.endswith((".py", ".sh"))
    if is_script and not os.path.exists(program):  # else `check_program` has refused it
        yield f"there is no {program} here: the image must have it on its PATH"
    has_shell = any(os.path.basename(word) in _SHELLS for word in command)
    for word in () if has_shell else words:
        if re.search(r"\$\{?SLURM_", word):
            how = "read the variable in the program, or pass -- sh -c 'COMMAND'"
            yield f"the program gets {shorten(word)} itself, not its value: {how}"


def find_script(command: Sequence[str]) -> str:
    """Return the script passed to Python; _NONE for -c, -m, no argument, or another program."""
    program, *words = command
    if not os.path.basename(program).startswith("python"):
        return _NONE
    while words and (option := re.fullmatch(_BEFORE_SCRIPT, words[0])):
        words = words[2 if option[1] == "" else 1 :]
    script = [*words, _NONE][0]
    return _NONE if script.startswith("-") else script


def name_program(command: Sequence[str]) -> str:
    """Return a short name: 'train' for `python -u train.py`, 'pkg.train' for `python -m pkg.train`;
    the name is valid for a file, too.
    """
    program, *arguments = command
    script = next((word for word in arguments if word.endswith((".py", ".sh"))), program)
    if "-m" in arguments[:-1] and os.path.basename(program).startswith("python"):
        script = arguments[arguments.index("-m") + 1]
    name = re.sub(r"\.(py|sh)$", "", script.rsplit("/", 1)[-1])
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-.") or "job"


def reads_program(command: Sequence[str]) -> bool:
    """Return whether a Python or a shell will read its program from standard input, in silence."""
    name = os.path.basename(command[0])
    return len(command) == 1 and (name.startswith(("python", "ipython")) or name in _SHELLS)


def _here() -> str:
    return f"looked for in {os.getcwd()}"


def _check_file(command: Sequence[str]) -> None:
    """Refuse a job script and an image."""
    program = command[0]
    if _is_job_script(program):
        raise JaxsifError(f"{program} is a job script, not a program", _here(), f"sbatch {program}")
    if program.endswith(".sif"):
        remedy = f"--image {_quote(program)} -- {' '.join(map(_quote, command[1:])) or 'PROGRAM'}"
        raise ProgramError(f"{program} is an image, not a program", _here(), remedy)


def _check_word(command: Sequence[str]) -> None:
    """Refuse a command line in one word, and commands that only a shell can execute."""
    program = command[0]
    if re.match("[-\u2010-\u2015\u2212]", program):
        remedy = "put jaxsif's options before --, and the program's own after the program"
        if not program[0].isascii():
            remedy = "type - or --, not a dash of printed text"
        what = f"{shorten(program)} is not a program"
        raise ProgramError(what, "the first word after jaxsif's options", remedy)
    if re.search(r"\s", program) and not os.path.exists(program):
        several = re.search(r"[&|;<>$`]", program)
        remedy = f"sh -c {_quote(program)}" if several else f"-- {program}, without the quotes"
        what = f"the program's name contains a space: {program!r}"
        raise ProgramError(what, "the first word after --", remedy)
    if re.match(r"[A-Za-z_]\w*=", program) and not os.path.exists(program):
        program = " ".join(_quote(word) for word in command[1:]) or "COMMAND"
        what = f"a variable assignment before the program: {command[0]}"
        remedy = f"--env {_quote(command[0])} -- {program}"
        raise ProgramError(what, "the first word after --", remedy)
    if program in _OF_THE_SHELL:
        what = f"{program} is a shell command, not a program"
        raise ProgramError(what, "the first word after --", _suggest_shell(command))


def _suggest_shell(command: Sequence[str]) -> str:
    """Return the remedy for a command that only a shell can execute."""
    if command[0] == "module":
        return "do it before jaxsif: the container has none of the host's modules"
    joined = " ".join(word if word in _JOINS else _quote(word) for word in command)
    line = joined if _JOINS.intersection(command) else f"{joined} && COMMAND"
    return f"do it before jaxsif, or in a shell: bash -c {_quote(line)}"


def _quote(word: str) -> str:
    """Return a word quoted for a shell."""
    import shlex  # 1 ms, needed only for a wrong program

    return shlex.quote(word)


def _check_path(path: str) -> None:
    """Raise ProgramError for a folder, or a relative path that is not an executable file."""
    if not os.path.isabs(path):
        _check_exists(path)
    if os.path.isdir(path):
        raise _not_executable(f"{path} is a folder, not a program", "name a program in it")
    if not os.path.isabs(path) and not os.access(path, os.X_OK):
        remedy = _call(path) if _needs_python(path) else f"chmod +x {path}, or {_call(path)}"
        raise _not_executable(f"no permission to execute {path}", remedy)


def _not_executable(what: str, remedy: str) -> ProgramError:
    error = ProgramError(what, _here(), remedy)
    error.exit_code = _CANNOT_EXECUTE
    return error


def _check_exists(path: str) -> None:
    is_here = not os.path.isabs(path) or path.startswith(os.path.expanduser("~/"))
    if is_here and not os.path.exists(path):
        script = path.partition(" ")[0]
        remedy = f"{path}.py" if os.path.isfile(f"{path}.py") else _suggest_module(path)
        if path.startswith("~"):
            remedy = f"{path}, without the quotes"
        if script != path and os.path.isfile(script):
            remedy = f"{path}, without the quotes"
        where = "" if os.path.isabs(path) else _here()
        raise ProgramError(f"script not found: {path}", where, remedy or "check its path")
    if os.path.isfile(path) and not os.access(path, os.R_OK):
        raise ProgramError(f"no permission to read {path}", _here(), f"chmod u+r {path}")


def _suggest_module(name: str) -> str:
    """Return the command line that runs a module in this folder, or ''."""
    is_here = "/" not in name and os.path.isfile(f"{name.replace('.', '/')}.py")
    return f"python -m {name}" if is_here else ""


def _call(path: str) -> str:
    """Return the command line that runs a file in this folder."""
    if path.endswith(".py"):
        return f"python {path}"
    return f"./{path}" if os.access(path, os.X_OK) else f"bash {path}"


def _needs_python(path: str) -> bool:
    """Return whether a file here is a Python program without #!, which a shell would execute."""
    return path.endswith(".py") and os.path.isfile(path) and not _read_head(path).startswith(b"#!")


def _is_job_script(path: str) -> bool:
    """Return whether a file is for sbatch, by its name or by #SBATCH lines at its beginning."""
    if path.endswith((".sbatch", ".slurm")):
        return True
    return re.match(_JOB_SCRIPT, _read_head(path)) is not None


def _read_head(path: str) -> bytes:
    """Return the first bytes of a file, b'' if it cannot be read, which the runtime will report."""
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def suggest(command: Sequence[str], status: int) -> str:
    """Return a remedy for a task that ended with `status` at an unknown line, or ''."""
    find = _SUGGESTIONS.get(status)
    return find(command) if find else ""


def _suggest_for_script(command: Sequence[str]) -> str:
    """Suggest a remedy for Python that has executed nothing: it could not open the script, or did
    not know an option.
    """
    script = find_script(command)
    if script == _NONE:
        return ""
    if os.path.isfile(script):
        return f"put {script} on a disk that all nodes see, if the node does not find it"
    return _suggest_place(script)


def _suggest_python(command: Sequence[str]) -> str:
    """Suggest a remedy for a Python that has reported nothing: it may not be the image's."""
    program = command[0]
    if "/" not in program or not os.path.basename(program).startswith("python"):
        return ""
    return f"the image's own Python, which has JAX, is `python`; {program} may be another one"


def _suggest_permission(command: Sequence[str]) -> str:
    program = command[0]
    if os.path.basename(program) in _SHELLS:
        return _SEE_THE_SCRIPT
    if _needs_python(program):
        return _call(program)
    return (
        f"check its permissions: chmod +x {program};"
        f" or name its interpreter, as in python {program}"
    )


def _suggest_program(command: Sequence[str]) -> str:
    """Suggest a remedy for a program that was not found."""
    program, name = command[0], os.path.basename(command[0])
    if name in _STARTERS:
        return f"leave out {name} and its options: jaxsif itself starts {_STARTERS[name]}"
    if name in _SHELLS:
        script = _first_argument(command)
        is_job = os.path.isfile(script) and _is_job_script(script)
        return _SEE_THE_SCRIPT + (f"; sbatch {script}, if it is a job script" if is_job else "")
    if name in _INSTALLERS:
        packages = _name_packages(command)
        return (
            f"packages go into a layer: pass --layer NAME after jaxsif layer create NAME {packages}"
        )
    if not os.path.isfile(program):
        return _suggest_name(program)
    if not (os.access(program, os.X_OK) or _read_head(program).startswith(b"#!")):
        return f"name the program that reads {program}: it is a file in this folder"
    if "/" in program:
        return f"check the first line of {program}: the interpreter after #! must be in the image"
    return f"{_call(program)}: it is a file in this folder, and not on the PATH"


def _name_packages(command: Sequence[str]) -> str:
    """Return the packages that an installer such as pip is to install."""
    if "install" not in command:
        return "PACKAGE"
    return " ".join(word for word in command[2:] if not word.startswith("-")) or "PACKAGE"


def _suggest_name(program: str) -> str:
    """Return the package or the well-known program that the user may have meant."""
    import difflib  # 5 ms, after the end of a run

    module = _suggest_module(program)
    if module:
        return f"{module}: it is a module in this folder"
    if os.path.isfile(f"{program}/__main__.py") and program not in _WELL_KNOWN:
        return f"python -m {program}: it is a package in this folder"
    near = difflib.get_close_matches(program, _WELL_KNOWN, n=1, cutoff=0.8)
    if near in ([], [program]):
        return _suggest_place(program)
    return f"{near[0]}? {program} was not found"


def _suggest_place(program: str) -> str:
    place = "in the image, in a layer (--layer), or in a folder that is bound into it"
    return f"{shorten(program)} must be {place}"


_SUGGESTIONS: Mapping[int, Callable[[Sequence[str]], str]] = {
    _FAILED: _suggest_python,
    NO_SCRIPT: _suggest_for_script,
    _CANNOT_EXECUTE: _suggest_permission,
    NOT_FOUND: _suggest_program,
}
