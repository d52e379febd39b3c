"""Every argument and variable reaches the program byte for byte, through srun and the container's runtime."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from harness import Cluster, jaxsif_run

STRINGS = {
    "blanks": " two  words ",
    "quotes": """both ' and " and `back` """,
    "newline": "one\ntwo\n",
    "comma": "a,b,,c",
    "dollar": "$HOME ${HOME} $(id) $$",
    "glob": "* ? [a-z] ~",
    "backslash": r"a\b\\c\n",
    "semicolon": "a; b & c | d > e < f # g",
    "non-ascii": "größe π 日本 🙂",
    "empty": "",
    "dashes": "--nodes=3",
    "double dash": "--",
    "percent": "%t %j %%",
    "equals": "A=B=C",
}


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS.keys())
def test_argument_and_variable_arrive_unchanged(cluster: Cluster, folder: str, text: str) -> None:
    argv = ["--nodes=1", "--ntasks-per-node=1", "--env", f"TEXT={text}", "--env", "NAMES=TEXT"]
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*argv, "--", "python", "echo.py", text, "end"))
    assert done.stderr == ""
    got = json.loads(done.stdout)
    assert got == {"argv": ["echo.py", text, "end"], "environ": {"TEXT": text}}


def test_xla_flags_with_commas(cluster: Cluster, folder: str) -> None:
    flags = "--xla_disable_hlo_passes=a,b --xla_force_host_platform_device_count=3"
    program = "import os, jax; print(os.environ['XLA_FLAGS'], jax.local_device_count())"
    for script in (
        jaxsif_run("--nodes=1", "--gpus-per-node=1", f"--env=XLA_FLAGS={flags}", "--", "python", "-c", program),
        f"export XLA_FLAGS={flags!r}; " + jaxsif_run("--nodes=1", "--gpus-per-node=1", "--", "python", "-c", program),
    ):
        assert cluster.check(script) == f"{flags} 3\n"


def test_script_path_with_blanks(cluster: Cluster, folder: str) -> None:
    cluster.check(f"cd {folder} && mkdir 'my code' && cp echo.py 'my code/echo it.py'")
    script = jaxsif_run("--nodes=1", "--env=NAMES=USER", "--", "python", "my code/echo it.py")
    got = json.loads(cluster.check(f"cd {folder} && {script}"))
    assert got == {"argv": ["my code/echo it.py"], "environ": {"USER": "user"}}


def test_standard_input_reaches_the_program(cluster: Cluster) -> None:
    script = jaxsif_run("--nodes=1", "--", "python", "-c", "print(input()[::-1])")
    assert cluster.check(script, stdin="abc\n") == "cba\n"


def test_dry_run_prints_what_slurm_records(cluster: Cluster, folder: str) -> None:
    """Slurm records the host and process of each step's srun; its argument vector is what --dry-run printed."""
    options = ["--nodes=2", "--gpus-per-node=2", "--label", "--env", "TEXT=a 'b' $c", "--srun-args=--comment='x y'"]
    command = ["--", "sh", "-c", "until [ -e stop ]; do sleep 0.1; done", "x y", "$HOME"]
    printed = cluster.check(f"cd {folder} && " + jaxsif_run("--dry-run", *options, *command))
    words = shlex.split(printed)
    with cluster.start(f"cd {folder} && " + jaxsif_run(*options, *command)) as launcher:
        cluster.wait_steps(1)
        pids = re.findall(r"SrunHost:Pid=login:(\d+)", cluster.check("scontrol --oneliner show step"))
        recorded = [cluster.check(["cat", f"/proc/{pid}/cmdline"]).split("\0")[:-1] for pid in pids]
        cluster.check(["touch", f"{folder}/stop"])
        launcher.communicate(timeout=60)
    own = re.sub("^srun-[0-9a-f]{16}$", "srun", recorded[0][0])  # by which its messages are known
    assert [[own, *words[1:]] for words in recorded] == [words[words.index("srun") :]]
    assert launcher.returncode == 0


def test_printed_line_does_what_the_run_does(cluster: Cluster, folder: str) -> None:
    options = ["--nodes=2", "--gpus-per-node=2", "--env", "TEXT=a 'b' $c", "--env", "NAMES=TEXT JAX_LOCAL_DEVICE_IDS"]
    command = ["--", "python", "echo.py", "x y", "$HOME"]
    in_folder = f"cd {folder} && "
    ran = cluster.check(in_folder + jaxsif_run(*options, *command))
    cluster.write(f"{folder}/printed.sh", cluster.check(in_folder + jaxsif_run("--dry-run", *options, *command)))
    by_hand = cluster.run(in_folder + "bash printed.sh")
    assert sorted(by_hand.stdout.splitlines()) == sorted(ran.splitlines())
