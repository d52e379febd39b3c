"""The base system of an image: a minimal Debian by mmdebstrap, kept as one squashfs file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from jaxsif import process
from jaxsif.errors import HostError

_SUITE = "trixie"
# Documentation and translations: nobody reads them in an image.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")


def ensure_base(packages: str, cache: Path, show: Callable[[str], None]) -> Path:
    """The base system with `packages` (Debian names, parted by blanks), from the cache or built now."""
    key = hashlib.sha256(" ".join([_SUITE, packages, *_LEFT_OUT]).encode()).hexdigest()[:16]
    base = cache / f"base-{_SUITE}-{key}.sqfs"
    if base.exists():
        return base
    for program, package in (("mmdebstrap", "mmdebstrap"), ("sqfstar", "squashfs-tools")):
        if not shutil.which(program):
            raise HostError(
                f"{program} is not on the PATH",
                "the base system",
                f"apt install {package}, or --base docker://debian:13",
            )
    show(f"making the base system: Debian {_SUITE} with {packages}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".base-", dir=cache) as scratch:
        tarball, partial = Path(scratch) / "base.tar", Path(scratch) / "base.sqfs"
        log = cache / "base.log"
        with open(tarball, "wb") as tar, open(log, "wb") as messages:
            status = process.run_plain(_mmdebstrap_argv(packages, Path(scratch)), stdout=tar, stderr=messages)
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise HostError(f"mmdebstrap failed:\n{tail}", str(log), "see its messages; --base takes another base")
        with open(tarball, "rb") as tar, open(log, "ab") as messages:
            # Device nodes left out: a user namespace cannot make them, and every container gets its own.
            compress = ["sqfstar", "-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", "1"]
            compress += [str(partial), "dev/*"]
            status = process.run_plain(compress, stdin=tar, stdout=messages, stderr=messages)
        if status:
            raise HostError(f"sqfstar failed with exit status {status}", str(log), "see its messages")
        partial.replace(base)
    return base


def _mmdebstrap_argv(packages: str, scratch: Path) -> list[str]:
    apt_conf = scratch / "apt.conf"
    apt_conf.write_text(_host_apt_settings())
    argv = ["mmdebstrap", "--variant=minbase", "--format=tar", f"--include={','.join(packages.split())}"]
    argv += [f"--aptopt={apt_conf}", '--aptopt=Acquire::Languages "none"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    # Without a mirror of this host's own, mmdebstrap knows one.
    return [*argv, _SUITE, "-", *_host_mirror()]


def _host_mirror() -> list[str]:
    """The Debian mirror that this host's apt uses, if it uses one."""
    wanted = ["Identifier: Packages", "Origin: Debian", "Label: Debian", "Component: main"]
    return _apt_output("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()[:1]


def _host_apt_settings() -> str:
    """How this host's apt fetches: proxies, certificates, checks of dates."""
    kept = ("Acquire::Check-", "Acquire::http", "Acquire::https", "Acquire::Retries")
    return "".join(f"{line}\n" for line in _apt_output("apt-config", "dump").splitlines() if line.startswith(kept))


def _apt_output(*argv: str) -> str:
    """Standard output of a command of apt's; '' on a host without apt."""
    if not shutil.which(argv[0]):
        return ""
    try:
        return process.output(*argv)
    except subprocess.CalledProcessError:
        return ""
