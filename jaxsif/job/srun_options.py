"""The options of srun, from its --help, and how jaxsif handles each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from jaxsif.errors import JaxsifError
from jaxsif.limits import is_decimal, read_number

# Whether an option has a value: never, always, or only after '='.
BARE, VALUE, MAYBE = "", "VALUE", "[=VALUE]"
# How an option is handled. OWN: jaxsif has it itself, under the same name. REFUSED: jaxsif does it
# another way. The others go to srun unchanged; they apply to a JOB only, to a STEP only, or to
# BOTH. A job script has those of a job as #SBATCH lines.
OWN, REFUSED, JOB, STEP, BOTH = "own", "refused", "job", "step", "job and step"
_PASSED = (JOB, STEP, BOTH)


class SrunOption(NamedTuple):
    """An option of srun."""

    flag: str
    short: str  # '' without one
    value: str  # BARE, VALUE or MAYBE
    handled: str
    instead: str = ""  # what to use instead, if REFUSED

    @property
    def names(self) -> tuple[str, ...]:
        """Return the long name, and the short one if there is one."""
        return (self.flag, self.short) if self.short else (self.flag,)


class SrunArgument(NamedTuple):
    """An option of srun as the user wrote it."""

    flag: str  # the long one
    value: str | None
    words: tuple[str, ...]  # as given


_LEAVE_OUT = "leave it out: "
# Of Slurm 24.11 to 26.05; tests/cluster/test_srun_options.py compares it with srun --help.
TABLE = (
    SrunOption("--accel-bind", "", VALUE, REFUSED, "--gpu-bind=TYPE"),
    SrunOption("--account", "-A", VALUE, OWN),
    SrunOption("--acctg-freq", "", VALUE, BOTH),
    SrunOption("--async", "", BARE, REFUSED, "jaxsif submit"),
    SrunOption("--bb", "", VALUE, JOB),
    SrunOption("--bbf", "", VALUE, JOB),
    SrunOption("--bcast", "", MAYBE, REFUSED, "--stage"),
    SrunOption("--bcast-exclude", "", VALUE, REFUSED, "--stage"),
    SrunOption("--begin", "-b", VALUE, JOB),
    SrunOption("--chdir", "-D", VALUE, BOTH),
    SrunOption("--cluster-constraint", "", VALUE, JOB),
    SrunOption("--clusters", "-M", VALUE, JOB),
    SrunOption("--comment", "", VALUE, JOB),
    SrunOption("--compress", "", MAYBE, REFUSED, "--stage"),
    SrunOption("--consolidate-segments", "", BARE, JOB),
    SrunOption("--constraint", "-C", VALUE, OWN),
    SrunOption("--container", "", VALUE, REFUSED, "--image PATH"),
    SrunOption("--container-id", "", VALUE, REFUSED, "--image PATH"),
    SrunOption("--container-type", "", VALUE, REFUSED, "--image PATH"),
    SrunOption("--contiguous", "", BARE, JOB),
    SrunOption("--core-spec", "-S", VALUE, JOB),
    SrunOption("--cores-per-socket", "", VALUE, JOB),
    SrunOption("--cpu-bind", "", VALUE, STEP),
    SrunOption("--cpu-freq", "", VALUE, BOTH),
    SrunOption("--cpus-per-gpu", "", VALUE, JOB),
    SrunOption("--cpus-per-task", "-c", VALUE, OWN),
    SrunOption("--deadline", "", VALUE, JOB),
    SrunOption("--delay-boot", "", VALUE, JOB),
    SrunOption("--dependency", "-d", VALUE, JOB),
    SrunOption("--disable-status", "-X", BARE, STEP),
    SrunOption("--distribution", "-m", VALUE, BOTH),
    SrunOption("--epilog", "", VALUE, STEP),
    SrunOption(
        "--error",
        "-e",
        VALUE,
        REFUSED,
        "2>FILE in the shell, or jaxsif submit --error; for a variable, --env",
    ),
    SrunOption("--exact", "", BARE, STEP),
    SrunOption("--exclude", "-x", VALUE, BOTH),
    SrunOption("--exclusive", "", MAYBE, BOTH),
    SrunOption("--export", "", VALUE, REFUSED, "--env NAME=VALUE, or --cleanenv"),
    SrunOption("--external-launcher", "", MAYBE, REFUSED, "--launcher mpirun"),
    SrunOption("--extra", "", VALUE, JOB),
    SrunOption("--extra-node-info", "-B", VALUE, JOB),
    SrunOption("--gpu-bind", "", VALUE, OWN),
    SrunOption("--gpu-freq", "", VALUE, BOTH),
    SrunOption("--gpus", "-G", VALUE, OWN),
    SrunOption("--gpus-per-node", "", VALUE, OWN),
    SrunOption("--gpus-per-socket", "", VALUE, REFUSED, "--gpus-per-node=N"),
    SrunOption("--gpus-per-task", "", VALUE, OWN),
    SrunOption("--gres", "", VALUE, BOTH),
    SrunOption("--gres-flags", "", VALUE, JOB),
    SrunOption("--help", "-h", BARE, OWN),
    SrunOption("--het-group", "", VALUE, REFUSED, f"{_LEAVE_OUT}a run uses all components"),
    SrunOption("--hint", "", VALUE, BOTH),
    SrunOption("--hold", "-H", BARE, JOB),
    SrunOption("--ignore-signals", "", VALUE, STEP),
    SrunOption("--immediate", "-I", MAYBE, STEP),
    SrunOption("--input", "-i", VALUE, REFUSED, "<FILE in the shell"),
    SrunOption("--job-name", "-J", VALUE, BOTH),
    SrunOption("--jobid", "", VALUE, STEP),
    SrunOption(
        *("--kill-on-bad-exit", "-K", MAYBE, REFUSED),
        f"{_LEAVE_OUT}a failed task always ends the run",
    ),
    SrunOption("--label", "-l", BARE, OWN),
    SrunOption("--licenses", "-L", VALUE, JOB),
    SrunOption("--mail-type", "", VALUE, JOB),
    SrunOption("--mail-user", "", VALUE, JOB),
    SrunOption("--mcs-label", "", VALUE, JOB),
    SrunOption("--mem", "", VALUE, BOTH),
    SrunOption("--mem-bind", "", VALUE, STEP),
    SrunOption("--mem-per-cpu", "", VALUE, BOTH),
    SrunOption("--mem-per-gpu", "", VALUE, BOTH),
    SrunOption("--mincpus", "", VALUE, JOB),
    SrunOption("--mpi", "", VALUE, STEP),
    SrunOption("--msg-timeout", "", VALUE, STEP),
    SrunOption("--multi-prog", "", BARE, REFUSED, "one program that calls jax.process_index()"),
    SrunOption("--network", "", VALUE, BOTH),
    SrunOption("--nice", "", MAYBE, JOB),
    SrunOption("--no-allocate", "-Z", BARE, REFUSED, f"{_LEAVE_OUT}tasks need a job"),
    SrunOption("--no-kill", "-k", MAYBE, BOTH),
    SrunOption("--nodefile", "-F", VALUE, BOTH),
    SrunOption("--nodelist", "-w", VALUE, BOTH),
    SrunOption("--nodes", "-N", VALUE, OWN),
    SrunOption("--ntasks", "-n", VALUE, OWN),
    SrunOption("--ntasks-per-core", "", VALUE, REFUSED, "--ntasks-per-node=N"),
    SrunOption("--ntasks-per-gpu", "", VALUE, BOTH),
    SrunOption("--ntasks-per-node", "", VALUE, OWN),
    SrunOption("--ntasks-per-socket", "", VALUE, REFUSED, "--ntasks-per-node=N"),
    SrunOption("--ntasks-per-tres", "", VALUE, REFUSED, "--ntasks-per-node=N"),
    SrunOption("--oom-kill-step", "", MAYBE, BOTH),
    SrunOption("--open-mode", "", VALUE, REFUSED, "jaxsif submit --task-output=FILE"),
    SrunOption("--output", "-o", VALUE, REFUSED, ">FILE in the shell, or jaxsif submit --output"),
    SrunOption("--overcommit", "-O", BARE, BOTH),
    SrunOption("--overlap", "", MAYBE, STEP),
    SrunOption("--oversubscribe", "-s", BARE, JOB),
    SrunOption("--parsable", "", BARE, REFUSED, "jaxsif submit"),
    SrunOption("--partition", "-p", VALUE, OWN),
    SrunOption("--power", "", VALUE, REFUSED, f"{_LEAVE_OUT}it appears only in srun's help"),
    SrunOption("--prefer", "", VALUE, JOB),
    SrunOption(
        *("--preserve-env", "-E", BARE, REFUSED),
        f"{_LEAVE_OUT}the job's numbers of nodes and tasks apply anyway",
    ),
    SrunOption("--priority", "", VALUE, JOB),
    SrunOption("--profile", "", VALUE, BOTH),
    SrunOption("--prolog", "", VALUE, STEP),
    SrunOption("--propagate", "", MAYBE, STEP),
    SrunOption("--pty", "", MAYBE, REFUSED, "jaxsif shell"),
    SrunOption("--qos", "-q", VALUE, JOB),
    SrunOption("--quiet", "-Q", BARE, STEP),
    SrunOption("--quit-on-interrupt", "", BARE, STEP),
    SrunOption("--reboot", "", BARE, JOB),
    SrunOption("--relative", "-r", VALUE, STEP),
    SrunOption("--reservation", "", VALUE, JOB),
    SrunOption("--resv-ports", "", MAYBE, STEP),
    SrunOption("--segment", "", VALUE, JOB),
    SrunOption("--send-libs", "", MAYBE, REFUSED, "--stage"),
    SrunOption("--signal", "", VALUE, JOB),
    SrunOption("--slurmd-debug", "", VALUE, STEP),
    SrunOption("--sockets-per-node", "", VALUE, JOB),
    SrunOption("--spread-job", "", BARE, JOB),
    SrunOption("--spread-segments", "", BARE, JOB),
    SrunOption("--stepmgr", "", BARE, JOB),
    SrunOption("--switches", "", VALUE, JOB),
    SrunOption("--task-epilog", "", VALUE, STEP),
    SrunOption("--task-prolog", "", VALUE, STEP),
    SrunOption("--tasks-per-node", "", VALUE, BOTH),
    SrunOption("--test-only", "", BARE, REFUSED, "--dry-run"),
    SrunOption("--thread-spec", "", VALUE, JOB),
    SrunOption("--threads", "-T", VALUE, STEP),
    SrunOption("--threads-per-core", "", VALUE, BOTH),
    SrunOption("--time", "-t", VALUE, OWN),
    SrunOption("--time-min", "", VALUE, JOB),
    SrunOption("--tmp", "", VALUE, JOB),
    SrunOption("--treewidth", "", VALUE, STEP),
    SrunOption("--tres-bind", "", VALUE, REFUSED, "--gpu-bind=TYPE"),
    SrunOption(
        *("--tres-per-task", "", VALUE, REFUSED),
        "--gpus-per-task=N and --cpus-per-task=N",
    ),
    SrunOption("--unbuffered", "-u", BARE, STEP),
    SrunOption("--usage", "", BARE, REFUSED, "--help"),
    SrunOption("--use-min-nodes", "", BARE, JOB),
    SrunOption("--verbose", "-v", BARE, OWN),
    SrunOption("--version", "-V", BARE, REFUSED, "jaxsif version"),
    SrunOption("--wait", "-W", VALUE, STEP),
    SrunOption("--wait-for-children", "", BARE, STEP),
    SrunOption("--wckey", "", VALUE, JOB),
    SrunOption("--x11", "", MAYBE, STEP),
)
BY_FLAG = {name: option for option in TABLE for name in option.names}
# Options that let srun run other programs and containers, set variables outside the container,
# such as LD_PRELOAD, or open the user's display.
_UNSAFE = (
    *("--bcast", "--container", "--container-id", "--container-type", "--epilog", "--export"),
    *("--multi-prog", "--prolog", "--task-epilog", "--task-prolog", "--x11"),
)


def short_of(flag: str) -> tuple[str, ...]:
    """Return a tuple with srun's short name of an option, empty if there is none."""
    return BY_FLAG[flag].names[1:] if flag in BY_FLAG else ()


def flag_of(word: str) -> str:
    """Return the name that a word of a command line begins with: --nodes of --nodes=2, -N of
    -N2.
    """
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def takes_value_after_equals(word: str) -> bool:
    """Return whether a word is the name of an option that takes no value from the next word."""
    return word in BY_FLAG and BY_FLAG[word].value == MAYBE


def _find_option(name: str) -> SrunOption:
    return BY_FLAG.get(name) or SrunOption(name, "", BARE, STEP)  # of a plugin


def split_options(words: Sequence[str]) -> Iterator[SrunArgument]:
    """Yield the options among `words`, in any of the forms --a=1, --a 1, -a1 and -a 1. A word that
    is not one of srun's options is yielded alone, with the text after '=' as its value.
    """
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = flag_of(word)
        option = _find_option(name)
        following = word[len(name) :]
        value = (following[1:] if word.startswith("--") else following) if following else None
        used = [word]
        if option.value == VALUE and value is None and rest:
            value = rest.pop(0)
            used.append(value)
        yield SrunArgument(option.flag, value, tuple(used))


def select(arguments: Iterable[SrunArgument], *handled: str) -> tuple[SrunArgument, ...]:
    """Return the options that are handled in one of these ways; those of plugins are a step's."""
    return tuple([one for one in arguments if _find_option(one.flag).handled in handled])


def join(arguments: Iterable[SrunArgument]) -> tuple[str, ...]:
    """Return the words of options."""
    return tuple([word for one in arguments for word in one.words])


def find_unsafe(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that a stranger's file must not pass to srun, with their values: options such
    as --prolog=FILE, and words that are not options, which srun takes for the program.

    Every word counts, even the value of another option. srun also accepts the beginning of an
    option's name, and plugins such as pyxis have more options for containers.
    """
    for word, following in zip(words, [*words[1:], ""]):
        name = flag_of(word)
        is_long = name.startswith("--") and name not in BY_FLAG
        begins = is_long and any(option.startswith(name) for option in _UNSAFE)
        if name in _UNSAFE or begins or (is_long and name.startswith("--container")):
            yield word if "=" in word else f"{word} {following}".strip()
    yield from (one.words[0] for one in split_options(words) if not one.flag.startswith("-"))


def find_stray(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that are no option. One after an unknown option, or after several short ones
    in one word such as -lc, may be a value.
    """
    before = "--"
    for one in split_options(words):
        word = one.words[0]
        option = BY_FLAG.get(flag_of(before))
        may_be_value = (
            option.value == BARE and before not in option.names if option else "=" not in before
        )
        if not word.startswith("-") and (before == "--" or not may_be_value):
            yield word
        before = word if word.startswith("-") else "--"


MEMORY = {"--mem", "--mem-per-cpu", "--mem-per-gpu"}


class StepOptions(NamedTuple):
    """The options of a step for srun."""

    # An option -> its value, in the order of the words: True for a bare name, and None, False or 0
    # for nothing.
    planned: Mapping[str, object]
    further: tuple[SrunArgument, ...] = ()  # the user's own, which take precedence

    def value(self, option: str) -> str:
        """Return the value of an option, or ''; the last one counts, as in srun."""
        own = [one.value for one in self.further if one.flag == option]
        *_, last = (self.planned.get(option), *own)
        return str(last or "")

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments for srun, without those that the user's own options replace."""
        own = {one.flag for one in self.further}
        if own & MEMORY:  # srun takes only one of them
            own |= MEMORY
        words = [
            name if value is True else f"{name}={value}"
            for name, value in self.planned.items()
            if value not in (None, False) and name not in own
        ]
        return (*words, *join(self.further))


# srun's option -> the key of jaxsif's option with the same meaning, and the reader of its value.
_SAME: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--nodes": ("nodes", read_number),
    "--ntasks": ("ntasks", read_number),
    "--ntasks-per-node": ("ntasks-per-node", read_number),
    "--tasks-per-node": ("ntasks-per-node", read_number),
    "--gpus-per-node": ("gpus-per-node", str),
    "--gpus-per-task": ("gpus-per-task", read_number),
    "--cpus-per-task": ("cpus-per-task", read_number),
    "--gpu-bind": ("gpu-bind", str),
}
_GPU = "gpu"


def translate(argument: SrunArgument) -> tuple[str, Any, tuple[SrunArgument, ...]]:
    """Return the key of jaxsif's option with the same meaning, its value, and the rest for srun.

    The value is None for an option that does not affect the layout, and for any value that is not a
    plain number, as in --nodes=2-4: srun gets the option unchanged. Raise JaxsifError for several
    tasks on each GPU.
    """
    value = argument.value or ""
    if argument.flag == "--gres":
        gpus, others = _split_resources(value.split(","))
        left = ",".join(others)
        rest = (SrunArgument("--gres", left, (f"--gres={left}",)),) if others else ()
        return ("gpus-per-node", gpus, rest) if gpus else ("", None, (argument,))
    if argument.flag == "--ntasks-per-gpu":
        if value != "1":
            raise JaxsifError(
                f"--ntasks-per-gpu must be 1, not {value!r}",
                "--ntasks-per-gpu",
                "--ntasks-per-node=N --share-gpus",
            )
        return "per-gpu", True, ()
    if argument.flag == "--label":
        return "label", True, ()
    if argument.flag not in _SAME:
        return "", None, (argument,)
    key, read = _SAME[argument.flag]
    number = read(value)
    return key, number, (argument,) if number is None else ()


def _split_resources(resources: Iterable[str]) -> tuple[str, list[str]]:
    """Return the GPUs in a list of generic resources, in the form of --gpus-per-node, and the other
    resources.
    """
    gpus, others = [], []
    for resource in resources:
        name, *parts = resource.replace("=", ":").split(":")
        number = [] if parts and is_decimal(parts[-1]) else ["1"]
        if name == _GPU:
            gpus.append(":".join(parts + number))
        else:
            others.append(resource)
    return ",".join(gpus), others


FIELD = "passed"  # the name in the namespace: flag -> SrunArgument
# Remedies for values that Slurm cannot read.
FORMS = {
    "--time": "write minutes, as 120, hours, as 2:00:00, or days, as 1-12:00:00",
    "--mem": "write megabytes, as 16000, or gigabytes, as 16G",
}


def suggest_list(reason: str) -> str:
    """Return the command that lists what a refused request names and Slurm does not have, or ''."""
    words = ("reservation", "license")
    known = (f"scontrol show {word} lists all" for word in words if word in reason.lower())
    return next(known, "")


_TITLE = "srun's own options"
_TEXT = """\
  -J --job-name, -q --qos, --mem, --mem-per-cpu, --gres, --exclusive,
  --reservation, -w --nodelist, -x --exclude, -d --dependency, --begin,
  --nice, -L --licenses, --signal, --comment, -m --distribution, --cpu-bind,
  --mpi, ...: docs/srun.md lists them"""


class PassedOptions(argparse.Action):
    """srun options that all take a value, or that all take none; argparse handles many as fast as
    one.
    """

    @property
    def parts(self) -> list[argparse.Action]:
        """Return an action for each option, as completion and man pages describe it."""
        how: dict[str, Any] = {
            "nargs": self.nargs,
            "metavar": self.metavar,
            "help": "same as srun's",
        }
        flags = [name for name in self.option_strings if name.startswith("--")]
        return [argparse.Action(BY_FLAG[flag].names[::-1], self.dest, **how) for flag in flags]

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the option that was given, with its value if it has one."""
        words = [option_string or "", *([values] if isinstance(values, str) else [])]
        self._take(parser, namespace, words)

    def _take(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Sequence[str]
    ) -> None:
        """Keep the word for srun, in place of an earlier one for the same option."""
        for planned in split_options(words):
            word = planned.flag if planned.value is None else f"{planned.flag}={planned.value}"
            before = getattr(namespace, self.dest) or {}
            setattr(namespace, self.dest, {**before, planned.flag: planned._replace(words=(word,))})


class _RefusedOptions(PassedOptions):
    """srun options that mean nothing to a command, or that jaxsif has in another form."""

    @property
    def parts(self) -> list[argparse.Action]:
        """Return no actions: none of these options is offered."""
        return []

    def _take(
        self, parser: argparse.ArgumentParser, _namespace: argparse.Namespace, words: Sequence[str]
    ) -> NoReturn:
        """Raise JaxsifError, which suggests an alternative."""
        option = BY_FLAG[flag_of(words[0])]
        hint = _find_hint(parser, option.instead or option.flag)
        raise JaxsifError(f"{option.flag} is not for {parser.prog}", option.flag, hint)


def _find_hint(parser: argparse.ArgumentParser, instead: str) -> str:
    """Return the alternative in this command; `instead` is the one in `jaxsif run`."""
    if instead == parser.prog:
        return f"leave it out: {instead} always does so"
    if not instead.startswith("--"):
        return instead
    offered = list_offered(parser)
    ways = [way for way in instead.split(", or ") if re.split("[ =]", way)[0] in offered]
    return ", or ".join(ways) or f"leave it out, or jaxsif run {instead}"


def list_offered(parser: argparse.ArgumentParser) -> set[str]:
    """Return the names of a command's options, without those that it knows only to refuse them."""
    actions = parser._option_string_actions.items()
    return {name for name, action in actions if not isinstance(action, _RefusedOptions)}


def add_srun_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the srun options that it does not have itself.

    Those that jaxsif has elsewhere are refused here.
    """
    group = parser.add_argument_group(_TITLE, _TEXT)
    known = parser._option_string_actions
    kinds: dict[str, list[str]] = {BARE: [], VALUE: [], MAYBE: [], REFUSED: []}
    for name, option in BY_FLAG.items():
        if option.flag not in known and name not in known:
            kinds[option.value if option.handled in _PASSED else REFUSED].append(name)
    how: dict[str, Any] = {"dest": FIELD, "metavar": VALUE, "help": argparse.SUPPRESS}
    for kind, names in kinds.items():
        action = _RefusedOptions if kind == REFUSED else PassedOptions
        group.add_argument(*names, action=action, nargs=None if kind == VALUE else 0, **how)


def admit_values(parser: argparse.ArgumentParser, words: Iterable[str]) -> None:
    """Accept options that can have a value only after '=', such as --nice=100.

    argparse would take the next word, which can be the program, for the value of --nice.
    """
    known = parser._option_string_actions
    for word in words:
        name = flag_of(word)
        action = known.get(name)
        if isinstance(action, PassedOptions) and action.nargs == 0 and BY_FLAG[name].value != BARE:
            known.setdefault(word, action)
