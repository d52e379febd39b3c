"""Policies hold where the image is mounted: on the nodes, after the wait in the queue, in every way to start."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from harness import Cluster

# Two images that differ in one byte; the policy allows the first one, whatever file has it.
MAKE_IMAGES = """
cp $JAX_IMAGE good.sif && cp good.sif evil.sif && chmod u+w evil.sif && python3 -c "
f = open('evil.sif', 'r+b'); f.seek(100_000_000); byte = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([byte ^ 1]))" &&
digest=$(jaxsif image inspect --json good.sif | grep -o 'sha256:[0-9a-f]*') &&
printf '[policy]\\ndigests = ["%s"]\\n' $digest >jaxsif.toml
"""
RUN = "jaxsif run --image image.sif --no-compile-cache"
HOLD = "--srun-args=--hold"
# The ways to start a program: shared containers, one task, a container for each, a job script, a shell.
COMMANDS = {
    "shared": f"{RUN} {HOLD} --nodes=1 --ntasks-per-node=2 -- sh -c 'echo ran >>shared.ran'",
    "one": f"{RUN} {HOLD} --nodes=1 --ntasks-per-node=1 -- sh -c 'echo ran >>one.ran'",
    "task": f"{RUN} {HOLD} --nodes=1 --ntasks-per-node=2 --containers=task -- sh -c 'echo ran >>task.ran'",
    "submit": "jaxsif submit --image image.sif --wait --sbatch-args=--hold --output=submit.out --nodes=1"
    " --ntasks-per-node=2 -- sh -c 'echo ran >>submit.ran'",
    "shell": f"echo 'echo ran >>shell.ran' | jaxsif shell --image image.sif {HOLD}",
}
ENDED = "while squeue --me --noheader | grep -q .; do sleep 0.2; done"


class Site:
    """A folder of the user's with the images and the policy in it."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        self.cluster, self.folder = cluster, folder

    def start(self, script: str) -> subprocess.Popen[str]:
        return self.cluster.start(f"cd {self.folder} && module load jax/sif && {script}")

    def bash(self, script: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of a script in the folder."""
        with self.start(script) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def ran(self) -> dict[str, int]:
        """How many tasks of each command have run their program."""
        found = self.bash("wc -l *.ran 2>/dev/null; rm -f *.ran")[1]
        return {name: int(count) for count, name in re.findall(r"(\d+) (\w+)\.ran", found)}

    def replace_in_queue(self, other: str) -> dict[str, tuple[int, str]]:
        """Start all commands, put another file in the image's place while their jobs wait; how each ended."""
        assert self.bash("cp good.sif image.sif && jaxsif image verify --help >/dev/null")[0] == 0
        started = {name: self.start(command) for name, command in COMMANDS.items()}
        deadline = time.monotonic() + 60
        while len(self.cluster.check("squeue --me --noheader --states=PENDING --format=%i").split()) < len(COMMANDS):
            assert time.monotonic() < deadline, [process.poll() for process in started.values()]
            time.sleep(0.1)
        self.bash(
            f"cp {other} new.sif && mv new.sif image.sif && scontrol release $(squeue --me -h -o %i | paste -sd,)"
        )
        said = {name: process.communicate(timeout=120)[1] for name, process in started.items()}
        return {name: (process.returncode, said[name]) for name, process in started.items()}


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    path = cluster.check("mktemp -d ~/policy.XXXXXX").strip()
    one = Site(cluster, path)
    status, _, err = one.bash(f"set -e\n{MAKE_IMAGES}")
    assert status == 0, err
    yield one
    cluster.check(f"scancel --me; {ENDED}; rm -rf {path}")


def test_an_image_that_is_replaced_in_the_queue_runs_nothing(site: Site) -> None:
    ended = site.replace_in_queue("evil.sif")
    assert site.ran() == {}
    said = r"this is not the image that the policy allowed: \S+/image\.sif: it has sha256:\w{64}, but the policy"
    for name in ("shared", "one", "task", "shell"):
        status, err = ended[name]
        assert status == 125, (name, err)
        assert re.search(said + r" allowed sha256:\w{64}\n", err), (name, err)
    assert re.search(r"jaxsif: error: .*\n  from: task [01] on node\d\n", ended["shared"][1])
    output = site.bash("cat submit.out")[1]
    assert ended["submit"][0] == 125, output
    assert re.search(
        r"allowed: \S+/image\.sif on node\d: its file has SHA-256 \w{64} instead of \w{64}\n  try:  submit", output
    )


def test_the_same_image_in_another_file_runs(site: Site) -> None:
    """As after it was copied or moved; its inode and change time are others, its digest is not."""
    ended = site.replace_in_queue("good.sif")
    assert {name: status for name, (status, _) in ended.items()} == dict.fromkeys(COMMANDS, 0), ended
    assert site.ran() == {"shared": 2, "one": 1, "task": 2, "submit": 2, "shell": 1}


# A runtime that is slow to open the image: meanwhile the image's folder gets another one.
SLOW = """#!/bin/sh
[ -z "$IMAGE_NOW" ] || { cp $IMAGE_NOW new.$$ && mv new.$$ image.sif; }
exec /usr/bin/apptainer "$@"
"""


def test_an_image_that_is_replaced_while_its_container_starts_runs_nothing(site: Site) -> None:
    site.cluster.check(f"mkdir {site.folder}/slow")
    site.cluster.write(f"{site.folder}/slow/apptainer", SLOW)
    prefix = "cp good.sif image.sif; chmod +x slow/apptainer; export PATH=$PWD/slow:$PATH IMAGE_NOW=evil.sif; "
    changed = "it changed while the container started"
    # The keeper of a shared container ends it, and each task then finds the other digest; so does the second task of a
    # job script, where the first one's runtime was faster.
    problems = {"shared": "it has sha256:", "one": changed, "submit": f"(?:{changed}|it has sha256:)"}
    for command, problem in problems.items():
        script = re.sub(r"--\w+-args=--hold", "", COMMANDS[command])
        status, _, err = site.bash(f"{prefix}{script}; status=$?; cat submit.out >&2; exit $status")
        # Of a job script, srun's own: the highest, and that of the task which srun then ended may be that of a signal.
        assert status == 125 or (command == "submit" and status > 128), err
        assert f"allowed: {site.folder}/image.sif" in err
        assert re.search(f": {problem}", err), err
    assert site.ran() == {}


def test_a_node_that_sees_the_image_on_another_device(site: Site) -> None:
    """One file, mounted twice, has one inode and change time, and two devices; a copy has another inode, too."""
    place = f"{site.folder}/there"
    run = RUN.replace("image.sif", "there/image.sif") + " --nodes=2 --ntasks-per-node=1 -- sh -c 'echo ran'"
    look = f"stat -c '%d %i:%s:%.9Z' {place}/image.sif"
    assert site.bash(f"mkdir -p {place} && cp good.sif {place}/image.sif")[0] == 0

    def run_with(mount: str) -> tuple[int, str, str]:
        """Run with another file system on the second node; what the nodes see goes to `seen`."""
        site.cluster.check(mount, node="node2", user="root")
        try:
            seen.extend(site.cluster.check(look, node=node).split() for node in ("node1", "node2"))
            return site.bash(run)
        finally:
            site.cluster.check(f"umount {place}; rm -rf /tmp/over", node="node2", user="root")

    seen: list[list[str]] = []
    mount = f"mkdir /tmp/over && mount -t overlay overlay -o ro,lowerdir={place}:/tmp/over {place}"
    status, out, err = run_with(mount)
    assert (status, out) == (0, "ran\n" * 2), err
    (device, state), (other_device, its_state) = seen
    assert device != other_device
    assert state == its_state
    copy = f"mount -t tmpfs tmpfs {place} && cp {site.folder}/{{}}.sif {place}/image.sif"
    status, out, err = run_with(copy.format("good"))
    assert (status, out) == (0, "ran\n" * 2), err
    status, out, err = run_with(copy.format("evil"))
    assert status == 125, err
    assert out in ("", "ran\n")  # that of the first node
    assert re.search(r"there/image\.sif: it has sha256:.*\n  from: task 1 on node2\n", err), err


PROFILE = """
[profile.own]
inherits = "tcp"
libraries = ["{}/libown.so"]
"""


def test_what_would_hide_the_image_is_refused(site: Site) -> None:
    """Nothing of it runs, and no job is asked for."""
    run = f"{RUN} --nodes=1 --bind /sw -- sh -c 'echo ran'"
    site.cluster.check(
        f"cd {site.folder} && cp good.sif image.sif && printf '#!/bin/sh\necho fake' >fake && chmod +x fake"
    )
    site.bash(f"touch libown.so; printf '%s' '{PROFILE.format(site.folder)}' >>jaxsif.toml")
    hidden = "of the image would be hidden by"
    runtime = "JAXSIF_RUNTIME must name a runtime that only root or the owner of jaxsif can change:"
    refused = {
        run.replace("--bind", "--bind $PWD/fake:/usr/bin/python3 --bind"): f"/usr/bin/python3 {hidden} ",
        f"APPTAINER_BIND=$PWD/fake:/bin/sh {run}": f"/bin/sh {hidden} ",
        f"SINGULARITY_OVERLAY=$PWD/over {run}": "the image would be hidden by ",
        f"JAXSIF_RUNTIME=./fake {run}": f"{runtime} ./fake\n  from: JAXSIF_RUNTIME",
        run.replace("--nodes", "--fabric own --nodes"): f"/opt/jaxsif/fabric {hidden} {site.folder}/libown.so",
    }
    newest = "scontrol show jobs --oneliner | grep -o 'JobId=[0-9]*' | sort -V | tail -1"
    before = site.bash(newest)[1]
    for script, problem in refused.items():
        status, out, err = site.bash(script)
        assert (status, out) == (125, ""), err
        assert f"jaxsif: error: the policy refuses this run: {problem}" in err, err
    assert site.bash(newest)[1] == before
    status, out, err = site.bash(f"APPTAINER_BIND=/sw:/data {run}")
    assert (status, out) == (0, "ran\n"), err
