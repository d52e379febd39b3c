"""A jaxsif.toml or an image of somebody else: ignored or refused, and nothing of theirs runs; or the user names it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Cluster

pytestmark = pytest.mark.core

SHARED = "/home/shared"
# The script runs as the user, on the host of srun, outside of the container.
ATTACK = f"[run]\nsrun-args = ['--prolog={SHARED}/attack.sh']\nbinds = ['/home']\n"
MARKER = f"{SHARED}/marker/ran"
SETUP = f"""\
mkdir -m 755 {SHARED} && cd {SHARED} && mkdir -m 777 marker && install -d -m 1777 sticky &&
install -d -o other -g user -m 2775 group images && install -d -o user sticky/mine group/mine &&
printf '#!/bin/sh\nid >{MARKER}\n' >attack.sh && chmod 755 attack.sh &&
tee sticky/jaxsif.toml >group/jaxsif.toml && chown other sticky/jaxsif.toml group/jaxsif.toml &&
ln -s /sw/jaxsif/images/*-cpu.sif images/jax.sif
"""
COMMANDS = (
    "run -- true",
    "submit -- true",
    "shell",
    "bench collectives",
    "image inspect",
    "image sbom",
    "layer create x y",
)


@pytest.fixture
def shared(cluster: Cluster) -> Iterator[str]:
    """Folders that two users share, with a file of settings or an image of `other`."""
    cluster.check(SETUP, user="root", stdin=ATTACK)
    yield SHARED
    cluster.check(f"rm -r {SHARED}", user="root")


def in_folder(cluster: Cluster, folder: str, *commands: str) -> tuple[int, str, str]:
    """What `jaxsif` does there as the user: the last status, all output, and whether the attack ran."""
    lines = "\n".join(f"jaxsif {command}" for command in commands)
    done = cluster.run(
        f"module load jax/sif && rm -f {MARKER} && cd {folder} || exit\n{lines}\n"
        f"status=$?; [ ! -e {MARKER} ] || echo ATTACKED; exit $status"
    )
    return done.returncode, done.stdout, done.stderr


def test_in_a_folder_of_all_a_file_of_another_user_is_ignored_and_named(cluster: Cluster, shared: str) -> None:
    status, out, err = in_folder(cluster, f"{shared}/sticky/mine", "run --nodes=1 -- echo fine")
    assert (status, out) == (0, "fine\n")
    assert err.splitlines()[0] == f"jaxsif: ignored: {shared}/sticky/jaxsif.toml: others may write in {shared}/sticky"
    assert " sets " not in err
    cluster.check(f"cd {shared}/sticky && rm jaxsif.toml && mkfifo -m 666 jaxsif.toml", user="other")
    assert in_folder(cluster, f"{shared}/sticky/mine", "image inspect")[0] == 0


def test_elsewhere_it_is_refused_unless_it_is_named(cluster: Cluster, shared: str) -> None:
    file, mine = f"{shared}/group/jaxsif.toml", f"{shared}/group/mine"
    owners = f"owner other, mode 0644; folder {shared}/group: owner other, mode 2775"
    hint = f"read it, then copy it to a folder of your own, or export JAXSIF_CONFIG={file}"
    refused = f"jaxsif: error: others may have written {file}\n  from: {owners}\n  try:  {hint}\n"
    assert in_folder(cluster, mine, *COMMANDS) == (2, "", refused * len(COMMANDS))
    status, out, err = in_folder(cluster, mine, "config")
    assert (status, "attack" in out) == (0, False)
    assert f"jaxsif: not allowed: others may have written {file} ({owners}); read it" in err

    named = f"--version && export JAXSIF_CONFIG={file}"
    status, out, err = in_folder(cluster, mine, named, "run --nodes=1 -- echo fine", "config run.stage")
    assert (status, out.splitlines()[1], " sets " in err) == (0, "fine", False)
    assert "ATTACKED" in out  # so it is an attack


def test_a_projects_own_file_passes_no_program_to_srun(cluster: Cluster, shared: str) -> None:
    mine, prolog = f"{shared}/mine", f"--prolog={shared}/attack.sh"
    cluster.check(f"install -d -o user {mine}", user="root")
    cluster.write(f"{mine}/jaxsif.toml", ATTACK)
    passed = f"jaxsif: error: a project's file cannot pass this to srun: {prolog}\n"
    passed += f"  from: run.srun-args in {mine}/jaxsif.toml\n"
    for command in ("run --nodes=1 -- true", "submit -- true", "shell"):
        status, out, err = in_folder(cluster, mine, command)
        assert (status, out, err.startswith(passed)) == (2, "", True), err
    status, out, err = in_folder(cluster, mine, f"run --nodes=1 --srun-args={prolog} -- echo fine")
    assert (status, out.splitlines()[0], "ATTACKED" in out) == (0, "fine", True)
    assert err.splitlines()[0] == f"jaxsif: {mine}/jaxsif.toml sets run.binds"


def test_an_image_of_another_user_is_taken_only_by_its_name(cluster: Cluster, shared: str) -> None:
    folder = f"{shared}/images"
    status, out, err = in_folder(cluster, folder, "--version && unset JAX_IMAGE", "run --nodes=1 -- echo fine")
    assert (status, "fine" in out) == (125, False)
    assert err.startswith(
        "jaxsif: error: others may have written ./jax.sif, and neither --image nor JAX_IMAGE names it\n"
        "  from: owner root, "
    )
    assert f"; folder {folder}: owner other, mode 2775; " in err
    assert err.endswith("  try:  --image ./jax.sif\n")
    assert in_folder(cluster, folder, "run --nodes=1 --image ./jax.sif -- echo fine")[:2] == (0, "fine\n")
