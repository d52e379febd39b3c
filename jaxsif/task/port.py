"""The port of JAX's coordinator, on the node of the first task."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from .contract import UNKNOWN_ADDRESS, MisfitError


def resolve(name: str, port: int) -> str:
    """Return the address of a name; raise MisfitError."""
    try:
        return str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])
    except (socket.gaierror, UnicodeError) as error:
        raise MisfitError(f"{UNKNOWN_ADDRESS}{name}: {error}") from error


def find_addresses(name: str) -> list[tuple[int, tuple[Any, ...]]]:
    """Return the addresses of a name, each with its family; none if the name is unknown."""
    with suppress(OSError, UnicodeError):
        known = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in known]
    return []


def is_here(known: tuple[int, tuple[Any, ...]]) -> bool:
    """Return whether an address is one of this node's."""
    family, address = known
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as one:
        one.bind(address)
        return True
    return False


def hold_for_task(step: str, name: str, address: str, port: int) -> None:
    """Hold the port at `address`, which is that of `name`, unless another Python of this task holds
    it.

    `step` is a name of the step; '' as the address means all networks. Raise MisfitError.
    """
    claim = _claim(step, port)
    if claim is None:
        return
    with claim:
        try:
            hold(address, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"port {port}, chosen for JAX's coordinator, is taken on this node"
                raise MisfitError(text, event="port-taken") from None
            if error.errno == errno.EADDRNOTAVAIL:
                text = (
                    f"{name} is not a name of this node: its address {address} is not on this node"
                )
                raise MisfitError(text) from None
        claim.detach()  # open for as long as this process lives


def _claim(step: str, port: int) -> socket.socket | None:
    """Return a claim on the port for this task, or None while another Python of the task has it, as
    in `python | python`.

    The claim is an abstract name (unix(7)), which other users can read in /proc/net/unix and take.
    A name that this user does not hold says nothing about the port.
    """
    address = f"\0jaxsif-port-{step}-{port}"
    one = socket.socket(socket.AF_UNIX)
    try:
        one.bind(address)
        one.listen()  # so that others can see its owner
    except OSError:
        if _is_own(address):
            one.close()
            return None
    return one


def _is_own(address: str) -> bool:
    """Return whether a process of this user is listening on an abstract socket name."""
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as one:
            one.setblocking(False)  # another user's queue may be full
            try:
                one.connect(address)
            except ConnectionRefusedError:
                time.sleep(0.005)  # it does not listen yet
                continue
            except OSError:
                return False
            credentials = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()
    return False


def hold(address: str, port: int) -> None:
    """Take this node's `port` for this process; raise OSError if the port is not free.

    JAX would not report a taken port: gRPC shares ports (SO_REUSEPORT). This socket also shares the
    port once it has it, but never listens: from now on, the port is taken for all but the
    coordinator, which belongs to the same user.
    """
    everywhere_or_ipv6 = not address or ":" in address
    family = socket.AF_INET6 if everywhere_or_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        # Closed connections do not count.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((address, port))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.detach()  # open for as long as this process lives
