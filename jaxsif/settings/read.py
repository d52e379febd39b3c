"""The settings of a run, resolved from the command line, variables and files; srun's own options
count as jaxsif's options with the same meaning.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.job.srun_options import (
    BY_FLAG,
    FIELD,
    VALUE,
    SrunArgument,
    find_stray,
    find_unsafe,
    split_options,
    translate,
)
from jaxsif.settings.config import Config, find_setting, for_staff, read_config
from jaxsif.settings.options import NOTHING, OPTIONS, Rank, RunOptions, Setting, split_words
from jaxsif.text import shorten

# The ways to give the number of tasks, and that of GPUs.
_TASKS = ("ntasks", "ntasks-per-node", "per-node", "per-gpu")
_GPUS = ("gpus", "gpus-per-node")
# An option -> those that decide the same: one of them from a stronger source overrides it.
_RIVALS = {
    **dict.fromkeys(_TASKS, _TASKS),
    "gpus-per-task": ("per-gpu",),
    **dict.fromkeys(_GPUS, _GPUS),
}


class Settings(NamedTuple):
    """The options of a run, each with its source."""

    config: Config  # of the files
    values: Mapping[str, Setting]  # of all options that have one, by their keys
    options: RunOptions

    def value(self, key: str) -> Any:
        """Return the value of an option, or None."""
        return self.values.get(key, NOTHING).value

    def is_on_command_line(self, key: str) -> bool:
        """Return whether the command line sets an option."""
        return self.values.get(key, NOTHING).rank == Rank.COMMAND_LINE


def read_settings(
    cli_values: Mapping[str, Any],
    command: Sequence[str],
    environ: Mapping[str, str],
    in_job: bool,
    fixed: Container[str] = (),
) -> Settings:
    """Complete the command line, `cli_values`, from variables and files.

    Files and variables do not count for options whose keys are in `fixed`, which mean nothing to
    the command. Raise JaxsifError for unknown settings.
    """
    config = read_config(environ, os.getcwd())
    values = resolve(cli_values, environ, config, in_job, fixed)
    passed, srun_args = _merge_srun_options(values, cli_values.get(FIELD) or {})
    fields = _convert(values, environ)
    options = RunOptions(tuple(command), **fields, passed=passed, srun_args=srun_args)
    return Settings(config, values, options._replace(sources=values))


def resolve(
    cli_values: Mapping[str, Any],
    environ: Mapping[str, str],
    config: Config,
    in_job: bool,
    fixed: Container[str] = (),
) -> dict[str, Setting]:
    """Return each option of `jaxsif run` that has a value, by its key; the value is that on the
    command line, or else that of its variable, or else that in a file.

    `cli_values` has the values of the command line, by field. Inside a job, options that request a
    job count only on the command line. Options whose keys are in `fixed` always count only there.
    Of the ways to give the number of tasks, only those from the strongest source count. Raise
    JaxsifError if a variable's value is not of the option's kind.
    """
    values: dict[str, Setting] = {}
    for option in OPTIONS:
        setting = None
        if cli_values.get(option.field) is not None:
            setting = Setting(cli_values[option.field], option.flag, Rank.COMMAND_LINE)
        elif not (option.key in fixed or (in_job and option.of_job)):
            setting = find_setting(option, environ, config)
        if setting:
            values[option.key] = setting
    _drop_overruled(values)
    return values


def _drop_overruled(values: dict[str, Setting]) -> None:
    for key in _RIVALS:
        setting = values.get(key, NOTHING)
        if setting.rank > Rank.DEFAULT and _is_overruled(key, setting, values):
            del values[key]


def _merge_srun_options(
    values: dict[str, Setting], arguments: Mapping[str, SrunArgument]
) -> tuple[tuple[SrunArgument, ...], tuple[SrunArgument, ...]]:
    """Add the layout settings among srun's own options to `values`; return the remaining options of
    the command line's `arguments`, by their flags, and of --srun-args.
    """
    passed = _merge(values, arguments.values(), Setting((), "the command line", Rank.COMMAND_LINE))
    extra = values.get("srun-args", NOTHING)
    words = [word for text in extra.value or () for word in split_words(text, extra.source)]
    if words:
        _check_words(words, extra)
    srun_args = _merge(values, split_options(words), extra, arguments)
    _drop_overruled(values)
    return passed, srun_args


def _is_overruled(key: str, setting: Setting, values: Mapping[str, Setting]) -> bool:
    """Return whether a stronger source sets an option, or a rival of that option."""
    for rival in _RIVALS.get(key, ()):
        stronger = values.get(rival, NOTHING)
        if stronger.value and stronger.rank > setting.rank:
            return True
    return values.get(key, NOTHING).rank > setting.rank


def _merge(
    values: dict[str, Setting],
    arguments: Iterable[SrunArgument],
    origin: Setting,
    taken: Container[str] = (),
) -> tuple[SrunArgument, ...]:
    """Add the layout settings among srun's own options from one source, `origin`, to `values`;
    return the rest, which is for srun. Drop arguments that a stronger source overrides, or whose
    flags are in `taken`.

    Raise JaxsifError if two options from the same source contradict each other.
    """
    left: list[SrunArgument] = []
    for argument in arguments:
        # As `nodes = 2` in a file overrides --nodes among weaker --srun-args.
        if argument.flag in taken or _is_overruled(argument.flag[2:], origin, values):
            continue
        key, value, remaining = translate(argument)
        left += remaining
        if value is None or _is_overruled(key, origin, values):
            continue
        before = values.get(key, NOTHING)
        if before.rank == origin.rank and before.value not in (None, value):
            raise JaxsifError(
                f"--{key}={before.value} and {argument.flag}={argument.value} contradict"
                " each other",
                origin.source,
                "leave out one of them",
            )
        values[key] = Setting(value, origin.source if origin.value else f"--{key}", origin.rank)
    return tuple(left)


_EXPORT = ("--exp", "--expo", "--expor", "--export")  # as srun accepts it


def _check_words(words: Sequence[str], origin: Setting) -> None:
    """Raise JaxsifError for words that srun would take for the program, and for words of a
    project's file that make srun run a program of the project's choice, even on this host.
    """
    found = next(find_unsafe(words), None) if origin.rank == Rank.PROJECT else None
    if found:
        raise JaxsifError(
            f"a project's file cannot pass this to srun: {shorten(found)}",
            origin.source,
            "set it on the command line, or in your own jaxsif.toml",
        )
    exported = [one.value or "" for one in split_options(words) if one.flag in _EXPORT]
    if exported and "ALL" not in exported[-1].upper().split(","):
        what = f"--export={exported[-1]} leaves out variables that a run needs"
        hint = "--env NAME=VALUE, or --cleanenv"
        if origin.source.endswith(".toml"):
            hint = 'env = ["NAME=VALUE"], or cleanenv = true'
        raise JaxsifError(what, origin.source, hint)
    _check_last(words, origin)
    stray = next(find_stray(words), None)
    if stray is not None:
        what = f"{shorten(stray)!r} belongs to no option of srun"
        hint = "write the value of an option after =, and quote blanks: --comment='a b'"
        if f"--{stray.partition('=')[0]}" in BY_FLAG:
            hint = f"--{stray}?"
        raise JaxsifError(what, origin.source, hint)


def _check_last(words: Sequence[str], origin: Setting) -> None:
    """Raise JaxsifError if the last option has no value: srun would take its next word, the
    container's runtime, for it.
    """
    *_, last = split_options(words)
    if last.value is None and last.flag in BY_FLAG and BY_FLAG[last.flag].value == VALUE:
        what = f"{last.flag} of srun needs a value"
        raise JaxsifError(what, origin.source, f"write {last.flag}=VALUE")


def _check_binds(binds: Setting) -> tuple[str, ...]:
    """Return the binds; raise JaxsifError for one without a host path, which the runtime would
    ignore.
    """
    for bind in binds.value or ():
        if not bind.partition(":")[0].strip():
            raise JaxsifError(f"a bind names no path: {bind!r}", binds.source, "SRC[:DEST[:OPTS]]")
    return tuple(binds.value or ())


def _check_stage_folder(folder: Setting) -> None:
    """Raise JaxsifError for a relative path, which each node would resolve in another folder."""
    if folder.value is not None and not os.path.isabs(folder.value):
        raise JaxsifError(
            f"not an absolute path: {shorten(folder.value)!r}",
            folder.source,
            "give the path of a folder on the nodes, beginning with /",
        )


def _convert(values: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of RunOptions that have a value, converted. The options that are not fields
    of RunOptions describe the container.
    """
    options = {
        option.field: values[option.key].value
        for option in OPTIONS
        if option.field in RunOptions._fields and option.key in values
    }
    options.pop("srun_args", None)  # they have been split
    # Only mpirun takes a list of hosts; a variable may have one for all runs.
    hosts = max(values.get("hosts", NOTHING).rank, values.get("hostfile", NOTHING).rank)
    launcher = values.get("launcher", NOTHING).rank
    if hosts > launcher and (launcher == Rank.DEFAULT or hosts == Rank.COMMAND_LINE):
        options["launcher"] = "mpirun"
    options["binds"] = _check_binds(values.get("binds", NOTHING))
    _check_stage_folder(values.get("stage-folder", NOTHING))
    env = values.get("env", NOTHING)
    options["env"] = parse_env(env.value or (), environ, env.source)
    if isinstance(options.get("nodes"), str):
        least, _, most = options["nodes"].partition("-")
        options.update(nodes=None, node_range=(int(least), int(most)))
    if options.get("gpus_per_task"):
        kind, _, number = str(options["gpus_per_task"]).rpartition(":")
        options.update(gpu_type=kind, gpus_per_task=int(number))
    if options.get("gpus"):
        options["gpus"] = str(options["gpus"])
    return options


def is_variable(name: str) -> bool:
    """Return whether a shell, and so --dry-run and the runtime, knows a variable of this name."""
    return name.isascii() and name.isidentifier()


def suggest_value(name: str) -> str:
    """Return the remedy for a variable in a file that has no value."""
    from jaxsif.settings.secret import is_secret_name  # its patterns take a millisecond

    return "leave it out there" if is_secret_name(name) else f'write "{name}=VALUE" there'


def parse_env(
    pairs: Iterable[str], environ: Mapping[str, str], source: str = "--env"
) -> tuple[tuple[str, str], ...]:
    """Return the variables of --env: 'NAME=VALUE', or 'NAME' with its value from `environ`; raise
    JaxsifError for any other text, and for a NAME that is not set.
    """
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not is_variable(name):
            raise JaxsifError(
                f"not a variable: {pair!r}", source, "write NAME=VALUE, or NAME to pass it on"
            )
        if not equals and name not in environ:
            hint = f"export {name}, or --env {name}=VALUE"
            if source.endswith(".toml"):
                hint = f"export {name}, or {for_staff(suggest_value(name), source)}"
            raise JaxsifError(f"variable {name} is not set", source, hint)
        parsed.append((name, value if equals else environ[name]))
    return tuple(parsed)
