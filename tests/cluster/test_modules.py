"""The modules, as users of Lmod and of Environment Modules meet them, and the commands of the staff."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from harness import Cluster
from terminal import Terminal

SECOND = "0.99.0-cpu-sif"


class Modules:
    """Scripts in a shell that has one of the two module systems."""

    def __init__(self, cluster: Cluster, lmod: bool) -> None:
        self.cluster, self.lmod = cluster, lmod

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """A bash script, to its end; `module` speaks on standard error."""
        if self.lmod:
            return self.cluster.run(script)
        return self.cluster.run(["bash", "-c", f". /usr/share/modules/init/bash; {script}"])

    def check(self, script: str) -> str:
        """As `run`, for a script that must succeed; return its standard output."""
        done = self.run(script)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module", params=[True, False], ids=["Lmod", "Environment Modules"])
def modules(cluster: Cluster, request: pytest.FixtureRequest) -> Modules:
    """Each of the two module systems."""
    found = Modules(cluster, request.param)
    said = found.run("module --version").stderr
    assert ("Lua" if request.param else "Modules Release") in said
    return found


@pytest.fixture(scope="module")
def first(cluster: Cluster) -> str:
    """The installed module, such as 0.12.0.1-cpu-sif."""
    rows = json.loads(cluster.check("module load jax/sif && jaxsif module list --json"))
    return str(next(row["name"] for row in rows if row["default"])).removeprefix("jax/")


@pytest.fixture
def prefix(cluster: Cluster, first: str) -> Iterator[str]:
    """A prefix of the user's own: the launcher, and two images of the same bytes, of which the first is the default."""
    script = f"""set -e
        folder=$(mktemp -d ~/modules.XXXXXX)
        module load jax/sif
        mkdir -p $folder/sw/jaxsif
        ln -s $JAXSIF_HOME $folder/sw/jaxsif/
        ln -s $JAX_IMAGE $folder/first.sif
        ln -s $JAX_IMAGE $folder/second.sif
        echo $folder
        jaxsif module add --prefix $folder/sw $folder/first.sif
        jaxsif module add --prefix $folder/sw --name {SECOND} $folder/second.sif"""
    folder, *added = cluster.check(script).split()
    assert added == [f"jax/{first}", f"jax/{SECOND}"]
    yield f"{folder}/sw"
    cluster.check(f"rm -r {folder}")


def short_name(name: str) -> str:
    """0.12.0.1-cpu-sif -> 0.12.0.1-sif."""
    return re.sub(r"-\w+-sif$", "-sif", name)


def test_each_module_is_found_once(modules: Modules, first: str, prefix: str) -> None:
    listing = modules.run(f"module use {prefix}/modulefiles; module --terse avail").stderr
    section = listing.split(f"{prefix}/modulefiles:\n")[1].split("/sw/modulefiles:\n")[0]
    names = sorted(re.sub(r"\(.*\)", "", line) for line in section.split())
    lmods_own = ["jax/", "jax/sif", f"jax/{short_name(first)}"] if modules.lmod else []
    assert names == sorted(["dl", f"jax/{first}", f"jax/{SECOND}", *lmods_own])
    default = modules.run(f"module use {prefix}/modulefiles; module --terse --default avail jax").stderr
    assert re.findall(rf"jax/({re.escape(first)}|{re.escape(SECOND)})", default)[0] == first


@pytest.mark.parametrize("name", ["jax/sif", "jax", "dl jax/sif", "dl jax", "jax/FIRST", "jax/SHORT"])
def test_each_way_to_load_it(modules: Modules, first: str, name: str) -> None:
    name = name.replace("FIRST", first).replace("SHORT", short_name(first))
    script = f"module load {name} && echo $JAX_IMAGE $JAX_IMAGE_DIGEST $JAXSIF_HOME $JAXSIF_IMAGES"
    image, digest, home, images, launcher = modules.check(f"{script} $(command -v jaxsif)").split()
    assert image == f"/sw/jaxsif/images/jax-{first.removesuffix('-sif')}.sif"
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest)
    assert images == "/sw/jaxsif/images"
    assert re.fullmatch(r"/sw/jaxsif/[\d.]+", home)
    assert launcher == f"{home}/bin/jaxsif"
    loaded = modules.run(f"module load {name}; module --terse list").stderr
    assert f"jax/{first}" in loaded.split()


def test_a_link_to_dl_shows_the_others(modules: Modules) -> None:
    """As docs/modules.md says it to sites; the link is in all that the user's modules are found in."""
    link = f"ln -s /sw/modulefiles/dl{'.lua' if modules.lmod else ''}"
    script = f"folder=$(mktemp -d) && {link} $folder && module unuse /sw/modulefiles && module use $folder"
    for names in ("dl jax/sif", "dl; module load jax/sif", "dl; module load dl; module load jax"):
        image = modules.check(f"{script} && module load {names} && echo $JAX_IMAGE; rm -r $folder")
        assert image.startswith("/sw/jaxsif/images/"), names
    left = modules.check(f"{script} && module load dl && module unload dl; rm -r $folder; echo $MODULEPATH")
    assert "/sw/modulefiles" not in left


@pytest.mark.parametrize("loads", ["dl", "dl dl", "dl; module load dl"])
def test_umbrellas_of_two_installations(modules: Modules, prefix: str, loads: str) -> None:
    """Each folder stays where it is, once, and the modules of both are there."""
    script = f"module use {prefix}/modulefiles /sw/modulefiles; before=$MODULEPATH; module load {loads}"
    done = modules.run(f'{script}; [ "$MODULEPATH" = "$before" ] && echo "$MODULEPATH"; module --terse avail')
    assert {
        line: done.stdout.strip().split(":").count(line) for line in (f"{prefix}/modulefiles", "/sw/modulefiles")
    } == {
        f"{prefix}/modulefiles": 1,
        "/sw/modulefiles": 1,
    }
    assert f"jax/{SECOND}" in done.stderr


def test_tab_completes_once_the_module_is_loaded() -> None:
    """What is completed is executed; the nodes have no zsh."""
    terminal = Terminal("exec bash --norc -i")
    terminal.type(". /usr/share/lmod/lmod/init/bash; module load jax/sif; echo lo''aded\n")
    terminal.expect("loaded\r")
    terminal.type("jaxsif vers\t--verb\t\n")
    terminal.expect("jaxsif +[0-9.]+|error: ")
    terminal.type("exit\n")
    assert terminal.end() == 0
    assert "error" not in terminal.text, terminal.text


def test_unload_leaves_nothing(modules: Modules) -> None:
    """Only what the module systems keep for themselves may differ."""
    script = "env | grep -vE '^(_|LMOD|MODULES_|LOADEDMODULES)' | sort"
    before, after = modules.check(f"{script}; echo CUT; module load jax/sif; module unload jax; {script}").split(
        "CUT\n"
    )
    assert before.replace("BASH_FUNC", "") == after.replace("BASH_FUNC", "")


def test_staff_hide_a_module(modules: Modules, first: str, prefix: str) -> None:
    """As docs/modules.md says it; the line outlasts another default."""
    script = f"""module use {prefix}/modulefiles
        echo 'module-hide jax/{SECOND}' >>{prefix}/modulefiles/jax/.modulerc
        /sw/jaxsif/*/bin/jaxsif module default --prefix {prefix} {first}
        module --terse avail jax; module load jax/{SECOND}; echo $JAX_IMAGE"""
    done = modules.run(script)
    assert f"jax/{SECOND}" not in done.stderr
    assert done.stdout.splitlines()[1:] == [f"{prefix.removesuffix('/sw')}/second.sif"]


def test_help_and_whatis(modules: Modules, first: str) -> None:
    shown = modules.run("module help jax/sif; module whatis jax/sif; module help dl; module whatis dl")
    text = shown.stdout + shown.stderr
    assert "jaxsif run -- python train.py" in text
    assert "in the image $JAX_IMAGE." in text
    assert f"Version: {first}" in text
    assert "Description: JAX " in text
    assert "module load dl jax/sif" in text
    assert "Description: deep-learning software (jax and others)" in text


def test_one_jax_at_a_time(modules: Modules, first: str, prefix: str) -> None:
    """Lmod swaps, as it does for a family; Environment Modules refuses."""
    both = f"module use {prefix}/modulefiles; module load jax/{first}; module load jax/{SECOND}; echo $JAX_IMAGE"
    done = modules.run(both)
    folder = prefix.removesuffix("/sw")
    assert done.stdout == f"{folder}/{'second' if modules.lmod else 'first'}.sif\n"
    assert modules.lmod or "conflict" in done.stderr


def test_conflict_with_other_jax_packages(modules: Modules, folder: str) -> None:
    modules.cluster.write(f"{folder}/py-jax", "#%Module\nsetenv PY_JAX 1\n")
    done = modules.run(f"module use {folder}; module load py-jax; module load jax/sif; echo $PY_JAX image=$JAX_IMAGE")
    assert "py-jax" in done.stderr
    assert done.stdout == "1 image=\n"


def test_missing_image_is_named_on_load_only(modules: Modules, prefix: str) -> None:
    image = f"{prefix.removesuffix('/sw')}/second.sif"
    script = (
        f"module use {prefix}/modulefiles; module load jax/{SECOND}; rm {image}; module unload jax; echo $JAX_IMAGE"
    )
    done = modules.run(script)
    assert (done.stdout, done.stderr) == ("\n", "")
    use = f"module use {prefix}/modulefiles"
    done = modules.run(f"{use}; module load jax/{SECOND}; echo status=$? image=$JAX_IMAGE; module whatis jax/{SECOND}")
    assert done.stdout.startswith("status=1 image=\n")
    message = " ".join(done.stderr.split())  # Lmod breaks lines as the terminal is wide
    assert f"the image of jax/{SECOND} is missing, or you may not read it: {image}" in message
    assert "/bin/jaxsif module list" in message
    assert f"Version: {SECOND}" in done.stdout + done.stderr
    list_modules = f"module load jax/sif; jaxsif module list --prefix {prefix}"
    assert f"{image}  missing" in modules.check(list_modules)
    listed = modules.check(f"{list_modules}; rm {prefix}/jaxsif/*; jaxsif module list --prefix {prefix}").splitlines()
    assert [line.endswith("launcher missing") for line in listed] == [False, False, True, True]


def test_a_missing_launcher_is_named_on_load_only(modules: Modules, prefix: str) -> None:
    use = f"module use {prefix}/modulefiles; module load jax/{SECOND}; rm {prefix}/jaxsif/*; module unload jax"
    done = modules.run(f"{use}; echo $JAX_IMAGE; module load jax/{SECOND}; echo status=$? image=$JAX_IMAGE")
    assert done.stdout == "\nstatus=1 image=\n"
    assert f"the launcher of jax/{SECOND} is missing, or you may not read it: {prefix}/jaxsif/" in " ".join(
        done.stderr.split()
    )


def test_an_image_that_the_user_may_not_read(modules: Modules, prefix: str) -> None:
    image = f"{prefix.removesuffix('/sw')}/second.sif"
    script = f"rm {image}; touch {image}; chmod 0 {image}; module use {prefix}/modulefiles; module load jax/{SECOND}"
    done = modules.run(f"{script}; echo status=$? image=$JAX_IMAGE; rm -f {image}")
    assert done.stdout == "status=1 image=\n"
    assert f"the image of jax/{SECOND} is missing, or you may not read it: {image}" in " ".join(done.stderr.split())


def test_loaded_shell_stays_when_the_default_moves(modules: Modules, first: str, prefix: str) -> None:
    default = f"/sw/jaxsif/*/bin/jaxsif module default --prefix {prefix}"
    script = f"""module use {prefix}/modulefiles
        module load jax/sif
        {default} jax/{SECOND}
        echo $JAX_IMAGE
        module unload jax
        echo unloaded=$JAX_IMAGE$JAXSIF_HOME
        module load jax/sif
        echo $JAX_IMAGE
        {default} {first}
        module unload jax
        module load jax
        echo $JAX_IMAGE"""
    folder = prefix.removesuffix("/sw")
    assert modules.check(script).split() == [
        *(f"jax/{SECOND}", f"{folder}/first.sif", "unloaded=", f"{folder}/second.sif"),
        *(f"jax/{first}", f"{folder}/first.sif"),
    ]


def test_default_is_removed_last(cluster: Cluster, first: str, prefix: str) -> None:
    jaxsif = f"module load jax/sif; jaxsif module remove --prefix {prefix}"
    done = cluster.run(f"{jaxsif} {first}")
    assert done.returncode == 2
    assert done.stderr == (
        f"jaxsif: error: jax/{first} is the default\n  from: NAME\n"
        "  try:  set another default first: jaxsif module default NAME\n"
    )
    done = cluster.run(
        f"cd {prefix}/modulefiles/jax; chmod 555 .; ({jaxsif} {SECOND}); status=$?; chmod 755 .; exit $status"
    )
    assert done.returncode == 125
    assert re.search(r"^jaxsif: error: /\S+: Permission denied\n  from: ", done.stderr), done.stderr
    cluster.check(f"{jaxsif} jax/{SECOND}; {jaxsif} {first}")
    assert cluster.check(f"find {prefix}/modulefiles -type f -printf '%P\\n' | sort").split() == ["dl", "dl.lua"]
    assert cluster.check(f"ls {prefix}/../*.sif").count(".sif") == 2


def test_image_of_others_needs_a_name(cluster: Cluster, folder: str, prefix: str) -> None:
    script = f"""cd {folder}
        module load jax/sif
        mkdir system
        mksquashfs system plain.sqfs -quiet -no-progress >&2
        apptainer --quiet sif new plain.sif
        apptainer --quiet sif add --datatype 4 --parttype 2 --partfs 1 --partarch 2 plain.sif plain.sqfs
        jaxsif module add --prefix {prefix} plain.sif
        echo $?
        jaxsif module add --prefix {prefix} --name ours plain.sif"""
    done = cluster.run(script)
    assert done.stdout == "2\njax/ours\n"
    assert f"error: no name for the module: {folder}/plain.sif is not labelled with one\n" in done.stderr


def test_lmod_finds_no_fault_in_the_files(cluster: Cluster) -> None:
    checked = cluster.run("/usr/share/lmod/lmod/libexec/check_module_tree_syntax /sw/modulefiles 2>&1")
    assert "No errors found" in checked.stdout


def test_launcher_ignores_the_users_python_variables(cluster: Cluster, folder: str) -> None:
    """A module of another Python sets them, and must not break the launcher."""
    cluster.check(f"mkdir {folder}/lib && echo 'raise ImportError' >{folder}/lib/argparse.py")
    script = f"module load jax/sif && PYTHONPATH={folder}/lib PYTHONHOME=/nowhere jaxsif --version"
    assert cluster.check(script).startswith("jaxsif ")


def test_completion(cluster: Cluster) -> None:
    """In share, beside the folder of the PATH that has the command."""
    script = """module load jax/sif; share=$(dirname "$(command -v jaxsif)")/../share
        test -s "$share/zsh/site-functions/_jaxsif"
        . "$share/bash-completion/completions/jaxsif"; complete -p jaxsif"""
    assert cluster.check(f"set -e; {script}") == "complete -F _jaxsif jaxsif\n"


def test_completion_comes_with_the_module_in_interactive_shells(cluster: Cluster) -> None:
    script = "module load jax/sif; complete -p jaxsif || echo none"
    assert cluster.check(f"bash -lic '{script}' 2>/dev/null").splitlines()[-1] == "complete -F _jaxsif jaxsif"
    assert cluster.check(f"bash -lc '{script}' 2>/dev/null") == "none\n"
