"""srun's own options on jaxsif's command lines, with the real srun and sbatch."""

from __future__ import annotations

import re

import pytest
from harness import Cluster, jaxsif_run

from jaxsif.job.srun_options import BARE, BOTH, BY_FLAG, JOB, MAYBE, TABLE, VALUE

# Those that a newer srun has.
NEWER = {"--async", "--consolidate-segments", "--container-type", "--ignore-signals", "--parsable", "--spread-segments"}
NEWER |= {"--wait-for-children"}
# Of these, srun's help does not tell the value, or that it may be left out.
UNTOLD = {"--container", "--container-id", "--kill-on-bad-exit", "--overlap", "--no-kill", "--bcast", "--resv-ports"}
NOWHERE = {"--power"}  # in the help of srun, and in no srun


def options_of(text: str) -> dict[str, tuple[str, str]]:
    """Long name -> short name and kind of value, as a help text has them."""
    rows = re.findall(r"^ {2}(?:(-\w), | {4})(--[\w-]+)(\S*)", text, re.MULTILINE)
    kinds = {"=": VALUE, "[": MAYBE, "{": VALUE}
    return {flag: (short, kinds.get(rest[:1], BARE)) for short, flag, rest in rows}


@pytest.mark.core
def test_the_table_is_that_of_srun(cluster: Cluster) -> None:
    """Of each option of srun --help: its short name, and whether it has a value."""
    found = options_of(cluster.check("srun --help"))
    assert len(found) > 100
    assert {flag for flag in found if flag not in BY_FLAG} == set()
    told = {flag: row for flag, row in found.items() if flag not in UNTOLD}
    assert told == {flag: (BY_FLAG[flag].short, BY_FLAG[flag].value) for flag in told}


def test_srun_knows_each_option(cluster: Cluster) -> None:
    """srun itself parses each: it says 'unrecognized' of an option that it does not have."""
    flags = [option.flag for option in TABLE if option.flag not in NEWER | NOWHERE]
    script = (
        f'for flag in {" ".join(flags)}; do srun $flag 2>&1 </dev/null | grep -m1 "unrecognized option"; done; true'
    )
    assert cluster.check(script, timeout=120) == ""


def test_sbatch_knows_what_a_job_script_has(cluster: Cluster) -> None:
    flags = [option.flag for option in TABLE if option.handled in (JOB, BOTH) and option.flag not in NEWER]
    script = (
        f'for flag in {" ".join(flags)}; do sbatch $flag 2>&1 </dev/null | grep -m1 "unrecognized option"; done; true'
    )
    assert cluster.check(script, timeout=120) == ""


@pytest.mark.core
def test_a_command_line_in_the_words_of_srun(cluster: Cluster, programs: str) -> None:
    run = "jaxsif run -N2 -n8 -G8 --qos=normal -J x -t 5 -- python allreduce.py"
    done = cluster.run(f"cd {programs}/slurm && module load jax/sif && {run}")
    assert done.returncode == 0
    assert len(re.findall(r"^Process \d has y=\[8\.\]$", done.stdout, re.MULTILINE)) == 8


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["-N1", "-J", "a b"], r"JobName=a b\n"),
        (["-N1", "--comment=c,d"], r"Comment=c,d "),
        (["-N1", "--nice=100"], r" Nice=100 "),
        (["-N1", "-w", "node3"], r" NodeList=node3\n"),
        (["-N1", "-x", "node[1-3]"], r" NodeList=node4\n"),
        (["-N1", "--mem", "60M"], r"mem=60M"),
        (["-N1", "-t", "7"], r" TimeLimit=00:07:00 "),
        (["-N1", "--exclusive"], r" OverSubscribe=NO "),
        (["-N2-3", "--ntasks-per-node=1"], r" NumNodes=2 "),
        (["-N2", "--gres=gpu:a100:2"], r"TresPerNode=gres/gpu:a100:2\n"),
        (["-N1", "--gpus-per-task=a100:1", "-n2"], r"TresPerNode=gres/gpu:a100:2\n"),
        (["-G1"], r"TresPerNode=gres/gpu:1\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_slurm_makes_of_options(cluster: Cluster, options: list[str], shown: str) -> None:
    done = cluster.run(jaxsif_run(*options, "--", "sh", "-c", 'echo "$SLURM_JOB_ID $SLURM_PROCID"'))
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[0]
    assert re.search(shown, cluster.check(f"scontrol show job {job}"))


def test_in_a_job_what_asks_for_one_has_no_effect(cluster: Cluster) -> None:
    run = "jaxsif run --qos=none --nice=5 --mem=50M -J part -- sh -c 'echo $SLURM_STEP_NUM_TASKS'"
    done = cluster.run(f"module load jax/sif && salloc --quiet --nodes=1 --gpus-per-node=2 {run}")
    assert (done.returncode, done.stdout) == (0, "2\n2\n")
    for flag in ("--qos", "--nice"):
        assert re.search(f"^jaxsif: warning: {flag} has no effect inside job \\d+$", done.stderr, re.MULTILINE)
    assert "--mem" not in done.stderr


def test_submit_and_shell_take_them(cluster: Cluster, folder: str) -> None:
    submit = "jaxsif submit --wait -N1 -G2 -J words --comment=c -w node2 --cpu-bind=none -o out.txt -- hostname"
    cluster.check(f"cd {folder} && module load jax/sif && {submit}", timeout=120)
    assert cluster.check(f"cat {folder}/out.txt") == "node2\nnode2\n"
    script = cluster.check(f"cat {folder}/jaxsif-jobs/words.sbatch")
    for line in ("#SBATCH --comment=c", "#SBATCH --nodelist=node2", "#SBATCH --gpus-per-node=2"):
        assert f"\n{line}\n" in script
    assert "\nsrun --export=ALL --kill-on-bad-exit=1 --cpu-bind=none \\\n" in script
    shell = "echo hostname | " + "jaxsif shell -G 1 -w node3 -t 5"
    assert cluster.check(f"module load jax/sif && {shell}") == "node3\n"


def test_what_nodes_cannot_share_is_refused(cluster: Cluster) -> None:
    done = cluster.run(jaxsif_run("-N2", "-G3", "--", "true"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "jaxsif: error: 2 nodes cannot share 3 GPUs evenly\n  from: --gpus\n" in done.stderr
