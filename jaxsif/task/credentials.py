"""Mutual TLS between JAX's coordinator and the processes, by the certificate of the run.

All tasks decide alike: they have the same variables from `jaxsif run`, and the same JAX. One that
knows JAX_MTLS_CERT_FILE uses it in every process, an older one in none. A process whose JAX came
from elsewhere would fail to connect, and not go on without.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import wraps
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
_LOWEST = 300  # of its descriptors, above that of the status file
_PARAMETERS = tuple(name[len("JAX_") :].lower() for name in (*_FILES, _PREFIX))


def prepare(environ: MutableMapping[str, str], is_own: bool) -> None:
    """Set JAX's variables, unless the user has set one; raise MisfitError where there is no room
    for the certificate. Without `is_own`, the coordinator may serve other runs, too, which have
    other certificates.
    """
    path = environ.pop(CREDENTIALS, "")
    if not path or any(name in environ for name in (*_FILES, _PREFIX)):
        return
    if is_own or is_needed(environ):
        try:
            environ.update(dict.fromkeys(_FILES, _keep(_read(path))))  # one file has all
        except OSError as error:
            what = f"cannot keep the certificate for JAX's coordinator: {error.strerror}"
            raise MisfitError(what, "pass --coordinator-tls=off") from error
        environ[_PREFIX] = IDENTITY_PREFIX


def _read(path: str) -> bytes:
    """Return the certificate with its key from the pipe of start.sh, and put it back: there may be
    several Pythons in a task, one beside the other. Some shells make it a file.
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
    """Return the path of a file in memory, without a name, which JAX reads again from time to time.

    Child processes can read it by that path, and a program that this process executes has it.
    """
    limit = os.sysconf("SC_OPEN_MAX")  # may be lower than ours; -1 is none
    lowest = min(_LOWEST, limit // 2) if limit > 0 else _LOWEST
    descriptor = make_file(_NAME, fcntl.F_DUPFD, lowest)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _read_kept(path: str) -> bytes:
    """Return the text of such a file; b'' where its process has ended, or has closed it and
    perhaps opened another one by its number.
    """
    try:
        if _NAME not in os.readlink(path):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_needed(environ: Mapping[str, str]) -> bool:
    """Return whether no process may go without."""
    return environ.get(COORDINATOR_TLS) == ON


def install(environ: MutableMapping[str, str]) -> None:
    """Look at how the program calls jax.distributed.initialize, where it has the certificate. A
    child process has its parent's, and copies it, because the parent may end first.
    """
    if environ.get(_PREFIX) != IDENTITY_PREFIX:
        return
    path = environ.get(_FILES[0], "")
    text = _read_kept(path)
    if text and not path.startswith(f"/proc/{os.getpid()}/"):
        with suppress(OSError):  # no descriptor is free: the parent's serves while the parent lives
            environ.update(dict.fromkeys(_FILES, _keep(text)))
    ours = dict(zip(_PARAMETERS, (environ.get(name, "") for name in (*_FILES, _PREFIX))))
    rest = (ours, text, environ.get("SLURM_NTASKS", ""), is_needed(environ))
    importing.after("jax._src.distributed", lambda module: _guard(module, *rest))


def _guard(module: Any, ours: dict[str, str], text: bytes, tasks: str, needed: bool) -> None:
    """Take the certificate back from a program that has its own, or whose processes are not those
    of this run alone, and keep it again where its file is closed; where it is needed, refuse a JAX
    that cannot use it.
    """
    from inspect import signature  # which JAX has imported

    original = importing.find(module, "State.initialize")
    parameters = signature(original)
    if not ours.keys() <= parameters.parameters.keys():
        if needed:
            module.State.initialize = _refuse
        importing.find(module, "State.initialize", *ours)  # what is missing, for --verbose
    config = _find_config(module)

    @wraps(original)
    def initialize(*arguments: Any, **named: Any) -> Any:
        given = parameters.bind(*arguments, **named).arguments
        number = given.get("num_processes")
        is_joined = not needed and number is not None and str(number) != tasks
        set_otherwise = [name for name in ours if getattr(config, f"jax_{name}") != ours[name]]
        if is_joined or set_otherwise or any(given.get(name) is not None for name in ours):
            for name in ours.keys() - set_otherwise:
                config.update(f"jax_{name}", None)
        else:
            _renew(config, ours, text)
        return original(*arguments, **named)

    module.State.initialize = initialize


def _find_config(module: Any) -> Any:
    """Return JAX's configuration; raise MissingError where it does not know the certificate."""
    for name in ("update", *(f"jax_{name}" for name in _PARAMETERS)):
        importing.find(module, f"config.config.{name}")
    return module.config.config


def _renew(config: Any, ours: dict[str, str], text: bytes) -> None:
    """Give JAX another file of the certificate where that one is not there any more."""
    if text and not _read_kept(ours[_PARAMETERS[0]]):
        ours.update(dict.fromkeys(_PARAMETERS[: len(_FILES)], _keep(text)))
        for name, value in ours.items():
            config.update(f"jax_{name}", value)


def _refuse(*_arguments: Any, **_named: Any) -> Any:
    raise RuntimeError("this JAX has no mutual TLS, which --coordinator-tls=on asks for")
