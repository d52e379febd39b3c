"""The root file system of every node: Debian with Slurm, munge, both module systems and Apptainer, built once."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

from jaxsif.builds.host_settings import apt_mirror, apt_settings

from . import packages
from .errors import BoxError
from .needs import userns_argv
from .settings import Settings

_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "munge", "lmod", "apptainer"),
    # Apptainer's own helpers, and what builds images.
    *("squashfs-tools", "squashfuse", "fuse-overlayfs", "uidmap", "fakeroot", "debootstrap", "mmdebstrap"),
    *("ca-certificates", "iproute2", "make", "procps", "python3", "python3-venv"),
    *("openmpi-bin", "openssh-client", "openssh-server"),  # for tests without Slurm
    "docker-registry",  # for tests that pull
    "git",  # for layers of projects in repositories
)
_USERS = ("user", "other")
# The other module system, which Debian does not install beside Lmod: its files are others, but for those that make
# login shells use it. `. /usr/share/modules/init/bash` does.
_ADD_ENVIRONMENT_MODULES = (
    """cd "$1/tmp" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download environment-modules """
    """&& dpkg-deb -x environment-modules_*.deb "$1" && rm environment-modules_*.deb """
    """&& rm "$1/etc/profile.d/modules.sh" "$1/etc/csh/login.d/modules\""""
)
# One more line in the new system's sources: the first one's mirror, with the unstable suite.
_ADD_UNSTABLE = (
    """sed -n 's/ [a-z]* main.*/ sid main/p' "$1"/etc/apt/sources.list | head -n 1 """
    """>"$1"/etc/apt/sources.list.d/unstable.list"""
)
# A node has no use for them, and they are a third of the size.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")


def build_rootfs(settings: Settings) -> None:
    """Build the suite's root file system unless it stands there, made from the same recipe."""
    inputs = (settings.suite, _PACKAGES, _USERS, _ADD_UNSTABLE, _ADD_ENVIRONMENT_MODULES, _LEFT_OUT, packages.HOOKS)
    recipe = hashlib.sha256(repr(inputs).encode()).hexdigest()
    marker = settings.rootfs.with_suffix(".recipe")
    if settings.rootfs.is_dir() and marker.is_file() and marker.read_text() == recipe:
        return
    print(f"building the nodes' root file system: Debian {settings.suite}, Slurm, Lmod, Apptainer", flush=True)
    marker.unlink(missing_ok=True)
    partial = settings.rootfs.with_suffix(".partial")
    remove_tree(settings.rootfs)
    remove_tree(partial)
    tarball = partial.with_suffix(".tar")
    try:
        _bootstrap(settings, tarball)
        partial.mkdir()
        # Device nodes cannot be made in a user namespace; every node gets its own /dev anyway.
        extract = ["tar", "-C", str(partial), "--numeric-owner", "--exclude=./dev/*", "-xpf", str(tarball)]
        subprocess.run([*userns_argv(), *extract], check=True)
    finally:
        tarball.unlink(missing_ok=True)
    partial.rename(settings.rootfs)
    marker.write_text(recipe)
    packages.keep()
    print(packages.describe(settings.rootfs), flush=True)


def remove_tree(path: Path) -> None:
    """Delete a tree that may hold files of mapped users."""
    if path.exists():
        subprocess.run([*userns_argv(), "rm", "-rf", "--one-file-system", str(path)], check=True)


def _bootstrap(settings: Settings, tarball: Path) -> None:
    """Run mmdebstrap into `tarball`, printing its stages; the whole of its output goes to a log."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    log = settings.logs / f"rootfs-{settings.suite}.log"
    apt_conf = settings.home / "apt.conf"
    apt_conf.write_text(apt_settings())
    begin = time.monotonic()
    with log.open("w") as log_file:
        bootstrap = subprocess.Popen(
            _mmdebstrap_argv(settings, tarball, apt_conf), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert bootstrap.stdout is not None
        for line in bootstrap.stdout:
            log_file.write(line)
            if line.startswith("I: "):
                print(f"  {time.monotonic() - begin:5.1f} s  {line[3:].rstrip()}", flush=True)
        status = bootstrap.wait()
    apt_conf.unlink()
    if status:
        tail = "".join(log.read_text().splitlines(keepends=True)[-8:])
        raise BoxError(f"mmdebstrap failed (exit status {status}); the end of {log}:\n{tail}")


def _mmdebstrap_argv(settings: Settings, tarball: Path, apt_conf: Path) -> list[str]:
    users = " && ".join(f'chroot "$1" useradd --no-create-home --shell /bin/bash {name}' for name in _USERS)
    argv = ["mmdebstrap", "--variant=minbase", "--format=tar", f"--include={','.join(_PACKAGES)}"]
    argv += [f"--aptopt={apt_conf}", '--aptopt=Acquire::Languages "none"']
    # Apptainer is in Debian's unstable suite only: everything else comes from the chosen suite, by apt priority.
    argv += [f'--aptopt=APT::Default-Release "{settings.suite}"', f"--setup-hook={_ADD_UNSTABLE}"]
    argv += packages.hook_options()
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    argv += [f"--customize-hook={users}", f"--customize-hook={_ADD_ENVIRONMENT_MODULES}"]
    argv += [settings.suite, str(tarball)]
    mirror = apt_mirror()  # without one of this host's own, mmdebstrap knows one
    return [*argv, mirror] if mirror else argv
