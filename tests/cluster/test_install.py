"""`make install` in the nodes' system, below a prefix of its own: what is there, and what a full disk leaves."""

from __future__ import annotations

import re
import subprocess

from harness import HERE, MINICLUSTER, Cluster
from kit.scripts import load_script

CONTAINERS = HERE.parents[1] / "containers"
# Without a network: what an install needs from elsewhere is below build/ before.
INSTALL = "unshare --net make --no-print-directory install PREFIX=/mnt FLAVOUR=cpu"
LIST = "find /mnt ! -path '*/.0*' \\( -type f -printf '%P %m %s\\n' -o -printf '%P %m\\n' \\) | sort"


def sandbox(script: str) -> subprocess.CompletedProcess[str]:
    """A script as root in the nodes' system with a disk of its own at /mnt, which is forgotten afterwards."""
    mount = "set -e; mount -t tmpfs -o size=800m,mode=755 none /mnt"
    argv = [MINICLUSTER, "sandbox", "--", "bash", "-c", f"{mount}\n{script}"]
    return subprocess.run(argv, cwd=HERE.parents[1], capture_output=True, text=True, check=False, timeout=120)


def check(script: str) -> str:
    """As `sandbox`, for a script that must succeed; return its standard output."""
    done = sandbox(script)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_again_changes_nothing_and_everybody_can_read(cluster: Cluster) -> None:
    script = f"""umask 077
        {INSTALL} >&2
        printf '[policy]\\ndigests = []\\n' >/mnt/jaxsif/jaxsif.toml
        {LIST} >/tmp/before
        {INSTALL} >&2
        {LIST} | grep -v 'jaxsif/jaxsif.toml' | diff - <(grep -v jaxsif/jaxsif.toml /tmp/before) >&2
        cat /mnt/jaxsif/jaxsif.toml
        find /mnt -name jaxsif.toml -o ! -perm -a+r -print -o -type d ! -perm -a+rx -print"""
    assert check(script) == "[policy]\ndigests = []\n"


def test_full_disk_is_named_and_changes_nothing(cluster: Cluster) -> None:
    script = f"""{INSTALL} >&2
        jaxsif=/mnt/jaxsif/*/bin/jaxsif
        name=$($jaxsif module list --json | sed -n 's/.*"name": "\\(.*\\)",/\\1/p')
        dd if=/dev/zero of=/mnt/filler bs=1M status=none 2>/dev/null || true
        truncate -s -1M /mnt/filler
        {LIST} >/tmp/before
        {INSTALL} && exit 1
        dd if=/dev/zero of=/mnt/more bs=4k status=none 2>/dev/null || true
        $jaxsif module default $name && exit 1
        rm /mnt/more
        {LIST} | diff /tmp/before - >&2
        $jaxsif --version
        $jaxsif module list"""
    done = sandbox(script)
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    assert "Error compiling" not in done.stderr
    assert len(done.stderr.splitlines()) < 20, done.stderr
    assert "install: error: cannot write below /mnt, see above: nothing was changed\n" in done.stderr
    assert "jaxsif: error: /mnt/modulefiles/jax/.modulerc: No space left on device\n" in done.stderr
    version, listed = done.stdout.splitlines()
    assert version.startswith("jaxsif ")
    assert listed.startswith("*  jax/")


def test_terminated_install_leaves_nothing_half_made(cluster: Cluster) -> None:
    script = f"""{INSTALL} >&2
        {LIST} >/tmp/before
        for seconds in 0.1 0.2 0.4; do
            touch -d yesterday /mnt/jaxsif/images/*.sif # so that it is copied again
            timeout $seconds modulefiles/install /mnt cpu /usr/bin/python3 >&2 || echo $?
            find /mnt -name '*.new*'
        done
        {LIST} | diff /tmp/before - >&2"""
    assert set(check(script).split()) == {"124"}


def test_two_versions_of_the_launcher(cluster: Cluster) -> None:
    """The image's module takes the one that added it last; the other one stays and can take it back."""
    script = f"""{INSTALL} >&2
        mkdir /tmp/next
        cp -a Makefile pyproject.toml jaxsif containers docs modulefiles slurm README.md LICENSE /tmp/next
        ln -s $PWD/build /tmp/next/build
        sed -i 's/^__version__ = .*/__version__ = "99.0"/' /tmp/next/jaxsif/__init__.py
        first=$(ls /mnt/jaxsif | grep '^[0-9]')
        /tmp/next/modulefiles/install /mnt cpu /usr/bin/python3 >&2
        /mnt/jaxsif/99.0/bin/jaxsif module list
        /mnt/jaxsif/99.0/bin/jaxsif --version
        /mnt/jaxsif/$first/bin/jaxsif module add /mnt/jaxsif/images/*.sif
        /mnt/jaxsif/99.0/bin/jaxsif module list
        echo $first"""
    before, version, name, after, first = check(script).splitlines()
    assert f" jaxsif {first}  /mnt/jaxsif/images/" in after
    assert before == after.replace(f"jaxsif {first}", "jaxsif 99.0")
    assert version == "jaxsif 99.0"
    assert after.split()[:2] == ["*", name]


def test_two_members_of_staff_share_a_prefix(cluster: Cluster) -> None:
    """Each replaces the other's launcher. The other's old folder stays until its owner installs."""
    script = """install -d -g 100 -m 2775 /mnt/sw
        install_as() {
            setpriv --reuid=$1 --regid=100 --clear-groups modulefiles/install /mnt/sw cpu /usr/bin/python3 2>&1 ||
                echo "exit status $?"
        }
        install_as 1000 >&2
        install_as 1001
        chmod -R g+w /mnt/sw
        for user in 1001 1000 1000; do install_as $user; done
        stat -c '%U %n' /mnt/sw/jaxsif/[0-9]* /mnt/sw/jaxsif/.[0-9]*
        /mnt/sw/jaxsif/[0-9]*/bin/jaxsif --version"""
    first, hint, status, *others = (line for line in check(script).splitlines() if not line.startswith("reading "))
    assert first == "install: error: /mnt/sw/jaxsif belongs to user, and you may not write it: nothing was changed"
    folders = "/mnt/sw/jaxsif /mnt/sw/modulefiles"
    remedy = f"chmod -R g+w {folders}"  # both are in its group
    assert hint == f"  try:  let user install, or have user call: {remedy}"
    assert status == "exit status 1"
    by_1001, by_1000, note, again, *folders, version = others
    assert all(line.startswith("installed jaxsif ") for line in (by_1001, by_1000, again))
    number = version.removeprefix("jaxsif ")
    old = f"/mnt/sw/jaxsif/.{number}.old"
    assert note == f"install: {old} stays: it belongs to other, whose next install removes it"
    new = [f"user /mnt/sw/jaxsif/{number}", f"user /mnt/sw/jaxsif/.{number}_.old"]
    assert sorted(folders) == sorted([*new, f"other {old}"])


def test_launcher_has_the_libraries_of_the_lock_for_its_python(cluster: Cluster) -> None:
    """Those of the machine's Python are not seen: it runs as python -IS. An older Python is refused, and named."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import requests, urllib3; "
    program += "print(sys.version_info[1], requests.__version__, urllib3.__version__); "
    program += "print(requests.__file__, urllib3.__file__, requests.certs.where())"
    script = f"""module load jax/sif && /usr/bin/python3 -IS -c "{program}" $JAXSIF_HOME/lib && echo $JAXSIF_HOME
        sed 's/sys.version_info < (3, [0-9]*)/sys.version_info < (3, 99)/' $JAXSIF_HOME/bin/jaxsif >~/for-newer
        chmod +x ~/for-newer && ~/for-newer --version; status=$?; rm ~/for-newer; exit $status"""
    done = cluster.run(script)
    versions, paths, home = done.stdout.splitlines()
    minor, *installed = versions.split()
    assert all(path.startswith(f"{home}/lib/") for path in paths.split())
    lock = (CONTAINERS / "locks/launcher.txt").read_text()
    chosen = load_script(CONTAINERS / "for_python.py").select(lock, f"3.{minor}")
    assert re.findall(r"^(?:requests|urllib3)==(\S+)", chosen, re.MULTILINE) == installed
    assert done.returncode == 125
    assert (
        f"jaxsif: error: /usr/bin/python3 is Python 3.{minor} on this host, the installed jaxsif needs" in done.stderr
    )
    assert "  try:  make install on the host that has the oldest Python\n" in done.stderr


def test_a_launcher_that_users_may_not_read(cluster: Cluster) -> None:
    script = f"""{INSTALL} >&2
        cd /mnt/jaxsif/0*
        rm -r lib/jaxsif/__pycache__
        for path in lib lib/jaxsif lib/jaxsif/task lib/jaxsif/cli.py; do
            chmod go-rwx $path
            setpriv --reuid 65534 bin/jaxsif version 2>&1 || echo $?
            chmod a+rX $path
        done
        setpriv --reuid 65534 bin/jaxsif version"""
    *told, version = check(script).splitlines()
    assert re.fullmatch(r"jaxsif 0\.\d+\.\d+", version)
    home = f"/mnt/jaxsif/{version.split()[1]}"
    assert told == [
        line
        for path in ("lib", "lib/jaxsif", "lib/jaxsif/task", "lib/jaxsif/cli.py")
        for line in (
            f"jaxsif: error: you may not read {home}/{path}",
            f"  try:  ask site staff for: chmod -R a+rX {home}/{path}",
            "125",
        )
    ]


def test_a_launcher_that_is_removed_while_it_runs(cluster: Cluster, folder: str) -> None:
    """Its end needs modules that its start did not."""
    program = f"import time; time.sleep(4); open('{folder}/gone', 'w').close(); time.sleep(1); raise ValueError('late')"
    copy = f'module load jax/sif && cp -r $JAXSIF_HOME {folder}/own && cd {folder} && echo "{program}" >late.py'
    remove = f"(until [ -e {folder}/gone ]; do sleep 0.1; done; rm -r {folder}/own) &"
    run = f"{folder}/own/bin/jaxsif run -N2 --gpus-per-node=1 -- python late.py"
    done = cluster.run(f"{copy} && {{ {remove} {run}; }}")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^jaxsif: error: task \d on node\d failed: ValueError: late$", done.stderr, re.M), done.stderr
    assert "removed" in cluster.check(f"[ -e {folder}/own ] || echo removed")
    assert " failed 1 " in cluster.check("module load jax/sif && jaxsif history | tail -1")
