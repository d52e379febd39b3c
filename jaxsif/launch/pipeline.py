"""The stages of a run, for all commands that start programs; each is one function.

settings -> probe -> container -> plan -> run -> diagnose
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxsif.diagnose.reports import (
    ALIKE,
    LIVE,
    OUTSIDE,
    ProgramDifference,
    Report,
    ReportFilter,
    of_event,
)
from jaxsif.errors import PIPE_CLOSED, Fault, HostError, JaxsifError, Notify, PortTakenError
from jaxsif.job.allocation import Allocation
from jaxsif.launch.children import Child, Ended, Hooks, Reader, inherit, run
from jaxsif.launch.container import find_container
from jaxsif.launch.coordinator import draw_coordinator, draw_name, plans_on_other_ports
from jaxsif.launch.probe import choose_launcher, probe_host
from jaxsif.launch.program import NO_SCRIPT, NOT_FOUND, check_program, find_script, suggest
from jaxsif.layout.planner import resolve_totals
from jaxsif.plan.container import RUNSCRIPT_HINT, Container
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN, Launcher
from jaxsif.plan.plan import Coordinator, Plan, build
from jaxsif.runtime import no_runtime
from jaxsif.settings.config import for_staff, tell_staff
from jaxsif.settings.options import OF_RESTARTS, RESTART
from jaxsif.settings.read import Settings, read_settings
from jaxsif.text import enclose, printable

if TYPE_CHECKING:
    from jaxsif.diagnose.facts import End, Hang
    from jaxsif.history.recorder import Recorder
    from jaxsif.history.run import Attempt
    from jaxsif.watch.rule import Verdict
    from jaxsif.watch.snapshot import Snapshot
    from jaxsif.watch.watcher import Watcher

_DEV_FULL = os.makedev(1, 7)  # see full(4)
_SHORT = 1.0  # seconds; a program that uses JAX takes longer
# Seconds for the tasks to end once something outside ends the run. Slurm may kill this launcher
# after KillWait, usually 30 s.
_ENDS_WITHIN = 10.0


class Prepared(NamedTuple):
    """The user's request and the state of this host: everything that a plan is made of."""

    settings: Settings
    launcher: Launcher
    host: Host
    coordinator: Coordinator
    container: Container | None

    def require_container(self) -> Container:
        """Return the container; raise HostError on a machine without a runtime."""
        if self.container is None:
            raise no_runtime()
        return self.container

    def off_terminal(self) -> Prepared:
        """Return a copy for a script or file, which will not run on our terminal."""
        return self._replace(host=self.host._replace(window=()))

    def with_options(self, **changes: Any) -> Prepared:
        """Return a copy with these attributes of RunOptions changed."""
        options = self.settings.options._replace(**changes)
        return self._replace(settings=self.settings._replace(options=options))


def prepare(
    cli_values: Mapping[str, Any],
    command: Sequence[str],
    allocation: Allocation | None,
    environ: Mapping[str, str],
    notify: Notify,
    fixed: Collection[str] = (),
) -> Prepared:
    """Do the first three stages: settings, probe, container; raise JaxsifError.

    `cli_values` has the values on the command line, by attribute. The command ignores options whose
    keys are in `fixed`, even if files or variables set them.
    """
    settings = read_settings(cli_values, command, environ, allocation is not None, fixed)
    for line in settings.config.notes:
        notify(printable(line))
    if "env" in settings.values:
        from jaxsif.settings.secret import describe_secrets  # its patterns take a millisecond

        for line in describe_secrets(settings.values["env"]):
            notify(line)
    host = probe_host(allocation, environ)
    launcher = choose_launcher(settings.options.launcher, host.srun, allocation)
    host = launcher.probe(settings.options, host)
    if not settings.values.keys().isdisjoint(OF_RESTARTS) or settings.options.on_hang == RESTART:
        from jaxsif.launch.restart import set_spares_aside

        host = set_spares_aside(settings, launcher, host)
    if launcher.spans_nodes and host.runtime is None:
        raise no_runtime()
    coordinator = draw_coordinator(settings.options, launcher)
    options = settings.options
    if options.node_range or options.gpus:
        options = resolve_totals(options, _count_nodes(launcher, host))
        settings = settings._replace(options=options)
    if options.log_dir:
        from jaxsif.launch.logs import name_files

        options = options._replace(log_dir=name_files(options.log_dir, options.source("log-dir")))
        settings = settings._replace(options=options)
    if "--chdir" not in [argument.flag for argument in (*options.passed, *options.srun_args)]:
        check_program(options.command)
    container = find_container(settings, launcher, host, notify)
    return Prepared(settings, launcher, host, coordinator, container)


def _count_nodes(launcher: Launcher, host: Host) -> int | None:
    """Return the number of available nodes, or None if Slurm has yet to create a job."""
    if not launcher.spans_nodes:
        return 1
    job = host.allocation
    return len(host.host_list.slots) or (job.nodes if job else None)


def stage_image(prepared: Prepared, notify: Notify, dry_run: bool = False) -> Prepared:
    """Copy the image to the nodes' own disks, if requested; raise JaxsifError if that fails."""
    settings, container = prepared.settings, prepared.container
    if not settings.values["stage"].value:
        return prepared
    if prepared.launcher.name != SRUN or container is None:
        notify("warning: --stage has no effect without Slurm and an image")
        return prepared
    from jaxsif.launch.staging import stage_container

    container = stage_container(settings, container, prepared.host, notify, dry_run)
    return prepared._replace(container=container)


def make_plan(prepared: Prepared, has_reader: bool = True, credentials: str = "") -> Plan:
    """Do the fourth stage; raise JaxsifError for a request that cannot work.

    With a reader, tasks report how they end. `credentials` are the coordinator's, or ''.
    """
    settings, launcher, host, coordinator, container = prepared
    nonces = (draw_name(), draw_name()) if has_reader else ()
    return build(settings.options, launcher, host, container, coordinator, nonces, credentials)


def run_plan(plan: Plan, notify: Notify, verbose: bool = False, stdout: Reader = inherit) -> int:
    """Do the last two stages: run and diagnose. Return the exit status, or raise JaxsifError.

    Both are recorded in the history of runs.
    """
    if plan.options.log_dir:
        from jaxsif.launch.logs import reserve_files

        reserve_files(plan.options.log_dir, plan.options.source("log-dir"))
    history = _History(notify)
    requeue = None
    if plan.takes_notices and plan.options.max_requeues and plan.host.allocation:
        from jaxsif.launch.requeue import Requeue

        requeue = Requeue(plan.options, plan.host.environ)

    def run_once(plan: Plan) -> int:
        return _run_on_free_port(plan, history, verbose, stdout)

    try:
        if plan.host.whole:
            from jaxsif.launch.restart import run_again

            status = run_again(plan, history, run_once)
        else:
            status = run_once(plan)
    except JaxsifError as error:
        history.explain(error)
        history.end(error.exit_code, error)
        if requeue and error.cause.fault == Fault.NODE:
            requeue.requeue(error.what, notify)
        raise
    except BrokenPipeError:
        history.end(PIPE_CLOSED)
        raise
    history.end(status)
    if requeue and not status and of_event(history.seen.reports, "noticed"):
        requeue.requeue("the program has saved", notify)
    return status


class _History:
    """Records this run in the history of runs, but only once the tasks have started, since the
    necessary imports take milliseconds.
    """

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._recorder: Recorder | None = None  # until the tasks start
        self.steps: list[str] = []  # the random names of all attempts
        self.seen = ReportFilter()  # of the last attempt
        self.difference = ALIKE  # between the tasks' programs

    def begin(self, plan: Plan, seen: ReportFilter) -> None:
        """Record that the tasks have started and report to `seen`, unless no history is wanted."""
        self.steps.append(plan.coordinator.step)
        self.seen = seen
        if not plan.options.history:
            return
        from jaxsif.history.recorder import Recorder

        if self._recorder:
            self._recorder.start_again(seen)
        else:
            self._recorder = Recorder(plan, seen, self._notify)

    def notify(self, line: str) -> None:
        """Show the user a line, and record it."""
        self._notify(line)
        if self._recorder:
            self._recorder.note(line)

    def listen(self, child: Child) -> Child:
        """Return the child with its visible standard error recorded."""
        return child._replace(stderr=lambda data: self._keep(child.stderr(data)))

    def _keep(self, shown: bytes) -> bytes:
        if self._recorder:
            self._recorder.write(shown)
        return shown

    def alarm(self, verdict: Verdict, picture: Snapshot) -> None:
        """Record a report of waiting tasks."""
        if self._recorder:
            self._recorder.alarm(verdict, picture)

    def attempt(self, attempt: Attempt) -> None:
        """Record that an attempt failed, and that another one follows."""
        if self._recorder:
            self._recorder.attempt(attempt)

    def explain(self, error: JaxsifError) -> None:
        """Show a known cause in the output that the run's error does not name; give an error that
        quotes one its remedy.
        """
        if self._recorder:
            from jaxsif.diagnose.explain import find_unnamed_cause

            line, remedy = find_unnamed_cause(self._recorder.output, error)
            error.hint = error.hint or remedy
            if line:
                self.notify(line)

    def foresee(
        self, status: int, error: JaxsifError | None, difference: ProgramDifference
    ) -> None:
        """Record how the run will have ended if this process is killed."""
        if self._recorder:
            self._recorder.foresee(status, error, difference.text)

    def end(self, status: int, error: JaxsifError | None = None) -> None:
        """Record how the run ended."""
        if self._recorder:
            self._recorder.end(status, error, self.difference.text)


def _run_on_free_port(plan: Plan, history: _History, verbose: bool, stdout: Reader) -> int:
    """Run the plan as `run_plan` does.

    If the port turns out to be taken on the first task's node, start again on another port. The
    first task could not tell the others of another port, and asking the node before each start
    would take longer than the start. The first task refuses before its program's first line; the
    programs of other tasks may have begun by then.
    """
    others = plans_on_other_ports(plan)
    while True:
        try:
            return diagnose(plan, run_step(plan, stdout, history), history.notify, verbose)
        except PortTakenError as error:
            following = next(others, None) if can_read_again() else None
            if following is None:
                raise
            history.notify(f"{error.what} ({error.where}): starting again with another")
            plan = following


def can_read_again() -> bool:
    """Return whether standard input is a terminal or /dev/null: the first attempt may have read any
    other input to its end.
    """
    return stat.S_ISCHR(os.fstat(0).st_mode)


class Outcome(NamedTuple):
    """How a step ended, with the reports of its tasks and the launcher."""

    ended: Ended
    seen: ReportFilter
    rewritten: str  # the image's file, if it was written to during the run; else ''
    failure: JaxsifError | None  # why it was ended from here, or None
    difference: ProgramDifference  # between the tasks' programs
    hang: Hang | None  # that was not over at the end


def _end_quietly(child: Child, seen: ReportFilter) -> Child:
    """Return the child; hide its standard error once a signal to this process ends it."""

    def feed(data: bytes) -> bytes:
        shown = child.stderr(data)
        return b"" if of_event(seen.reports, "interrupted") else shown

    return child._replace(stderr=feed)


def run_step(plan: Plan, stdout: Reader, history: _History) -> Outcome:
    """Start the step and wait for its end; raise HostError if it cannot start."""
    tasks, label, whole = plan.layout.ntasks, plan.options.label, plan.shows_whole_lines
    seen = ReportFilter(plan.nonces, tasks, label, whole=whole)
    image = plan.container.path if plan.container else ""
    before = _state_of(image)
    children = plan.launcher.children(plan, plan.started_environ, seen, stdout)
    if plan.options.log_dir and plan.is_live:
        from jaxsif.launch.logs import copy_output

        children = [copy_output(child, plan.options.log_dir, history.notify) for child in children]
    heard = tuple(history.listen(child) for child in children)
    if plan.options.ends_quietly:
        heard = tuple(_end_quietly(child, seen) for child in heard)
    watch = _Monitor(plan, seen, history)
    try:
        ended = run(heard, Hooks(watch.begin, seen.interrupt, seen.announce, watch.poll))
    finally:
        watch.end()
    history.difference = watch.difference if watch.difference.text else history.difference
    if _is_output_full():  # about which srun is silent
        what = "the disk that standard output is written to is full"
        history.notify(f"warning: {what}, and the end of the output may be lost")
    after = _state_of(image)
    # If a new file takes that name, running programs keep the old one.
    is_same_file = before[:1] == after[:1]
    rewritten = image if is_same_file and before != after else ""
    return Outcome(ended, seen, rewritten, watch.failure, watch.difference, watch.hang)


class _Monitor:
    """Watches the tasks; the imports for this, which take milliseconds, happen while the tasks
    start.
    """

    def __init__(self, plan: Plan, seen: ReportFilter, history: _History) -> None:
        self._plan = plan
        self._seen = seen
        self._history = history
        self._begun = math.inf  # when the tasks were started, by the monotonic clock
        self._early: list[Report] = []  # the tasks' reports before anybody watches
        self._ending = math.inf  # when something outside began to end the run; likewise
        self._is_ending_told = False
        self._watchers: list[Watcher] = []

    def begin(self) -> None:
        """Import the diagnosis of failures, and record that the tasks have been started."""
        import jaxsif.diagnose.culprit  # noqa: F401

        self._begun = time.monotonic()
        self._history.begin(self._plan, self._seen)
        self._seen.listen(self._early.append)

    def _watch(self) -> None:
        """Start watching the tasks; not earlier, since a short program would have to wait for these
        imports. With those for the run's end, since somebody may remove this launcher until then.
        """
        import jaxsif.diagnose.explain
        import jaxsif.diagnose.starts
        import jaxsif.layers.store  # noqa: F401
        from jaxsif.watch.watcher import watch

        self._begun = math.inf
        self._watchers = watch(self._plan, self._seen, self._history.notify, self._history.alarm)
        self._seen.listen(self._hear)
        for report in self._early:
            self._hear(report)

    def _hear(self, report: Report) -> None:
        if report.event in OUTSIDE:
            self._ending = min(self._ending, time.monotonic())
        for watcher in self._watchers:
            watcher.hear(report)

    def poll(self) -> bool:
        """Do what is due; return whether the run must end."""
        if time.monotonic() - self._begun > _SHORT:
            self._watch()
        if time.monotonic() > self._ending + _ENDS_WITHIN and not self._is_ending_told:
            self._is_ending_told = True
            self._tell_unended()
        for watcher in list(self._watchers):
            try:
                watcher.poll()
            except (OSError, JaxsifError) as error:  # the run continues without it
                self._watchers.remove(watcher)
                self._history.notify(printable(f"warning: {watcher.purpose} stopped: {error}"))
        return any(watcher.must_end for watcher in self._watchers)

    def _tell_unended(self) -> None:
        """Show which tasks have not ended, and record how the run will have ended if Slurm kills
        this process.
        """
        from jaxsif.diagnose.facts import TERMINATED, render_unended

        reports = self._seen.reports
        signals = (report.status for report in of_event(reports, "interrupted"))
        number = next(signals, None)
        status, error = 128 + number if number else TERMINATED, None
        what = "a signal ended the run" if number else ""
        ended = Ended(status, number)
        outcome = Outcome(ended, self._seen, "", self.failure, self.difference, self.hang)
        try:
            diagnose(self._plan, outcome, lambda _: None)
        except JaxsifError as found:
            if found.cause.fault in (Fault.OUTSIDE, Fault.NODE):
                what, error = found.what, found
        # Otherwise a program has printed a message of srun, or a task has failed.
        if what:
            unended = render_unended(reports, self._seen.tasks)
            self._history.notify(printable(f"{what}; {unended} after {_ENDS_WITHIN:.0f} s"))
            self._history.foresee(status, error, self.difference)

    def end(self) -> None:
        """Close the watchers of the run."""
        if not self._watchers and any(report.event in LIVE for report in self._early):
            self._watch()
        for watcher in self._watchers:
            watcher.close()

    @property
    def failure(self) -> JaxsifError | None:
        """Why the run was ended from here, or None."""
        return next(filter(None, (watcher.failure for watcher in self._watchers)), None)

    @property
    def difference(self) -> ProgramDifference:
        """The last difference found between the tasks' programs."""
        found = (watcher.difference for watcher in self._watchers)
        return next((one for one in found if one.text), ALIKE)

    @property
    def hang(self) -> Hang | None:
        """The wait that was reported last, if it is not over."""
        return next(filter(None, (watcher.hang for watcher in self._watchers)), None)


def _state_of(path: str) -> tuple[int, ...]:
    """Return the inode number of a file, and the values that change when it is written to; () if it
    is gone: programs that have it open continue.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def diagnose(plan: Plan, outcome: Outcome, notify: Notify, verbose: bool = False) -> int:
    """Raise JaxsifError with the first cause of a failure; else return 0, or 128 + N for a signal.

    `notify` is passed the places of tasks that a signal to us has ended; with `verbose`, also the
    tasks' use of the compile cache and the names that their JAX lacks.
    """
    from jaxsif.diagnose import facts
    from jaxsif.diagnose.culprit import find_failure
    from jaxsif.diagnose.starts import name_unstarted

    (status, interrupted, killed, unwritten), seen, rewritten, failure, difference, hang = outcome
    reports = seen.reports
    end = facts.End(
        status,
        plan.launcher,
        seen.tasks,
        interrupted,
        killed,
        lambda: name_unstarted(plan, reports),
        rewritten,
        plan.container,
        plan.options,
        difference,
        hang,
    )
    failure = failure or find_failure(end, reports, seen.errors, seen.barriers)
    failure = failure or _find_unstarted(plan, end, reports)
    remarks = [facts.render_cache(reports), facts.render_missing(reports)] if verbose else []
    for descriptor, reason in unwritten.items():
        stream = "output" if descriptor == 1 else "error"
        remarks.append(f"warning: not all of standard {stream} could be written: {reason}")
    if not failure:
        remarks += facts.render_remarks(end, reports, seen.errors)
    elif "alone" in [report.event for report in reports]:
        remarks.append(facts.render_alone(reports, has_failed=True))
    for line in filter(None, remarks):
        notify(line)
    if failure:
        failure.hint = _find_hint(plan, failure, seen)
        if plan.host.whole:
            from jaxsif.diagnose.cause import complete_cause

            failure.cause = complete_cause(failure.cause, end, seen)
        raise failure
    return 128 + interrupted if interrupted else 0


def _find_unstarted(plan: Plan, end: End, reports: Sequence[Report]) -> HostError | None:
    """Return the error of a step that has succeeded without starting the program."""
    if reports or end.interrupted or plan.redirected or not (plan.nonces and plan.container):
        return None
    what = f"no task started (exit status {end.status})"
    return HostError(what, plan.container.source, RUNSCRIPT_HINT)


def _is_output_full() -> bool:
    """Return whether standard output is a file on a disk without room for one more block, or
    /dev/full.
    """
    try:
        found = os.fstat(1)
        if stat.S_ISCHR(found.st_mode):
            return found.st_rdev == _DEV_FULL
        return stat.S_ISREG(found.st_mode) and os.fstatvfs(1).f_bavail == 0
    except OSError:
        return False  # closed, or its server does not answer


def _find_hint(plan: Plan, failure: JaxsifError, seen: ReportFilter) -> str:
    """Return the remedy for a failure, or '' if none is known."""
    if not seen.reports and plan.redirected:
        return _suggest_file(failure.what)
    if "FileNotFoundError: " in failure.what:
        return _suggest_bind(plan, failure)
    missing = re.search(r"No module named '?(\w+)", failure.what)
    if missing and plan.container:
        return _suggest_layer(plan, plan.container, missing[1], failure.hint)
    if "JAX_PLATFORMS=" in failure.what:
        return _blame_platforms(plan, failure.hint)
    if failure.hint or failure.where:
        return failure.hint
    blame = {NOT_FOUND: _blame_path, NO_SCRIPT: _blame_bind}.get(failure.exit_code)
    return (blame(plan) if blame else "") or suggest(plan.options.command, failure.exit_code)


def _blame_path(plan: Plan) -> str:
    """Return the remedy for a program that is not found because PATH is replaced, or ''."""
    if "PATH" not in dict(plan.options.env):
        return ""
    given = plan.options.source("env")
    return f"PATH in {given} replaces the image's own; to add to that, --env PREPEND_PATH=DIR"


def _blame_platforms(plan: Plan, hint: str) -> str:
    """Return a remedy for a platform that JAX lacks, with the setting that names it, if any."""
    options = plan.options
    if "JAX_PLATFORMS" not in dict(options.env) or options.is_on_command_line("env"):
        return hint
    source = options.source("env")
    return tell_staff(f"{enclose('', hint, '; ')}{source} sets JAX_PLATFORMS", source)


def _suggest_layer(plan: Plan, container: Container, module: str, hint: str) -> str:
    """Return the layer that has a missing module, unless `hint` names a folder; else the hint."""
    from jaxsif.layers.store import suggest_layer

    if hint.startswith("pass --env PYTHONPATH=/"):
        return hint
    package = re.search(r"layer create NAME (\S+)", hint)
    names = [module, *(package.groups() if package else ())]
    return suggest_layer(names, container.image, container.layers, plan.host.environ) or hint


def _blame_bind(plan: Plan) -> str:
    """Return the remedy for a script that a bind hides, or ''."""
    container, script = plan.container, os.path.abspath(find_script(plan.options.command))
    if not container or not os.path.isfile(script):
        return ""
    remedy = ""
    for bind in ",".join(container.binds).split(","):
        source, place = (bind.split(":") * 2)[:2]
        if script.startswith(f"{place.rstrip('/')}/"):  # the last one decides
            setting = container.sources.get(source.rstrip("/"), "")
            hides = f"leave out the bind {bind}{enclose(' of ', setting)}, which hides {script}"
            remedy = "" if source == place else for_staff(hides, setting)
    return remedy


def _suggest_file(text: str) -> str:
    """Suggest a remedy where srun writes the tasks' output into files."""
    if "Could not open std" in text:
        return "name a file in a folder that is there and that you may write"
    return "see the files that the tasks wrote: --output, --error or srun's variables name them"


def _suggest_bind(plan: Plan, failure: JaxsifError) -> str:
    """Suggest a bind for a path that this host has, and that the program did not find, unless the
    image has its own, or containers usually show the host's. Prefer the failure's own remedy.
    """
    from jaxsif.container.policy import is_of_system

    environ = plan.host.environ
    found = re.search(r"No such file or directory: '(/[^']+)'(?: \(|$)", failure.what)
    if failure.hint or not (found and plan.container and os.path.lexists(found[1])):
        return failure.hint
    usual = ["/tmp", "/var/tmp", environ.get("HOME") or "/tmp"]
    usual += [(bind.split(":") * 2)[1] for bind in plan.options.binds]  # SRC, or DEST of SRC:DEST
    with contextlib.suppress(OSError):  # the program may have removed it
        usual.append(os.getcwd())
    is_usual = f"{found[1]}/".startswith(tuple(f"{folder}/" for folder in usual))
    if is_usual or is_of_system(found[1], environ):
        return ""
    top = found[1].split("/")[1]
    return f"this host has it, but perhaps not the container: --bind /{top}"
