"""jaxsif image lock: versions and hashes of all that a flavour needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from jaxsif.builds.lock import (
    PLATFORMS,
    Lock,
    LockOptions,
    Need,
    find_needs,
    lock_as_json,
    render_changes,
    resolve_locks,
    select_flavours,
    write_locks,
)
from jaxsif.builds.recipe import choose_source
from jaxsif.screen import add_json, print_json, print_table

DESCRIPTION = """\
Resolve containers/locks/FLAVOUR.in into FLAVOUR.txt (x86_64) and
FLAVOUR-aarch64.txt: every package of the image, with version and hashes.
Locked versions stay unless told otherwise.

examples:
  jaxsif image lock --upgrade
        all flavours, to the newest versions
  jaxsif image lock --flavour cuda12 --jax 0.11.0
        another version of JAX
  jaxsif image lock --check
        check that every lock has what its flavour needs
"""

EPILOG = """\
exit status:
  0  done; with --check: no lock would change   1  with --check: a lock would change
  2  a bad request                            125  a lock cannot be resolved; all stay
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jaxsif image lock`."""
    parser.add_argument(
        "--flavour", metavar="NAME", help="a file of containers/locks, without .in (all)"
    )
    parser.add_argument("--platform", choices=PLATFORMS, help="the kind of machine (both)")
    parser.add_argument("--jax", metavar="VERSION", help="this version of JAX")
    parser.add_argument(
        "--python", default="3.13", metavar="VERSION", help="the image's Python (3.13)"
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="to the newest versions, instead of the locked ones"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit status 1 if a lock would change"
    )
    add_json(parser)
    parser.add_argument(
        "--source",
        metavar="FOLDER",
        help="the checkout with containers/ (this folder, else what comes with this launcher)",
    )


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Resolve, tell what changes, and write it unless --check."""
    root = choose_source(arguments.source)
    flavours = select_flavours(root, arguments.flavour)
    platforms = [arguments.platform] if arguments.platform else list(PLATFORMS)
    options = LockOptions(arguments.upgrade, arguments.jax, arguments.python)
    print(
        f"resolving {', '.join(flavours)} for {', '.join(platforms)}", file=sys.stderr, flush=True
    )
    locks = resolve_locks(root, flavours, platforms, options, environ)
    needs = list(find_needs(root, flavours, locks))
    if arguments.json:
        print_json(
            {
                "locks": list(map(lock_as_json, locks)),
                "flavours": [need._asdict() for need in needs],
            }
        )
    else:
        _show(locks, needs, arguments.check, environ)
    if arguments.check:
        return int(any(lock.old != lock.new for lock in locks))
    write_locks(locks)
    return 0


def _show(
    locks: Sequence[Lock], needs: Sequence[Need], check: bool, environ: Mapping[str, str]
) -> None:
    for lock in locks:
        _print_changes(lock, check)
    print()
    rows = [
        (flavour, jax, f"{driver} or newer" if driver else "none") for flavour, jax, driver in needs
    ]
    print_table(rows, environ, ("FLAVOUR", "JAX", "DRIVER OF THE HOST"))


def _print_changes(lock: Lock, check: bool) -> None:
    changes = list(render_changes(lock))
    state = ("would change" if check else "changed") if changes else "unchanged"
    print(f"{lock.path.name}: {state}")
    for line in changes:
        print(f"  {line}")
