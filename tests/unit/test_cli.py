"""The command line as people use it: what stands on which stream, the three-line errors, the exit codes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from kit.executables import executable
from kit.siffile import write_image

from jaxsif import __version__
from jaxsif.cli import COMMANDS, _explain, build_parsers, main
from jaxsif.errors import JaxsifError
from jaxsif.settings.options import NODES, OPTIONS, RunOptions

ROOT = Path(__file__).parents[2]
ALWAYS = "srun --export=ALL --kill-on-bad-exit=1"
SHARE = f"{sys.executable} -IS {ROOT}/jaxsif/node/share.py"
Jaxsif = Callable[..., tuple[int, str, str]]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A login node: srun and apptainer on the PATH, an image in the working directory, nothing else set."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "JAX", "APPTAINER", "SINGULARITY", "CUDA_")) or "proxy" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # no settings of whoever runs the tests
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("srun", "apptainer"):
        executable(tmp_path / "bin" / name)
    write_image(tmp_path / "jax.sif", b"x")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def jaxsif(host: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Jaxsif:
    """Run a command line there; return exit code, standard output and standard error."""

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["jaxsif", *arguments])
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return (main(), *capfd.readouterr())

    return run


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["version"]], ids=" ".join)
def test_version(jaxsif: Jaxsif, arguments: list[str]) -> None:
    assert jaxsif(*arguments) == (0, f"jaxsif {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["run"], ["image"], ["image", "build"]], ids=" ".join)
def test_help_command(jaxsif: Jaxsif, arguments: list[str]) -> None:
    assert jaxsif("help", *arguments) == jaxsif(*arguments, "--help")


@pytest.mark.parametrize("arguments", [[], ["image"], ["bench"]], ids=" ".join)
def test_a_command_without_its_words_prints_help(jaxsif: Jaxsif, arguments: list[str]) -> None:
    code, out, err = jaxsif(*arguments)
    assert (code, err) == (2, "")
    assert out == jaxsif(*arguments, "--help")[1]


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["--help"], "usage: jaxsif [-h] [-V] COMMAND ...\n"),
        (["-h"], "usage: jaxsif [-h] [-V] COMMAND ...\n"),
        (["run", "-h"], "usage: jaxsif run [OPTIONS] -- COMMAND [ARGUMENT...]\n"),
        (["image", "--help"], "usage: jaxsif image [-h] VERB ...\n"),
        (["image", "build", "--help"], "usage: jaxsif image build [-h] [--flavour FLAVOUR] "),
    ],
    ids=" ".join,
)
def test_help_is_what_was_asked_for(jaxsif: Jaxsif, arguments: list[str], usage: str) -> None:
    code, out, err = jaxsif(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith(usage)


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help_fits_80_columns(jaxsif: Jaxsif, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = jaxsif("help", *command)
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_help_of_run_names_every_option_and_exit_status(jaxsif: Jaxsif) -> None:
    _, out, _ = jaxsif("run", "--help")
    shown = {word.rstrip(",") for line in out.splitlines() if line.startswith("  -") for word in line.split()}
    assert {*(option.flag for option in OPTIONS), "--check", "--dry-run", "--verbose"} <= shown
    assert {*RunOptions._fields} - {option.field for option in OPTIONS} == {
        "command",
        "sources",
        "passed",
        "node_range",
        "gpu_type",
        "job_name",
        "before",
        "ends_quietly",
    }
    assert all(f"  {code}  " in out for code in (2, 125, 127))


def variables_of(out: str) -> tuple[dict[str, str], str]:
    """The variables before the command of --dry-run, and the command."""
    words = out.rstrip("\n").split(" ")
    count = next(index for index, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:count]), " ".join(words[count:])


def test_dry_run(jaxsif: Jaxsif, host: Path) -> None:
    code, out, err = jaxsif("run", "--dry-run", "--nodes=2", "--gpus-per-node=4", "--", "python", "-c", "1; 2")
    assert (code, err) == (0, "")
    variables, command = variables_of(out)
    assert 61000 <= int(variables["APPTAINERENV_JAXSIF_COORDINATOR_PORT"]) < 65500
    engine = f"apptainer --quiet run --nv --no-eval --bind {ROOT}/jaxsif/task:/opt/jaxsif/task:ro {host}/jax.sif --"
    program = "/bin/sh /opt/jaxsif/task/start.sh python -c '1; 2'"
    options = "--nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --job-name=python"
    assert command == f"{ALWAYS} {options} {SHARE} {engine} {program}"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["hostname", "--nodes=2"], " --job-name=hostname"),
        (["--srun-args=--qos='a b' --mem=0", "--srun-args=-v", "x"], " --job-name=x '--qos=a b' --mem=0 -v"),
    ],
    ids=["options behind the program are the program's", "words of --srun-args"],
)
def test_options_of_srun(jaxsif: Jaxsif, arguments: list[str], options: str) -> None:
    code, out, err = jaxsif("run", "--dry-run", *arguments)
    assert (code, err) == (0, "")
    assert variables_of(out)[1].startswith(f"{ALWAYS}{options} {SHARE} apptainer ")


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        (["x", "--nodes=2", "-v", "--help"], "x --nodes=2 -v --help"),
        (["--", "x", "--", "y"], "x -- y"),
        (["x", "--", "y", "--", "z"], "x -- y -- z"),
        (["x", "-m", "pkg", "--nodes=2", "--", "y"], "x -m pkg --nodes=2 -- y"),
        (["--label", "--", "x", "--", "--", "y"], "x -- -- y"),
        (["x", "-c", "--dry-run", ""], "x -c --dry-run ''"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_of_the_program_are_its_own(jaxsif: Jaxsif, arguments: list[str], program: str) -> None:
    code, out, err = jaxsif("run", "--dry-run", *arguments)
    assert (code, err) == (0, "")
    assert out.endswith(f" /bin/sh /opt/jaxsif/task/start.sh {program}\n")


@pytest.mark.parametrize(
    ("words", "stray", "hint"),
    [
        ("--bind /dev /tmp --time=5 -- true", "/tmp", "repeat the option for each of its values, or put -- before "),
        ("--env A=1 B=2 -- true", "B=2", "repeat the option "),
        ("--nodes 2 4 -- true", "4", "repeat the option "),
        ("--nice 100 -- true", "100", "--nice=100\n"),
        ("--nice 100 --time=5 -- true", "100", "--nice=100\n"),
        ("--exclusive user -- true", "user", "--exclusive=user\n"),
        ("--mem 1 G -- true", "G", "--mem=1G\n"),
        ("--hang-timeout 10 min -- true", "min", "--hang-timeout=10m\n"),
        ("-t 1 hour -n1 -- true", "hour", "write minutes, as 120, hours, as 2:00:00"),
        ("-n 2 tasks -- true", "tasks", "leave out tasks\n"),
        ("--gpus-per-node 2 GPUs -- true", "GPUs", "leave out GPUs\n"),
        ("-v /scratch:/scratch -- true", "/scratch:/scratch", "--bind=/scratch:/scratch\n"),
    ],
)
def test_a_word_too_many_before_the_program(jaxsif: Jaxsif, words: str, stray: str, hint: str) -> None:
    """Options behind it would be lost to the program."""
    code, out, err = jaxsif("run", "--dry-run", *words.split())
    assert (code, out) == (2, "")
    error = f"jaxsif: error: '{stray}' comes before -- but belongs to no option\n  from: jaxsif run\n  try:  {hint}"
    assert err.startswith(error), err


def test_a_program_may_have_words_after_its_own_dashes(jaxsif: Jaxsif) -> None:
    for words in ("env -- true", "/opt/train -- --steps 9", "sh -c true -- word", "M -- word"):
        code, out, err = jaxsif("run", "--dry-run", "--nodes", "2", "--exclusive", *words.split())
        assert (code, err) == (0, ""), err
        assert out.endswith(f" {words}\n")


@pytest.mark.starts_processes
def test_dry_run_keeps_bytes_that_are_no_text(host: Path) -> None:
    command = [sys.executable, "-m", "jaxsif", "run", "--dry-run", "--env", b"A=\xff", "x"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"}
    ended = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b" APPTAINERENV_A='\xff' " in ended.stdout


def test_dry_run_into_an_object_without_bytes(jaxsif: Jaxsif, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    assert jaxsif("run", "--dry-run", "--env", "A=\udcff", "x") == (0, "", "")
    assert " APPTAINERENV_A='\udcff' " in text.getvalue()


@pytest.mark.starts_processes
def test_dry_run_without_a_standard_output(host: Path) -> None:
    shell = ["/bin/sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-m", "jaxsif", "run", "--dry-run", "x"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(shell, env=environ, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"jaxsif: warning: standard output is closed\n")


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("arguments", "closed", "status"),
    [(["run"], "2>&-", 2), (["config", "run.stage"], ">&-", 0), (["config", "run.stage"], "2>&-", 0)],
    ids=str,
)
def test_closed_streams_change_no_status(host: Path, arguments: list[str], closed: str, status: int) -> None:
    shell = ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "jaxsif", *arguments]
    ended = subprocess.run(shell, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (status, False)


@pytest.mark.starts_processes
@pytest.mark.parametrize("arguments", [["run", "--dry-run", "x"], ["--help"], ["--version"]], ids=" ".join)
def test_reader_that_went_away_hears_no_complaint(host: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jaxsif", *arguments]
    # As users have it: with PYTHONUNBUFFERED nothing would be left to write when Python ends, and to complain of.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(command, env=environ, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.starts_processes
@pytest.mark.parametrize("arguments", [["run", "--dry-run", "x"], ["--help"]], ids=" ".join)
def test_output_onto_a_full_disk(host: Path, arguments: list[str]) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "jaxsif", *arguments]
        ended = subprocess.run(command, env=environ, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (
        125,
        b"jaxsif: error: No space left on device\n  try:  free space there, or use another folder\n",
    )


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            PermissionError(13, "Permission denied", "jaxsif-jobs"),
            "jaxsif-jobs: Permission denied\n  from: the current folder\n"
            "  try:  correct the permissions, or use another folder",
        ),
        (
            OSError(30, "Read-only file system", "/ro/x.sh"),
            "/ro/x.sh: Read-only file system\n  from: /ro\n"
            "  try:  call it on a host that may write there, or use another folder",
        ),
        (
            OSError(28, "No space left on device", "jaxsif-jobs/a.sbatch"),
            "jaxsif-jobs/a.sbatch: No space left on device\n  from: jaxsif-jobs\n"
            "  try:  free space there, or use another folder",
        ),
        (OSError(5, "Input/output error", b"/ro/x"), "/ro/x: Input/output error\n  from: /ro"),
        (OSError(24, "Too many open files"), "Too many open files\n  try:  raise the limit that ulimit -n shows"),
    ],
)
def test_an_error_of_the_system_has_a_place_and_a_remedy(error: OSError, lines: str) -> None:
    assert _explain(error).render() == f"jaxsif: error: {lines}"


INTERRUPTED = """\
import os, runpy, signal, sys
class Interrupt:  # while jaxsif.cli, or the module of the command, is imported
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
module, ignored = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
sys.argv[1:] = ["home"]
runpy.run_module("jaxsif", run_name="__main__", alter_sys=True)
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("module", "ignored", "status"),
    [
        ("jaxsif.cli", "", -signal.SIGINT),
        ("jaxsif.commands.about", "", 130),
        ("jaxsif.cli", "ignored", 0),
        ("jaxsif.commands.about", "ignored", 0),
    ],
)
def test_a_ctrl_c_at_the_start_prints_no_traceback(module: str, ignored: str, status: int) -> None:
    words = [sys.executable, "-c", INTERRUPTED, module, ignored]
    ended = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (status, b"")


FLAVOURS = ", ".join(sorted(path.stem for path in (ROOT / "containers/flavours").glob("*.args")))
RUN_HELP = ("jaxsif run", "jaxsif run --help")
BUILD_HELP = ("jaxsif image build", "jaxsif image build --help")


@pytest.mark.parametrize(("words", "is_refused"), [(["-hang-timeout"], True), (["-vh"], False), (["-h"], False)])
def test_a_long_option_after_one_dash_is_no_request_for_help(
    words: list[str], is_refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse takes it for -h: of the rest, some versions of Python say that -h takes no value."""
    parser = build_parsers(("run",))[("run",)]
    parser._words = words
    with pytest.raises(JaxsifError, match="-hang-timeout") if is_refused else nullcontext():
        parser.print_help()
    assert bool(capsys.readouterr().out) != is_refused
    with pytest.raises(JaxsifError, match="-hang-timeout" if is_refused else "--?h.* takes no value"):
        parser.error("argument -h/--help: ignored explicit argument 'ang-timeout'")


BAD_REQUESTS: list[tuple[list[str], str, str, str]] = [
    (["--nodes=2"], "unrecognized arguments: --nodes=2", "jaxsif", "jaxsif run --nodes?"),
    (["--verson"], "unrecognized arguments: --verson", "jaxsif", "--version?"),
    (["--"], "unrecognized arguments: --", "jaxsif", "jaxsif --help"),
    (
        ["-n", "2", "--", "python", "a b.py"],
        "unrecognized arguments: -n",
        "jaxsif",
        "jaxsif run -n 2 -- python 'a b.py'",
    ),
    (["python", "a.py"], "unknown command 'python'", "jaxsif", "jaxsif run -- python a.py"),
    (["run", "-np", "2", "x"], "unrecognized arguments: -np", "jaxsif run", "--ntasks?"),
    (["run", "--nodes=0", "du", "-hs"], f"argument --nodes: '0' is not {NODES.words}", *RUN_HELP),
    (["--verson", "--", "x"], "unrecognized arguments: --verson", "jaxsif", "--version?"),
    (["module", "delete", "x"], "unknown command 'module delete'", "jaxsif module", "remove?"),
    (["run", "--num-nodes=2", "x"], "unrecognized arguments: --num-nodes=2", "jaxsif run", "--nodes?"),
    (["run", "--chain", "3", "x"], "unrecognized arguments: --chain", "jaxsif run", "jaxsif submit --chain?"),
    (["runn", "--", "python", "a.py"], "unknown command 'runn'", "jaxsif", "run?"),
    (["-N", "2", "--", "a"], "unrecognized arguments: -N", "jaxsif", "jaxsif run -N 2 -- a"),
    (["history", "--limit", "5"], "unrecognized arguments: --limit", "jaxsif history", "--last?"),
    (
        ["module", "--prefix", "/a b", "list"],
        "--prefix comes before the command",
        "jaxsif module",
        "jaxsif module COMMAND --prefix: one of add, default, list, remove",
    ),
    (
        ["module", "--json", "list"],
        "--json comes before the command",
        "jaxsif module",
        "jaxsif module COMMAND --json: one of add, default, list, remove",
    ),
    (["run", "--mem-per-task", "2G", "x"], "unrecognized arguments: --mem-per-task", "jaxsif run", "--mem-per-cpu?"),
    (["run", "--timelimit", "5", "x"], "unrecognized arguments: --timelimit", "jaxsif run", "--time?"),
    (
        ["config", "set", "run.nodes", "2"],
        "unrecognized arguments: run.nodes 2",
        "jaxsif config",
        "jaxsif config KEY shows one; lines of a jaxsif.toml set them: docs/config.md",
    ),
    (["run", "--container-image", "x", "y"], "unrecognized arguments: --container-image", "jaxsif run", "--image?"),
    (
        ["history", "4711"],
        "unknown command 'history 4711'",
        "jaxsif history",
        "jaxsif history --last=N; jaxsif history show RUN",
    ),
    (["train.py"], "unknown command 'train.py'", "jaxsif", "jaxsif run -- python train.py"),
    (
        ["run", "--nv", "x"],
        "unrecognized arguments: --nv",
        "jaxsif run",
        "leave out --nv: jaxsif itself starts the container",
    ),
    (
        ["run", "--bind-to", "x"],
        "unrecognized arguments: --bind-to",
        "jaxsif run",
        "leave out --bind-to: jaxsif itself places the tasks",
    ),
    (["run", "--commnt=a b", "--", "x"], "unrecognized arguments: --commnt=a b", "jaxsif run", "--comment?"),
    (["run", "-nodes=2", "x"], "unrecognized arguments: -nodes=2", "jaxsif run", "--nodes?"),
    (["run", "-nodes", "2", "x"], "unrecognized arguments: -nodes", "jaxsif run", "--nodes?"),
    (["image", "build", "x"], "unrecognized arguments: x", *BUILD_HELP),
    (["image", "build", "--force", "--", "--base=x"], "unrecognized arguments: -- --base=x", *BUILD_HELP),
    (["run", "--nodes=0", "x"], f"argument --nodes: '0' is not {NODES.words}", *RUN_HELP),
    (
        ["run", "--ntasks-per-node=-1", "x"],
        "argument --ntasks-per-node: '-1' is not a number from 1 to 2147483647",
        *RUN_HELP,
    ),
    (["run", "--label=1", "x"], "--label takes no value: '1'", *RUN_HELP),
    (["run", "--no-stage=1", "x"], "--no-stage takes no value: '1'", *RUN_HELP),
    (["run", "--dry-run=1", "x"], "--dry-run takes no value: '1'", *RUN_HELP),
    (["run", "--nodes"], "argument --nodes: expected one argument", *RUN_HELP),
    (["run", "--mem", "--", "x"], "argument --mem: expected one argument", *RUN_HELP),
    (["--label", "run", "x"], "unrecognized arguments: --label", "jaxsif", "jaxsif run --label x"),
    (["-N", "1", "run", "--", "x"], "unrecognized arguments: -N", "jaxsif", "jaxsif run -N 1 -- x"),
    (["-J", "x", "submit", "-N1", "x"], "unrecognized arguments: -J", "jaxsif", "jaxsif submit -J x -N1 x"),
    (["-v", "run", "-N1", "--", "run"], "unrecognized arguments: -v", "jaxsif", "jaxsif run -v -N1 -- run"),
    (["hlep", "run"], "unknown command 'hlep'", "jaxsif", "help?"),
    (["train.py", "history"], "unknown command 'train.py'", "jaxsif", "jaxsif run -- python train.py history"),
    (["shell", "--", "-c", "id"], "unrecognized arguments: -- -c id", "jaxsif shell", "jaxsif run -- sh -c id"),
    (["shell", "python"], "unrecognized arguments: python", "jaxsif shell", "jaxsif run python"),
    (
        ["image", "inspect", "--image=a.sif"],
        "unrecognized arguments: --image=a.sif",
        "jaxsif image inspect",
        "give IMAGE without --image",
    ),
    (["run", "--array=0-3", "x"], "unrecognized arguments: --array=0-3", "jaxsif run", "jaxsif submit --array?"),
    (
        ["shell", "--time=5", "--", "sh", "-c", "./x 1"],
        "unrecognized arguments: -- sh -c ./x 1",
        "jaxsif shell",
        "jaxsif run -- sh -c './x 1'",
    ),
    (["shell", "--jobid="], "not a Slurm job: ''", "--jobid", "squeue --me lists your jobs"),
    (["shell", "--jobid=1,2"], "not a Slurm job: '1,2'", "--jobid", "squeue --me lists your jobs"),
    (
        ["run", "--srun-args", "--mem=0", "x"],
        "argument --srun-args: expected one argument",
        "jaxsif run",
        "--srun-args=--OPTION, in one word",
    ),
    (["run", "--dry-run"], "no command", "jaxsif run", "jaxsif run [OPTIONS] -- COMMAND, such as -- python train.py"),
    (
        ["run", "--srun-args=--comment='a", "x"],
        'cannot read "--comment=\'a": No closing quotation',
        "--srun-args",
        "quote it as in a shell",
    ),
    *(
        (["image", verb, "a.sif", "--key="], "argument --key: '' is not a path", command, f"{command} --help")
        for verb, command in (("sign", "jaxsif image sign"), ("verify", "jaxsif image verify"))
    ),
    (["image", "build", f"--source={ROOT}", "--flavour=rocm"], "no flavour rocm", "--flavour", f"one of {FLAVOURS}"),
]


@pytest.mark.parametrize(
    ("arguments", "what", "where", "hint"), BAD_REQUESTS, ids=[" ".join(row[0]) or "nothing" for row in BAD_REQUESTS]
)
def test_bad_request(jaxsif: Jaxsif, arguments: list[str], what: str, where: str, hint: str) -> None:
    assert jaxsif(*arguments) == (2, "", f"jaxsif: error: {what}\n  from: {where}\n  try:  {hint}\n")


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "error"),
    [
        (
            ["run", "--image=nowhere.sif", "x"],
            {},
            125,
            "image not found: nowhere.sif\n  from: --image\n"
            "  try:  correct its path, or leave --image out and call module load jax/sif",
        ),
        (
            ["run", "x"],
            {"JAXSIF_RUNTIME": "/opt/nowhere"},
            125,
            "cannot execute the container runtime /opt/nowhere\n  from: JAXSIF_RUNTIME\n"
            "  try:  unset it, or correct it; if a module set it, tell site staff",
        ),
        (
            ["image", "build", f"--source={ROOT}", "--output=jax.sif/images"],
            {},
            125,
            "{host}/jax.sif/images: Not a directory\n  from: {host}/jax.sif\n"
            "  try:  use another folder: there is a file where a folder is needed",
        ),
    ],
    ids=["no image", "no runtime", "a folder that cannot be made"],
)
def test_host_that_cannot(
    jaxsif: Jaxsif, host: Path, arguments: list[str], variables: dict[str, str], code: int, error: str
) -> None:
    assert jaxsif(*arguments, **variables) == (code, "", f"jaxsif: error: {error.format(host=host)}\n")


@pytest.fixture
def bare(host: Path) -> None:
    """Neither Slurm nor a runtime."""
    for name in ("srun", "apptainer"):
        (host / "bin" / name).unlink()


NOTES = """\
jaxsif: no Slurm here: starting 1 local process
jaxsif: warning: no container runtime here: running in this machine's own Python
"""


@pytest.mark.starts_processes
@pytest.mark.parametrize(
    ("script", "code", "out", "err"),
    [
        ("echo $SLURM_PROCID $SLURM_NTASKS", 0, "0 1\n", ""),
        ("echo to stderr >&2; exit 3", 3, "", "to stderr\njaxsif: error: {place} ended with exit status 3\n"),
        ("kill -SEGV $$", 139, "", "jaxsif: error: {place} was killed by SIGSEGV\n"),
    ],
    ids=["success", "exit status", "signal"],
)
def test_local_run(jaxsif: Jaxsif, bare: None, script: str, code: int, out: str, err: str) -> None:
    ended, shown, said = jaxsif("run", "--", "/bin/sh", "-c", script)
    place = f"task 0 on {os.uname().nodename}"
    assert (ended, shown) == (code, out)
    # The shell of start.sh may tell of a signal in its own words.
    assert said.startswith(NOTES)
    assert said.endswith(err.format(place=place))


@pytest.mark.starts_processes
def test_local_run_with_two_labelled_processes(jaxsif: Jaxsif, bare: None) -> None:
    code, out, err = jaxsif(
        "run", "--launcher=local", "--ntasks-per-node=2", "--label", "/bin/sh", "-c", "echo a; echo b"
    )
    assert code == 0
    assert sorted(out.splitlines()) == ["0: a", "0: b", "1: a", "1: b"]
    assert err == NOTES.splitlines(keepends=True)[1]


@pytest.mark.parametrize(
    "setting", ["per-node = true", "per-gpu = true", "ntasks = 8", "gpus-per-task = 2", 'gpu-bind = "single:1"']
)
def test_a_shell_is_one_task_whatever_settings_say_of_runs(
    jaxsif: Jaxsif, host: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    started: list[str] = []
    monkeypatch.setattr("jaxsif.process.become", lambda argv, _environ: started.extend(argv))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (host / "jaxsif.toml").write_text(f"[run]\n{setting}\n")
    jaxsif("shell")
    assert " ".join(started).startswith(
        f"{ALWAYS} --nodes=1 --ntasks-per-node=1 --job-name=shell --unbuffered --quit-on-interrupt apptainer "
    )


def test_the_map_needs_no_program(jaxsif: Jaxsif, host: Path) -> None:
    code, out, err = jaxsif("run", "--explain")
    assert (code, err) == (0, "")
    assert out.startswith("? processes on ? nodes\n")
    assert jaxsif("run", "--dry-run")[0] == 2


def test_a_setting_that_stages_is_for_jobs(jaxsif: Jaxsif, host: Path) -> None:
    (host / "jaxsif.toml").write_text("[run]\nstage = true\n")
    code, out, err = jaxsif("run", "--dry-run", "--nodes=1", "--", "true")
    assert (code, err) == (0, f"jaxsif: {host}/jaxsif.toml sets run.stage\n")
    assert f" {host}/jax.sif " in out
    for options in (["--stage"], ["--stage", "--dry-run"]):
        code, _, err = jaxsif("run", *options, "--nodes=1", "--", "true")
        assert (code, err.splitlines()[0]) == (2, "jaxsif: error: there are no nodes yet to stage the image on")


def test_what_a_projects_file_sets_of_a_run_is_told(jaxsif: Jaxsif, host: Path) -> None:
    (host / "jaxsif.toml").write_text(
        '[run]\ntime = "5"\nlabel = true\nfabric = "ours"\n[profile.ours]\ninherits = "tcp"\n[profile.other]\n'
    )
    for command, told in (
        (["run", "--no-label"], "run.time, run.fabric, profile.ours"),
        (["submit", "--time=6"], "run.fabric, run.label, profile.ours"),
    ):
        err = jaxsif(*command, "--dry-run", "--", "true")[2]
        assert err == f"jaxsif: {host}/jaxsif.toml sets {told}\n"
    (host / "jaxsif.toml").write_text("[run]\nlabel = true\n")
    assert jaxsif("run", "--dry-run", "--label", "--", "true")[2] == ""


def test_others_may_not_have_written_an_image_that_nothing_names(jaxsif: Jaxsif, host: Path) -> None:
    (host / "jax.sif").chmod(0o666)
    for command in (["run", "--dry-run", "--", "true"], ["submit", "--dry-run", "--", "true"], ["image", "inspect"]):
        code, out, err = jaxsif(*command)
        assert (code, out) == (125, "")
        assert err.startswith(
            "jaxsif: error: others may have written ./jax.sif, and neither --image nor JAX_IMAGE names it\n"
            "  from: owner "
        )
        assert f", mode 0666; folder {host}: owner " in err
        assert err.endswith(", mode 0700\n  try:  --image ./jax.sif\n")
    assert jaxsif("run", "--dry-run", "--image=jax.sif", "--", "true")[0] == 0
    (host / "jax.sif").chmod(0o644)
    host.chmod(0o707)
    assert jaxsif("run", "--dry-run", "--", "true")[0] == 125
    host.chmod(0o700)
    assert jaxsif("run", "--dry-run", "--", "true")[0] == 0


def test_an_image_of_a_file_that_the_variable_overrides(jaxsif: Jaxsif, host: Path) -> None:
    (host / "jaxsif.toml").write_text('[run]\nimage = "other.sif"\n')
    warning = f"jaxsif: warning: JAX_IMAGE overrides run.image in {host}/jaxsif.toml\n"
    for image, told in ((f"{host}/jax.sif", warning), (f"{host}/other.sif", "")):
        (host / "other.sif").write_bytes((host / "jax.sif").read_bytes())
        assert jaxsif("run", "--dry-run", "--", "true", JAX_IMAGE=image)[2] == told
    assert jaxsif("run", "--dry-run", "--image=jax.sif", "--", "true", JAX_IMAGE=f"{host}/jax.sif")[2] == ""


@pytest.mark.starts_processes
def test_a_current_folder_that_is_gone(host: Path) -> None:
    (host / "gone").mkdir()
    script = f"cd {host}/gone && /bin/rmdir ../gone && exec {sys.executable} -m jaxsif run --dry-run x"
    ended = subprocess.run(
        ["/bin/sh", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
    )
    error = "jaxsif: error: the current folder is gone\n  try:  cd to another folder\n"
    assert (ended.returncode, ended.stderr) == (125, error)


def test_a_job_script_comes_with_the_warnings_of_a_run(jaxsif: Jaxsif) -> None:
    code, _, err = jaxsif("submit", "--dry-run", "--gpus-per-node=2", "--", "true", JAX_PLATFORMS="cpu")
    assert code == 0
    assert err == "jaxsif: warning: JAX_PLATFORMS=cpu: JAX will not use the requested GPUs\n"


def test_a_shell_in_another_job_asks_nothing_of_the_one_that_it_is_called_in(
    jaxsif: Jaxsif, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for what settings say of new jobs."""
    started: list[object] = []
    monkeypatch.setattr("jaxsif.process.become", lambda *what: started.extend(what))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (host / "jaxsif.toml").write_text('[run]\npartition = "batch"\n')
    jaxsif("shell", "--jobid=77", SLURM_JOB_ID="1", SLURM_GPUS_PER_NODE="4", SLURM_CPUS_PER_TASK="8")
    argv, environ = started
    assert isinstance(argv, tuple)
    assert isinstance(environ, dict)
    assert " ".join(argv).startswith(
        f"{ALWAYS} --nodes=1 --ntasks-per-node=1 --unbuffered --quit-on-interrupt --jobid=77 --overlap apptai"
    )
    assert environ["APPTAINERENV_JAXSIF_LAYOUT"] == "1:-"
    assert not [name for name in environ if name.startswith("SLURM")]
