"""A plan -> running processes, and the first cause when one fails."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from jaxsif.diagnose.reports import ReportFilter, find_step
from jaxsif.errors import PortTakenError
from jaxsif.job.allocation import Allocation
from jaxsif.job.task_env import hand_out_gpus, identify
from jaxsif.launch.children import INSIST, INSIST_ONCE, Child, Pass, Remote, run
from jaxsif.launch.probe import coordinator_ports, free_ports, step_name
from jaxsif.launch.program import suggest
from jaxsif.lines import Lines
from jaxsif.plan.coordinator import PORT_VARIABLE
from jaxsif.plan.host import Host
from jaxsif.plan.launchers import LOCAL, MPIRUN, SRUN
from jaxsif.plan.mpirun import Output
from jaxsif.plan.plan import LaunchPlan, build
from jaxsif.settings.request import RunOptions

_MORE_PORTS = 3  # to try when the first is taken
Reader = Callable[[], Pass]  # makes, for each child, what is shown of its output


def launch_until_port_is_free(
    plan: LaunchPlan,
    others: Iterator[LaunchPlan],
    environ: Mapping[str, str],
    note: Callable[[str], None],
    verbose: bool = False,
    stdout: Reader | None = None,
) -> int:
    """As `launch`; when the port turns out to be taken on the first task's node, once more with the
    next of `others`.

    Nobody could tell the other tasks of another port, and to ask the node before each start would
    take longer than the start. The first task refuses before its program's first line; other tasks
    may have run theirs.
    """
    while True:
        try:
            return launch(plan, environ, note, verbose, stdout)
        except PortTakenError as error:
            following = next(others, None) if _input_is_no_file() else None
            if following is None:
                raise
            note(f"{error.what} ({error.where}): starting again with another")
            plan = following


def plans_for_other_ports(
    options: RunOptions, host: Host, allocation: Allocation | None, environ: Mapping[str, str]
) -> Iterator[LaunchPlan]:
    """A few more plans of the same request, each with another port.

    None where the program is no Python: a script may have come far before the first Python looked
    at the port. And none where --env names the port.
    """
    if os.path.basename(options.command[0]).startswith("python") and PORT_VARIABLE not in dict(
        options.env
    ):
        others = (port for port in free_ports(coordinator_ports(options)) if port != host.port)
        for port in islice(others, _MORE_PORTS):
            yield build(options, host._replace(port=port, step=step_name()), allocation, environ)


def _input_is_no_file() -> bool:
    """True for a terminal and /dev/null: a first start has not read what a second one would miss."""
    try:
        return stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return True  # closed


def launch(
    plan: LaunchPlan,
    environ: Mapping[str, str],
    note: Callable[[str], None] | None = None,
    verbose: bool = False,
    stdout: Reader | None = None,
) -> int:
    """Run the plan to its end; return 0 or 128 + N for a signal to us, raise JaxsifError with the
    cause otherwise.

    `note` is told where tasks were that a signal to us has ended; with `verbose`, of their compile
    cache, too. `stdout` makes what reads their standard output, which is ours without it.
    """
    base = {name: value for name, value in environ.items() if name not in plan.unset_environ}
    base.update(plan.set_environ)
    seen = ReportFilter(plan.nonces, plan.layout.ntasks, plan.label)
    image = _content_of(plan.image)
    ended = run(_CHILDREN[plan.launcher](plan, base, seen, stdout), _import_culprit, seen.interrupt)
    from jaxsif.diagnose.culprit import (
        End,
        describe_alone,
        describe_cache,
        describe_places,
        find_failure,
    )

    changed = plan.image if plan.image and _is_rewritten(image, _content_of(plan.image)) else ""
    end = End(
        ended.status, plan.launcher, plan.layout.ntasks, ended.interrupted, ended.killed, changed
    )
    failure = find_failure(end, seen.reports, seen.errors, seen.barriers)
    places = describe_places(seen.reports) if ended.interrupted and not failure else ""
    for line in filter(None, (describe_cache(seen.reports) if verbose else "", places)):
        if note:
            note(line)
    if failure:
        if plan.redirected and not seen.reports:
            failure.hint = "see the files of --output and --error in --srun-args, to which the tasks have written"
        failure.hint = failure.hint or suggest(plan.command, failure, seen.errors)
        raise failure
    if ended.interrupted:
        return 128 + ended.interrupted
    warning = describe_alone(seen.reports)
    if warning and note:
        note(warning)
    return 0


def _import_culprit() -> None:
    """While the tasks start: its patterns take milliseconds."""
    import jaxsif.diagnose.culprit  # noqa: F401


def _content_of(image: str | None) -> tuple[int, ...] | None:
    """The number of an image's file, and what changes when it is written to; None where there is
    none.
    """
    try:
        found = os.stat(image) if image else None
    except OSError:
        return None  # it is gone, and programs that have it open go on
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found else None


def _is_rewritten(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> bool:
    """Whether it is the same file with another content; a new file of that name leaves running
    programs the old one.
    """
    return bool(before and after and before[0] == after[0] and before != after)


def _srun_children(
    plan: LaunchPlan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader | None
) -> list[Child]:
    read = stdout() if stdout else None
    in_job = "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ
    has_job = in_job or any(word.startswith("--jobid") for word in plan.launch_argv)

    def end() -> tuple[str, ...]:
        step = find_step(seen.reports)
        return ("scancel", "--signal=TERM", step) if step else ()

    def clear() -> tuple[str, ...]:
        step = find_step(seen.reports)
        job = step.partition(".")[0]
        return ("scancel", step, *([] if has_job else [job])) if step else ()

    return [
        Child(plan.argv, environ, seen.feed, read, insist=INSIST[:1], remote=Remote(end, clear))
    ]


def _mpirun_children(
    plan: LaunchPlan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader | None
) -> list[Child]:
    """mpirun, alone in its session: a second Ctrl-C, the terminal's beside ours, would make it
    leave its tasks.
    """
    out, err = Output(plan.label), Output(plan.label)

    def stderr(data: bytes) -> bytes:
        shown = err.feed(data)
        shown = seen.feed(shown) if shown else b""
        if data:
            return shown
        if err.complaint:
            seen.errors.append(f"mpirun: error: {err.complaint}")
        return shown + seen.feed(b"")

    read = stdout() if stdout else None
    return [
        Child(
            plan.argv,
            environ,
            stderr,
            out.feed if plan.label else read,
            own_group=True,
            insist=INSIST_ONCE,
        )
    ]


def _local_children(
    plan: LaunchPlan, environ: Mapping[str, str], seen: ReportFilter, stdout: Reader | None
) -> list[Child]:
    """One child per process, each with the variables by which Slurm would tell it who it is."""
    count = plan.layout.ntasks_per_node or 1
    gpus = hand_out_gpus(environ.get("CUDA_VISIBLE_DEVICES"), plan.layout.gpus_per_node or 0, 0)
    children = []
    for index in range(count):
        variables = {**identify(index, count, ["localhost"], str(os.getpid())), **gpus}
        variables["SLURMD_NODENAME"] = socket.gethostname()
        one = ReportFilter(plan.nonces, count, beside=seen)
        label = _Labeller(index, one) if plan.label else None
        read = stdout() if stdout else None
        children.append(
            Child(
                plan.argv,
                {**environ, **variables},
                stderr=label.stderr if label else one.feed,
                stdout=label.stdout if label else read,
                own_group=True,
                stdin=index == 0,
            )
        )
    return children


_CHILDREN = {SRUN: _srun_children, LOCAL: _local_children, MPIRUN: _mpirun_children}


class _Labeller:
    """Prefixes whole lines with the process's number, and cuts long ones into several, as srun
    --label does.
    """

    def __init__(self, index: int, reports: ReportFilter) -> None:
        self._prefix = f"{index}: ".encode()
        self._reports = reports
        self._stdout, self._stderr = Lines(), Lines()

    def stdout(self, data: bytes) -> bytes:
        return self._label(self._stdout.feed(data))

    def stderr(self, data: bytes) -> bytes:
        shown = self._reports.feed(data)
        lines = self._stderr.feed(shown) if shown else []
        return self._label(lines if data else [*lines, *self._stderr.feed(b"")])

    def _label(self, lines: Iterable[bytes]) -> bytes:
        return b"".join(self._prefix + line + b"\n" for line in lines)
