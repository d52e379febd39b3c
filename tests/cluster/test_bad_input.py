"""What cannot work ends with one error of up to three lines (what, from where, what to try) and a documented status."""

from __future__ import annotations

import pytest
from harness import Cluster, jaxsif_run

# name: (shell commands before, arguments of jaxsif run, exit status, the whole of standard error)
REFUSED = {
    "image from JAX_IMAGE is missing": (
        "export JAX_IMAGE=gone.sif",
        ["--", "true"],
        125,
        "jaxsif: error: image not found: gone.sif\n  from: JAX_IMAGE (environment)\n"
        "  try:  correct JAX_IMAGE, or pass --image PATH; if a module set it, tell site staff\n",
    ),
    "no image at all": (
        "unset JAX_IMAGE",
        ["--", "true"],
        125,
        "jaxsif: error: no image: JAX_IMAGE names none, and there is no ./jax.sif here\n"
        "  try:  module load jax/sif, or name one; make image writes it into build/images\n",
    ),
    "not a SIF": (
        "echo text >some.sif",
        ["--image=some.sif", "--", "true"],
        125,
        "jaxsif: error: not a SIF image: some.sif\n  from: --image\n"
        "  try:  make image, or give the path of a .sif file\n",
    ),
    "no runtime": (
        "launcher=$(command -v jaxsif) && mkdir bin && ln -s /usr/bin/srun bin/ && "
        'jaxsif() { PATH=$PWD/bin $launcher "$@"; }',
        ["--", "true"],
        125,
        "jaxsif: error: no container runtime: neither apptainer nor singularity is on the PATH\n  from: PATH\n"
        "  try:  load its module, or set JAXSIF_RUNTIME to its path on the nodes\n",
    ),
    "python forgotten": (
        "touch q.py",
        ["--", "q.py"],
        127,
        "jaxsif: error: q.py is not on the PATH: it is a file in this folder\n  from: looked for in @FOLDER@\n"
        "  try:  python q.py\n",
    ),
    "a job script": (
        "touch job.sbatch",
        ["--", "job.sbatch"],
        2,
        "jaxsif: error: job.sbatch is a job script, not a program\n  from: looked for in @FOLDER@\n"
        "  try:  sbatch job.sbatch\n",
    ),
}


@pytest.mark.parametrize(("before", "argv", "status", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_before_the_step(
    cluster: Cluster, folder: str, before: str, argv: list[str], status: int, message: str
) -> None:
    script = f"cd {folder} && module load jax/sif && {before or ':'}\n" + jaxsif_run(*argv).removeprefix(
        "module load jax/sif && exec "
    )
    done = cluster.run(script)
    assert (done.stderr, done.returncode) == (message.replace("@FOLDER@", folder), status)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--gpus-per-node=9"], "Requested node configuration is not available"),
        (["--partition=nowhere"], "Invalid partition name specified"),
        (["--constraint=h100"], "Invalid feature specification"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_slurm_refuses(cluster: Cluster, argv: list[str], reason: str) -> None:
    done = cluster.run(jaxsif_run(*argv, "--", "true"))
    assert done.returncode == 125
    errors = done.stderr[done.stderr.index("jaxsif: error: ") :]
    assert errors.startswith("jaxsif: error: Slurm refused the request: ")
    assert reason in errors.splitlines()[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "status", "hint"),
    [
        (
            ["no-such-program"],
            127,
            "no-such-program must be in the image, in a layer (--layer), or in a folder that is bound into it",
        ),
        (["pyhton", "q.py"], 127, "python? pyhton was not found"),
        (["pip", "install", "x"], 127, "packages go into a layer: pass --layer NAME after jaxsif layer create NAME x"),
        (
            ["/etc/hosts"],
            126,
            "check its permissions: chmod +x /etc/hosts; or name its interpreter, as in python /etc/hosts",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_program_that_a_node_cannot_execute(cluster: Cluster, command: list[str], status: int, hint: str) -> None:
    done = cluster.run(jaxsif_run("--nodes=1", "--", *command))
    assert done.returncode == status
    assert done.stderr.endswith(f"jaxsif: error: task 0 on node1 ended with exit status {status}\n  try:  {hint}\n"), (
        done.stderr
    )


TAKE_AN_IMAGE = (
    *("run --image f.sif -- true", "run --launcher local --image f.sif -- true", "submit --image f.sif -- true"),
    *(
        "shell --image f.sif",
        "jupyter --image f.sif",
        "bench collectives --image f.sif",
        "module add f.sif --prefix /sw",
    ),
    *("image inspect f.sif", "image sbom f.sif", "image diff f.sif $JAX_IMAGE", "image diff $JAX_IMAGE f.sif"),
    *("image verify f.sif --key key.pem", "image sign f.sif --key key.pem", "layer create x --image f.sif wheel"),
)


def test_image_that_is_no_file(cluster: Cluster, folder: str) -> None:
    """Every command that takes an image names it, and none waits for somebody to write into it."""
    tell = 'echo "$? $(head -n 1 err)"'
    lines = [f"timeout 10 jaxsif {words} </dev/null >out 2>err; {tell}" for words in TAKE_AN_IMAGE]
    lines += [f"ln -sf /dev/zero z.sif; timeout 10 jaxsif run --image z.sif -- true 2>err; {tell}"]
    done = cluster.run(f"cd {folder} && module load jax/sif && mkfifo f.sif\n" + "\n".join(lines))
    said = [line.replace(f"{folder}/", "") for line in done.stdout.splitlines()]
    assert said == [
        *["125 jaxsif: error: image is a FIFO, not a file: f.sif"] * len(TAKE_AN_IMAGE),
        "125 jaxsif: error: image is a device, not a file: z.sif",
    ]


TAKE_A_FILE = {
    "run --hostfile {} -- true": "list of hosts",
    "bench collectives --against {}": "results file",
    "bench collectives --hostfile {}": "list of hosts",
    "bench compare {} results": "results file",
    "layer create x -r {}": "requirements file",
    "image convert {}": "Dockerfile",
    "image sign x.sif --key {}": "key",
    "image verify x.sif --key {}": "key",
}


def test_file_that_is_no_file(cluster: Cluster, folder: str) -> None:
    """Every command that reads a file of the user's names it, and none waits or reads without an end."""
    lines = ["mkfifo f && ln -s /dev/zero z && ln -s $JAX_IMAGE x.sif && ulimit -v 4000000"]
    for words in TAKE_A_FILE:
        for name in "fz":
            lines.append(f'timeout 10 jaxsif {words.format(name)} </dev/null >out 2>err; echo "$? $(head -n 1 err)"')
    done = cluster.run(f"cd {folder} && module load jax/sif\n" + "\n".join(lines))
    assert done.stdout.splitlines() == [
        f"125 jaxsif: error: {what} is a {kind}, not a file: {name}"
        for what in TAKE_A_FILE.values()
        for name, kind in (("f", "FIFO"), ("z", "device"))
    ]


def test_list_of_hosts_from_a_command(cluster: Cluster) -> None:
    hosts = "bash -c 'jaxsif run --hostfile <(echo node1) --dry-run -- true'"
    done = cluster.run(f"module load jax/sif && {hosts}")
    assert (done.returncode, "node1" in done.stdout) == (0, True), done.stderr


def test_image_that_the_runtime_cannot_open(cluster: Cluster, folder: str) -> None:
    """A header that promises the right size over bytes that are no file system: only the runtime can tell."""
    spoil = "cp $JAX_IMAGE bad.sif && chmod u+w bad.sif && dd if=/dev/zero of=bad.sif bs=1M seek=0 count=1 conv=notrunc"
    spoil += " skip=0 2>/dev/null && head -c 32768 $JAX_IMAGE | dd of=bad.sif conv=notrunc 2>/dev/null"
    done = cluster.run(f"cd {folder} && module load jax/sif && {spoil} && exec jaxsif run --image bad.sif -- true")
    assert done.returncode == 125
    assert "jaxsif: error: the container did not start: " in done.stderr


FULL = "warning: the disk that standard output is written to is full, and the end of the output may be lost"


def test_job_script_on_a_full_disk(cluster: Cluster) -> None:
    """The file is named, and nothing of it is left."""
    small = "mkdir /tmp/small && mount -t tmpfs -o size=40k,mode=1777 tmpfs /tmp/small"
    cluster.check(f"{small} && head -c 40960 /dev/zero >/tmp/small/full || true", user="root")
    try:
        script = "--script /tmp/small/job.sbatch"
        done = cluster.run(f"module load jax/sif && jaxsif submit {script} --nodes=1 -- true; ls -A /tmp/small")
        error = "jaxsif: error: /tmp/small/job.sbatch: No space left on device"
        remedy = ["  from: /tmp/small", "  try:  free space there, or use another folder"]
        assert (done.stdout, done.stderr.splitlines()[-3:]) == ("full\n", [error, *remedy])
        # srun writes it, and says nothing.
        done = cluster.run(f"{jaxsif_run('-N1', '-n1', '--', 'seq', '20000')} >/tmp/small/out")
        assert done.stderr == f"jaxsif: {FULL}\n"
        assert cluster.run(f"{jaxsif_run('-N1', '-n1', '--', 'true')} >$(mktemp)").stderr == ""
    finally:
        cluster.check("umount /tmp/small && rmdir /tmp/small", user="root")


VARIABLES = {
    "JAXSIF_IMAGE=/nope": "JAX_IMAGE",
    "JAXSIF_LAYER=x": "JAXSIF_LAYERS",
    "JAXSIF_NODE=1": "JAXSIF_NODES",
    "JAXSIF_HANGTIMEOUT=5": "JAXSIF_HANG_TIMEOUT",
}


@pytest.mark.parametrize("words", ["run --nodes=1 -- true", "submit --dry-run -- true", "config", "image inspect"])
def test_variables_with_typing_errors(cluster: Cluster, words: str) -> None:
    lines = [f"{pair} jaxsif {words} >out; echo $? $(wc -c <out)" for pair in VARIABLES]
    done = cluster.run("module load jax/sif && cd $(mktemp -d) && " + "\n".join(lines))
    assert done.stdout == "2 0\n" * len(VARIABLES)
    assert done.stderr == "".join(
        f"jaxsif: error: no setting uses the variable {name}\n  from: {name} (environment)\n  try:  {meant}?\n"
        for name, meant in ((pair.partition("=")[0], meant) for pair, meant in VARIABLES.items())
    )


def test_variables_that_are_not_known(cluster: Cluster) -> None:
    """One is told; a run in a task takes what the run around it has set, also one of another version."""
    run = "jaxsif run --nodes=1 -- echo fine"
    done = cluster.run(f"module load jax/sif && JAXSIF_XYZ=1 {run} && JAXSIF_STEP=a JAXSIF_STEPS=1 {run}")
    assert (done.returncode, done.stdout) == (0, "fine\nfine\n")
    assert done.stderr == "jaxsif: warning: no setting uses the variable JAXSIF_XYZ\n"


@pytest.mark.parametrize(
    "words", ["image sbom", "submit --dry-run --nodes=1 -- true", "image inspect", "completion bash"]
)
def test_closed_standard_output(cluster: Cluster, words: str) -> None:
    done = cluster.run(f"module load jax/sif && jaxsif {words} >&-")
    assert (done.returncode, done.stderr) == (0, "jaxsif: warning: standard output is closed\n")


def test_too_little_memory(cluster: Cluster) -> None:
    done = cluster.run("module load jax/sif && ulimit -v 50000 && jaxsif image inspect")
    assert (done.returncode, done.stdout) == (125, "")
    hint = "raise the limit that ulimit -v shows"
    assert done.stderr == f"jaxsif: error: memory is exhausted\n  try:  {hint}\n"


ON_LOGIN = "mkdir -p /tmp/here && cd /tmp/here && echo 'print(1)' >q.py && module load jax/sif && "


def test_what_the_node_does_not_have(cluster: Cluster) -> None:
    """Below the login node's /tmp: the working folder, the image, a folder to bind."""

    def error(*argv: str) -> str:
        done = cluster.run(ON_LOGIN + jaxsif_run("--nodes=1", "--nodelist=node1", *argv))
        assert done.returncode == (2 if argv == ("--", "python", "q.py") else 125), done.stderr
        return done.stderr.partition("jaxsif: error: ")[2]

    try:
        assert error("--", "python", "q.py") == (
            "task 0 on node1 ended with exit status 2\n"
            "  try:  work in a folder that all nodes see: /tmp/here is not on node1\n"
        )
        cluster.check("cp $(ls /sw/jaxsif/images/*-cpu.sif) /tmp/here/x.sif")
        assert error("--image=x.sif", "--", "true") == (
            "the image is not on node1: /tmp/here/x.sif\n"
            "  from: --image\n"
            "  try:  put it on a disk that all nodes see, or take another one if it was removed; "
            "if other nodes have it, leave this one out with --exclude, "
            "and report it to the site\n"
        )
        assert error("--bind=/tmp/here", "--", "true") == (
            "node1 has no /tmp/here, which the container needs\n"
            "  from: --bind\n"
            "  try:  put it on a disk that all nodes see, or leave out the option or setting that names it\n"
        )
    finally:
        cluster.check("rm -rf /tmp/here")


def test_output_of_the_tasks_in_files(cluster: Cluster, folder: str) -> None:
    """The task that failed first, and its status, by srun's words."""
    program = "if [ $SLURM_PROCID = 1 ]; then exit 3; else sleep 60; fi"
    options = ("--nodes=2", "--ntasks-per-node=1", "--srun-args=--output=o-%t.txt --nodelist=node[1-2]")
    done = cluster.run(f"cd {folder} && " + jaxsif_run(*options, "--", "sh", "-c", program))
    assert done.returncode == 3
    assert done.stderr.endswith(
        "jaxsif: error: task 1 on node2 ended with exit status 3\n"
        "  try:  see the files that the tasks wrote: --output, --error or srun's variables name them\n"
    ), done.stderr
