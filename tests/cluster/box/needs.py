"""What the host must have, checked before anything starts, and installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .errors import BoxError
from .settings import is_root

# program -> the Debian package that has it
_PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "tar": "tar",
    "mmdebstrap": "mmdebstrap",
}
_ROOTLESS_PROGRAMS = {"newuidmap": "uidmap"}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def check_needs() -> None:
    """Raise one BoxError that names all that is missing, after installing it where this user may."""
    missing = _missing_packages()
    if missing and is_root() and shutil.which("apt-get"):
        _apt_install(missing)
        missing = _missing_packages()
    problems = []
    if missing:
        problems.append("missing Debian packages: " + " ".join(missing))
        problems.append("  try: sudo apt-get install --no-install-recommends " + " ".join(missing))
    problems += _namespace_problems()
    if problems:
        raise BoxError("this machine cannot run the cluster yet\n" + "\n".join(problems))


def _missing_packages() -> list[str]:
    programs = _PROGRAMS if is_root() else {**_PROGRAMS, **_ROOTLESS_PROGRAMS}
    # Debian keeps ip in /usr/sbin, which an ordinary user's PATH may lack.
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = {package for program, package in programs.items() if not shutil.which(program, path=path)}
    if not _KEYRING.exists():
        missing.add("debian-archive-keyring")
    return sorted(missing)


def _apt_install(packages: list[str]) -> None:
    print("installing", *packages, flush=True)
    apt = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, check=False)  # an old list may still do
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*apt, "install", "-y", "--no-install-recommends", *packages],
        env=environ,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise BoxError(f"apt-get could not install {' '.join(packages)}; its messages stand above")


def _namespace_problems() -> list[str]:
    problems = []
    if not Path("/dev/fuse").exists():
        problems.append("no /dev/fuse: Apptainer mounts images through FUSE\n  try: modprobe fuse")
    elif not os.access("/dev/fuse", os.R_OK | os.W_OK):
        problems.append("/dev/fuse is closed to this user\n  try: sudo chmod 666 /dev/fuse")
    probe = subprocess.run(
        [*userns_argv(), "unshare", "--mount", "--net", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        reason = probe.stderr.strip().splitlines()[-1:] or ["no reason given"]
        problems.append(f"namespaces cannot be made: {reason[0]}")
        if not is_root():
            problems.append(
                "  try: a range for this user in /etc/subuid and /etc/subgid, sysctl"
                " kernel.unprivileged_userns_clone=1 and, on Ubuntu,"
                " kernel.apparmor_restrict_unprivileged_userns=0; or run as root"
            )
    return problems


def userns_argv() -> list[str]:
    """The prefix that gives an ordinary user root's rights over namespaces of their own."""
    return [] if is_root() else ["unshare", "--map-root-user", "--map-auto"]
