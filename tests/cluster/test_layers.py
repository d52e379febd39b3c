"""Layers: made by an ordinary user on the login node, mounted in the tasks, refused where they do not fit."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator

import pytest
from harness import MINICLUSTER, Cluster, jaxsif_run
from test_client import FIND
from wheels import put_wheel, serve_index

TASKS = ("--nodes=2", "--gpus-per-node=4")
LOCAL = ("--launcher=local", "--gpus-per-node=1")
SITE = "/opt/jax/lib/python3.13/site-packages"


class Shelf:
    """A user's folder of layers, an index of wheels, and a folder for what is temporary."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        self.cluster, self.folder, self.index = cluster, folder, "http://127.0.0.1:9"
        cluster.check(f"mkdir {folder}/tmp {folder}/simple")

    def script(self, command: str, **variables: str) -> str:
        folder = self.folder
        settings = {"XDG_DATA_HOME": f"{folder}/data", "TMPDIR": f"{folder}/tmp", "UV_DEFAULT_INDEX": self.index}
        words = [f"export {name}={shlex.quote(value)}" for name, value in {**settings, **variables}.items()]
        return " && ".join(["module load jax/sif", *words, f"cd {folder}", command])

    def layer(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(self.script(f"exec jaxsif layer {shlex.join(argv)}", **variables))

    def make(self, *argv: str) -> None:
        done = self.layer("create", *argv)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr

    def refused(self, *argv: str, **variables: str) -> str:
        done = self.layer(*argv, **variables)
        assert (done.returncode, done.stdout) in ((2, ""), (125, "")), done
        assert "Traceback" not in done.stderr
        return done.stderr[done.stderr.index("jaxsif: error: ") :]

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(self.script(f"exec jaxsif run {shlex.join(argv)}", **variables))

    def python(self, layers: str, program: str) -> str:
        options = [f"--layer={name}" for name in layers.split()]
        done = self.run(*LOCAL, *options, "--", "python", "-c", program)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def left(self) -> list[str]:
        """All files of layers, and whatever is left of making them."""
        script = f"cd {self.folder} && find tmp data -mindepth 1 ! -name jaxsif ! -name layers -printf '%f\n'"
        return sorted(self.cluster.run(script).stdout.split())


@pytest.fixture
def shelf(cluster: Cluster, folder: str) -> Iterator[Shelf]:
    one = Shelf(cluster, folder)
    put_wheel(cluster, folder, "hello", "1.0", {"hello.py": "def main(): print('hello')"}, script="hello = hello:main")
    with serve_index(cluster, folder) as one.index:
        yield one


def test_packages_scripts_namespaces_and_pth_files(shelf: Shelf) -> None:
    """Two layers at once, of packages that need one of the image; seen by 8 tasks on 2 nodes."""
    folder = shelf.folder
    path = {"mypath.pth": "import sys; sys.mypath = 'read'\n", "space/one/__init__.py": "name = 'one'\n"}
    put_wheel(shelf.cluster, folder, "one", "1.0", path, requires=["numpy", "hello"])
    two = put_wheel(shelf.cluster, folder, "two", "1.0", {"space/two.py": "import numpy\nname = 'two'\n"})
    shelf.make("first", "one")
    shelf.make("second", f"./{two[len(folder) + 1 :]}")
    program = f"""
import sys, jax, hello, space.one, space.two
jax.distributed.initialize()
cached = open(hello.__cached__, "rb").read(8)[4]
print(sys.mypath, space.one.name, space.two.name, hello.__file__, cached, jax.__file__, jax.process_count())
assert hello.main.__code__.co_filename == "{SITE}/hello.py"
"""
    shelf.cluster.write(f"{folder}/program.py", program)
    done = shelf.run(*TASKS, "--layer", "first", "--layer", "second", "--", "python", "program.py")
    expected = f"read one two {SITE}/hello.py 1 {SITE}/jax/__init__.py 8"
    assert [line for line in done.stdout.splitlines() if line.startswith("read")] == [expected] * 8, done.stderr
    assert shelf.run(*LOCAL, "--layer=first", "--", "hello").stdout == "hello\n"
    listed = json.loads(shelf.layer("list", "--json").stdout)
    assert [(one["name"], one["status"], one["packages"]) for one in listed] == [
        ("first", "ok", {"hello": "1.0", "one": "1.0"}),
        ("second", "ok", {"two": "1.0"}),
    ]


def test_settings_in_a_file(shelf: Shelf) -> None:
    shelf.make("greeting", "hello")
    shelf.cluster.write(f"{shelf.folder}/jaxsif.toml", '[run]\nlayers = ["greeting"]\n')
    assert shelf.run(*LOCAL, "--", "hello").stdout == "hello\n"
    shelf.cluster.write(f"{shelf.folder}/jaxsif.toml", '[run]\nlayers = ["nothing"]\n')
    done = shelf.run(*LOCAL, "--", "hello")
    assert done.returncode == 2
    assert "jaxsif: error: no layer nothing\n  from: run.layers in" in done.stderr
    assert "\n  try:  one of greeting\n" in done.stderr


def test_client_with_layers(shelf: Shelf) -> None:
    """`jaxsif.client()` mounts them, in instances too, and refuses those that are not there."""
    shelf.make("greeting", "hello")
    program = f"""{FIND}
client = jaxsif.client(layers=["greeting"])
print(client.execute(["hello"]).strip())
print(client.execute(client.instance(name="server"), ["hello"]).strip())
client.instances("server").stop()
try:
    jaxsif.client(layers=["nothing"])
except jaxsif.errors.JaxsifError as error:
    print(error.render().splitlines()[0])
"""
    shelf.cluster.write(f"{shelf.folder}/program.py", program)
    lines = shelf.cluster.check(shelf.script("exec python3 program.py"), node="node1").splitlines()
    assert lines == ["hello", "hello", "jaxsif: error: no layer nothing"]


def test_what_cannot_be_made(shelf: Shelf) -> None:
    """Each error names what is at fault and what to do, and nothing is left of the layer."""
    folder = shelf.folder
    put_wheel(shelf.cluster, folder, "needy", "1.0", {"needy.py": ""}, requires=["jax>=99"])
    put_wheel(shelf.cluster, folder, "twin", "1.0", {"jax/__init__.py": "raise RuntimeError"})
    shelf.cluster.write(f"{folder}/r.txt", "hello==1.0 --hash=sha256:" + 64 * "0")
    sif = shelf.cluster.check("module load jax/sif && echo $JAX_IMAGE").strip()
    jax = re.search(r"jax-([\d.]+)-cpu", sif)
    assert jax
    for argv, texts in {
        ("needy",): (
            rf"error: the requirements conflict with jax {re.escape(jax[1])} of the image:\n",
            r"all versions of needy depend on jax>=99|needy==1\.0 depends on jax>=99",
            r"\n  try:  .*--allow-replace jax\n",
        ),
        ("numpy<2",): (r"conflict with numpy \S+ of the image:\n.*\n.*you require numpy<2", "--allow-replace numpy"),
        ("nothing-of-this-name",): ("cannot resolve the requirements:\n.*\n.*nothing-of-this-name was not found",),
        ("./nowhere.whl",): (rf"wheel not found: {folder}/nowhere.whl\n",),
        ("numpy", "jax"): (rf"the image already meets all requirements: numpy, jax\n  from: {sif}\n",),
        ("twin",): (rf"twin would replace {SITE}/jax/__init__.py in the image\n", "try:  leave twin out"),
        ("-r", "r.txt"): ("cannot install the packages:\n.*hello==1.0", "Hash mismatch"),
        ("--image", "nowhere.sif", "hello"): ("image not found: nowhere.sif",),
    }.items():
        options, packages = (argv[:2], argv[2:]) if argv[0].startswith("-") else ((), argv)
        error = shelf.refused("create", *options, "mine", *packages)
        for text in texts:
            assert re.search(text, error), error
        assert shelf.left() == []


def test_create_twice_update_and_remove(shelf: Shelf) -> None:
    shelf.make("greeting", "hello")
    files = shelf.left()
    assert [re.sub(r"\.\w{12}\.", ".HASH.", name) for name in files] == ["greeting.HASH.sqfs", "greeting.json"]
    again = shelf.layer("create", "greeting", "hello")
    assert (again.returncode, again.stderr) == (0, "layer greeting already exists\n")
    refused = shelf.refused("create", "greeting", "hello>=0")
    assert "layer greeting already exists, with other requirements or options\n" in refused
    assert "  try:  give another NAME, or jaxsif layer remove greeting first\n" in refused
    put_wheel(shelf.cluster, shelf.folder, "hello", "2.0", {"hello.py": "def main(): print('good morning')"})
    assert shelf.layer("update", "greeting").returncode == 0
    assert "hello 2.0" in shelf.layer("show", "greeting").stdout
    assert shelf.python("greeting", "import hello; hello.main()") == "good morning\n"
    put_wheel(shelf.cluster, shelf.folder, "hello", "3.0", {"hello.py": ""}, requires=["jax<0.1"])
    assert shelf.layer("update", "greeting").returncode == 0
    assert "hello 2.0" in shelf.layer("show", "greeting").stdout, "the newest one that goes with the image's JAX"
    assert len(shelf.left()) == 2
    assert "no layer other" in shelf.refused("remove", "greeting", "other")
    assert shelf.layer("remove", "greeting").returncode == 0
    assert shelf.left() == []


def test_a_package_of_the_image_replaced(shelf: Shelf) -> None:
    """Asked for by name: the image's files and metadata are gone, not only the new ones there."""
    put_wheel(shelf.cluster, shelf.folder, "opt_einsum", "99.0", {"opt_einsum/__init__.py": "new = True"})
    program = "import os, opt_einsum, importlib.metadata as m; print(opt_einsum.new, m.version('opt-einsum'), "
    program += "[one.version for one in m.distributions() if one.name.startswith('opt')], "
    program += "[name for name in os.listdir(opt_einsum.__path__[0]) if name.endswith('.py')])"
    assert "--allow-replace opt-einsum" in shelf.refused("create", "mine", "opt-einsum==99.0")
    shelf.make("--allow-replace", "Opt_Einsum", "mine", "opt-einsum==99.0")
    assert shelf.python("mine", program) == "True 99.0 ['99.0'] ['__init__.py']\n"
    put_wheel(shelf.cluster, shelf.folder, "hello", "0.5", {"hello.py": ""})
    shelf.make("new", "hello")
    shelf.make("old", "hello<1")
    done = shelf.run(*LOCAL, "--layer=new", "--layer=old", "--", "true")
    assert "jaxsif: error: layers new and old have different versions of hello, 1.0 and 0.5\n" in done.stderr


def test_another_image(shelf: Shelf) -> None:
    """A copy is the same image; one with another file system is refused until the layer is made anew for it."""
    shelf.make("greeting", "hello")
    copy = f"{shelf.folder}/copy.sif"
    shelf.cluster.check(f"module load jax/sif && cp $JAX_IMAGE {copy}")
    hello = (*LOCAL, "--layer=greeting", "--", "hello")
    assert shelf.run(*hello, JAX_IMAGE=copy).stdout == "hello\n"
    # The time in the head of its squashfs: a file system with the same files and another digest.
    change = (
        "import sys; d = open(sys.argv[1], 'r+b'); p = d.read(1 << 20).index(b'hsqs'); d.seek(p + 8); d.write(b'1')"
    )
    shelf.cluster.check(["python3", "-c", change, copy])
    begin = time.monotonic()
    done = shelf.run(*TASKS, *hello[2:], JAX_IMAGE=copy)
    assert time.monotonic() - begin < 20  # before any job
    assert done.returncode == 2
    update = f"jaxsif layer update --image {copy} greeting"
    assert f"error: layer greeting was not made for {copy}\n" in done.stderr
    assert done.stderr.endswith(f"\n  try:  {update}\n")
    shelf.cluster.check(shelf.script(update))
    assert shelf.run(*hello, JAX_IMAGE=copy).stdout == "hello\n"
    assert shelf.run(*hello).returncode == 2
    shelf.cluster.check(f"rm {copy}")
    assert shelf.layer("list").stdout.splitlines()[1].split()[:2] == ["greeting", "stale"]


def test_damage(shelf: Shelf) -> None:
    shelf.make("greeting", "hello")
    file = f"{shelf.folder}/data/jaxsif/layers/" + shelf.left()[0]
    hello = (*LOCAL, "--layer=greeting", "--", "hello")
    for damage, reason in (
        ("truncate --size=-1 FILE", r" has \d+ bytes instead of \d+"),
        ("printf xxxx | dd of=FILE conv=notrunc", " is not a squashfs file"),
        ("rm FILE", ": No such file or directory"),
    ):
        shelf.cluster.check(damage.replace("FILE", file))
        done = shelf.run(*hello)
        assert done.returncode == 125
        assert re.search(rf"^jaxsif: error: layer greeting is damaged: {file}{reason}$", done.stderr, re.MULTILINE)
        assert shelf.layer("list").stdout.splitlines()[1].split()[:2] == ["greeting", "damaged"]
        assert shelf.layer("update", "greeting").returncode == 0
        file = f"{shelf.folder}/data/jaxsif/layers/" + shelf.left()[0]
        assert shelf.run(*hello).stdout == "hello\n"
    shelf.cluster.check(f"head -c 500 /dev/urandom | dd of={file} seek=96 bs=1 conv=notrunc")
    done = shelf.run(*hello)
    assert done.returncode == 125
    assert f"error: layer greeting is damaged: {file} has changed\n" in done.stderr
    assert shelf.layer("list").stdout.splitlines()[1].split()[:2] == ["greeting", "damaged"]


def test_a_layer_that_the_user_may_not_read(shelf: Shelf) -> None:
    shelf.make("greeting", "hello")
    for closed in ("*.json", "*.sqfs", "."):
        shelf.cluster.check(f"cd {shelf.folder}/data/jaxsif/layers && chmod 0 {closed}")
        done = shelf.run(*LOCAL, "--layer=greeting", "--", "hello")
        assert done.returncode == 125
        assert "jaxsif: error: cannot read layer greeting: Permission denied\n" in done.stderr
        assert f"  try:  let the owner call: chmod -R a+rX {shelf.folder}/data/jaxsif/layers\n" in done.stderr
        listed = shelf.layer("list")
        assert (closed == "." and listed.returncode == 125) or " unreadable " in listed.stdout
        shelf.cluster.check(f"chmod -R u+rwX {shelf.folder}/data/jaxsif/layers")


@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_DATA_HOME"])
def test_full_disk(shelf: Shelf, variable: str) -> None:
    noise = base64.b64encode(os.urandom(3_000_000)).decode()
    put_wheel(shelf.cluster, shelf.folder, "big", "1.0", {"big.txt": noise})
    small = f"{shelf.folder}/small"
    shelf.cluster.check(f"mkdir {small} && mount -t tmpfs -o size=1m,mode=1777 tmpfs {small}", user="root")
    try:
        error = shelf.refused("create", "mine", "big", **{variable: small})
        assert error.startswith(f"jaxsif: error: no space left in {small}")
        assert shelf.cluster.check(f"find {small} -type f") == ""
        assert shelf.left() == []
    finally:
        shelf.cluster.check(f"umount {small} && rmdir {small}", user="root")


@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143)])
def test_interrupted(shelf: Shelf, name: str, status: int) -> None:
    """While an index does not answer; the layer of that name stays as it was."""
    shelf.make("greeting", "hello")
    before = shelf.left()
    server = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    server += "print(s.getsockname()[1], flush=True); time.sleep(60)"
    with shelf.cluster.start(["python3", "-c", server]) as silent:
        assert silent.stdout is not None
        index = f"http://127.0.0.1:{silent.stdout.readline().strip()}"
        script = shelf.script("echo $$ >pid && exec jaxsif layer update greeting", UV_DEFAULT_INDEX=index)
        with shelf.cluster.start(script) as update:
            assert update.stderr is not None
            while "resolving" not in update.stderr.readline():
                assert update.poll() is None
            shelf.cluster.check("while ! pgrep -f '[u]v pip install' >/dev/null; do sleep 0.1; done", timeout=10)
            shelf.cluster.check(f"kill -{name} $(cat {shelf.folder}/pid)")
            _, err = update.communicate(timeout=20)
        shelf.cluster.check(["pkill", "-f", "socket.socket.*time.sleep"])
    assert (update.returncode, err) == (status, "")
    assert shelf.left() == before
    assert shelf.cluster.run("pgrep -fa 'uv pip|mksquashfs|starter'").stdout == ""


def test_an_unpacked_image(shelf: Shelf) -> None:
    """It has no digest, and is known by its path."""
    image = f"{shelf.folder}/unpacked"
    shelf.cluster.check(f"module load jax/sif && apptainer --quiet build --sandbox {image} $JAX_IMAGE")
    done = shelf.layer("create", "--image", image, "greeting", "hello")
    assert done.stderr.startswith(f"jaxsif: note: {image} is a folder, which has no digest"), done.stderr
    assert shelf.run(*LOCAL, "--image", image, "--layer=greeting", "--", "hello").stdout == "hello\n"
    assert shelf.run(*LOCAL, "--layer=greeting", "--", "hello").returncode == 2


def test_flax_optax_and_orbax(cluster: Cluster) -> None:
    """The real ones, from the index of this host; 8 tasks on 2 nodes train with them, on the image's JAX.

    It takes 5 s where nothing else computes.
    """
    create = "export XDG_DATA_HOME=/sw/layers XDG_CACHE_HOME=/sw/layers JAX_IMAGE=$(ls /sw/jaxsif/images/*-cpu.sif); "
    create += "exec /sw/jaxsif/*/bin/jaxsif layer create ml flax optax orbax-checkpoint"
    sandbox = [MINICLUSTER, "sandbox", "--", "bash", "-c"]
    program = """
import importlib.metadata, jax, jax.numpy as jnp
jax.distributed.initialize()
import flax.nnx, optax, orbax.checkpoint
model = flax.nnx.Linear(2, 1, rngs=flax.nnx.Rngs(0))
loss = lambda model: (model(jnp.ones((1, 2))) ** 2).sum()
optimizer = flax.nnx.Optimizer(model, optax.sgd(0.1), wrt=flax.nnx.Param)
before = loss(model)
optimizer.update(model, flax.nnx.grad(loss)(model))
print("trained", bool(loss(model) < before), jax.__file__, jax.__version__, jax.process_count())
"""
    try:
        made = subprocess.run([*sandbox, create], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        version = cluster.check(jaxsif_run(*LOCAL, "--", "python", "-c", "import jax; print(jax.__version__)")).strip()
        run = jaxsif_run(*TASKS, "--layer=ml", "--", "python", "-c", program)
        output = cluster.check(f"export XDG_DATA_HOME=/sw/layers; {run}")
        trained = [line for line in output.splitlines() if line.startswith("trained")]
        assert trained == [f"trained True {SITE}/jax/__init__.py {version} 8"] * 8
    finally:
        subprocess.run([*sandbox, "rm -rf /sw/layers"], check=True)
