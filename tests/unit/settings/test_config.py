"""jaxsif.toml: which files count, in what order, and what is refused in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import read_bounded
from kit.caught import catch

from jaxsif import installation
from jaxsif.cli import build_parsers
from jaxsif.errors import HostError, JaxsifError
from jaxsif.settings.config import (
    Config,
    address_staff,
    parse_settings,
    read_config,
    read_profiles,
    resolve_image,
    tell_staff,
)
from jaxsif.settings.options import NODES, OPTIONS, TIMEOUT, Option, Rank, Setting, check_value, read_variable
from jaxsif.settings.read import resolve

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_no_files(tmp_path: Path, environ: dict[str, str]) -> None:
    assert read_config(environ, str(tmp_path)) == Config({}, ())


def test_the_project_wins_over_the_user(tmp_path: Path, environ: dict[str, str]) -> None:
    user = write(tmp_path / "home/.config/jaxsif/jaxsif.toml", "[run]\nstage = true\nlayers = ['a', 'b']\n")
    project = write(tmp_path / "project/jaxsif.toml", "[run]\nlayers = ['c']\n")
    config = read_config(environ, str(tmp_path / "project"))
    assert config.settings == {
        "run.stage": Setting(True, f"run.stage in {user}", Rank.USER),
        "run.layers": Setting(["c"], f"run.layers in {project}", Rank.PROJECT),
    }


def test_a_path_with_a_variable_is_refused(tmp_path: Path) -> None:
    """Each user would take the same folder, whose name begins with a dollar."""
    write(tmp_path / "jaxsif.toml", "[run]\nlog-dir = '/scratch/$USER/logs'\n")
    error = catch(JaxsifError, read_config, {"HOME": str(tmp_path)}, str(tmp_path))
    assert error.what == "run.log-dir has a variable: /scratch/$USER/logs"


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell expands it in `--image ~/jax.sif` alone, and nothing does in a file."""
    monkeypatch.setenv("HOME", "/home/ada")
    write(tmp_path / "jaxsif.toml", "[run]\ncompile-cache-folder = '~/cache'\nimage = 'a~/b.sif'\n")
    config = read_config({}, str(tmp_path))
    assert config.settings["run.compile-cache-folder"].value == "/home/ada/cache"
    assert config.settings["run.image"].value == f"{tmp_path}/a~/b.sif"
    write(tmp_path / "jaxsif.toml", "[run]\nlog-dir = ''\n")  # none, as on the command line
    assert read_config({}, str(tmp_path)).settings["run.log-dir"].value == ""
    assert read_variable(next(one for one in OPTIONS if one.key == "image"), "~/b.sif") == "/home/ada/b.sif"
    assert build_parsers(("run",))[()].parse_args(["run", "--hostfile=~/hosts"]).hostfile == "/home/ada/hosts"
    assert resolve_image("~/b.sif", {}, print) == Setting("/home/ada/b.sif", "--image", Rank.COMMAND_LINE)


def test_policies_of_all_files_are_kept(tmp_path: Path, environ: dict[str, str]) -> None:
    user = write(tmp_path / "xdg/jaxsif/jaxsif.toml", "[policy]\nsigned-by = ['/keys/site.pem']\n")
    project = write(tmp_path / "jaxsif.toml", "[policy]\nsigned-by = []\n" + f"digests = ['{DIGEST}']\n")
    config = read_config({"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, str(tmp_path))
    assert config.settings == {}
    assert config.policies == (
        ("policy.signed-by", Setting(["/keys/site.pem"], user, Rank.USER)),
        ("policy.signed-by", Setting([], project, Rank.PROJECT)),
        ("policy.digests", Setting([DIGEST], project, Rank.PROJECT)),
    )


def test_a_profile_replaces_the_one_of_an_earlier_file(tmp_path: Path, environ: dict[str, str]) -> None:
    user = write(tmp_path / "home/.config/jaxsif/jaxsif.toml", "[profile.a]\nbinds = ['/a']\n[profile.b]\n")
    project = write(tmp_path / "jaxsif.toml", "[profile.a]\ninherits = 'b'\n")
    config = read_config(environ, str(tmp_path))
    assert config.profiles == {
        "a": Setting({"inherits": "b"}, project, Rank.PROJECT),
        "b": Setting({}, user, Rank.USER),
    }
    assert list(read_profiles(config)) == ["none", "tcp", "ib", "slingshot", "efa", "a", "b"]


def test_a_file_that_is_named_counts_in_place_of_the_projects(tmp_path: Path, environ: dict[str, str]) -> None:
    """As an option of the command line: whoever wrote it, and with any word for srun."""
    near = Path(write(tmp_path / "a/jaxsif.toml", "[run]\nstage = true\n"))
    near.chmod(0o666)
    named = Path(write(tmp_path / "ours.toml", "[run]\nsrun-args = ['--prolog=/p']\n[policy]\ndigests = []\n"))
    named.chmod(0o666)
    config = read_config({**environ, "JAXSIF_CONFIG": str(named)}, str(tmp_path / "a"))
    assert (config.project, len(config.policies)) == ("", 1)
    assert config.settings == {"run.srun-args": Setting(["--prolog=/p"], f"run.srun-args in {named}", Rank.USER)}
    with pytest.raises(JaxsifError, match="others may have written"):
        read_config({**environ, "JAXSIF_CONFIG": ""}, str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("name", "what"), [("{folder}/gone", "no such file: {folder}/gone"), ("a.toml", "not an absolute path: a.toml")]
)
def test_a_named_file_that_does_not_count_is_refused(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    """A relative path would make the file of any folder count."""
    write(tmp_path / "a.toml", "")
    monkeypatch.chdir(tmp_path)
    error = catch(JaxsifError, read_config, {**environ, "JAXSIF_CONFIG": name.format(folder=tmp_path)}, str(tmp_path))
    assert error.what == what.format(folder=tmp_path)
    assert error.where == "JAXSIF_CONFIG (environment)"


def test_a_policy_of_the_user_counts_beside_a_named_file(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path / "home/.config/jaxsif/jaxsif.toml", f"[policy]\ndigests = ['{DIGEST}']\n[run]\nstage = true\n")
    named = write(tmp_path / "ours.toml", "[policy]\ndigests = []\n[run]\nstage = false\n")
    config = read_config({**environ, "JAXSIF_CONFIG": named}, str(tmp_path))
    assert [policy.value for _, policy in config.policies] == [[DIGEST], []]
    assert config.settings["run.stage"].value is False


def test_the_users_own_file_is_not_a_projects(tmp_path: Path, environ: dict[str, str]) -> None:
    own = Path(write(tmp_path / "home/.config/jaxsif/jaxsif.toml", "[run]\nstage = true\n[policy]\ndigests = []\n"))
    (tmp_path / "link").symlink_to(own.parent)
    own.chmod(0o666)  # which is the user's affair
    for folder in (own.parent, tmp_path / "link", own.parent / "below"):
        config = read_config(environ, str(folder))
        assert (config.project, len(config.policies)) == ("", 1)
        assert config.settings == {"run.stage": Setting(True, f"run.stage in {own}", Rank.USER)}


@pytest.mark.parametrize(("may_write", "begin"), [(True, "stage?"), (False, "ask site staff to correct it (stage?)")])
def test_who_can_correct_a_file_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_write: bool, begin: str
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: may_write)
    monkeypatch.setattr(installation, "SITE_FOLDER", str(tmp_path / "site"))
    write(tmp_path / "site/jaxsif.toml", "[run]\nstages = true\n")
    error = catch(JaxsifError, read_config, {}, str(tmp_path))
    address_staff(error)
    assert error.hint == begin
    file = tmp_path / "site/jaxsif.toml"
    for other, is_theirs in (
        (HostError("it is a dangling link", str(file), "stage?"), True),
        (HostError("no library", f"profile.ib.libraries in {file}", "stage?"), True),
        (HostError("node1 has no /x", f"run.binds in {file}", "stage?"), True),
        (HostError("node1 has no /x", f"run.log-dir in {file}", "stage?"), True),
        (JaxsifError("7 tasks", f"run.nodes in {file}", "--nodes=1"), False),
        (JaxsifError("both", f"run.per-node in {file}; run.per-gpu in {file}", "leave out --per-gpu"), True),
        (JaxsifError("both", f"--per-node; run.per-gpu in {file}", "leave out --per-gpu"), False),
        (HostError("image not found", f"run.image in {file}", "stage?"), True),
        (JaxsifError("no such", f"run.image in {tmp_path}/jaxsif.toml", "stage?"), False),
        (JaxsifError("Slurm cannot", f"srun; run.partition in {file}", "stage?"), True),
        (HostError("Slurm refused", f"srun; run.account in {file}; run.partition in {file}", "stage?"), True),
        (HostError("sbatch refused", f"sbatch; run.time in {file}", "stage?"), True),
        (HostError("Slurm refused", f"srun; --nodes; run.partition in {file}", "stage?"), False),
        (HostError("no /dev/x", f"task 0 on n1; run.fabric in {file}", "stage?"), False),
    ):
        hint = other.hint
        address_staff(other)
        assert other.hint == (begin.replace("stage?", hint) if is_theirs else hint)
    hint = "pass --log-dir with another folder"
    of_logs = HostError("cannot write", f"run.log-dir in {file}", tell_staff(hint, f"run.log-dir in {file}"))
    address_staff(of_logs)
    assert of_logs.hint == hint + ("" if may_write else "; tell site staff")


NOT_NODES = "run.nodes is not a number from 1 to 2147483647, or two as MIN-MAX"
NOT_TASKS = "run.ntasks-per-node is not a number from 1 to 2147483647"
NOT_TIME = "run.hang-timeout is not a number of seconds from 1, or one with a unit, as in 5m, or off"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\nstages = true", "unknown setting run.stages\n  from: {path}\n  try:  stage?"),
        ("[run]\nqos = 'a'", 'unknown setting run.qos\n  from: {path}\n  try:  srun-args = ["--qos=VALUE"]'),
        (
            "[run]\nexclusive = true",
            'unknown setting run.exclusive\n  from: {path}\n  try:  srun-args = ["--exclusive"]',
        ),
        (
            "[run]\nexclusive = 'user'",
            'unknown setting run.exclusive\n  from: {path}\n  try:  srun-args = ["--exclusive=VALUE"]',
        ),
        ("[run]\nprofile = 'ib'", 'unknown setting run.profile\n  from: {path}\n  try:  fabric = "NAME", for'),
        ("[run]\nexclusive = false", "unknown setting run.exclusive\n  from: {path}\n  try:  leave it out"),
        ("[runs]", "unknown table [runs]\n  from: {path}\n  try:  run?"),
        ("run = 1", "run is not a table\n  from: {path}\n  try:  a table [run]"),
        ("policy = 3", "policy is not a table\n  from: {path}\n  try:  a table [policy]"),
        ("nodes = 2", "nodes is not a table\n  from: {path}\n  try:  put the line under [run]"),
        (
            "[run]\nstage-folder = '/x/$USER'",
            "run.stage-folder has a variable: /x/$USER\n  from: {path}\n  try:  write the",
        ),
        (
            "[run]\nbinds = ['/a', '/x/$USER:/y']",
            "run.binds has a variable: /x/$USER:/y\n  from: {path}\n  try:  write",
        ),
        ("nodse = 2", "nodse is not a table\n  from: {path}\n  try:  put the line under [run]"),
        ("checks = '/x'", "checks is not a table\n  from: {path}\n  try:  put the line under [doctor]"),
        ("inherits = 'ib'", "inherits is not a table\n  from: {path}\n  try:  put the line under [profile.NAME]"),
        ("[run]\ndigests = []", "unknown setting run.digests\n  from: {path}\n  try:  put the line under [policy]"),
        (
            "[profile]\nenv = []",
            "unknown setting profile.env\n  from: {path}\n  try:  put the line under [profile.NAME]",
        ),
        ("[profile]\nhdr = 'ib'", "unknown setting profile.hdr\n  from: {path}\n  try:  a table [profile.hdr]"),
        ("[zzz]", "unknown table [zzz]\n  from: {path}\n  try:  one of policy, profile, run"),
        (
            "[run]\nhistory = 'off'",
            "run.history is not true or false: 'off'\n  from: {path}\n  try:  write history = false",
        ),
        (
            "[run]\nhang-timeout = false",
            "run.hang-timeout is not a number of seconds from 1, or one with a unit, as in 5m, or off: false\n"
            '  from: {path}\n  try:  write hang-timeout = "off" below [run]',
        ),
        (
            "[run]\ncheck-programs = false",
            "run.check-programs is not a string: false\n"
            '  from: {path}\n  try:  write check-programs = "off" below [run]',
        ),
        (
            "[run]\nstage = 1",
            "run.stage is not true or false: 1\n  from: {path}\n  try:  write stage = true below [run]",
        ),
        (
            "[run]\nntasks-per-node = 'two'",
            NOT_TASKS + ": 'two'\n  from: {path}\n  try:  write ntasks-per-node = 2 below [run]",
        ),
        (
            "[run]\nhang-timeout = 'x'",
            NOT_TIME + ": 'x'\n  from: {path}\n  try:  write hang-timeout = \"5m\" below [run]",
        ),
        (
            "[run]\nrun.ntasks = 2",
            "unknown setting run.run\n  from: {path}\n  try:  jaxsif run --help, most of whose",
        ),
        (
            "[run]\nimage = true",
            'run.image is not a path: true\n  from: {path}\n  try:  write image = "PATH" below [run]',
        ),
        (
            "[run]\ncompile-cache-folder = ''",
            "run.compile-cache-folder is not a path: ''\n  from: {path}\n  try:  write compile-cache-folder = ",
        ),
        ("[doctor]\nchecks = ''", "doctor.checks is not a path: ''"),
        ("[run]\ncheck = true", "unknown setting run.check\n  from: {path}\n  try:  leave it out: --check is only for"),
        (
            "[run]\ncoordinator-tls = true",
            'run.coordinator-tls is not a string: true\n  from: {path}\n  try:  write coordinator-tls = "auto" below',
        ),
        ("[policy]\ndigests = [1]", "policy.digests is not a list of digests, each sha256: and 64 hexadecimal"),
        ("[policy]\ndigests = ['sha256:abc']", "policy.digests is not a list of digests, each sha256: and 64 hex"),
        ("[run]\nnodes = 0", NOT_NODES + ": 0\n  from: {path}"),
        ("[run]\nnodes = true", NOT_NODES + ": true\n  from: {path}"),
        ("[run]\ntime = true", "run.time is not a string: true\n  from: {path}"),
        (
            "[run]\nlauncher = 'ssh'",
            "run.launcher is not srun or local or mpirun: 'ssh'\n"
            '  from: {path}\n  try:  write launcher = "srun" below [run]',
        ),
        ("[profile]\nib = 1", "unknown setting profile.ib\n  from: {path}\n  try:  a table [profile.ib]"),
        ("[profile.ib]\nbind = []", "unknown setting profile.ib.bind\n  from: {path}\n  try:  binds?"),
        ("[profile.ib]\nenv = 'A=1'", "profile.ib.env is not a list of strings\n  from: {path}"),
        (
            "[profile.none]",
            "not a valid profile name: 'none'\n  from: {path}\n  try:  choose another name: --fabric none",
        ),
        ("[profile.'i b']", "not a valid profile name: 'i b'\n  from: {path}\n  try:  letters, digits, - and _"),
        ("[run", "cannot read {path}: "),
        ("[run]\nnodes = 2147483648", NOT_NODES),
        (f"[run]\nnodes = 0x{'f' * 5000}", NOT_NODES),
        (f"[run]\ngpus-per-node = 0x{'f' * 5000}", "run.gpus-per-node is not a string: 0xffff"),
        ('[policy]\nsigned-by = ["a\\u0000b"]', "policy.signed-by has a NUL character\n  from: {path}"),
        ('[run]\nimage = "a\\u0000b"', "run.image has a NUL character\n  from: {path}"),
        (f"[run]\n{'x' * 60000} = 1", f"unknown setting run.{'x' * 60}…{'x' * 59}\n  from: {{path}}"),
        ("[run]\nimage = '\udcff'", "cannot read {path}: "),
    ],
)
def test_what_is_no_setting(tmp_path: Path, environ: dict[str, str], text: str, message: str) -> None:
    (tmp_path / "jaxsif.toml").write_bytes(text.encode(errors="surrogateescape"))
    said = catch(JaxsifError, read_config, environ, str(tmp_path)).render()
    assert said.startswith("jaxsif: error: " + message.format(path=tmp_path / "jaxsif.toml"))


def test_a_value_of_each_kind(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path / "jaxsif.toml", "[run]\nnodes = 2\ngpus-per-node = 4\nimage = 'a/jax.sif'\nlabel = true\n")
    settings = read_config(environ, str(tmp_path)).settings
    assert {name: setting.value for name, setting in settings.items()} == {
        "run.nodes": 2,
        "run.gpus-per-node": "4",
        "run.image": f"{tmp_path}/a/jax.sif",
        "run.label": True,
    }


def find(said: dict[str, object], environ: dict[str, str], *, in_job: bool = False) -> dict[str, Setting]:
    """What `resolve` finds where a file sets the time limit and labels; without what nothing has set."""
    config = Config({"run.time": Setting("10", "FILE"), "run.label": Setting(True, "FILE")}, ())
    found = resolve(said, environ, config, in_job)
    return {key: setting for key, setting in found.items() if setting.source != "default"}


def test_the_command_line_wins_over_variables_and_they_over_files() -> None:
    environ = {"JAXSIF_LABEL": "0", "JAXSIF_TIME": "20", "JAXSIF_NODES": "3"}
    assert find({"label": True, "time": None}, environ) == {
        "nodes": Setting(3, "JAXSIF_NODES (environment)", Rank.VARIABLE),
        "time": Setting("20", "JAXSIF_TIME (environment)", Rank.VARIABLE),
        "label": Setting(True, "--label", Rank.COMMAND_LINE),
    }
    assert find({}, {})["label"] == Setting(True, "FILE")


def test_paths_below_the_home_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    binds = "['~/x:/y', 'z:/x:image-src=/,id=1', ' a, ~/b:/b:ro', ':/x', ' :/y', '/a\\,b:/c']"
    text = f"[run]\nbinds = {binds}\nstage-folder = '~/stage'\nlog-dir = '~/logs'\n"
    assert parse_settings(text.encode(), f"{tmp_path}/jaxsif.toml")["run"] == {
        "binds": [
            "/home/ada/x:/y",
            f"{tmp_path}/z:/x:image-src=/,id=1",
            f"{tmp_path}/a,/home/ada/b:/b:ro",
            ":/x",
            ":/y",
            "/a\\,b:/c",
        ],
        "stage-folder": "/home/ada/stage",
        "log-dir": "/home/ada/logs",
    }


def test_in_a_job_what_asks_for_one_counts_only_on_the_command_line() -> None:
    assert "time" not in find({}, {"JAXSIF_TIME": "20"}, in_job=True)
    assert find({"time": "30"}, {}, in_job=True)["time"] == Setting("30", "--time", Rank.COMMAND_LINE)


def test_a_number_of_tasks_on_the_command_line_wins_over_any_way_to_say_it_elsewhere() -> None:
    config = Config(
        {"run.ntasks-per-node": Setting(1, "FILE", Rank.SITE), "run.gpus-per-task": Setting(2, "FILE", Rank.SITE)}, ()
    )
    found = resolve({"per_gpu": True}, {"JAXSIF_NTASKS": "6"}, config, in_job=False)
    assert not {"ntasks", "ntasks-per-node"} & set(found)
    assert "gpus-per-task" not in found
    assert "gpus-per-task" in resolve({"ntasks": 2}, {}, config, in_job=False)
    assert "ntasks-per-node" not in resolve({}, {"JAXSIF_PER_GPU": "1"}, config, in_job=False)
    assert "ntasks-per-node" in resolve({"per_gpu": False}, {}, config, in_job=False)


def test_what_means_nothing_to_a_command_does_not_count_elsewhere() -> None:
    config = Config({"run.gpu-bind": Setting("single:1", "FILE")}, ())
    assert "gpu-bind" not in resolve({}, {"JAXSIF_SHARE_GPUS": "1"}, config, in_job=False, fixed=("gpu-bind",))
    assert resolve({"gpu_bind": "none"}, {}, config, False, ("gpu-bind",))["gpu-bind"].value == "none"


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("JAXSIF_NODES", "12", 12),
        ("JAXSIF_STAGE", "on", True),
        ("JAXSIF_STAGE", "False", False),
        ("JAXSIF_BINDS", "/a:/b '/with blank'", ["/a:/b", "/with blank"]),
        ("JAXSIF_CONTAINERS", "task", "task"),
        ("JAX_IMAGE", "x.sif", "x.sif"),
        ("JAXSIF_HANG_TIMEOUT", "5m", 300),
        ("JAXSIF_BUSY_TIMEOUT", "2h", 7200),
        ("JAXSIF_HANG_TIMEOUT", "off", "off"),
        ("JAXSIF_INIT_TIMEOUT", "90s", 90),
        ("JAXSIF_INIT_TIMEOUT", "90", 90),
        ("JAXSIF_GPUS", "0", "0"),
    ],
)
def test_variables(variable: str, text: str, value: object) -> None:
    found = {setting.source: setting.value for setting in find({}, {variable: text}).values()}
    assert found[f"{variable} (environment)"] == value


@pytest.mark.parametrize(
    ("variable", "text", "message", "hint"),
    [
        ("JAXSIF_NODES", "0", f"JAXSIF_NODES is not {NODES.words}: '0'", "export JAXSIF_NODES=2"),
        ("JAXSIF_NODES", "two", f"JAXSIF_NODES is not {NODES.words}: 'two'", "export JAXSIF_NODES=2"),
        ("JAXSIF_STAGE", "maybe", "JAXSIF_STAGE is not true or false: 'maybe'", "export JAXSIF_STAGE=true"),
        (
            "JAXSIF_INIT_TIMEOUT",
            "5ms",
            f"JAXSIF_INIT_TIMEOUT is not {TIMEOUT.words}: '5ms'",
            "export JAXSIF_INIT_TIMEOUT=5m",
        ),
        ("JAXSIF_BINDS", "'", 'cannot read "\'": No closing quotation', "quote it as in a shell"),
        ("JAXSIF_CONTAINERS", "pod", "JAXSIF_CONTAINERS is not node or task: 'pod'", "export JAXSIF_CONTAINERS=node"),
    ],
)
def test_variables_refused(variable: str, text: str, message: str, hint: str) -> None:
    said = catch(JaxsifError, find, {}, {variable: text}).render()
    assert said == f"jaxsif: error: {message}\n  from: {variable} (environment)\n  try:  {hint}"


def test_every_option_is_found_by_its_key() -> None:
    assert len({option.key for option in OPTIONS}) == len({option.variable for option in OPTIONS}) == len(OPTIONS)


VALUES = st.sampled_from(
    ["", "0", "1", "2147483648", "9" * 5000, "9" * 120_000, "-1", "x", "true", "'", "'a b' " * 9000, "\\"]
)


@given(st.sampled_from(OPTIONS), VALUES)
def test_any_variable_is_read_or_refused_in_bounds(option: Option, text: str) -> None:
    error = read_bounded(lambda: read_variable(option, text))
    if error:
        assert error.where == f"{option.variable} (environment)"
        assert len(error.what) < 300


def test_a_time_in_a_file_may_have_a_unit() -> None:
    option = next(option for option in OPTIONS if option.key == "hang-timeout")
    assert [check_value(option, value, "KEY", "FILE") for value in ("5m", 60, "off")] == [300, 60, "off"]
