"""The modules, as users of Lmod meet them."""

from __future__ import annotations

import pytest
from harness import Cluster


@pytest.fixture(scope="module")
def version(cluster: Cluster) -> str:
    """The version of the module, such as 0.12.0.1-sif."""
    return cluster.check("ls /sw/modulefiles/jax").strip().removesuffix(".lua")


def test_modules_are_found(cluster: Cluster, version: str) -> None:
    listing = cluster.run("module --terse avail").stderr.split()
    assert {"dl", f"jax/{version}"} <= set(listing)
    assert cluster.run("module --terse --default avail jax").stderr.split()[-1] == f"jax/{version}"


@pytest.mark.parametrize("name", ["jax/sif", "jax", "dl jax/sif", "dl jax"])
def test_each_way_to_load_it(cluster: Cluster, version: str, name: str) -> None:
    script = (
        f"module load {name} && echo $JAX_IMAGE $JAXSIF_HOME $(command -v jaxsif) && module --terse list 2>&1 | tail -1"
    )
    image, home, launcher, loaded = cluster.check(script).split()
    assert image == f"/sw/jaxsif/images/jax-{version.removesuffix('-sif')}-cpu.sif"
    assert launcher == f"{home}/bin/jaxsif"
    assert loaded in ("jax/sif", f"jax/{version}")  # by the name that it was asked for


def test_unload_leaves_nothing(cluster: Cluster) -> None:
    """Only what Lmod keeps for itself may differ."""
    script = "env | grep -vE '^(_|LMOD|__LMOD|_ModuleTable)' | sort"
    before, after = cluster.check(f"{script}; echo CUT; module load jax/sif; module unload jax; {script}").split(
        "CUT\n"
    )
    assert before.replace("BASH_FUNC", "") == after.replace("BASH_FUNC", "")


def test_help_and_whatis(cluster: Cluster, version: str) -> None:
    shown = cluster.run("module help jax/sif; module whatis jax/sif; module help dl; module whatis dl")
    text = shown.stdout + shown.stderr
    assert "jaxsif run -- python train.py" in text
    assert f"Version: {version}" in text
    assert "module load dl jax/sif" in text


def test_another_jax_is_swapped_out(cluster: Cluster, folder: str) -> None:
    cluster.check(f'mkdir -p {folder}/modules/jax && echo \'setenv("OTHER_JAX", "1")\' >{folder}/modules/jax/1.0.lua')
    cluster.check(f'echo \'setenv("PY_JAX", "1")\' >{folder}/modules/py-jax.lua')
    use = f"module use {folder}/modules"
    assert (
        cluster.check(f"{use}; module load jax/1.0 2>/dev/null; module load jax/sif 2>/dev/null; echo $OTHER_JAX-")
        == "-\n"
    )
    done = cluster.run(f"{use}; module load py-jax; module load jax/sif; echo image=$JAX_IMAGE")
    assert "py-jax" in done.stderr
    assert done.stdout == "image=\n"


def test_missing_image_is_named(cluster: Cluster, folder: str, version: str) -> None:
    copy = f"mkdir -p {folder}/modules/jax && sed 's|/images/|/lost/|' /sw/modulefiles/jax/{version}.lua"
    cluster.check(f"{copy} >{folder}/modules/jax/lost.lua")
    done = cluster.run(f"module use {folder}/modules; module load jax/lost; echo status=$? image=$JAX_IMAGE")
    assert done.stdout == "status=1 image=\n"
    message = " ".join(done.stderr.split())  # Lmod breaks lines as the terminal is wide
    assert f"the image of jax/lost is missing: /sw/jaxsif/lost/jax-{version.removesuffix('-sif')}-cpu.sif" in message
    assert "make image install FLAVOUR=cpu PREFIX=/sw" in message


def test_lmod_finds_no_fault_in_the_files(cluster: Cluster, version: str) -> None:
    for name in ("dl", f"jax/{version}"):
        checked = cluster.run(
            f"/usr/share/lmod/lmod/libexec/check_module_tree_syntax /sw/modulefiles 2>&1 | grep {name}"
        )
        assert checked.stdout == ""


def test_launcher_ignores_the_users_python_variables(cluster: Cluster, folder: str) -> None:
    """A module of another Python sets them, and must not break the launcher."""
    cluster.check(f"mkdir {folder}/lib && echo 'raise ImportError' >{folder}/lib/argparse.py")
    script = f"module load jax/sif && PYTHONPATH={folder}/lib PYTHONHOME=/nowhere jaxsif --version"
    assert cluster.check(script).startswith("jaxsif ")
