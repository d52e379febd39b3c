"""`jaxsif run --max-restarts`: start a program again, inside its job, after a failure.

One loop around the stages plan, run and diagnose. Only runs with that option import this module.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from jaxsif.diagnose.reports import ReportFilter, find_start, of_event
from jaxsif.errors import ALL_USELESS, USELESS, Cause, Fault, HostError, JaxsifError
from jaxsif.history.ledger import Finding, find_ledger, find_suspects, read_findings, suspect
from jaxsif.history.run import Attempt
from jaxsif.job.allocation import Allocation, name_job
from jaxsif.job.nodelist import expand
from jaxsif.launch.checkpoints import FailedAttempt, find_saved
from jaxsif.launch.children import ENDING
from jaxsif.launch.coordinator import draw_coordinator, draw_name
from jaxsif.launch.guard import guarded
from jaxsif.launch.nodes import (
    NO_ANSWER,
    check_nodes,
    choose_nodes,
    is_listed,
    job_over,
    query_job,
)
from jaxsif.launch.pipeline import can_read_again
from jaxsif.limits import read_number
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher
from jaxsif.plan.plan import Plan, build, find_hiding
from jaxsif.settings.options import RESTART, RunOptions
from jaxsif.settings.read import Settings
from jaxsif.text import count_of, printable
from jaxsif.watch.squeue import is_preempted

_FIRST_PAUSE, _MOST_PAUSE = 5.0, 60.0  # seconds before the next attempt; each is twice the last
_POLL = 1.0  # seconds between two questions whether the job is still there
# srun's options that choose nodes, as --max-restarts does.
_PLACES = ("--nodelist", "--nodefile", "--exclude", "--relative", "--no-kill")


class Record(Protocol):
    """What is kept of the run (`_History` in jaxsif/launch/pipeline.py)."""

    steps: list[str]  # the random names of all attempts so far
    seen: ReportFilter  # the reports of the last one

    def notify(self, line: str) -> None:
        """Show the user a line, and record it."""

    def attempt(self, attempt: Attempt) -> None:
        """Record how an attempt ended."""


# --- The request


def set_spares_aside(settings: Settings, launcher: Launcher, host: Host) -> Host:
    """Return this host with the nodes of the job that the first attempt uses; its `whole` is the
    full host. Raise JaxsifError for a request that cannot be met.

    The host is unchanged if the run does not start again: outside a job, unless the command line
    asks for it, and with other launchers, which find_notes warns about.
    """
    options, job = settings.options, host.allocation
    if not options.max_restarts:
        _check_without(settings)
    if job is None and settings.is_on_command_line("max-restarts"):
        what = "there is no job yet in which to start again"
        raise JaxsifError(what, "--max-restarts", "salloc --no-kill …, then jaxsif run")
    if job is None and settings.is_on_command_line("max-requeues"):
        what = "there is no job yet to requeue"
        raise JaxsifError(what, "--max-requeues", "jaxsif submit --requeue")
    if job is None or launcher.name != SRUN:
        return host
    _check_hidden(options, launcher, host.environ)
    if not options.max_restarts:
        return host
    _check_options(options, job)
    names, segment = expand(job.nodelist), find_segment(options, host.environ)
    size = _count_nodes(options, len(names), segment)
    ledger = read_findings(find_ledger(job.job_id, host.environ))
    chosen = choose_nodes(names, (), find_suspects(ledger, time.time()), size, segment)
    return use_nodes(host, chosen)


def _count_nodes(options: RunOptions, there: int, segment: int) -> int:
    """Return the number of nodes for a run in a job of this many; raise JaxsifError."""
    spares = options.spare_nodes or 0
    size = options.nodes or max(1, there - spares)
    source = options.source("spare-nodes")
    if not 0 < size <= there - spares:
        asked = f"{count_of(size, 'node')} and {count_of(spares, 'spare')}"
        what = f"{asked} do not fit in the job's {there}"
        raise JaxsifError(what, source, "ask for fewer, or for a larger job")
    if size % segment or there % segment:
        what = f"{size} of {there} nodes do not form whole segments of {segment}"
        raise JaxsifError(what, source, "keep whole segments as spares")
    return size


def _check_without(settings: Settings) -> None:
    """Raise JaxsifError for an option that means nothing without --max-restarts."""
    options = settings.options
    keys = (
        "spare-nodes",
        *(["checkpoints"] if options.max_requeues is None else []),
        *(["on-hang"] if options.on_hang == RESTART else []),
    )
    for key in filter(settings.is_on_command_line, keys):
        hint = "jaxsif run --max-restarts=N, inside a job"
        raise JaxsifError(f"--{key} needs --max-restarts", f"--{key}", hint)


def _check_options(options: RunOptions, job: Allocation) -> None:
    """Raise JaxsifError for options, or a job, with which a run cannot start again."""
    source = options.source("max-restarts")
    if job.components:
        what = "--max-restarts does not support heterogeneous jobs"
        raise JaxsifError(what, source, "leave it out")
    for argument in options.srun_arguments:
        if argument.flag in _PLACES:
            what = f"{argument.flag} conflicts with --max-restarts, which chooses nodes"
            raise JaxsifError(what, source, "leave one out")


def _check_hidden(options: RunOptions, launcher: Launcher, environ: Mapping[str, str]) -> None:
    """Raise JaxsifError for an option or a variable that hides the tasks' reports."""
    key = "max-restarts" if options.max_restarts else "max-requeues"
    goes_on = options.max_restarts or options.max_requeues is not None
    name = find_hiding(options, launcher, environ)
    if goes_on and name:
        what = f"{name} conflicts with --{key}, which needs reports"
        leave = "leave out" if name.startswith("--") else "unset"
        raise JaxsifError(what, options.source(key), f"{leave} {name}")


def find_segment(options: RunOptions, environ: Mapping[str, str]) -> int:
    """Return the number of nodes that stay together; 1 unless the job has --segment."""
    words = [argument.value for argument in options.srun_arguments if argument.flag == "--segment"]
    return read_number([environ.get("SLURM_JOB_SEGMENT_SIZE", ""), *words][-1] or "") or 1


def use_nodes(host: Host, names: Sequence[str]) -> Host:
    """Return a host whose job has only these of its nodes; its `whole` is the full host."""
    whole = host.whole or host
    return whole.take(names)._replace(whole=whole)


# --- The decision


class Judge:
    """Decides after each failure whether to start again."""

    def __init__(self, options: RunOptions, step: int) -> None:
        """`step` is the newest checkpoint's, -1 if there is none."""
        self._options = options
        self._step = step
        self._turns: tuple[int, ...] = ()  # the most iterations of an attempt
        self._marks: set[tuple[str, ...]] = set()  # of failures since the last progress
        self.failures = 0
        self.is_useless = False  # to start again, for anybody

    def refuse(self, cause: Cause, step: int) -> str:
        """Return why not to start again after a failure, or '' to start again. `step` is the
        newest checkpoint's.
        """
        self.failures += 1
        self._note_progress(cause, step)
        if cause.fault == Fault.OUTSIDE:
            return "the run was ended from outside"
        # Later, the same request has worked before.
        if cause.fault == Fault.REQUEST and self.failures == 1:
            self.is_useless = True
            return "the same request would fail again"
        if cause.fault == Fault.HANG and self._options.on_hang != RESTART:
            return "only --on-hang=restart starts a hung program again"
        if cause.mark and cause.mark in self._marks:
            self.is_useless = True
            return "the same failure twice, without progress in between"
        self._marks.add(cause.mark)
        most = self._options.max_restarts or 0
        return "" if self.failures <= most else f"that was attempt {most + 1} of {most + 1}"

    def _note_progress(self, cause: Cause, step: int) -> None:
        has_saved, went_on = step > self._step, cause.turns > self._turns
        self._step = max(self._step, step)
        self._turns = max(self._turns, cause.turns)
        if has_saved if self._options.checkpoints else went_on:
            self._marks.clear()


# --- The loop


def run_again(plan: Plan, record: Record, run_once: Callable[[Plan], int]) -> int:
    """Run a plan, again and again if need be; return the exit status, or raise JaxsifError.

    A signal between two attempts ends the run with 128 + N.
    """
    restarts = _Restarts(plan, record)
    with _raise_signals():
        try:
            with guarded(restarts.job, plan.host.environ, record.notify):
                return restarts.run(run_once)
        except _SignalledError as ended:
            return 128 + ended.number


class _SignalledError(Exception):
    """A signal has ended the run while no task was running."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _raise_signals() -> Iterator[None]:
    """Raise _SignalledError on a signal that would end this process, and ignore signals meant for
    programs only. While tasks run, they receive all these signals instead.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        if number in ENDING:
            raise _SignalledError(number)

    heard = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
    wanted = [number for number in heard if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Restarts:
    """All attempts of a run."""

    def __init__(self, plan: Plan, record: Record) -> None:
        assert plan.host.allocation
        assert plan.host.whole
        assert plan.host.whole.allocation
        self._plan = plan
        self._record = record
        self._environ = plan.host.environ
        self.job = plan.host.whole.allocation
        self._names = expand(self.job.nodelist)
        self._segment = find_segment(plan.options, self._environ)
        self._size = plan.host.allocation.nodes
        self._ledger = find_ledger(self.job.job_id, self._environ)
        self._findings: list[Finding] = []  # that cannot be written
        self._numbers: set[str] = set()  # Slurm's, of the steps so far
        self._saved = find_saved(plan.options.checkpoints)
        self._judge = Judge(plan.options, self._saved.step)

    def run(self, run_once: Callable[[Plan], int]) -> int:
        """Run all attempts; return the exit status, or raise JaxsifError."""
        while True:
            begin, before = time.time(), self._saved
            try:
                return run_once(self._plan)
            except JaxsifError as error:
                self._saved = find_saved(self._plan.options.checkpoints)
                self._take(error)
                self._move(error, FailedAttempt(begin, time.time(), before, self._saved))

    def _take(self, error: JaxsifError) -> None:
        """Record the facts of a failure; raise it if the run does not start again."""
        cause, judge = error.cause, self._judge
        reason = judge.refuse(cause, self._saved.step)
        # A request that never worked says nothing about nodes.
        is_proof = cause.fault != Fault.REQUEST or not reason
        if cause.evidence and is_proof and cause.fault != Fault.OUTSIDE:
            self._suspect(cause.nodes, "run", cause.evidence)
        reason = reason or self._find_obstacle()
        if not reason:
            return
        if judge.is_useless and error.exit_code not in ALL_USELESS:
            error.exit_code = USELESS
        if cause.fault != Fault.OUTSIDE:
            self._record.notify(f"not starting again: {reason}")
        raise error

    def _find_obstacle(self) -> str:
        """Return why no other attempt can follow, whatever has failed, or an empty text."""
        if of_event(self._record.seen.reports, "noticed") and is_preempted(
            name_job(self._environ), self._environ
        ):
            return "the job is about to end"
        return "" if can_read_again() else "the first attempt may have read standard input"

    def _move(self, error: JaxsifError, failed: FailedAttempt) -> None:
        """Wait, and make the plan of the next attempt; raise the failure if there can be none."""
        pause = min(_FIRST_PAUSE * 2 ** (self._judge.failures - 1), _MOST_PAUSE)
        place = f" ({error.where})" if error.where else ""
        notify = self._record.notify
        notify(f"attempt {self._judge.failures} failed: {error.what}{place}")
        notify(f"starting again in {pause:.0f} s")
        try:
            self._wait(pause)
            chosen, left_out = self._choose()
        except HostError as trouble:
            notify(f"not starting again: {trouble.what}")
            raise error from trouble
        if not chosen:
            notify(f"not starting again: {self._size} of {len(self._names)} nodes must be usable")
            error.hint = error.hint or "keep more nodes in reserve with --spare-nodes"
            raise error
        self._record.attempt(self._describe(error, failed, left_out))
        self._numbers.add(find_start(self._record.seen.reports).step)
        overlaps = is_listed(self._numbers, self.job.job_id, self._environ)
        self._plan = move_to_nodes(self._plan, chosen, overlaps)
        notify(f"attempt {self._judge.failures + 1} on {','.join(chosen)}")

    def _describe(
        self, error: JaxsifError, failed: FailedAttempt, left_out: dict[str, str]
    ) -> Attempt:
        """Return the record of a failed attempt, just before the next one."""
        since, turns = failed.last_progress, error.cause.reached
        knows = bool(self._plan.options.checkpoints)  # what the program has saved
        return Attempt(
            end=failed.end,
            status=error.exit_code,
            what=error.what,
            where=error.where,
            left_out=left_out,
            lost=round(time.time() - since, 1) if knows and since else None,
            repeated=failed.count_repeated(turns[0]) if knows and turns else None,
        )

    def _wait(self, seconds: float) -> None:
        """Wait; raise HostError as soon as the job is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(_POLL, max(0.0, deadline - time.monotonic())))
            known = query_job(self.job.job_id, self._environ)
            if known and known.is_over:
                raise job_over(self.job.job_id)

    def _choose(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the nodes of the next attempt, () if there are too few, and why others are not
        among them.
        """
        suspects = find_suspects([*read_findings(self._ledger), *self._findings], time.time())
        problems: dict[str, str] = {}
        chosen: tuple[str, ...] = ()
        for is_last in (False, True):  # suspect nodes only if there are too few others
            asked = [name for name in self._names if (name in suspects) is is_last]
            if asked and not chosen:
                problems.update(self._check(asked))
                unusable = [name for name in self._names if problems.get(name, NO_ANSWER)]
                chosen = choose_nodes(self._names, unusable, suspects, self._size, self._segment)
        return chosen, self._list_left_out({**problems, **suspects}, chosen)

    def _list_left_out(self, reasons: Mapping[str, str], chosen: Sequence[str]) -> dict[str, str]:
        """Return the nodes that are left out for a reason, not as spares, each with the reason,
        and show them.
        """
        unused = [name for name in self._names if name not in chosen]
        left_out = {name: reasons[name] for name in unused if reasons.get(name)}
        for node, why in left_out.items():
            self._record.notify(printable(f"{node} is left out: {why}"))
        return left_out

    def _check(self, names: Sequence[str]) -> dict[str, str]:
        """Check nodes, and suspect those that do not answer while others do."""
        gpus = bool(self._plan.layout.gpus_per_node)
        steps = self._record.steps
        problems = check_nodes(self.job.job_id, names, steps, gpus, self._environ)
        silent = [node for node, problem in problems.items() if problem == NO_ANSWER]
        if "" in problems.values():
            self._suspect(silent, "check", NO_ANSWER)
        return problems

    def _suspect(self, nodes: Sequence[str], source: str, evidence: str) -> None:
        """Record evidence against nodes."""
        notify = self._record.notify
        self._findings += suspect(self._ledger, nodes, source, evidence, notify)


def move_to_nodes(plan: Plan, names: Sequence[str], overlaps: bool) -> Plan:
    """Return the plan of the same step on these nodes of the job, on another port; `overlaps` says
    whether the previous step is still there.
    """
    host, options = use_nodes(plan.host, names), plan.options
    assert host.allocation
    host = host._replace(allocation=host.allocation._replace(overlaps=overlaps))
    coordinator = draw_coordinator(options, plan.launcher)
    nonces = (draw_name(), draw_name()) if plan.nonces else ()
    parts = (options, plan.launcher, host, plan.container, coordinator)
    return build(*parts, nonces, plan.credentials)
