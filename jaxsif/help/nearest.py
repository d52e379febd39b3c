"""The known options and commands nearest to unknown ones; imported only after such an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

# Options of other programs: torchrun, mpirun, PBS, LSF.
_ELSEWHERE = {
    "--nproc-per-node": "--ntasks-per-node",
    "--nnodes": "--nodes",
    "--num-nodes": "--nodes",
    "--port": "--coordinator-ports",
    "--np": "--ntasks",
    "-np": "--ntasks",
    "--tasks": "--ntasks",
    "--cores": "--cpus-per-task",
    "--cpu": "--cpus-per-task",
    "--queue": "--partition",
    "--project": "--account",
    "--walltime": "--time",
    "--timeout": "--time",
    "--timelimit": "--time",
    "--mem-per-node": "--mem",
    "--mem-per-task": "--mem-per-cpu",
    "--container-image": "--image",
    "--container-mounts": "--bind",
    "--mount": "--bind",
    "--volume": "--bind",
    "--venv": "--layer",
    "--limit": "--last",
}
# Options of apptainer and docker, mpirun, and torchrun -> what jaxsif itself does.
_NEEDLESS = {
    **dict.fromkeys(("--nv", "--rocm", "--rm", "-it"), "starts the container"),
    **dict.fromkeys(("--map-by", "--bind-to", "--rank-by", "--oversubscribe"), "places the tasks"),
    **dict.fromkeys(("--master-addr", "--master-port"), "finds the coordinator"),
    **dict.fromkeys(("--rdzv-backend", "--rdzv-endpoint"), "finds the coordinator"),
}
_VERBS = {  # of other programs
    **dict.fromkeys(("delete", "rm"), "remove"),
    **dict.fromkeys(("ls", "show"), "list"),
    **dict.fromkeys(("exec", "launch"), "run"),
    "install": "create",
}
_ALIKE = 0.65  # the least ratio of difflib
_OF_SUBMIT = dict.fromkeys(("--array", "--chain", "--requeue", "--sbatch-args"), "submit")


def suggest_options(words: Sequence[str], known: Collection[str], of_run: Iterable[str]) -> str:
    """Return a suggestion for each unknown option among `words`, such as '--nodes?', or '' if no
    option is near.

    `known` holds the options of the command, `of_run` those of `jaxsif run`.
    """
    names = [word.partition("=")[0] for word in words]
    for name in names:
        if does := _NEEDLESS.get(name.replace("_", "-")):
            return f"leave out {name}: jaxsif itself {does}"
    flags = [name for name in names if name not in ("--", *known)]
    endings = {flag: f" for {flag}" for flag in flags}
    if len(flags) == 1:
        endings = {flags[0]: "?"}
    commands = {**dict.fromkeys(of_run, "run"), **_OF_SUBMIT}
    nearest = {
        flag: _find_near(flag, sorted(known), commands) for flag in endings if flag[:1] == "-"
    }
    return ", ".join(f"{near}{endings[flag]}" for flag, near in nearest.items() if near)


def _find_near(flag: str, known: Sequence[str], commands: Mapping[str, str]) -> str:
    """Return jaxsif's name for a flag, or the options that the flag abbreviates, if there are at
    most two, or else the nearest option, or ''. `commands` maps other commands' flags to these.
    """
    flag = flag.replace("_", "-")
    name = _ELSEWHERE.get(flag, flag)
    if name in known:
        return name
    if flag in commands:
        return f"jaxsif {commands[flag]} {flag}"
    if flag in _ELSEWHERE:
        return ""
    longer = [name for name in known if name.startswith(flag) and flag.startswith("--")]
    if len(longer) in (1, 2):
        return " or ".join(longer)
    # What turns a switch off is the opposite of what was meant.
    leave_out = () if flag.startswith("--no") else ("no-",)
    bare = (name[2:] for name in known if name.startswith("--"))
    names = [name for name in bare if not name.startswith(leave_out)]
    return "".join(map("--{}".format, get_close_matches(flag.lstrip("-"), names, 1, _ALIKE)))


def suggest_command(word: str, names: Sequence[str], commands: Iterable[Sequence[str]]) -> str:
    """Suggest a command in place of an unknown word.

    `names` holds the possible commands. If the word is the last word of any of `commands`, suggest
    those.
    """
    word = _VERBS.get(word, word)
    whole = [" ".join(name) for name in commands if name[-1] == word]
    close = whole or [word] * (word in names) or get_close_matches(word, names, 1)
    return f"{' or '.join(close)}?" if close else f"one of {', '.join(names)}"
