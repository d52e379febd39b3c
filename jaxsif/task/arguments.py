"""Arguments and settings of JAX for which JAX has no variable: other defaults for them, where that
is asked for.

What a program passes itself stands. JAX is changed when the program has imported it, and never
imported from here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from . import importing
from .coordinator import node_address

# Set by `jaxsif run` -> the parameter of jax.distributed.initialize.
_TIMEOUTS = {
    "JAXSIF_INIT_TIMEOUT": "initialization_timeout",
    "JAXSIF_HEARTBEAT_TIMEOUT": "heartbeat_timeout_seconds",
    "JAXSIF_SHUTDOWN_TIMEOUT": "shutdown_timeout_seconds",
}

_PROXIES_OF_GRPC = ("http_proxy", "https_proxy", "grpc_proxy")


def install(environ: Mapping[str, str]) -> None:
    """Change the defaults as `environ` says; most runs change none."""
    timeouts = {
        parameter: int(environ[name]) for name, parameter in _TIMEOUTS.items() if environ.get(name)
    }
    if timeouts:
        importing.after(
            "jax._src.distributed", lambda module: _set_timeouts(module, timeouts, environ)
        )
    if _may_hide_proxies(environ):
        importing.after("jax._src.distributed", _hide_proxy_notice)
    address = node_address(environ, environ.get("SLURMD_NODENAME", ""))
    if address:
        importing.after("jaxlib._jax", lambda module: _set_gloo_address(module, address))


def _may_hide_proxies(environ: Mapping[str, str]) -> bool:
    """Whether there are proxies, but none that gRPC, and so JAX, would connect through: it reads
    lower case alone.
    """
    proxies = [name for name in environ if "_proxy" in name.lower()]
    return bool(proxies) and not any(environ.get(name) for name in _PROXIES_OF_GRPC)


def _hide_proxy_notice(module: ModuleType) -> None:
    """JAX would advise to unset every variable with _proxy in its name, and the program would lose
    its downloads.
    """
    with suppress(AttributeError):  # another JAX
        module.config.config.update("jax_check_proxy_envs", False)


def _set_timeouts(
    module: ModuleType, timeouts: Mapping[str, int], environ: Mapping[str, str]
) -> None:
    for parameter, value in timeouts.items():
        known = set_default(module.initialize, parameter, value)
        if not known and environ["SLURM_PROCID"] == "0":
            text = f"jax.distributed.initialize of this JAX has no {parameter}: the timeout given has no effect"
            sys.stderr.write(f"jaxsif: warning: {text}\n")


def set_default(function: FunctionType, parameter: str, value: object) -> bool:
    """Change the default of a parameter; False if there is none. A function around it would be seen
    in tracebacks.
    """
    keywords = function.__kwdefaults__ or {}
    if parameter in keywords:
        function.__kwdefaults__ = {**keywords, parameter: value}
        return True
    defaults = function.__defaults__ or ()
    code = function.__code__
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    if parameter not in names:
        return False
    function.__defaults__ = tuple(
        value if name == parameter else old for name, old in zip(names, defaults)
    )
    return True


def _set_gloo_address(module: ModuleType, address: str) -> None:
    """Gloo, JAX's transport between CPUs, otherwise listens where the name of the host leads to."""
    make = module.make_gloo_tcp_collectives

    def make_gloo_tcp_collectives(*arguments: Any, **keywords: Any) -> Any:
        return make(*arguments, **{"hostname": address, **keywords})

    module.make_gloo_tcp_collectives = make_gloo_tcp_collectives  # type: ignore[attr-defined]
