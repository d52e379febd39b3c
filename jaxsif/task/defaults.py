"""User-set defaults for those JAX arguments and settings that have no variable.

A program's own arguments take precedence. JAX is patched when the program has imported it, and
never imported from here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from . import contract, importing
from .coordinator import node_address

# The variable -> the parameter of jax.distributed.initialize.
_TIMEOUTS = {
    contract.INIT_TIMEOUT: "initialization_timeout",
    contract.HEARTBEAT_TIMEOUT: "heartbeat_timeout_seconds",
    contract.SHUTDOWN_TIMEOUT: "shutdown_timeout_seconds",
}

_DISTRIBUTED = "jax._src.distributed"
_PROXIES_OF_GRPC = ("http_proxy", "https_proxy", "grpc_proxy")


def install(environ: Mapping[str, str]) -> None:
    """Change the defaults according to `environ`; most runs change none. Raise MisfitError."""
    timeouts = {
        field: contract.parse_seconds(environ[name], name)
        for name, field in _TIMEOUTS.items()
        if environ.get(name)
    }
    if timeouts:
        warns = environ["SLURM_PROCID"] == "0"
        importing.after(_DISTRIBUTED, lambda module: _set_timeouts(module, timeouts, warns))
    if _may_hide_proxies(environ):
        importing.after(_DISTRIBUTED, _hide_proxy_notice)
    address = node_address(environ, environ.get("SLURMD_NODENAME", ""))
    if address:
        importing.after("jaxlib._jax", lambda module: _set_gloo_address(module, address))


def _may_hide_proxies(environ: Mapping[str, str]) -> bool:
    """Return whether proxies are set, but none that gRPC, and so JAX, would use: gRPC reads only
    lower-case variables.
    """
    proxies = any("_proxy" in name.lower() for name in environ)
    return proxies and not any(map(environ.get, _PROXIES_OF_GRPC))


def _hide_proxy_notice(module: Any) -> None:
    """Keep JAX from advising to unset every variable with _proxy in its name, which would break the
    program's downloads.
    """
    module.config.config.update("jax_check_proxy_envs", False)


def _set_timeouts(module: Any, timeouts: Mapping[str, int], warns: bool) -> None:
    for parameter, seconds in timeouts.items():
        if not set_default(module.initialize, parameter, seconds) and warns:
            sys.stderr.write(
                f"jaxsif: warning: jax.distributed.initialize of this JAX has no {parameter}:"
                " the timeout given has no effect\n"
            )


def set_default(function: FunctionType, parameter: str, value: object) -> bool:
    """Change the default of a parameter; return False if there is no such parameter.

    A wrapper function would show up in tracebacks.
    """
    keywords = function.__kwdefaults__ or {}
    if parameter in keywords:
        function.__kwdefaults__ = {**keywords, parameter: value}
        return True
    values = function.__defaults__ or ()
    code = function.__code__
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    defaults = dict(zip(names, values))
    if parameter not in defaults:
        return False
    function.__defaults__ = tuple({**defaults, parameter: value}.values())
    return True


def _set_gloo_address(module: Any, address: str) -> None:
    """Make Gloo, JAX's transport between CPUs, listen at `address` instead of the address that the
    host's name resolves to.
    """
    make = importing.find(module, "make_gloo_tcp_collectives")

    def make_gloo_tcp_collectives(*arguments: Any, **keywords: Any) -> Any:
        return make(*arguments, **{"hostname": address, **keywords})

    module.make_gloo_tcp_collectives = make_gloo_tcp_collectives
