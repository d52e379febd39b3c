"""The command jaxsif: parse, dispatch, print errors once, return the exit code.

It uses argparse, because a run must start fast and the alternatives take 20 ms more to import. A
command's module under `jaxsif.commands` is imported only when the command is called.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from jaxsif import __version__
from jaxsif.commands import Call, Verb
from jaxsif.errors import DISK_FULL, PIPE_CLOSED, HostError, JaxsifError
from jaxsif.job.srun_options import (
    FORMS,
    MEMORY,
    admit_values,
    flag_of,
    list_offered,
    takes_value_after_equals,
)
from jaxsif.text import enclose, shorten

if TYPE_CHECKING:
    from jaxsif.help.describe import Program

# Values of options such as --nice=100 and --exclusive=user, which cannot be the program's name.
_AFTER_EQUALS = re.compile(r"(\d+|user|mcs|topo)$")
_DESCRIPTION = """\
JAX in Singularity/Apptainer images on Slurm clusters.

  jaxsif run -- python train.py         one process per GPU, in a job or here
  jaxsif image build --flavour cuda12   build an image
"""

# Each command -> one line of help, in the order of --help.
COMMANDS = {
    ("run",): "run a program, one task per GPU",
    ("submit",): "write a job script that runs a program, and submit it",
    ("shell",): "open a shell in the image, on a compute node",
    ("jupyter",): "start a Jupyter server in the image, on a compute node",
    ("doctor",): "check image, nodes, network and JAX before a run",
    ("stacks",): "show what each task of a running step is doing",
    ("history",): "list recent runs, or show one",
    ("explain",): "explain known messages in a log",
    ("config",): "show each setting and its source",
    ("image", "build"): "build an image, unless it already exists",
    ("image", "lock"): "pin a flavour's packages to versions and hashes",
    ("image", "inspect"): "show an image's versions, digest and signers",
    ("image", "diff"): "compare two images",
    ("image", "convert"): "convert a Dockerfile to a definition file",
    ("image", "sbom"): "print the bill of materials of an image",
    ("image", "list"): "list the images in a folder",
    ("image", "pull"): "download an image, and check it",
    ("image", "sign"): "sign an image with a private key",
    ("image", "verify"): "verify that an image is signed by a key",
    ("layer", "create"): "make a layer: add packages to an image",
    ("layer", "list"): "list the layers",
    ("layer", "show"): "show a layer's packages and image",
    ("layer", "update"): "rebuild a layer for the current image",
    ("layer", "remove"): "remove a layer",
    ("module", "add"): "write the module for an image",
    ("module", "default"): "set the default module",
    ("module", "list"): "list the modules",
    ("module", "remove"): "remove a module",
    ("bench", "collectives"): "measure collectives and the links between nodes",
    ("bench", "train"): "measure training steps, on increasing numbers of processes",
    ("bench", "startup"): "break start-up time down by phase",
    ("bench", "compare"): "compare two sets of results, and list what got worse",
    ("bench", "plot"): "plot results",
    ("home",): "print the folder with the example programs",
    ("completion",): "print the completion script for a shell",
    ("help",): "show what a command does, and its options",
    ("version",): "show the version; with --verbose, what a bug report needs",
}
_ABOUT = ("home", "completion", "help", "version")  # share a module
_GROUPS = {
    "image": "build, sign, download and inspect images",
    "layer": "add packages to an image",
    "module": "add, list and remove the modules for images",
    "bench": "measure, compare and plot",
}


_UNITS = "s|secs?|seconds?|m|mins?|minutes?|h|hours?"
_COUNTED = "tasks|nodes|(?i:[cg]pus)"  # after a number, and no program's name
# What to do about an error of the system that no command explains itself.
_OF_REASONS = (
    ((errno.EACCES, errno.EPERM), "correct the permissions, or use another folder"),
    ((errno.EROFS,), "call it on a host that may write there, or use another folder"),
    ((errno.ENOTDIR,), "use another folder: there is a file where a folder is needed"),
    ((errno.EEXIST, errno.EISDIR), "move what is in the way, or use another folder"),
    (DISK_FULL, "free space there, or use another folder"),
    ((errno.EMFILE,), "raise the limit that ulimit -n shows"),
)
# Words that are not a command, and whose help lists commands.
_INDEXES = {(), *((group,) for group in _GROUPS)}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that is given the terminal's width: argparse makes a formatter for each parser,
    and would import shutil, which takes 2 ms, to find the width.
    """

    def __init__(self, prog: str) -> None:
        columns = 0
        with suppress(ValueError):  # not a number
            columns = int(os.environ.get("COLUMNS", "")[:5])
        with suppress(OSError):  # standard output is not a terminal
            columns = columns or os.get_terminal_size(1).columns
        super().__init__(prog, width=(columns or 80) - 2)


class _Parser(argparse.ArgumentParser):
    """A parser that raises jaxsif's own errors, and prints help as it is written here."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", _Formatter)
        super().__init__(allow_abbrev=False, **options)  # type: ignore[arg-type]

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        # argparse would pass a command's unknown words up to the parser of jaxsif, which would
        # report them under its own name and point to its own help.
        admit_values(self, args)
        self._words = list(args)
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            raise _UnknownError(self, unknown)
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument -h/"):
            self._check_help()
        value = re.match(r"argument -\S+: ('[a-z].*') is not ", message)
        words = [word for word in self._words if value and repr(word[2:]) == value[1]]
        if words:  # such as -np or -nodes=2
            raise _UnknownError(self, words[:1]).explain(())
        message = re.sub(r"^argument ([^\s:]*/[^\s:]*)", self._name_argument, message)
        message = re.sub(
            r"^argument (\S+)(?: \(\S+\))?: ignored explicit argument ",
            r"\1 takes no value: ",
            message,
        )
        bare = re.match(r"argument (--\S+-args): expected one argument", message)
        hint = f"{bare[1]}=--OPTION, in one word" if bare else f"{self.prog} --help"
        raise JaxsifError(message, self.prog, hint)

    def print_help(self, file: Any = None) -> None:
        self._check_help()
        super().print_help(file)

    def _check_help(self) -> None:
        """Raise JaxsifError for a word like -hang-timeout, which argparse takes for -h."""
        words = [word for word in self._words if re.match("-h.", word)]
        if words and not {"-h", "--help"}.intersection(self._words):
            raise _UnknownError(self, words[:1]).explain(())

    def _name_argument(self, found: re.Match[str]) -> str:
        """Return 'argument NAME', with only the name that the command line gives without a value,
        or else with one after '='; argparse joins all names of the option.
        """
        names = found[1].split("/")
        given = [name for name in map(flag_of, self._words) if name in names]
        following = [*self._words[1:], "-"]
        alone = (
            word
            for word, after in zip(self._words, following)
            if word in names and after.startswith("-")
        )
        name = next(alone, [*given, names[-1]][0])
        is_short = len(name) == 2 and names[-1] != name
        return f"argument {name}{enclose(' (', names[-1] if is_short else '', ')')}"


class _UnknownError(Exception):
    """A command line with words that the command does not know."""

    def __init__(self, parser: _Parser, words: Sequence[str]) -> None:
        super().__init__(*words)
        self.parser = parser
        self.words = words

    def explain(self, before_program: Sequence[str]) -> JaxsifError:
        """Return the error that names all unknown options, and the nearest known ones.

        `before_program` holds the words before '--', which are all meant for jaxsif.
        """
        from jaxsif.help.nearest import suggest_options
        from jaxsif.settings.options import OPTIONS

        known = {name for name in list_offered(self.parser) if "=" not in name}
        dashed = [word for word in before_program if word.startswith("-")]
        others = [word for word in dashed if not {word, flag_of(word)} & known]
        words = list(dict.fromkeys([*self.words, *others]))
        prog = self.parser.prog
        of_run = [option.flag for option in OPTIONS]
        hint = suggest_options(words, known, of_run) or f"{prog} --help"
        places = {f"--{one.dest}": one.metavar for one in self.parser._get_positional_actions()}
        if flag_of(words[0]) in places:
            hint = f"give {places[flag_of(words[0])]} without {flag_of(words[0])}"
        hint = self._suggest_command(prog) or hint
        return JaxsifError(f"unrecognized arguments: {' '.join(words)}", prog, hint)

    def _suggest_command(self, prog: str) -> str:
        """Suggest what to do in place of this command, or return ''."""
        import shlex

        if prog == "jaxsif shell" and re.match("--$|python", self.words[0]):  # it takes no program
            words = shlex.join(self.words)
            return shorten(f"jaxsif run {words.replace('-- -', '-- sh -', 1)}")
        if prog == "jaxsif image convert" and flag_of(self.words[0]) in ("-o", "--output"):
            return "jaxsif image convert FILE > OUTPUT"
        if prog == "jaxsif config" and not self.words[0].startswith("-"):
            return "jaxsif config KEY shows one; lines of a jaxsif.toml set them: docs/config.md"
        return ""


def find_command(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command that the first words of `argv` name, or None."""
    if argv and argv[0].startswith("-"):  # an option of jaxsif, or out of place
        return None
    return next(filter(COMMANDS.__contains__, (tuple(argv[:1]), tuple(argv[:2]))), None)


def build_parsers(
    command: tuple[str, ...] | None,
) -> dict[tuple[str, ...], _Parser]:
    """Return the parser of jaxsif under the key (), and those of the commands and groups that share
    the first word of `command`; without a command, those of all commands. Only the parser of
    `command` has options: it would take time to build those of all commands.
    """
    parser = _Parser(prog="jaxsif", description=_DESCRIPTION)
    parser.add_argument("-V", "--version", action="version", version=f"jaxsif {__version__}")
    parsers: dict[tuple[str, ...], _Parser] = {(): parser}
    # prog is given, because argparse would import a help formatter to work it out.
    top = parser.add_subparsers(metavar="COMMAND", required=True, prog="jaxsif")
    below: dict[tuple[str, ...], Any] = {(): top}
    for name, text in COMMANDS.items():
        group = name[:-1]
        if command and name[0] != command[0]:
            continue  # not on the command line
        if group not in below:
            help_text = _GROUPS[name[0]]
            above = top.add_parser(
                name[0], help=help_text, description=f"{help_text.capitalize()}."
            )
            parsers[group] = above
            below[group] = above.add_subparsers(
                metavar="VERB", required=True, prog=f"jaxsif {name[0]}"
            )
        parsers[name] = below[group].add_parser(name[-1], help=text)
    if command in COMMANDS:
        verb = _import_command(command)
        parsers[command].description = verb.description
        parsers[command].epilog = verb.epilog
        verb.add_options(parsers[command])
        parsers[command].set_defaults(call=verb.call)
    return parsers


def _import_command(command: tuple[str, ...]) -> Verb:
    """Import the module of one command, or of its group."""
    name = "about" if command[0] in _ABOUT else command[0]
    module = import_module(f"jaxsif.commands.{name}")
    if hasattr(module, "VERBS"):
        verb: Verb = module.VERBS[command[-1]]
        return verb
    epilog = getattr(module, "EPILOG", None)
    return Verb(module.DESCRIPTION, module.add_options, module.call, epilog)


def describe_all() -> Program:
    """Describe all parsers, for the commands that deal with all commands."""
    from jaxsif.help.describe import Program, describe_command

    commands = tuple(
        describe_command(name, text, build_parsers(name)[name]) for name, text in COMMANDS.items()
    )
    return Program(_GROUPS, commands)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse options up to the first '--', and leave the program after it untouched: argparse would
    drop a '--' among the program's arguments.
    """
    end = [*argv, "--"].index("--")
    command = find_command(argv)
    if command is None:
        _check_command(argv)
    parsers = build_parsers(command)
    parser = parsers[()]
    try:
        arguments = parser.parse_args(argv[:end])
        if not hasattr(arguments, "command") and end < len(argv):
            # This command takes no program: let argparse refuse the words after '--'.
            parser.parse_args(argv)
    except (JaxsifError, _UnknownError) as error:
        raise _find_mistake(error, parsers[command or ()], argv[:end], end < len(argv)) from None
    if hasattr(arguments, "command"):
        name = " ".join(("jaxsif", *(command or ())))
        first = [*arguments.command, "?"][0]
        if first[:1] in ("", "-"):
            _refuse_first(first, command or ())
        if arguments.command and end < len(argv):
            _check_program(arguments.command, argv[:end], name)
        arguments.command += argv[end:] if arguments.command else argv[end + 1 :]
    return arguments


def _find_mistake(
    error: JaxsifError | _UnknownError, parser: _Parser, words: Sequence[str], has_program: bool
) -> JaxsifError:
    """Return the error of a parser, or one that names unknown options among `words`, whose values
    argparse takes for arguments.
    """
    if isinstance(error, _UnknownError):
        return error.explain(words if has_program else ())
    takes_program = any(action.dest == "command" for action in parser._actions)
    if takes_program or parser.prog == "jaxsif":  # or no command was found
        return error
    known = parser._option_string_actions
    options = [word for word in words if word.startswith("--")]
    unknown = [word for word in options if flag_of(word) not in known]
    return _UnknownError(parser, unknown).explain(()) if unknown else error


def _refuse_first(first: str, command: tuple[str, ...]) -> None:
    """Raise JaxsifError for a program's name that is empty, or an option with a space in its value,
    which argparse takes for the program.
    """
    if not first:
        name = " ".join(("jaxsif", *command))
        raise JaxsifError("the program's name is empty", name, f"{name} -- PROGRAM")
    if " " in first:
        raise _UnknownError(build_parsers(command)[command], [first]).explain(())


def _check_program(program: Sequence[str], argv: Sequence[str], name: str) -> None:
    """Raise JaxsifError for a word before '--' that cannot be a program: some option was given one
    value too many, and all options after the word would go to the program.
    """
    word = program[0]
    hint = _suggest_option(word, *("", "", *argv[: len(argv) - len(program)])[-2:])
    if hint or re.match(r"\w+=|\d+$", word) or os.path.isdir(word):
        hint = hint or "repeat the option for each of its values, or put -- before the program"
        what = f"{shorten(word)!r} comes before -- but belongs to no option"
        raise JaxsifError(what, name, hint)


def _suggest_option(word: str, option: str, value: str) -> str:
    """Return the option that was meant with the words before the first `word` of the program, such
    as --mem=1G for '--mem 1 G'; or ''.
    """
    hint = ""
    if option.endswith("-timeout") and value.isdigit() and re.fullmatch(_UNITS, word):
        hint = f"{option}={value}{word[0]}"
    elif re.match("/[^:]*:/", word):
        hint = f"--bind={word}"
    elif value.startswith("--") and takes_value_after_equals(value) and _AFTER_EQUALS.match(word):
        hint = f"{value}={word}"
    elif option in MEMORY and value.isdigit() and re.fullmatch("[KMGT]B?", word):
        hint = f"{option}={value}{word}"
    elif value.isdigit():
        hint = _suggest_after_number(option, word)
    return hint


def _suggest_after_number(option: str, word: str) -> str:
    """Return the remedy for a unit, or what is counted, after the number of an option; or ''."""
    if option in ("-t", "--time") and re.fullmatch(f"{_UNITS}|days?", word):
        return FORMS["--time"]
    return f"leave out {word}" if re.fullmatch(_COUNTED, word) else ""


def _suggest_run(words: Sequence[str]) -> str:
    """Return the command line that was probably meant: the command before its options, or
    `jaxsif run` before a program, or before options and a program; '' if none fits.
    """
    import shlex

    before: tuple[str, ...] = ()
    end = [*words, "--"].index("--")
    command = next((word for word in words[:end] if word in ("run", "submit")), "")
    if command and words[0].startswith("-"):
        at = words.index(command)
        return shorten(shlex.join(("jaxsif", command, *words[:at], *words[at + 1 :])))
    if words[0].endswith(".py"):
        before = ("--", "python")
    elif os.path.basename(words[0]).startswith("python"):
        before = ("--",)
    elif "--" not in words[1:] or not re.match("-[^-]", words[0]):
        return ""
    return shorten(shlex.join(("jaxsif", "run", *before, *words)))


def _check_command(words: Sequence[str]) -> None:
    """Raise JaxsifError unless the words begin with a command, a group or an option of jaxsif."""
    first, second = (*words, "", "")[:2]
    if first.startswith("-"):
        parser = build_parsers(("version",))[()]
        if first not in parser._option_string_actions:
            error = _UnknownError(parser, [first]).explain(())
            error.hint = _suggest_run(words) or error.hint
            raise error
        return
    if first in _GROUPS:
        names, found, above = [name[1] for name in COMMANDS if name[0] == first], second, first
    else:
        names, found, above = [*{name[0]: None for name in COMMANDS}], first, ""
    if found.startswith("-"):
        _check_order(above, words[1:], names)
        return
    if found in ("", *names):
        return
    from jaxsif.help.nearest import suggest_command

    name = shorten(f"{above} {found}".strip())
    hint = suggest_command(found, names, [] if above else list(COMMANDS))
    if not above:
        hint = _suggest_run(words) or hint
    raise JaxsifError(f"unknown command {name!r}", f"jaxsif {above}".strip(), hint)


def _check_order(group: str, words: Sequence[str], verbs: Collection[str]) -> None:
    """Raise JaxsifError if a verb of the group comes after its options."""
    if words[0] not in ("-h", "--help") and any(word in verbs for word in words):
        hint = f"jaxsif {group} COMMAND {flag_of(words[0])}: one of {', '.join(verbs)}"
        raise JaxsifError(f"{flag_of(words[0])} comes before the command", f"jaxsif {group}", hint)


def format_help(words: Sequence[str]) -> str:
    """Return the help of the command or group that the words name, or that of jaxsif if there are
    none; raise JaxsifError for other words.
    """
    name = tuple(words)
    if name not in COMMANDS and name not in _INDEXES:
        _check_command(name[:2])
        what = f"unknown command {shorten(' '.join(name))!r}"
        known = name[0] if name[:1] in COMMANDS else ""
        raise JaxsifError(what, "jaxsif help", f"jaxsif help {known}".rstrip())
    return build_parsers(name)[name].format_help()


def _call(argv: Sequence[str]) -> int:
    if tuple(argv) in _INDEXES:
        print(format_help(argv), end="")
        return JaxsifError.exit_code  # as when a command lacks an argument
    try:
        arguments = _parse(argv)
    except SystemExit:  # how argparse ends after --help and --version; its errors are JaxsifErrors
        return 0
    call: Call = arguments.call
    del arguments.call
    if hasattr(arguments, "program"):
        arguments.program = describe_all()
    if hasattr(arguments, "format_help"):
        arguments.format_help = format_help
    if find_command(argv) != ("run",):  # which passes signals on
        # By an exception, as with Ctrl-C, so that unfinished work is removed on the way out.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    return call(arguments, dict(os.environ)) or 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; each command's help documents its exit status."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # so that imports end silently
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _replace_closed_streams()
        status = _call(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()  # here, where jaxsif can still report an error itself
        return status
    except JaxsifError as error:
        if error.where.endswith(".toml"):
            from jaxsif.settings.config import address_staff

            address_staff(error)
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return PIPE_CLOSED
    except OSError as error:  # a full disk, a folder that cannot be written
        _complain(_explain(error))
        return HostError.exit_code
    except MemoryError:
        _complain_of_memory()
        return HostError.exit_code
    finally:
        _give_up_broken_streams()


def run_and_exit() -> NoReturn:
    """End this process with the status of `main`.

    Python's own teardown would take 8 ms after each run. There is nothing left to tear down: `main`
    has flushed the streams, and no thread or exit handler belongs to jaxsif.
    """
    os._exit(main())


def _complain(error: JaxsifError) -> None:
    from jaxsif.screen import paint_error

    with suppress(OSError):  # a closed standard error cannot be reported
        print(paint_error(error.render(), os.environ), file=sys.stderr, flush=True)


def _explain(error: OSError) -> HostError:
    if isinstance(error, FileNotFoundError) and not error.filename:  # of os.getcwd()
        return HostError("the current folder is gone", "", "cd to another folder")
    reason = error.strerror or str(error)
    hint = next((hint for codes, hint in _OF_REASONS if error.errno in codes), "")
    if not error.filename:
        return HostError(reason, "", hint)
    where = os.path.dirname(os.fsdecode(error.filename)) or "the current folder"
    return HostError(f"{os.fsdecode(error.filename)}: {reason}", where, hint)


def _complain_of_memory() -> None:
    """Report that memory is exhausted, without importing anything, which would need memory."""
    error = HostError("memory is exhausted", "", "raise the limit that ulimit -v shows")
    with suppress(OSError):
        os.write(2, f"{error.render()}\n".encode())


def _replace_closed_streams() -> None:
    """Open /dev/null in place of a closed stream: Python has None there, and the next file to be
    opened would get the stream's descriptor, to which programs write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            void = os.open(os.devnull, os.O_RDWR)  # the lowest free one, and so the stream's own
            os.set_inheritable(void, True)
            setattr(sys, name, os.fdopen(void, mode, encoding="utf-8"))
            if name == "stdout":
                print("jaxsif: warning: standard output is closed", file=sys.stderr)


def _give_up_broken_streams() -> None:
    """Replace streams that cannot be written to: otherwise, Python tries again when it exits,
    complains, and changes the exit status.
    """
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
