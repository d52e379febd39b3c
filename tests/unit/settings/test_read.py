"""What the command line, variables and files say together becomes what is asked of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.job.srun_options import SrunArgument, join
from jaxsif.settings.options import DEFAULTS, RunOptions
from jaxsif.settings.read import read_settings


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jaxsif.toml").write_text("[run]\nlauncher = 'srun'\n")


@pytest.mark.parametrize(
    ("said", "variables", "launcher"),
    [
        ({"hosts": "a"}, {}, "mpirun"),
        ({"hostfile": "f"}, {}, "mpirun"),
        ({"hosts": "a", "launcher": "local"}, {}, "local"),
        ({"launcher": "local"}, {"JAXSIF_HOSTS": "a"}, "local"),
        ({}, {"JAXSIF_HOSTS": "a"}, "srun"),
        ({"hosts": "a"}, {"JAXSIF_LAUNCHER": "local"}, "mpirun"),
        ({}, {}, "srun"),
    ],
)
def test_a_list_of_hosts_asks_for_mpirun_where_it_is_stronger(
    said: dict[str, str], variables: dict[str, str], launcher: str
) -> None:
    assert read_settings(said, ["true"], variables, in_job=False).options.launcher == launcher


def test_a_list_of_hosts_asks_for_mpirun_where_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "jaxsif.toml").unlink()
    assert read_settings({}, ["true"], {"JAXSIF_HOSTS": "a"}, in_job=False).options.launcher == "mpirun"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"partition": "debug"}, ("-t60", "--gpus=8", "--mem=0")),
        ({"time": "5", "gpus": 4}, ("--partition=a", "--mem=0")),
        ({"gpus_per_node": "2"}, ("--partition=a", "-t60", "--mem=0")),
        ({"passed": {"--mem": SrunArgument("--mem", "1G", ("--mem=1G",))}}, ("--partition=a", "-t60", "--gpus=8")),
        ({"srun_args": ["--nice=1"]}, ("--nice=1",)),
    ],
)
def test_the_command_line_replaces_the_same_option_of_a_variable(
    said: dict[str, object], left: tuple[str, ...]
) -> None:
    variables = {"JAXSIF_SRUN_ARGS": "--partition=a -t60 --gpus=8 --mem=0 -c 8"}
    asked = read_settings({"cpus_per_task": 4, **said}, ["true"], variables, in_job=False).options
    assert (join(asked.srun_args), asked.cpus_per_task) == (left, 4)


@pytest.mark.parametrize(
    ("said", "words", "field", "value"),
    [
        ({"ntasks_per_node": 2}, "--tasks-per-node=4", "ntasks_per_node", 2),
        ({"ntasks_per_node": 4}, "--ntasks-per-gpu=1", "per_gpu", False),
        ({"gpus_per_node": "2"}, "--gres=gpu:4", "gpus_per_node", "2"),
        ({"per_gpu": True}, "--gpus-per-task=2", "gpus_per_task", None),
        ({"ntasks": 2}, "-n4", "ntasks", 2),
        ({"label": False}, "--label", "label", False),
    ],
)
def test_what_means_the_same_is_replaced_too(said: dict[str, object], words: str, field: str, value: object) -> None:
    variables = {"JAXSIF_SRUN_ARGS": f"{words} --mem=0"}
    asked = read_settings(said, ["true"], variables, in_job=False).options
    assert (getattr(asked, field), join(asked.srun_args)) == (value, ("--mem=0",))


def test_other_resources_stay_beside_gpus_that_are_replaced() -> None:
    variables = {"JAXSIF_SRUN_ARGS": "--gres=gpu:4,nvme:1"}
    asked = read_settings({"gpus_per_node": "2"}, ["true"], variables, in_job=False).options
    assert (asked.gpus_per_node, join(asked.srun_args)) == ("2", ("--gres=nvme:1",))


def test_a_variable_replaces_the_same_option_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "jaxsif.toml").write_text("[run]\nsrun-args = ['--partition=a -t60']\ntime = '5'\n")
    asked = read_settings({}, ["true"], {"JAXSIF_PARTITION": "debug"}, in_job=False).options
    assert join(asked.srun_args) == ("-t60",)


def test_a_projects_file_has_srun_run_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own file and variables may."""
    text = "[run]\nsrun-args = ['--mem=0 --task-prolog=/x.sh']\n"
    (tmp_path / "jaxsif.toml").write_text(text)
    assert catch(JaxsifError, read_settings, {}, ["true"], {}, in_job=False).render() == (
        "jaxsif: error: a project's file cannot pass this to srun: --task-prolog=/x.sh\n"
        f"  from: run.srun-args in {tmp_path}/jaxsif.toml\n"
        "  try:  set it on the command line, or in your own jaxsif.toml"
    )
    words = ("--mem=0", "--task-prolog=/x.sh")
    assert join(read_settings({"srun_args": list(words)}, ["true"], {}, in_job=False).options.srun_args) == words
    variables = {"JAXSIF_SRUN_ARGS": "--mem=0 --task-prolog=/x.sh"}
    assert join(read_settings({}, ["true"], variables, in_job=False).options.srun_args) == words
    (tmp_path / "jaxsif.toml").rename(tmp_path / "of_user")
    (tmp_path / "jaxsif").mkdir()
    (tmp_path / "of_user").rename(tmp_path / "jaxsif/jaxsif.toml")
    own = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert join(read_settings({}, ["true"], own, in_job=False).options.srun_args) == words


@pytest.mark.parametrize(("word", "hint"), [("exclusive", "--exclusive?"), ("mem=4G", "--mem=4G?")])
def test_an_option_of_srun_without_dashes(word: str, hint: str) -> None:
    environ = {"JAXSIF_SRUN_ARGS": word}
    assert catch(JaxsifError, read_settings, {}, ["true"], environ, in_job=False).hint == hint


@pytest.mark.parametrize(
    "words",
    ["foo", "--mem=0 foo", "--mem 0 foo", "--exclusive foo", "-l foo", "-n4 foo", "-- foo", "--of-a-plugin=1 foo"],
)
def test_a_word_for_srun_that_belongs_to_no_option(words: str) -> None:
    error = catch(JaxsifError, read_settings, {}, ["true"], {"JAXSIF_SRUN_ARGS": words}, in_job=False)
    assert error.what == "'foo' belongs to no option of srun"
    assert error.where == "JAXSIF_SRUN_ARGS (environment)"
    for right in ("--of-a-plugin foo --mem 0", "-lc 4", "-n 4 -c4", "--gres gpu:2"):
        read_settings({}, ["true"], {"JAXSIF_SRUN_ARGS": right}, in_job=False)


@pytest.mark.parametrize("words", ["--qos", "--mem=0 --comment", "-q"])
def test_an_option_for_srun_without_its_value(words: str) -> None:
    """srun would take the container's runtime for it."""
    error = catch(JaxsifError, read_settings, {}, ["true"], {"JAXSIF_SRUN_ARGS": words}, in_job=False)
    flag = "--comment" if "comment" in words else "--qos"
    assert (error.what, error.hint) == (f"{flag} of srun needs a value", f"write {flag}=VALUE")


def test_srun_gets_the_variables_that_a_run_needs(tmp_path: Path) -> None:
    for value in ("NONE", "NCCL_DEBUG=WARN"):
        words = {"JAXSIF_SRUN_ARGS": f"--export={value}"}
        error = catch(JaxsifError, read_settings, {}, ["true"], words, in_job=False)
        assert error.what == f"--export={value} leaves out variables that a run needs"
        assert error.hint == "--env NAME=VALUE, or --cleanenv"
    (tmp_path / "jaxsif").mkdir()
    (tmp_path / "jaxsif/jaxsif.toml").write_text("[run]\nsrun-args = ['--export NONE']\n")
    error = catch(JaxsifError, read_settings, {}, ["true"], {"XDG_CONFIG_HOME": str(tmp_path)}, in_job=False)
    assert error.hint == 'env = ["NAME=VALUE"], or cleanenv = true'
    for value in ("ALL", "NCCL_DEBUG=WARN,ALL"):
        read_settings({}, ["true"], {"JAXSIF_SRUN_ARGS": f"--export={value}"}, in_job=False)


@pytest.mark.parametrize("bind", ["", " ", ":/x"])
def test_binds_without_a_path(bind: str) -> None:
    error = catch(JaxsifError, read_settings, {"binds": ["/a", bind]}, ["true"], {}, in_job=False)
    assert (error.what, error.where) == (f"a bind names no path: {bind!r}", "--bind")


@pytest.mark.parametrize("path", ["", "scratch", "./scratch", "~/scratch"])
def test_the_folder_for_staging_is_absolute(tmp_path: Path, path: str) -> None:
    error = catch(JaxsifError, read_settings, {"stage_folder": path}, ["true"], {}, in_job=False)
    assert (error.what, error.where) == (f"not an absolute path: {path!r}", "--stage-folder")
    if path.startswith("~"):
        return
    (tmp_path / "jaxsif.toml").write_text(f"[run]\nstage-folder = '{path}'\n")
    error = catch(JaxsifError, read_settings, {}, ["true"], {}, in_job=False)
    assert (error.exit_code, error.where) == (2, f"run.stage-folder in {tmp_path}/jaxsif.toml")
    assert read_settings({"stage_folder": "/local"}, ["true"], {}, in_job=False).value("stage-folder") == "/local"


def test_words_of_a_variable_that_contradict_another_one() -> None:
    variables = {"JAXSIF_SRUN_ARGS": "--cpus-per-task=8", "JAXSIF_CPUS_PER_TASK": "4"}
    error = catch(JaxsifError, read_settings, {}, ["true"], variables, in_job=False)
    assert error.where == "JAXSIF_SRUN_ARGS (environment)"


def test_defaults_are_those_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "jaxsif.toml").unlink()
    settings = read_settings({}, ["true"], {}, in_job=False)
    assert settings.options._replace(sources={}) == RunOptions(("true",), sources={})
    assert {key: setting.value for key, setting in settings.values.items()} == DEFAULTS
    assert (settings.value("stage-folder"), settings.value("image")) == ("/tmp", None)
    assert not settings.is_on_command_line("image")
