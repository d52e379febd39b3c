"""The options of `jaxsif run`, each declared once: flag, key in [run] of jaxsif.toml, variable,
help.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Container, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError, raise_as
from jaxsif.installation import list_launchers
from jaxsif.job.srun_options import SrunArgument, short_of
from jaxsif.limits import MOST_COUNT, read_number
from jaxsif.task.contract import OFF as OFF
from jaxsif.task.contract import ON, STOP, WARN, split_unit
from jaxsif.text import enclose, shorten

JOB = "what to request from Slurm"
CONTAINER = "the container"
PROCESSES = "how the processes find each other"
HANGS = "processes that hang or diverge from the others"
RESTARTS = "continue after failures, inside a job"
OUTPUT = "how to run"
_HEADINGS = (JOB, CONTAINER, PROCESSES, HANGS, RESTARTS, OUTPUT)  # in the order of --help


NODE = "node"
TASK = "task"
AUTO = "auto"
REPORT = "report"
RESTART = "restart"
HIDDEN = "…"  # in place of a secret
# With which Slurm announces the end of a job 180 s before: time to save, and to requeue the job.
NOTICE = "--signal=URG@180"

_WITH_UNIT = "[1-9][0-9]{0,5}[smh]"
DIGEST_PATTERN = "sha256:[0-9a-f]{64}"


class Kind(NamedTuple):
    """The kind of an option's value."""

    words: str
    fits: Callable[[object], bool]  # whether a value from jaxsif.toml is of this kind
    # Takes a variable's text and its name in errors; returns a value for `fits` to judge.
    read: Callable[[str, str], object]
    argument: Mapping[str, Any] = MappingProxyType({})  # how argparse takes it
    pattern: str = ""  # of a text that is allowed in place of a number
    example: object = None  # a value in errors; None for the option's own word, as in --help


_SWITCHES = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _parse_path(text: str) -> str:
    if text:
        return os.path.expanduser(text)
    raise argparse.ArgumentTypeError("'' is not a path")


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_digests(value: object) -> bool:
    """Return whether a value is a list of digests as `jaxsif image inspect` prints them; no other
    text can be an image's digest.
    """
    return isinstance(value, list) and all(
        isinstance(digest, str) and re.fullmatch(DIGEST_PATTERN, digest) for digest in value
    )


def split_words(text: str, where: str) -> list[str]:
    """Split a text into words as a shell does; raise JaxsifError."""
    import shlex

    hint = "quote it as in a shell"
    with raise_as(JaxsifError(f"cannot read {shorten(text)!r}", where, hint), ValueError):
        return shlex.split(text)


def read_seconds(text: str) -> int | None:
    """Return the seconds of '300', '300s', '5m' or '1h', or None for any other text."""
    digits, unit = split_unit(text)
    number = read_number(digits)
    return None if number is None else number * unit


def _count_or(
    pattern: str,
    words: str,
    read_count: Callable[[str], int | None] = read_number,
    least: int = 1,
    example: object = 2,
) -> Kind:
    """Return the kind of a value that is a number from `least`, or a text matching the pattern."""

    def fits(value: object) -> bool:
        if isinstance(value, str):
            return re.fullmatch(pattern, value) is not None
        return type(value) is int and least <= value <= MOST_COUNT  # a bool is an int, too

    def read(text: str, _where: str) -> int | str:
        value = read_count(text)
        return text if value is None or value < least else value

    def parse(text: str) -> int | str:
        value = read(text, "")
        if fits(value):
            return value
        raise argparse.ArgumentTypeError(f"{shorten(text)!r} is not {words}")

    return Kind(words, fits, read, {"type": parse}, pattern, example)


COUNT = _count_or("(?!)", f"a number from 1 to {MOST_COUNT}")  # which no text matches
count = COUNT.argument["type"]  # for other arguments; raises argparse.ArgumentTypeError
TEXT = Kind("a string", _is_text, lambda text, _: text)
# In jaxsif.toml: relative to the file's folder. A shell does not expand the ~ in --image=~/jax.sif.
PATH = Kind("a path", _is_path, lambda text, _: os.path.expanduser(text), {"type": _parse_path})
OPTIONAL_PATH = PATH._replace(
    words="a path, or empty for none", fits=_is_text, argument={"type": os.path.expanduser}
)
TIMEOUT = _count_or(
    _WITH_UNIT, "a number of seconds from 1, or one with a unit, as in 5m", read_seconds, 1, "5m"
)
SECONDS = _count_or(f"{_WITH_UNIT}|{OFF}", f"{TIMEOUT.words}, or off", read_seconds, 1, "5m")
NODES = _count_or("[1-9][0-9]{0,4}-[1-9][0-9]{0,4}", f"{COUNT.words}, or two as MIN-MAX")
GPUS = _count_or(r"[\w.+-]+:[1-9][0-9]{0,8}", f"{COUNT.words}, or one after a type, as in a100:1")
NO_GPUS = _count_or(f"0|{GPUS.pattern}", GPUS.words.replace("from 1", "from 0"))
COUNT_FROM_0 = _count_or("(?!)", COUNT.words.replace("from 1", "from 0"), least=0)
DIGESTS = Kind(
    "a list of digests, each sha256: and 64 hexadecimal digits in lower case",
    _are_digests,
    split_words,
    example=["sha256:DIGEST"],
)
LIST = Kind("a list of strings", _are_texts, split_words, {"action": "append"})
SWITCH = Kind(
    "true or false",
    lambda value: isinstance(value, bool),
    lambda text, _: _SWITCHES.get(text.lower()),
    {"action": argparse.BooleanOptionalAction},
    example=True,
)


class Option(NamedTuple):
    """An option that a variable and a file may set, too."""

    flag: str
    kind: Kind
    group: str  # its heading in --help
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    # The key in [run] of jaxsif.toml, if that is not the flag's name; the variable of the
    # environment, if that is not derived from the key. In OPTIONS, each option has both.
    key: str = ""
    variable: str = ""
    of_job: bool = False  # requests a job, and means nothing inside one
    launcher: str = ""  # the only one that takes it; '' if each does
    field: str = ""  # the name in the parser's namespace, and in RunOptions
    names: tuple[str, ...] = ()  # on the command line, srun's short name first


def _complete(option: Option) -> Option:
    """Return the option with its key, its variable, its field and its names."""
    key = option.key or option.flag[2:]
    field = key.replace("-", "_")
    variable = option.variable or f"JAXSIF_{field.upper()}"
    names = (*short_of(option.flag), option.flag)
    return option._replace(key=key, variable=variable, field=field, names=names)


_ROWS = (
    Option("--nodes", NODES, JOB, "number of nodes", "N[-MAX]"),
    Option("--ntasks", COUNT, JOB, "JAX processes in total, across all nodes", "N"),
    Option("--ntasks-per-node", COUNT, JOB, "JAX processes on each node", "N"),
    Option("--per-node", SWITCH, JOB, "one JAX process on each node, with all its GPUs"),
    Option("--per-gpu", SWITCH, JOB, "one JAX process for each GPU, whatever the job says"),
    Option("--gpus-per-node", TEXT, JOB, "GPUs on each node", "[TYPE:]N"),
    Option("--gpus", NO_GPUS, JOB, "GPUs in total, the same number on each node", "[TYPE:]N"),
    Option("--gpus-per-task", GPUS, JOB, "GPUs for each JAX process", "[TYPE:]N"),
    Option("--cpus-per-task", COUNT, JOB, "CPUs for each JAX process", "N", launcher="srun"),
    Option(
        "--gpu-bind",
        TEXT,
        JOB,
        "have Slurm bind GPUs to tasks, as with srun's --gpu-bind",
        "TYPE",
        launcher="srun",
    ),
    Option(
        *("--allow-uneven", SWITCH, JOB),
        "allow processes and nodes to have different numbers of GPUs",
    ),
    Option(
        "--share-gpus",
        SWITCH,
        JOB,
        "let several processes share a GPU, each with part of its memory",
    ),
    Option("--time", TEXT, JOB, "time limit, in srun's format", "LIMIT", of_job=True),
    Option("--partition", TEXT, JOB, "partition", "NAME", of_job=True),
    Option("--account", TEXT, JOB, "account", "NAME", of_job=True),
    Option("--constraint", TEXT, JOB, "node features", "LIST", of_job=True),
    Option(
        *("--srun-args", LIST, JOB),
        "more srun options, quoted as in a shell: --srun-args='--mem=0'",
        "ARGS",
        launcher="srun",
    ),
    Option("--image", PATH, CONTAINER, "the image", "PATH", variable="JAX_IMAGE"),
    Option(
        "--bind",
        LIST,
        CONTAINER,
        "make a host path visible in the container",
        "SRC[:DEST[:OPTS]]",
        key="binds",
    ),
    Option(
        "--layer",
        LIST,
        CONTAINER,
        "mount a layer made by `jaxsif layer create` over the image",
        "NAME",
        key="layers",
    ),
    Option("--env", LIST, CONTAINER, "set a variable in the container", "NAME[=VALUE]"),
    Option(
        *("--cleanenv", SWITCH, CONTAINER),
        "pass on only Slurm's and JAX's variables, those of --env, and a few others",
    ),
    Option("--compile-cache", SWITCH, CONTAINER, "keep what JAX compiles, for reuse in later runs"),
    Option(
        "--compile-cache-folder",
        PATH,
        CONTAINER,
        "the folder for the compile cache, on a disk that all nodes share",
        "PATH",
    ),
    Option(
        *("--containers", TEXT, CONTAINER),
        "one container for all tasks on a node, if possible (node), or one for each task",
        choices=(NODE, TASK),
    ),
    Option(
        "--fabric", TEXT, CONTAINER, "set up the network between nodes with this profile", "NAME"
    ),
    Option(
        "--stage", SWITCH, CONTAINER, "inside a job, first copy the image to each node's own disk"
    ),
    Option("--stage-folder", TEXT, CONTAINER, "the folder on the nodes for --stage", "PATH"),
    Option(
        "--coordinator-ports",
        TEXT,
        PROCESSES,
        "choose the port of JAX's coordinator from these",
        "FIRST[-LAST]",
    ),
    Option(
        "--node-address",
        TEXT,
        PROCESSES,
        "reach a node by this name, such as %%N-ib; %%N is its name in Slurm",
        "PATTERN",
    ),
    Option(
        "--coordinator-tls",
        TEXT,
        PROCESSES,
        "give the processes a certificate for JAX's coordinator, so that no other user can"
        " connect: auto does so if openssl and JAX support it, on always, off never",
        choices=(AUTO, ON, OFF),
    ),
    Option(
        "--init-timeout",
        TIMEOUT,
        PROCESSES,
        "how long JAX's processes wait for each other at the start",
        "SECONDS",
    ),
    Option(
        "--heartbeat-timeout",
        TIMEOUT,
        PROCESSES,
        "how long a process may be silent before JAX considers it dead",
        "SECONDS",
    ),
    Option(
        "--shutdown-timeout",
        TIMEOUT,
        PROCESSES,
        "how long JAX's processes wait for each other at the end",
        "SECONDS",
    ),
    Option(
        "--hang-timeout",
        SECONDS,
        HANGS,
        "how long tasks may wait for another task before jaxsif reports that task and its line of"
        " code",
        "SECONDS|off",
    ),
    Option(
        "--on-hang",
        TEXT,
        HANGS,
        "report a hang, stop the run, or start it again (with --max-restarts); a task that is"
        " computing, reading or writing is not hung",
        choices=(REPORT, STOP, RESTART),
    ),
    Option(
        "--busy-timeout",
        SECONDS,
        HANGS,
        "how long the other tasks may wait for one that is computing, reading or writing before"
        " it counts as hung, too; off by default",
        "SECONDS|off",
    ),
    Option(
        "--check-programs",
        TEXT,
        HANGS,
        "warn about processes that compile different programs for the same devices, because"
        " their results may be wrong; or end the run, usually before such a program starts",
        choices=(WARN, STOP, OFF),
    ),
    Option(
        "--max-restarts",
        COUNT,
        RESTARTS,
        "start the program again after a failure, at most N times",
        "N",
        launcher="srun",
    ),
    Option(
        "--spare-nodes",
        COUNT,
        RESTARTS,
        "keep this many of the job's nodes unused, to replace those that fail",
        "K",
        launcher="srun",
    ),
    Option(
        "--checkpoints",
        PATH,
        RESTARTS,
        "the program's checkpoint folder: a newer checkpoint counts as progress",
        "DIR",
        launcher="srun",
    ),
    Option(
        "--max-requeues",
        COUNT_FROM_0,
        RESTARTS,
        f"with #SBATCH {NOTICE}: tell the program that the job is about to end, and requeue"
        " the job after the program has saved or a node has been lost, at most N times",
        "N",
        launcher="srun",
    ),
    Option(
        "--launcher",
        TEXT,
        OUTPUT,
        "how to start the tasks (default: srun if it is on the PATH, else local)",
        choices=list_launchers(),
    ),
    Option(
        "--hosts",
        TEXT,
        OUTPUT,
        "the hosts for mpirun, and how many tasks each takes",
        "NAME[:SLOTS],...",
        launcher="mpirun",
    ),
    Option(
        "--hostfile",
        PATH,
        OUTPUT,
        "a file with the hosts for mpirun, in its own format",
        "PATH",
        launcher="mpirun",
    ),
    Option("--label", SWITCH, OUTPUT, "begin each line of output with its task's number"),
    Option(
        "--log-dir",
        OPTIONAL_PATH,
        OUTPUT,
        "also write each task's output to files in DIR",
        "DIR",
    ),
    Option("--history", SWITCH, OUTPUT, "record how the run ended, for `jaxsif history`"),
)
OPTIONS = tuple(map(_complete, _ROWS))


class Rank(IntEnum):
    """The kinds of sources; a greater one takes precedence."""

    DEFAULT = 0
    SITE = 1
    USER = 2
    PROJECT = 3
    VARIABLE = 4
    COMMAND_LINE = 5


class Setting(NamedTuple):
    """A value and its source."""

    value: Any
    source: str  # as errors name it: 'run.stage in /sw/jaxsif/jaxsif.toml'
    rank: Rank = Rank.DEFAULT


NOTHING = Setting(None, "")  # for an option without a value


class RunOptions(NamedTuple):
    """The options of a run; each default here is the option's own, or None."""

    command: tuple[str, ...]  # the program and its arguments
    launcher: str | None = None  # a file of jaxsif/launch/launchers
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    node_range: tuple[int, int] | None = None  # the fewest and the most nodes, instead of `nodes`
    gpus: str | None = None  # N or TYPE:N, across all nodes
    gpus_per_node: str | None = None  # N or TYPE:N
    gpus_per_task: int | None = None
    gpu_type: str = ""  # of gpus_per_task
    cpus_per_task: int | None = None
    gpu_bind: str | None = None  # as for srun
    per_node: bool = False  # one process on each node
    per_gpu: bool = False  # one process for each GPU
    allow_uneven: bool = False  # processes and nodes may have different numbers of GPUs
    share_gpus: bool = False  # several tasks may share a GPU
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    passed: tuple[
        SrunArgument, ...
    ] = ()  # srun's own options on the command line, as one word each
    srun_args: tuple[SrunArgument, ...] = ()  # of --srun-args
    binds: tuple[str, ...] = ()  # SRC[:DEST[:OPTS]], as for the runtime
    env: tuple[tuple[str, str], ...] = ()  # variables for the container
    label: bool = False  # prefix output lines with the task's number
    log_dir: str | None = None  # for files of each task; launch/logs.py makes it their names
    history: bool = True  # keep how the run ended
    coordinator_ports: str | None = None  # FIRST-LAST, from which one is taken
    node_address: str | None = None  # how tasks reach a node, %N its name
    coordinator_tls: str = AUTO  # certificates for the coordinator, if possible; on, or OFF
    init_timeout: int | None = None  # seconds, of jax.distributed.initialize
    heartbeat_timeout: int | None = None
    shutdown_timeout: int | None = None
    hang_timeout: int | str = 60  # seconds that tasks may wait before a report, or OFF
    on_hang: str = REPORT  # what is done then; STOP ends the run, RESTART starts it again
    busy_timeout: int | str = OFF  # seconds that others may wait for a busy task
    check_programs: str = WARN  # what is done when tasks compile different programs; STOP, or OFF
    containers: str = NODE  # one container for all tasks on a node, or for each TASK
    max_restarts: int | None = None  # how often to start again after a failure
    spare_nodes: int | None = None  # nodes of the job that are unused until others fail
    checkpoints: str | None = None  # the program's folder, in which progress shows
    max_requeues: int | None = None  # how often the job may be requeued
    hosts: str | None = None  # NAME:SLOTS,... for mpirun
    hostfile: str | None = None  # a file with the hosts
    # Pass on only the variables in the table of container/environment.py.
    cleanenv: bool = False
    job_name: str = ""  # of a new job; the program's name if empty
    before: tuple[str, ...] = ()  # words that each task runs outside of the container
    ends_quietly: bool = False  # a signal is its usual end: show nothing after one
    sources: Mapping[str, Setting] = MappingProxyType({})  # all options, by their keys

    @property
    def hang_seconds(self) -> int:
        """Return the seconds that tasks may wait before a report; 0 for no reports."""
        return 0 if self.hang_timeout == OFF else int(self.hang_timeout)

    @property
    def busy_seconds(self) -> float:
        """Return the seconds that other tasks may wait for a busy task."""
        return math.inf if self.busy_timeout == OFF else int(self.busy_timeout)

    @property
    def srun_arguments(self) -> tuple[SrunArgument, ...]:
        """All srun options that the user passes on."""
        return (*self.passed, *self.srun_args)

    def source(self, key: str) -> str:
        """Return the source of an option for an error: 'run.stage in /sw/jaxsif/jaxsif.toml'."""
        return self.sources[key].source if key in self.sources else f"--{key}"

    def srun_source(self, flag: str) -> str:
        """Return the source of one of srun's own options: itself, or the setting that has it."""
        return flag if flag in [one.flag for one in self.passed] else self.source("srun-args")

    def is_on_command_line(self, key: str) -> bool:
        """Return whether the command line sets an option."""
        return key not in self.sources or self.sources[key].rank == Rank.COMMAND_LINE

    def name_requester(self, program: str, reason: str, only_named: bool = False) -> str:
        """Return the source of a request that `program` hands to Slurm: the program, and what has
        set the options that the `reason` of a refusal names, or whose values it has; if it has
        none, what has set any of jaxsif's own, or asks for resources, unless `only_named`.
        """
        words = _split_reason(reason)
        passed = [flag for one in self.passed for flag in (one.flag, *short_of(one.flag))]
        named = list(filter(words.__contains__, passed))
        asked = list(filter(_RESOURCES.__contains__, passed)) if _UNMET.search(reason) else []
        in_job = "create step" in reason  # where options that ask for a job have no effect
        for option in filter(lambda one: one.group == JOB and not (in_job and one.of_job), OPTIONS):
            setting = self.sources.get(option.key, NOTHING)
            if setting.rank > Rank.DEFAULT:
                asked.append(setting.source)
                if not words.isdisjoint((option.flag, *_list_words(setting))):
                    named.append(setting.source)
        sources = named or ([] if only_named else asked)
        return "; ".join(dict.fromkeys((program, *sources)))


# srun's own options that a node, or the job, may not be able to meet.
_RESOURCES = {
    *("--nodelist", "--exclude", "--exclusive", "--contiguous", "--switches", "--gres", "--tmp"),
    *("--mem", "--mem-per-cpu", "--mem-per-gpu", "--mincpus", "--cpus-per-gpu", "--tres-per-task"),
    *("--sockets-per-node", "--cores-per-socket", "--threads-per-core", "--licenses"),
}
_UNMET = re.compile("configuration|[Mm]ore processors|nodes|CPU|[Mm]emory")
# Words of Slurm's refusals that name no option -> the options that are meant.
_MEANT = {
    "invalid node name": "--nodelist --exclude",
    "memory specification": "--mem --mem-per-cpu --mem-per-gpu",
    "job dependency": "--dependency",
    "generic resource": "--gres --gpus --gpus-per-node --gpus-per-task",
    "trackable resource": "--tres-per-task",
    "licenses requested": "--licenses",
    "hostlist is empty": "--nodelist --exclude",
    "invalid qos": "--qos",
    "invalid partition": "--partition",
    "could not open stdout file": "--output",
    "could not open stderr file": "--error",
    "invalid license": "--licenses",
    "invalid feature": "--constraint",
    "reservation is invalid": "--reservation",
}


def _split_reason(reason: str) -> set[str]:
    """Return the words of a refusal, and the options that it means without naming them."""
    meant = " ".join(options for text, options in _MEANT.items() if text in reason.lower())
    return {word.strip("\"'.,:") for word in f"{reason} {meant}".replace("=", " ").split()}


def _list_words(setting: Setting) -> list[str]:
    """Return the words of a value, which is a text, a number or a list of texts; no numbers."""
    texts = setting.value if isinstance(setting.value, (list, tuple)) else [setting.value]
    words = " ".join(map(str, texts)).replace("=", " ").split()
    return [word for word in words if not word.isdigit()]


# The keys of the options for starting again, which only `jaxsif run` does.
OF_RESTARTS = tuple(option.key for option in OPTIONS if option.group == RESTARTS)
# The options that request a job, each with its field.
OF_JOB = tuple((option, option.field) for option in OPTIONS if option.of_job)
_OF_RUN = RunOptions._field_defaults
# Key -> the default of an option: from RunOptions, whose None and empty lists are not values; for
# options that become the container, from here.
DEFAULTS: dict[str, Any] = {
    **{
        digest.key: _OF_RUN[digest.field]
        for digest in OPTIONS
        if _OF_RUN.get(digest.field) not in (None, ())
    },
    "compile-cache": True,
    "stage": False,
    "stage-folder": "/tmp",
}


def add_arguments(
    parser: argparse.ArgumentParser, leave_out: Container[str] = ()
) -> dict[str, argparse._ArgumentGroup]:
    """Give a parser the options, in groups by their headings; return the groups. Options that the
    command line does not set are None in the namespace.

    Leave out the options whose keys are in `leave_out`: they mean nothing to the command.
    """
    groups = {heading: parser.add_argument_group(heading) for heading in _HEADINGS}
    for option in OPTIONS:
        if option.key in leave_out:
            continue
        how = {"dest": option.field, "help": option.help, **option.kind.argument}
        if option.kind != SWITCH:  # its action takes neither
            how.update(metavar=option.metavar, choices=option.choices)
        groups[option.group].add_argument(*option.names, default=None, **how)
    return groups


def read_variable(option: Option, text: str) -> Any:
    """Return the value of an option's variable; raise JaxsifError if it is not of the option's
    kind.
    """
    where = f"{option.variable} (environment)"

    def show(example: object) -> str:
        return f"export {option.variable}={'true' if example is True else example}"

    return _check(option, option.kind.read(text, where), text, option.variable, where, show)


def check_value(option: Option, value: object, name: str, where: str) -> Any:
    """Return the value of a key `name` in a file if it is of the option's kind; otherwise raise
    JaxsifError.
    """
    if option.kind == TEXT and type(value) is int and 0 <= value <= MOST_COUNT:
        value = str(value)  # gpus-per-node = 4
    if option.kind in (TIMEOUT, SECONDS) and isinstance(value, str):
        value = option.kind.read(value, where)  # hang-timeout = "5m"

    def show(example: object) -> str:
        import json  # needed only for a wrong value

        table, _, key = name.rpartition(".")
        return f"write {key} = {json.dumps(example, ensure_ascii=False)} below [{table}]"

    return _check(option, value, value, name, where, show)


def _check(
    option: Option,
    value: object,
    written: object,
    name: str,
    where: str,
    show: Callable[[object], str],
) -> Any:
    """Return the value if it is of the option's kind; otherwise raise JaxsifError with the value as
    the user has `written` it, and an example that `show` renders.
    """
    if not option.kind.fits(value):
        is_list = option.kind.fits([])  # whose words may be secret, as those of env
        shown = "" if is_list else enclose(": ", _quote(written))
        what = f"{name} is not {option.kind.words}{shown}"
        raise JaxsifError(what, where, show(_example_of(option, written)))
    texts = value if isinstance(value, list) else [str(value)]
    if "\0" in "".join(texts):
        raise JaxsifError(
            f"{name} has a NUL character", where, "no path, argument or variable can have one"
        )
    if option.choices and value not in option.choices:
        choices = " or ".join(option.choices)
        what = f"{name} is not {choices}: {_quote(str(value))}"
        raise JaxsifError(what, where, show(_example_of(option, written)))
    return value


def _example_of(option: Option, written: object) -> object:
    """Return a value of the option's kind, for a user who has `written` another."""
    if _SWITCHES.get(_quote(written).strip("'").lower()) is False:
        if option.kind == SWITCH:
            return False
        if option.kind == SECONDS or OFF in (option.choices or ()):
            return OFF
    if option.choices:
        return option.choices[0]
    if option.kind.example is not None:
        return option.kind.example
    word = option.metavar or "VALUE"
    return [word] if option.kind.fits([]) else word


def _quote(value: object) -> str:
    """Return a value as errors show it, '' for lists and tables, which may be long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return shorten(hex(value) if value > MOST_COUNT else str(value))  # str refuses long ones
    return repr(shorten(value)) if isinstance(value, str) else ""
