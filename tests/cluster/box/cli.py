"""The command minicluster: one verb, its options, one error message."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys

from . import cluster
from .conf import LOGIN
from .errors import BoxError
from .namespaces import SANDBOX_SCRIPT, check_node, enter_argv, enter_identity_userns, find_status_file, user_argv
from .needs import check_needs, userns_argv
from .rootfs import build_rootfs
from .settings import MAX_NODES, REPOSITORY, SUITES, Settings, is_root

_DESCRIPTION = f"""\
A real Slurm cluster on one machine: a login node and compute nodes with real slurmctld, slurmd, munge, Lmod and
Apptainer, 4 made-up GPUs a node, shared /home and /sw, and the ordinary users `user` and `other`.
Needs Linux namespaces and Debian's packages; runs as root, or as an ordinary user with subordinate ids.

examples:
  minicluster up                                      build what is missing, start, wait until all nodes are idle
  minicluster exec -- sinfo                           a command of `user` on the login node
  minicluster exec -- bash -lc 'module avail'         … with a login shell's functions
  minicluster exec --node node1 --user root -- ps ax  … elsewhere, as somebody else
  MINICLUSTER_NODES=16 minicluster up                 another size: the cluster starts anew
  minicluster down                                    stop; homes and /sw stay

environment:
  MINICLUSTER_NODES       compute nodes, 1 to {MAX_NODES} (4), or their names: rack[1-2]n[1-2]
  MINICLUSTER_SUITE       Debian suite, and so Slurm version: {", ".join(SUITES)} ({SUITES[0]})
  MINICLUSTER_DIR         where everything is kept (build/cluster of this clone)
  MINICLUSTER_SLURM_CONF  a file of lines to append to slurm.conf
"""


def main() -> int:
    """Run one verb; exit status 0, 1 for an error of the cluster's, 2 for a bad request, or the command's own."""
    arguments = _parser().parse_args()
    try:
        settings = Settings.from_environ(os.environ)
        return _run(arguments, settings)
    except BoxError as error:
        print(f"minicluster: error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"minicluster: error: {' '.join(error.cmd)}: exit status {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.verb == "exec":
        return _exec(settings, arguments.node, arguments.user, arguments.command)
    if arguments.verb == "status":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `minicluster status | head -1`
        return cluster.status(settings)
    with cluster.locked(settings):
        if arguments.verb == "down":
            cluster.down(settings)
        elif arguments.verb == "reset":
            cluster.reset(settings, arguments.all)
        else:
            check_needs()
            if arguments.verb == "up":
                cluster.up(settings)
            else:
                build_rootfs(settings)
    # Last, outside the lock: it replaces this process.
    return _sandbox(settings, arguments.command) if arguments.verb == "sandbox" else 0


def _exec(settings: Settings, node: str, user: str, command: list[str]) -> int:
    box = find_status_file(settings)
    if not box:
        raise BoxError("the cluster is not up\n  try: minicluster up")
    check_node(settings, node)
    argv = [*enter_argv(settings, box, node), *user_argv(user, command)]
    # A terminal sends ^C to nsenter too; it must live on to pass the command's own end through.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.execvp(argv[0], argv)


def _sandbox(settings: Settings, command: list[str]) -> int:
    for folder in (settings.home / "run", settings.home / "shared/sw"):
        folder.mkdir(parents=True, exist_ok=True)
    if is_root():
        enter_identity_userns()
    unshare = [*(userns_argv() or ["unshare"]), "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    argv = [*unshare, str(SANDBOX_SCRIPT), str(settings.home), str(settings.rootfs), str(REPOSITORY), *command]
    os.execvp(argv[0], argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minicluster",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("build", help="build the nodes' root file system, unless it is there")
    verbs.add_parser("up", help="start the cluster, or repair it; builds first what is missing")
    verbs.add_parser("status", help="what runs, the nodes, the jobs, where the logs are")
    execute = verbs.add_parser("exec", help="run a command in the cluster")
    execute.add_argument("--node", default=LOGIN, help="login (the default), node1, node2, …")
    execute.add_argument("--user", default="user", help="user (the default), other or root")
    _add_command(execute)
    verbs.add_parser("down", help="stop the cluster; homes, /sw and logs stay")
    reset = verbs.add_parser("reset", help="stop it and forget homes, /sw and logs")
    reset.add_argument("--all", action="store_true", help="also the built root file systems")
    sandbox = verbs.add_parser("sandbox", help="run a command as root in the nodes' system, on the host's network")
    _add_command(sandbox)
    return parser


def _add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the command and its arguments")
