"""JAX's compile cache: the second run finds what the first one compiled, in every task; it heals; it is private."""

from __future__ import annotations

import re

from harness import Cluster, jaxsif_run, program_lines

# What takes less than a second is not kept by itself.
FAST = "export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.3; "
FOUR = ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2")


def compile_everywhere(cluster: Cluster, folder: str) -> tuple[list[str], str]:
    """Run compile.py in 4 processes; return what they print, and standard error."""
    run = jaxsif_run(*FOUR, f"--compile-cache-folder={folder}/cache", "--verbose", "--", "python", "compile.py")
    done = cluster.run(f"{FAST}cd {folder} && {run}")
    assert done.returncode == 0, done.stderr
    return program_lines(done.stdout), done.stderr


def test_a_truncated_entry_heals_and_the_next_run_hits_in_every_task(cluster: Cluster, folder: str) -> None:
    lines, errors = compile_everywhere(cluster, folder)
    assert lines[0] == "Process 0: 0 256 compiled"  # the others may find what it has just written
    assert re.search(r"compile cache: \d+ of \d+ programs reused, .* saved; [1-9]\d* new", errors), errors

    entries = f"{folder}/cache/jaxsif-*/*"
    spy = cluster.run(f"ls {entries}; echo x >>$(echo {entries}/jit_*-cache | cut -d' ' -f1)", user="other")
    assert spy.returncode != 0
    assert "-cache" not in spy.stdout

    cluster.check(f"truncate --size=1000 {entries}/*-cache")
    lines, errors = compile_everywhere(cluster, folder)
    assert lines[0] == "Process 0: 0 256 compiled"
    assert "Error reading persistent compilation cache entry" in errors

    lines, errors = compile_everywhere(cluster, folder)
    assert lines == [f"Process {number}: {number} 256 hits" for number in range(4)]
    assert "Error reading" not in errors
    assert re.search(r"compile cache: \d+ of \d+ programs reused, in 4 of 4 tasks, ", errors), errors


def test_a_folder_that_others_may_read_is_refused(cluster: Cluster, folder: str) -> None:
    cluster.check(f"mkdir -p {folder}/jaxsif-$(id -u)")
    done = cluster.run(jaxsif_run("--nodes=1", f"--compile-cache-folder={folder}", "--", "true"))
    assert done.returncode == 125
    assert re.match(
        r"jaxsif: error: the compile cache is open to others: \S+/jaxsif-\d+\n  from: --compile-cache-folder\n",
        done.stderr,
    ), done.stderr


def test_where_it_is_and_who_decides(cluster: Cluster) -> None:
    """By default below the home folder; the user's own counts; none, on a node that does not have the folder."""
    show = ("--", "sh", "-c", 'echo "${JAX_COMPILATION_CACHE_DIR-none}"')
    found = cluster.check(jaxsif_run("--nodes=1", *show))
    assert re.fullmatch(r"/home/user/\.cache/jaxsif/compiled/[0-9a-f]{16}\n", found)
    assert cluster.check("export JAX_COMPILATION_CACHE_DIR=/mine; " + jaxsif_run("--nodes=1", *show)) == "/mine\n"
    assert cluster.check(jaxsif_run("--nodes=1", "--no-compile-cache", *show)) == "none\n"
    elsewhere = "export XDG_CACHE_HOME=$(mktemp -d); "
    done = cluster.run(elsewhere + jaxsif_run("--nodes=1", "--ntasks-per-node=2", *show))
    assert (done.returncode, done.stdout) == (0, "none\nnone\n")
    warning = "jaxsif: warning: the compile cache is not on this node, or not writable there: see "
    assert done.stderr.count(warning) == 1, done.stderr


# JAX's own functions for the key, for GPUs whose links each process sees otherwise.
KEYS = """
import hashlib, os, types
import jax
from jax._src import cache_key
fingerprint = int(os.environ["SLURM_PROCID"])
topology = types.SimpleNamespace(fingerprint=lambda: fingerprint)
cache_key.xla_client = types.SimpleNamespace(get_topology_for_devices=lambda _: topology)
def key(*processes):
    devices = [types.SimpleNamespace(platform="gpu", process_index=p, device_kind="H100") for p in processes]
    found = hashlib.sha256()
    cache_key._hash_accelerator_config(found, types.SimpleNamespace(flat=devices))
    return found.hexdigest()
print(key(0, 0), key(0, 1), key(0, 0, 1, 1))
"""


def test_processes_with_other_links_between_gpus_have_one_key(cluster: Cluster) -> None:
    out = cluster.check(jaxsif_run("--nodes=2", "--ntasks-per-node=1", "--", "python", "-c", KEYS))
    alone, two, four = zip(*map(str.split, out.splitlines()))
    assert (len(set(alone)), len(set(two)), len(set(four))) == (2, 1, 1)
    assert two[0] != four[0]
