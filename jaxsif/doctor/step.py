"""Collect all facts: start one step, whose tasks report their nodes and themselves."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End
from jaxsif.diagnose.reports import ReportFilter
from jaxsif.doctor.checks import judge
from jaxsif.doctor.facts import DoctorFacts, FactsReader, LoginFacts
from jaxsif.doctor.render import render_line
from jaxsif.doctor.result import FAILURE, NODE, WARNING, CheckResult, merge
from jaxsif.errors import HostError, JaxsifError, Notify
from jaxsif.history.ledger import find_ledger, suspect
from jaxsif.images.labels import read_labels
from jaxsif.job.nodelist import expand
from jaxsif.launch import pipeline
from jaxsif.launch.children import Child, Hooks, run
from jaxsif.launch.pipeline import Prepared
from jaxsif.plan.host import Host
from jaxsif.plan.launcher import SRUN
from jaxsif.plan.plan import Plan
from jaxsif.runtime import TASK_FOLDER
from jaxsif.screen import note
from jaxsif.settings.options import OFF
from jaxsif.text import enclose, shorten
from jaxsif.watch.squeue import ask_slurm

INIT_TIMEOUT = 30  # seconds in which JAX's processes must find each other, unless the user says
_SILENCE = 8  # seconds until the user hears that nothing has begun
# Runs jaxsif/task/examine.py: the Python of a virtual environment does not load that package.
_PROGRAM = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); import task; sys.path.remove(sys.argv[1]);"
    " runpy.run_module('task.examine', run_name='__main__')"
)


def make_plan(prepared: Prepared, quick: bool, credentials: str = "") -> Plan:
    """Return the plan of the step: the user's, with a program that reports."""
    container, options = prepared.container, prepared.settings.options
    logs = os.path.dirname(options.log_dir or "")
    folders = [options.checkpoints, container.cache if container else "", logs]
    request = {
        "image": container.path if container else "",
        "port": prepared.coordinator.port,
        "address": options.node_address or "",
        "folders": list(map(os.path.abspath, filter(None, folders))),
        "checks": [setting.value for setting in prepared.settings.config.checks],
    }
    host = prepared.host
    script = (host.python, "-IS", f"{host.package}/node/examine.py", json.dumps(request), "--")
    python = find_python(options.command) or "python3"
    folder = os.path.dirname(TASK_FOLDER) if container else host.package
    if container:  # the folder of logs is made after the check
        binds = tuple(bind for bind in container.binds if bind != logs)
        prepared = prepared._replace(container=container._replace(binds=binds))
    prepared = prepared.off_terminal().with_options(
        command=(python, "-c", _PROGRAM, folder, *([] if quick else ["--sum"])),
        before=script,
        label=False,
        log_dir=None,
        hang_timeout=OFF,
        check_programs=OFF,
        job_name="doctor",
    )
    return pipeline.make_plan(prepared, credentials=credentials)


def find_python(command: Sequence[str]) -> str:
    """Return the Python that runs a program, such as that of a virtual environment; '' if it is not
    known, as for a script.
    """
    name = os.path.basename(command[0])
    return command[0] if re.fullmatch(r"python[\d.]*", name) else ""


def collect(plan: Plan) -> DoctorFacts:
    """Start the step, and return all facts; raise JaxsifError if no task can report."""
    reader, seen = FactsReader(), ReportFilter(plan.nonces, plan.layout.ntasks)
    host = read_login_facts(plan)
    children = plan.launcher.children(plan, plan.started_environ, seen, reader.reader)
    where = "squeue --me --steps" if plan.host.allocation else "squeue --me"
    patience = find_patience(plan.options.init_timeout, plan.layout.nodes)
    watch = _Watch(reader, patience, where)
    ended = run([_silence(child, watch) for child in children], Hooks(poll=watch.poll))
    collected = reader.collect(host, seen.reports)
    if ended.interrupted:
        raise SystemExit(128 + ended.interrupted)
    end = End(ended.status, plan.launcher, seen.tasks, killed=ended.killed, options=plan.options)
    failure = find_failure(end, seen.reports, seen.errors, seen.barriers)
    if not collected.nodes:
        raise failure or HostError("no node has answered", plan.launcher.name, "try again")
    if failure is None or watch.has_stalled:
        return collected._replace(succeeded=not watch.has_stalled)
    return collected._replace(broken=failure.what, remedy=failure.hint)


def _silence(child: Child, watch: _Watch) -> Child:
    """Return the child without input, and with its standard error read but not shown."""
    return child._replace(stdin=False, stderr=lambda data: watch.hear(child.stderr(data)))


def find_patience(init_timeout: int | None, nodes: int | None) -> float:
    """Return the seconds in which something new must come, or the step is ended.

    JAX's processes find each other within --init-timeout. Others start containers, import JAX or
    compile meanwhile, which takes longer where a thousand nodes read the same files.
    """
    return 15 + (init_timeout or INIT_TIMEOUT) + (nodes or 1) / 20


class _Watch:
    """Ends the step when nothing new comes any more."""

    def __init__(self, reader: FactsReader, patience: float, where: str) -> None:
        self.has_stalled = False
        self._reader = reader
        self._patience = patience
        self._where = where  # to look for what Slurm waits for
        self._said = ""  # by srun, last
        self._known, self._since = 0, math.inf
        self._note_at = time.monotonic() + _SILENCE

    def hear(self, data: bytes) -> bytes:
        """Keep srun's last line; show nothing."""
        found = re.findall(rb"(?m)^srun: (.+)", data)
        self._said = shorten(found[-1].decode(errors="replace")) if found else self._said
        return b""

    def poll(self) -> bool:
        """Return whether the step must end: it stands still, once it has begun."""
        now = time.monotonic()
        if self._reader.taken != self._known:
            self._known, self._since, self._note_at = self._reader.taken, now, math.inf
        if now > self._note_at:
            self._note_at = math.inf
            why = enclose(" (", self._said, ")")
            note(f"no node has answered yet{why}; {self._where} shows what Slurm is waiting for")
        self.has_stalled = now > self._since + self._patience
        return self.has_stalled


def read_login_facts(plan: Plan) -> LoginFacts:
    """Return the facts of this host and of the request."""
    environ = plan.host.environ
    partition = environ.get("SLURM_JOB_PARTITION") or plan.srun_option("--partition")
    return LoginFacts(
        labels=read_labels(plan.container.image) if plan.container else {},
        slurm=read_slurm(environ, partition) if plan.launcher.name == SRUN else {},
        folder="" if plan.srun_option("--chdir") else os.getcwd(),
        quick="--sum" not in plan.options.command,
        cache=_name_folder(plan.container.cache if plan.container else ""),
        in_container=bool(plan.container),
        sources=_list_sources(plan),
    )


def _list_sources(plan: Plan) -> dict[str, str]:
    """Return the options and settings that name binds and folders, by their paths."""
    options, binds = plan.options, plan.container.sources if plan.container else {}
    folders = {shorten(path): source for path, source in binds.items()}
    return {**binds, **folders, _name_folder(options.checkpoints): options.source("checkpoints")}


def _name_folder(path: str | None) -> str:
    """Return a folder as the nodes name it; '' if there is none."""
    return shorten(os.path.abspath(path)) if path else ""


def read_slurm(environ: Mapping[str, str], partition: str) -> dict[str, str]:
    """Return Slurm's configuration, {} if scontrol does not show it. Of preemption, it is that of
    this partition, '' for the default one.
    """
    found = dict(re.findall(r"(?m)^(\w+) *= (.*?) *$", _ask_scontrol(environ, "show", "config")))
    if found.get("PreemptMode", "OFF") == "OFF":
        return found
    own = f"PartitionName={partition} " if partition else " Default=YES "
    for line in _ask_scontrol(environ, "show", "partition", "--oneliner").splitlines():
        if own in line:
            found.update(re.findall(r"\b(PreemptMode|GraceTime)=(\S*)", line))
    return found


def _ask_scontrol(environ: Mapping[str, str], *words: str) -> str:
    """Return the answer of scontrol, '' for none."""
    done = ask_slurm(("scontrol", *words), environ)
    return done.stdout if done else ""


def check_before(prepared: Prepared, notify: Notify) -> Prepared:
    """Check the nodes before a run; return the request, on other nodes of the job if spare ones
    replace those that failed. Raise HostError for any other failure, and JaxsifError outside of a
    job.
    """
    if prepared.launcher.spans_nodes and prepared.host.allocation is None:
        raise JaxsifError(
            "there are no nodes yet to check", "--check", "salloc or sbatch, then jaxsif run"
        )
    is_known = bool(find_python(prepared.settings.options.command))
    while True:
        results = [
            result
            for result in examine(make_plan(prepared, True))
            # A script may choose another Python than the one that was examined.
            if is_known or (result.check, result.state) != ("python", FAILURE)
        ]
        for result in results:
            if result.state in (FAILURE, WARNING):
                notify(render_line(result))
        failures = [result for result in results if result.state == FAILURE]
        if not failures:
            return prepared
        others = _replace_nodes(prepared, failures, notify)
        if others is None:
            what = f"a check has failed: {failures[0].evidence}"
            raise HostError(what, "--check", failures[0].remedy)
        prepared = prepared._replace(host=others)


def _replace_nodes(
    prepared: Prepared, failures: Sequence[CheckResult], notify: Notify
) -> Host | None:
    """Return the host with other nodes of the job, or None if spare ones cannot help."""
    whole = prepared.host.whole
    if whole is None or any(failure.whose != NODE for failure in failures):
        return None
    from jaxsif.launch.restart import set_spares_aside  # only runs with --max-restarts have spares

    host = set_spares_aside(prepared.settings, prepared.launcher, whole)
    job: Any = host.allocation
    failed = dict.fromkeys(node for failure in failures for node in failure.nodes)
    if not failed.keys().isdisjoint(expand(job.nodelist)):
        return None
    for node in failed:
        notify(f"{node} is left out: a check has failed")
    return host


def examine(plan: Plan) -> list[CheckResult]:
    """Collect the facts, and return the results of all checks, the worst first; note failures of
    nodes in the ledger of the job.
    """
    results, job = merge(judge(collect(plan))), plan.host.allocation
    for result in results:
        if job and (result.state, result.whose) == (FAILURE, NODE):
            ledger = find_ledger(job.job_id, plan.host.environ)
            suspect(ledger, result.nodes, "check", f"jaxsif doctor: {result.evidence}", note)
    return results
