"""Report facts of this node, then run the task; `jaxsif doctor` starts this program in place of
each task.

    examine.py REQUEST -- TASK...

REQUEST is a JSON object: `image`, `port`, `address` (of --node-address), `folders` that all nodes
share, and `checks`, the folders of the site's own checks. The first task of a node reports the
node. Each task then starts TASK, the container with jaxsif/task/examine.py, and reports if that
fails, but ends with status 0: Slurm would end the tasks of other nodes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
from jaxsif.task.contract import LONGEST_TEXT, cut

# A message with which C++ ends the process; JAX's own has the reason at its end.
_FATAL = re.compile(rb"F\d{4} [^]]*\] (?:.*absl::Status: )?(.*)")


def say(kind: str, number: int, facts: Mapping[str, object]) -> None:
    """Print facts, each piece with one write, so that srun does not mix them."""
    import json

    for piece in cut(json.dumps(facts), f"{kind}{number}"):
        os.write(1, f"{piece}\n".encode())


def run_task(argv: list[str], environ: Mapping[str, str]) -> None:
    """Run the task in its container; report if it fails."""
    last, status, saw_fatal = "", 127, False
    try:
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
            for line in process.stderr or ():
                os.write(2, line)
                plain = re.sub(rb"\x1b\[[0-9;]*m", b"", line).strip()  # without colours
                fatal = _FATAL.match(plain)
                # Neither a report nor a line of a stack in C++, which follows a fatal message.
                is_text = plain and b"\x1e" not in line and not re.match(rb"(PC: )?@ ", plain)
                if fatal or (is_text and not saw_fatal):
                    last = (fatal[1] if fatal else plain).decode(errors="replace")
                    saw_fatal = bool(fatal)
        status = abs(process.returncode)
    except OSError as error:
        last = f"FATAL: cannot execute {argv[0]}: {error.strerror}"
    if status:
        node, task = environ.get("SLURMD_NODENAME", ""), int(environ.get("SLURM_PROCID", "0"))
        facts = {"node": node, "task": task, "status": status, "error": last[:LONGEST_TEXT]}
        say("e", task, facts)


def main(request: str, argv: list[str]) -> None:
    """Report the node, if this is its first task; then run the task."""
    environ = dict(os.environ)
    if environ.get("SLURM_LOCALID", "0") == "0":
        from jaxsif.node.node_facts import collect  # here: the other tasks start without it

        say("n", int(environ.get("SLURM_NODEID", "0")), collect(request, environ))
    run_task(argv, environ)
    os._exit(0)  # a probe may still hang


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:])
