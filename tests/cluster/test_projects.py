"""Layers of projects: folders and repositories, built where they see nothing of the host, or refused."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import tarfile

import pytest
from test_layers import LOCAL, SITE, Shelf
from test_layers import shelf as shelf
from wheels import download

BACKENDS = ("setuptools", "hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers", "tomlkit")
COMMIT = "git -c user.name=me -c user.email=me@example.org commit --quiet --all --message"


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An archive with the wheels of real backends, from the index of this host."""
    folder = tmp_path_factory.mktemp("backends")
    done = download(folder, *BACKENDS)
    assert done.returncode == 0, done.stderr
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for wheel in folder.iterdir():
            archive.add(wheel, f"simple/{wheel.name.partition('-')[0].replace('_', '-')}/{wheel.name}")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture
def home(shelf: Shelf, backends: str) -> Shelf:
    """A shelf whose index has backends."""
    shelf.cluster.check(f"base64 -d | tar -C {shelf.folder} -x", stdin=backends)
    return shelf


def write(shelf: Shelf, files: dict[str, str]) -> None:
    """Write files below the shelf's folder."""
    program = "import json, sys, pathlib\nfor name, text in json.load(sys.stdin).items():\n"
    program += "    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True); pathlib.Path(name).write_text(text)"
    script = f"cd {shelf.folder} && python3 -c {shlex.quote(program)}"
    shelf.cluster.check(script, stdin=json.dumps(files))


def toml(name: str, backend: str = "", *requires: str) -> str:
    """A pyproject.toml."""
    system = f"[build-system]\nrequires = ['{backend}']\nbuild-backend = '{backend}.build'\n" if backend else ""
    return f"{system}[project]\nname = '{name}'\nversion = '1'\ndependencies = {list(requires)}\n"


def sources(shelf: Shelf, name: str) -> dict[str, str]:
    return json.loads(shelf.layer("show", "--json", name).stdout)["sources"]


def test_folders(home: Shelf) -> None:
    """With a dependency, with a src layout, editable, with an extra, from a file; nothing is written to the folders."""
    folder = home.folder
    extra = "[project.optional-dependencies]\ngreet = ['hello']\n"
    write(
        home,
        {
            "flat/pyproject.toml": toml("flat", "", "hello"),
            "flat/flat.py": "import hello\nname = 'flat'\n",
            "laid/pyproject.toml": toml("laid", "hatchling") + extra,
            "laid/src/laid/__init__.py": "name = 'laid'\n",
            "laid/src/laid/data.txt": "data",
            "old/setup.py": "from setuptools import setup\nsetup(name='old', version='2', py_modules=['old'])\n",
            "old/old.py": "name = 'old'\n",
            "files/r.txt": "-e ../laid[greet]\n../old  # an old one\n",
        },
    )
    listing = f"cd {folder} && find flat laid old files -printf '%p %T@ %s\\n' | sort"
    before = home.cluster.check(listing)
    done = home.layer("create", "-r", "files/r.txt", "mine", "./flat", "numpy")
    assert done.returncode == 0, done.stderr
    note = f"a layer cannot be changed, so it has a copy of {folder}/laid; to work on the sources, "
    assert f"jaxsif: note: {note}add --env PYTHONPATH={folder}/laid/src\n" in done.stderr
    assert done.stderr.count("note:") == 1
    assert home.cluster.check(listing) == before
    program = "import flat, laid, old; print(flat.name, laid.name, old.name, laid.__file__)"
    assert home.python("mine", program) == f"flat laid old {SITE}/laid/__init__.py\n"
    described = json.loads(home.layer("show", "--json", "mine").stdout)
    assert described["packages"] == {"flat": "1", "hello": "1.0", "laid": "1", "old": "2"}
    assert described["requirements"] == [f"-e {folder}/laid[greet]", f"{folder}/old", f"{folder}/flat", "numpy"]
    assert list(described["sources"]) == described["requirements"][:3]
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", state) for state in described["sources"].values())
    assert f"{folder}/flat (sha256:" in home.layer("list").stdout
    write(home, {"laid/src/laid/__init__.py": "name = 'edited'\n"})
    assert home.python("mine", "import laid; print(laid.name)") == "laid\n"
    edited = ("--layer=mine", "--env", f"PYTHONPATH={folder}/laid/src", "--", "python", "-c")
    assert home.run(*LOCAL, *edited, "import laid; print(laid.name)").stdout == "edited\n"


LAB_PROGRAM = "import sys, mylab\ngetattr(mylab, sys.argv[1])(0)\n"
LAB = """import os, time, jax
def divide(x): return 1 // x
def crash(_): os.abort()
def end(_):
    jax.devices()
    for turn in range(9):
        time.sleep(0.5)
        turn < 6 or os.kill(os.getpid(), 9)
def stall(_):
    from jax.experimental import multihost_utils
    jax.distributed.initialize()
    if jax.process_index(): time.sleep(60)
    multihost_utils.sync_global_devices("all")
"""


def test_errors_name_the_line_and_the_loop_in_the_project(home: Shelf) -> None:
    write(home, {"p/pyproject.toml": toml("mylab"), "p/mylab.py": LAB, "train.py": LAB_PROGRAM})
    home.make("mine", "./p")
    for name, expected in (
        ("divide", f"from: {SITE}/mylab.py:2\n"),
        ("crash", f"from: {SITE}/mylab.py:3\n"),
        ("end", "iteration \\d or later of the loop at mylab\\.py:6, at mylab\\.py:7"),
    ):
        done = home.run(*LOCAL, "--layer=mine", "--", "python", "train.py", name)
        assert re.search(expected, done.stderr), done.stderr


def test_hangs_name_the_lines_in_the_project(home: Shelf) -> None:
    """Of the task that is waiting in a collective, too: not JAX's lines below it."""
    write(home, {"p/pyproject.toml": toml("mylab"), "p/mylab.py": LAB, "train.py": LAB_PROGRAM})
    home.make("mine", "./p")
    two = ("--nodes=1", "--ntasks-per-node=2", "--hang-timeout=5", "--on-hang=stop")
    done = home.run(*two, "--layer=mine", "--", "python", "train.py", "stall")
    for expected in (
        r"1 task +is sleeping +mylab\.py:12 stall",
        r"1 task +is waiting in a collective +mylab\.py:13 stall",
    ):
        assert re.search(expected, done.stderr), done.stderr


def test_a_project_that_changes(home: Shelf) -> None:
    """With the same version; from its own folder, and with downloads kept."""
    cache = {"UV_CACHE_DIR": f"{home.folder}/uv"}
    write(home, {"p/pyproject.toml": toml("p"), "p/p.py": "x = 1"})
    create = "cd p && exec jaxsif layer create mine -e ."
    for text, built in (("x = 1", True), ("x = 1", False), ("x = 2", True)):
        write(home, {"p/p.py": text})
        done = home.cluster.run(home.script(create, **cache))
        assert done.returncode == 0
        assert ("building" in done.stderr) is built, done.stderr
        assert ("layer mine already exists\n" in done.stderr) is not built
        assert home.python("mine", "import p; print(p.x)") == f"{text[-1]}\n"
    write(home, {"p/p.py": "x = 3"})
    assert home.layer("update", "mine", **cache).returncode == 0
    assert home.python("mine", "import p; print(p.x)") == "3\n"
    home.cluster.check(f"rm -r {home.folder}/p")
    assert f"error: not a project: {home.folder}/p\n" in home.refused("update", "mine")
    assert home.python("mine", "import p; print(p.x)") == "3\n"


def test_repositories(home: Shelf) -> None:
    folder = home.folder
    write(
        home, {"repo/pyproject.toml": toml("top") + "[tool.setuptools]\npy-modules = ['top']\n", "repo/top.py": "x = 1"}
    )
    write(home, {"repo/sub/pyproject.toml": toml("sub", "hatchling", "hello"), "repo/sub/sub/__init__.py": ""})
    git = f"cd {folder}/repo && git init --quiet --initial-branch=main && git add . && {COMMIT} one && git tag v1"
    first = home.cluster.check(f"{git} && git rev-parse HEAD").strip()
    write(home, {"repo/top.py": "x = 2"})
    second = home.cluster.check(f"cd {folder}/repo && {COMMIT} two && git rev-parse HEAD").strip()
    write(home, {"repo/top.py": "x = 'not committed'"})
    address = f"git+file://{folder}/repo"
    for requirement, commit, x in (
        (f"{address}@v1", first, "1"),
        (f"top @ {address}", second, "2"),
        (f"{address}@{first[:10]}", first, "1"),
    ):
        home.layer("remove", "mine")
        home.make("mine", requirement, f"sub @ {address}@main#subdirectory=sub")
        assert list(sources(home, "mine").values()) == [f"commit {commit}", f"commit {second}"]
        assert home.python("mine", "import top, sub, hello; print(top.x)") == f"{x}\n"
    home.make("newest", address)
    assert f"{address} (commit {second[:12]})" in home.layer("list").stdout
    third = home.cluster.check(f"cd {folder}/repo && {COMMIT} three && git rev-parse HEAD").strip()
    home.make("newest", address)
    assert sources(home, "newest") == {address: f"commit {third}"}
    assert home.python("newest", "import top; print(top.x)") == "not committed\n"


def test_what_cannot_be_built(home: Shelf) -> None:
    """One clear error each, in the user's own words, and nothing is left."""
    folder = home.folder
    setup = "from setuptools import setup, Extension, Distribution\n"
    extension = "setup(name='e', version='1', ext_modules=[Extension('e', ['e.c'])])"
    tagged = "class Own(Distribution):\n    def has_ext_modules(self): return True\n"
    write(
        home,
        {
            "extension/setup.py": f"{setup}{extension}",
            "extension/e.c": "",
            "tagged/setup.py": f"{setup}{tagged}setup(name='t', version='1', distclass=Own, py_modules=['t'])",
            "tagged/t.py": "",
            "empty/readme.txt": "",
            "fails/setup.py": "\nraise RuntimeError('no luck')",
            "ends/setup.py": "import os; os._exit(0)",
            "needs/pyproject.toml": toml("needs", "no_such_backend"),
            "depends/pyproject.toml": toml("depends", "", "no-such-package"),
            "depends/depends.py": "",
            "conflicts/pyproject.toml": toml("conflicts", "", "numpy<2"),
            "conflicts/conflicts.py": "",
            "large/setup.py": "",
            "a.tar.gz": "",
        },
    )
    home.cluster.check(f"cd {folder} && mkdir large/data && truncate --size=101M large/data/x && cp -r fails/. repo")
    home.cluster.check(f"cd {folder}/repo && git init --quiet && git add . && {COMMIT} one")
    programs = "$(command -v jaxsif) /bin/bash /usr/bin/python3 /usr/bin/apptainer $(command -v mksquashfs)"
    home.cluster.check(f"module load jax/sif && mkdir {folder}/bin && ln -s {programs} {folder}/bin")
    server = home.index.partition("//")[2].rpartition(":")[0] + ":9"
    for words, status, texts in (
        ("./extension", 2, [f"{folder}/extension is not pure Python:\n", "gcc", "try:  name a wheel: pip wheel"]),
        ("./tagged", 2, [f"{folder}/tagged is not pure Python\n  from: its wheel is t-1-cp313-cp313-linux_\\w+.whl\n"]),
        ("./empty", 2, [f"not a project: {folder}/empty\n  from: there is no pyproject.toml and no setup.py\n"]),
        ("./nowhere", 2, [f"not a project: {folder}/nowhere\n"]),
        ("./a.tar.gz", 2, ["not a project: ./a.tar.gz\n"]),
        (
            "./fails",
            2,
            [f"cannot build {folder}/fails:\n    {folder}/fails/setup.py, line 2\n    RuntimeError: no luck\n"],
        ),
        ("./ends", 2, [f"cannot build {folder}/ends:\n    the build ended early, with exit status 0\n"]),
        ("./needs", 2, ["no-such-backend was not found", f"from: build-system.requires of {folder}/needs\n"]),
        ("./depends", 2, ["cannot resolve the requirements:\n", "depends==1 depends on no-such-package"]),
        ("./conflicts", 2, ["conflict with numpy .* of the image:\n", "try:  .*--allow-replace numpy"]),
        ("./large", 2, [f"{folder}/large has more than 100 MB of sources\n  from: data in it is at least 100 MB\n"]),
        (f"git+https://{server}/u/p", 125, [f"cannot reach the server of https://{server}/u/p:\n", "try:  run it on"]),
        (f"git+file://{folder}/empty", 2, [f"cannot clone file://{folder}/empty:\n"]),
        (f"git+file://{folder}/repo@v9", 2, [f"no v9 in file://{folder}/repo:\n", "try:  git ls-remote"]),
        (f"p @ git+file://{folder}/repo#subdirectory=../..", 2, ["not a project: "]),
    ):
        done = home.layer("create", "mine", words)
        error = done.stderr[done.stderr.index("jaxsif: error: ") :]
        assert (done.returncode, done.stdout) == (status, ""), done
        for text in texts:
            assert re.search(text, error), error
        assert not re.search(r"/mnt|jaxsif-layer-|\buv\b|--no-build|Traceback", error), error
        assert home.left() == []
    write(home, {"q/pyproject.toml": toml("q"), "q/q.py": ""})
    error = home.refused("create", "mine", f"other @ file://{folder}/q")
    assert error.startswith(f"jaxsif: error: the package of {folder}/q is q, not other\n")
    error = home.refused("create", "mine", f"git+file://{folder}/repo", PATH=f"{folder}/bin")
    assert error.startswith(f"jaxsif: error: git is not on the PATH, and file://{folder}/repo needs it\n")
    assert home.left() == []


PROBE = """
import json, os, pathlib, socket, subprocess, sys
from setuptools import setup

def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__

address = json.loads(pathlib.Path("probe.json").read_text())
subprocess.Popen(["sleep", "4242"], start_new_session=True)
commands = [attempt(lambda: open(f"/proc/{pid}/cmdline").read()) for pid in os.listdir("/proc") if pid.isdigit()]
found = {
    "files": [path for path in address["files"] if os.path.lexists(path)],
    "secrets": [name for name, value in os.environ.items() if "secret" in value or name.startswith("UV_")],
    "spaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "ipc", "net")},
    "others": [command for command in commands if "4343" in command],
    "network": attempt(lambda: socket.create_connection(tuple(address["index"]), 3)),
    "inside": attempt(lambda: open("/mnt/inside.py", "a")),
    "tools": attempt(lambda: open("/mnt/tools/new.py", "w")),
    "root": attempt(lambda: open("/new", "w")),
    "container": os.path.isdir("/.singularity.d"),
    "capabilities": [line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1],
}
pathlib.Path("probe").mkdir(exist_ok=True)
pathlib.Path("probe/__init__.py").write_text(f"found = {json.dumps(json.dumps(found))}")
setup(name="probe", version="1", packages=["probe"])
"""


def test_a_build_sees_only_its_container(home: Shelf) -> None:
    """No file, variable, process or network of the host; no process of it is left."""
    folder, cluster = home.folder, home.cluster
    host, port = home.index.partition("//")[2].split(":")
    files = [folder, f"{folder}/marker", "/sw", "/home/user", "/etc/slurm"]
    write(
        home,
        {
            "marker": "",
            "probe/setup.py": PROBE,
            "probe/probe.json": json.dumps({"files": files, "index": [host, int(port)]}),
        },
    )
    spaces = "for name in mnt pid ipc net; do readlink /proc/self/ns/$name; done"
    own = cluster.check(spaces).split()
    hidden = {"WANDB_API_KEY": "secret", "APPTAINERENV_KEY": "secret", "SINGULARITYENV_KEY": "secret"}
    hidden["UV_INDEX"] = home.index.replace("//", "//secret@")
    with cluster.start(["sleep", "4343"]) as sleep:
        done = home.layer("create", "mine", "./probe", APPTAINER_BIND=f"{folder}:/srv", **hidden)
        cluster.check("pkill -f '[s]leep 4343'")
        sleep.communicate(timeout=10)
    assert done.returncode == 0, done.stderr
    found = json.loads(home.python("mine", "import probe; print(probe.found)"))
    assert not set(found.pop("spaces").values()).intersection(own)
    assert found == {
        "files": [],
        "secrets": [],
        "others": [],
        "network": "ConnectionRefusedError",
        "inside": "OSError",
        "tools": "OSError",
        "root": "OSError",
        "container": True,
        "capabilities": "0000000000000000",
    }
    assert cluster.run("pgrep -fa '[s]leep 4242'").stdout == ""


@pytest.mark.parametrize("answer", ['"p-1-py3-none-any.whl"', '"../../victim"', "7", "os._exit(0)"])
def test_a_hostile_build(home: Shelf, answer: str) -> None:
    """Its links and answers lead to no file of the user."""
    folder = home.folder
    backend = "import os\ndef build_wheel(target, *_):\n"
    backend += f"    for name in ('p-1-py3-none-any.whl', 'x'): os.symlink('{folder}/victim', f'{{target}}/{{name}}')\n"
    backend += f"    if 'exit' in {answer!r}: os.symlink('{folder}/victim', f'{{target}}/answer.json')\n"
    backend += f"    return {answer}\n"
    system = "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n"
    write(home, {"victim": '{"wheel": "x"}', "p/own.py": backend, "p/pyproject.toml": system})
    error = home.refused("create", "mine", "./p")
    assert error.startswith(f"jaxsif: error: cannot build {folder}/p"), error
    assert home.cluster.check(f"cat {folder}/victim") == '{"wheel": "x"}'
    assert home.left() == []


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_interrupted_build(home: Shelf, name: str, status: int) -> None:
    write(home, {"p/setup.py": "import time; time.sleep(4545)"})
    script = home.script("echo $$ >pid && exec jaxsif layer create mine ./p")
    with home.cluster.start(script) as create:
        home.cluster.check("while ! pgrep -f '[i]nside.py build' >/dev/null; do sleep 0.1; done", timeout=20)
        home.cluster.check(f"kill -{name} $(cat {home.folder}/pid)")
        _, err = create.communicate(timeout=20)
    assert create.returncode == status
    assert "error" not in err
    assert home.left() == []
    assert home.cluster.run("pgrep -fa 'inside.py|starter'").stdout == ""
