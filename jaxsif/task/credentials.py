"""Mutual TLS between JAX's coordinator and the processes, using the run's certificate.

All tasks decide in the same way: they have the same variables from `jaxsif run`, and the same JAX.
A JAX that knows JAX_MTLS_CERT_FILE uses it in every process, an older one in none. A process with a
JAX from elsewhere would fail to connect, rather than continue without TLS.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from . import importing
from .contract import (
    COORDINATOR_TLS,
    CREDENTIALS,
    IDENTITY_PREFIX,
    ON,
    SEPARATOR_OF_LINES,
    MisfitError,
)
from .watch.status_file import make_file

_FILES = ("JAX_MTLS_CERT_FILE", "JAX_MTLS_KEY_FILE", "JAX_MTLS_CA_FILE")
_PREFIX = "JAX_MTLS_PEER_URI_PREFIX"
_NAME = "jaxsif-credentials"
_LOWEST = 300  # lowest of its descriptors, above the status file's
_PARAMETERS = tuple(name[len("JAX_") :].lower() for name in (*_FILES, _PREFIX))


def prepare(environ: MutableMapping[str, str], is_own: bool) -> None:
    """Set JAX's variables, unless the user has set any of them; raise MisfitError if the
    certificate cannot be kept. Without `is_own`, the coordinator may also serve other runs, which
    have other certificates.
    """
    path = environ.pop(CREDENTIALS, "")
    if not path or any(name in environ for name in (*_FILES, _PREFIX)):
        return
    if is_own or is_needed(environ):
        try:
            environ.update(dict.fromkeys(_FILES, _keep(_read(path))))  # one file contains all three
        except OSError as error:
            what = f"cannot store the certificate for JAX's coordinator: {error.strerror}"
            raise MisfitError(what, "pass --coordinator-tls=off") from error
        environ[_PREFIX] = IDENTITY_PREFIX


def _read(path: str) -> bytes:
    """Read the certificate with its key from start.sh's pipe, and put both back: a task may run
    several Pythons side by side. Some shells use a file instead of a pipe.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        line = os.read(descriptor, 65536)
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.write(descriptor, line)
    finally:
        os.close(descriptor)
    return line.replace(SEPARATOR_OF_LINES.encode(), b"\n")


def _keep(text: bytes) -> str:
    """Keep the text in an unnamed file in memory, and return the file's path, which JAX rereads
    from time to time.

    Child processes can read the file through that path, and a program that this process executes
    inherits the file.
    """
    limit = os.sysconf("SC_OPEN_MAX")  # may be lower than ours; -1 means no limit
    lowest = min(_LOWEST, limit // 2) if limit > 0 else _LOWEST
    descriptor = make_file(_NAME, fcntl.F_DUPFD, lowest)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _read_kept(path: str) -> bytes:
    """Return the text of a file from `_keep`, or b'' if its process has ended, or has closed the
    file and perhaps reused its descriptor for another one.
    """
    try:
        if _NAME not in os.readlink(path):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_needed(environ: Mapping[str, str]) -> bool:
    """Return whether every process must use the certificate."""
    return environ.get(COORDINATOR_TLS) == ON


def install(environ: MutableMapping[str, str]) -> None:
    """If this process has the certificate, watch how the program calls jax.distributed.initialize.
    A child process copies its parent's certificate, because the parent may end first.
    """
    if environ.get(_PREFIX) != IDENTITY_PREFIX:
        return
    path = environ.get(_FILES[0], "")
    text = _read_kept(path)
    if text and not path.startswith(f"/proc/{os.getpid()}/"):
        with suppress(OSError):  # no descriptor is free: use the parent's while it lives
            environ.update(dict.fromkeys(_FILES, _keep(text)))
    ours = dict(zip(_PARAMETERS, (environ.get(name, "") for name in (*_FILES, _PREFIX))))
    rest = (ours, text, environ.get("SLURM_NTASKS", ""), is_needed(environ))
    importing.after("jax._src.distributed", lambda module: _guard(module, *rest))


def _guard(module: Any, ours: dict[str, str], text: bytes, tasks: str, needed: bool) -> None:
    """Check the certificate when the program connects: unset it if the program has its own, or if
    its processes are not exactly those of this run; otherwise keep it again if its file is closed.
    If the certificate is required, refuse a JAX that cannot use it.
    """
    try:
        importing.find(module, "State.initialize", *ours)
    except importing.MissingError:  # it lists the missing names, for --verbose
        if needed:
            module.State.initialize = _refuse
        raise
    config = _find_config(module)

    def look(given: Mapping[str, Any]) -> None:
        number = given.get("num_processes")
        is_joined = not needed and number is not None and str(number) != tasks
        set_otherwise = [name for name in ours if getattr(config, f"jax_{name}") != ours[name]]
        if is_joined or set_otherwise or any(given.get(name) is not None for name in ours):
            for name in ours.keys() - set_otherwise:
                config.update(f"jax_{name}", None)
        else:
            _renew(config, ours, text)

    importing.before_initialize(module, look)


def _find_config(module: Any) -> Any:
    """Return JAX's configuration; raise MissingError if this JAX has no settings for the
    certificate.
    """
    for name in ("update", *(f"jax_{name}" for name in _PARAMETERS)):
        importing.find(module, f"config.config.{name}")
    return module.config.config


def _renew(config: Any, ours: dict[str, str], text: bytes) -> None:
    """Give JAX a new file with the certificate if the old one no longer exists."""
    if text and not _read_kept(ours[_PARAMETERS[0]]):
        ours.update(dict.fromkeys(_PARAMETERS[: len(_FILES)], _keep(text)))
        for name, value in ours.items():
            config.update(f"jax_{name}", value)


def _refuse(*_arguments: Any, **_named: Any) -> Any:
    raise RuntimeError("this JAX has no mutual TLS, which --coordinator-tls=on requires")
