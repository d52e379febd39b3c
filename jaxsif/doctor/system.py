"""Checks of Slurm, of each node's system, and of each task's surroundings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from jaxsif.diagnose.facts import match_symptoms
from jaxsif.diagnose.reports import REFUSALS, Report
from jaxsif.diagnose.symptoms import NO_BIND, NO_IMAGE, NOT_EXECUTED
from jaxsif.doctor.facts import UNKNOWN, DoctorFacts, EndFacts, TaskFacts
from jaxsif.doctor.result import (
    NODE,
    OK,
    SITE,
    USER,
    CheckResult,
    Results,
    failure,
    find_odd,
    warning,
)
from jaxsif.errors import ALL_USELESS
from jaxsif.job.nodelist import expand
from jaxsif.plan.container import RUNSCRIPT_HINT
from jaxsif.text import count_of, enclose, name_tasks

# Bytes of a folder in which multiprocessing makes sockets, see unix(7).
_LONGEST_FOLDER = 107 - len("/pymp-12345678/listener-12345678")
# MiB that a process with JAX takes, on GPUs and without; a sum on CPUs took 195.
_START, _START_ON_CPUS = 2048, 256
_LEFT = 60.0  # seconds of the job
_PINNED = 1 << 26  # bytes; RDMA locks memory
_FILES = 1024  # open files
_ROOM = {"/dev/shm": 256, "/tmp": 64}  # MiB
_LEAST_ROOM = 16  # MiB in other folders
_FEWEST_FILES = 100
_ALLOW = "have the site allow user namespaces and /dev/fuse, or install the runtime setuid"
_BY_HAND = "run `jaxsif shell` there, with --nodelist"
# Variables, and values with which they bring the host's libraries into the container.
_FOREIGN = re.compile(r"LD_PRELOAD=|PYTHONHOME=|[A-Z_]+=.*((site|dist)-packages|/cuda)")


def check_answers(seen: DoctorFacts) -> Results:
    """Check that each node of the step has answered, and a task there. If the step has ended too
    early, such as by scancel or with another node, a silent one may be good.
    """
    known = next((node.nodelist for node in seen.nodes.values() if node.nodelist), "")
    lost = [name for name in expand(known) if name not in seen.nodes]
    if lost and seen.broken:
        remedy = seen.remedy or "try again"
        yield failure(f"no answer before the step ended: {seen.broken}", remedy, SITE, lost)
    elif lost:
        yield failure("no answer", "leave the node out with --exclude", NODE, lost)
    silent = _find_silent(seen)
    if silent:
        is_everywhere = not lost and len(silent) == len(seen.nodes)
        yield _judge_silent(seen, silent, is_everywhere)


def _judge_silent(seen: DoctorFacts, silent: list[str], is_everywhere: bool) -> CheckResult:
    if is_everywhere and seen.succeeded:
        return failure("no task has started", RUNSCRIPT_HINT, USER, silent)
    return failure(seen.broken or "no task has started", seen.remedy or _BY_HAND, NODE, silent)


def _find_silent(seen: DoctorFacts) -> list[str]:
    """Return the nodes from which no task has said anything."""
    answers: list[TaskFacts | EndFacts | Report] = [*seen.tasks.values(), *seen.ends.values()]
    heard = {answer.node for answer in [*answers, *seen.reports]}
    return [name for name in seen.nodes if name not in heard]


def check_container(seen: DoctorFacts) -> Results:
    """Check that the container starts on each node."""
    known = {report.task for report in seen.reports if report.event in REFUSALS} | {*seen.tasks}
    blocked = [node.node for node in seen.nodes.values() if not (node.namespaces and node.fuse)]
    ends = [end for end in seen.ends.values() if end.task not in known]
    # Where it starts nowhere, the image or an option may be at fault as well as the node.
    whose = NODE if {end.node for end in ends} < seen.nodes.keys() else USER
    for end in ends:
        what, remedy = _explain_end(end, seen.host.sources)
        if end.node in blocked:
            remedy = _ALLOW
        yield failure(what, remedy, whose, [end.node])


def _explain_end(end: EndFacts, sources: Mapping[str, str]) -> tuple[str, str]:
    """Return why a container did not start, and what to do about it; `sources` has what names the
    path of a bind.
    """
    rows = (NOT_EXECUTED, NO_IMAGE, NO_BIND)
    known = next(match_symptoms(rows, [end.error], node=end.node), None)
    if known:
        source = sources.get(known.words.get("bind", ""), "")
        return f"{known.what}{enclose(' (', source, ')')}", known.remedy
    return f"the container ended with status {end.status}: {end.error}", _BY_HAND


def check_probes(seen: DoctorFacts) -> Results:
    """Check that each fact of a node could be found out."""
    return [
        warning(f"cannot examine {name}: {why}", "report the node to the site", NODE, [node.node])
        for node in seen.nodes.values()
        for name, why in node.failed
    ]


def check_messages(seen: DoctorFacts) -> Results:
    """Check that no task warns."""
    return [
        warning(report.text, "see docs/troubleshooting.md", USER, [report.node])
        for report in seen.reports
        if report.event == "warning"
    ]


def check_space(seen: DoctorFacts) -> Results:
    """Check that folders for scratch files, and the home folder, have room."""
    return [
        warning(
            f"{path} has {free} MiB{f' and {files} inodes' * (files > UNKNOWN)} free",
            "free up space there",
            USER,
            [node.node],
        )
        for node in seen.nodes.values()
        for path, free, files in node.spaces
        if free < _ROOM.get(path, _LEAST_ROOM) or UNKNOWN < files < _FEWEST_FILES
    ]


def _is_below(task: TaskFacts, limit: str, bound: int) -> bool:
    return UNKNOWN < task.limits.get(limit, UNKNOWN) < bound


def check_limits(seen: DoctorFacts) -> Results:
    """Check that memory and other limits suffice for JAX."""
    fast = seen.fast_nodes
    for task in seen.tasks.values():
        each = task.memory // max(task.tasks, 1)
        start = _START if task.uses_gpus else _START_ON_CPUS
        problems = (
            (
                UNKNOWN < each < start,
                f"{task.memory} MiB for {count_of(task.tasks, 'task')};"
                f" each needs about {start} MiB to start",
                "ask for more with --mem, or start fewer tasks",
            ),
            (
                _is_below(task, "RLIMIT_AS", _START << 23),
                "ulimit -v is low: JAX reserves far more address space than it uses",
                "ulimit -v unlimited, before salloc or sbatch",
            ),
            (
                _is_below(task, "RLIMIT_NOFILE", _FILES),
                f"ulimit -n is below {_FILES}: data loaders and large runs open more files",
                f"ulimit -n {_FILES}, before salloc or sbatch",
            ),
            (
                task.node in fast and _is_below(task, "RLIMIT_MEMLOCK", _PINNED),
                "ulimit -l is below 64 MiB: InfiniBand locks more memory",
                "have the site set LimitMEMLOCK=infinity for slurmd",
            ),
        )
        for is_bad, what, remedy in problems:
            if is_bad:
                yield warning(what, remedy, USER, [task.node])


def check_cpus(seen: DoctorFacts) -> Results:
    """Check that each task has CPUs to feed its devices."""
    return [
        warning(
            "a task has only one CPU: its devices wait for the input that it prepares",
            "pass --cpus-per-task",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if task.visible and task.cpus == 1
    ]


def check_places(seen: DoctorFacts) -> Results:
    """Check that the home folder and the current one are in the container. The current one may have
    another name there, behind a link.
    """
    wanted, tasks = seen.host.folder, seen.tasks.values()
    here = {task.folder for task in tasks}
    here.update(task.home for task in tasks if task.home not in task.lacks)
    for task in tasks:
        for path in task.lacks:
            if path in here:
                what = f"no {path}, which other nodes have"
                yield failure(what, "leave the node out with --exclude", NODE, [task.node])
            else:
                what = f"no {path} in the container"
                yield warning(what, f"pass --bind {path}", USER, [task.node])
        if wanted != task.folder and wanted and task.folder in ("/", "/tmp", task.home):
            yield failure(
                f"the program starts in {task.folder}, because {wanted} is not there",
                "leave the node out with --exclude, or change to a folder that all nodes have",
                NODE if wanted in here else USER,
                [task.node],
            )


def check_user(seen: DoctorFacts) -> Results:
    """Check that the container knows the user's name, which caches ask for."""
    return [
        warning(
            "the user has no name in the container: Python's getpass.getuser fails",
            "pass --env USER=NAME",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if not task.user
    ]


def check_sockets(seen: DoctorFacts) -> Results:
    """Check that sockets in the folder for scratch files have paths that are short enough."""
    return [
        warning(
            f"sockets in {task.temporary} have paths over 107 bytes",
            "export TMPDIR=/tmp",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        if len(task.temporary.encode()) > _LONGEST_FOLDER
    ]


def check_python(seen: DoctorFacts) -> Results:
    """Check that Python finds JAX, without parts of the host's."""
    for task in seen.tasks.values():
        where, foreign = [task.node], task.foreign if seen.host.in_container else {}
        paths = foreign.get("PYTHONPATH", "").split(":")
        # But a virtual environment there is the user's choice.
        folders = [f"{path.rstrip('/')}/" for path in (f"{task.home}/.local", *paths) if path]
        is_at_home = seen.host.in_container and task.home and task.jax.startswith(f"{task.home}/")
        if not task.jax:
            yield failure("Python cannot find JAX", "use an image with JAX", USER, where)
        elif is_at_home and task.jax.startswith(tuple(folders)):
            yield failure(
                f"JAX comes from {task.jax}, not from the image",
                "remove it, or unset PYTHONPATH",
                USER,
                where,
            )
        for name, value in foreign.items():
            if _FOREIGN.match(f"{name}={value}"):
                yield warning(
                    f"{name}={value} brings the host's libraries into the container",
                    f"remove {name} from --env",
                    USER,
                    where,
                )


def check_alike(seen: DoctorFacts) -> Results:
    """Check that all tasks have the same versions, and options of JAX, XLA and NCCL."""
    known = {
        task.task: {**task.packages, **task.variables, "Python": task.python}
        for task in seen.tasks.values()
    }
    for name in {name: None for values in known.values() for name in values}:
        common, odd = find_odd({task: values.get(name, "") for task, values in known.items()})
        for value, tasks in odd.items():
            numbers = sorted(tasks)
            place, other = name_tasks(numbers), common or "unset"
            what = f"{name} is {value or 'unset'} in {place}, but {other} in others"
            # A site may choose NCCL's interfaces for each kind of node.
            yield (warning if name.startswith(("NCCL_", "TF_")) else failure)(
                what,
                "set the same value in all tasks; otherwise they compile or connect differently",
                USER,
                [seen.tasks[number].node for number in numbers],
            )


def check_flags(seen: DoctorFacts) -> Results:
    """Check that JAX knows all flags in XLA_FLAGS."""
    return [
        failure(
            f"XLA_FLAGS has a flag that this JAX does not know: --{flag}",
            "correct the flag",
            USER,
            [task.node],
        )
        for task in seen.tasks.values()
        for flag in task.flags
    ]


_EXPLAINED = (*REFUSALS, "exception")
_PHASES = {
    "": "importing JAX",
    "imported": "in jax.distributed.initialize",
    "connected": "finding its devices",
    "devices": "adding up",
}


def check_start(seen: DoctorFacts) -> Results:
    """Check that no task refuses to start, such as with other GPUs than planned, or ends with an
    exception.
    """
    lacking = {report.node for report in seen.reports if report.event == "lacking"}
    whose = NODE if lacking < seen.nodes.keys() else SITE
    return [
        failure(
            f"{report.place}: {report.text}",
            report.hint or "see docs/troubleshooting.md",
            whose if report.event == "lacking" else USER,
            [report.node],
        )
        for report in seen.reports
        if report.event in _EXPLAINED and not report.consequence
    ]


def _find_explained(seen: DoctorFacts) -> set[int]:
    """Return the tasks whose ends are explained: all, if a container has not started; an exception
    that only follows from another task's end explains nothing if that end is not.
    """
    if not seen.ends.keys() <= seen.tasks.keys():
        return {*seen.tasks}
    reports = [report for report in seen.reports if report.event in _EXPLAINED]
    has_cause = any(not report.consequence for report in reports)
    return {report.task for report in reports} if has_cause else set()


def check_sum(seen: DoctorFacts) -> Results:
    """Check that a sum of 1 over all devices equals their number."""
    devices = sum(found.here for found in seen.sums.values())
    explained = _find_explained(seen)
    for number, task in seen.tasks.items():
        found = seen.sums.get(number)
        phase = found.phase if found else ""
        if phase in _PHASES and number not in seen.ends:
            yield failure(
                f"task {number} was still {_PHASES[phase]} at the end",
                "see the other findings",
                USER,
                [task.node],
            )
        elif phase in _PHASES and number not in explained:
            end = seen.ends[number]
            yield failure(
                f"task {number} ended with status {end.status}, {_PHASES[phase]}: {end.error}",
                "see the other findings, or docs/troubleshooting.md",
                USER,
                [task.node],
            )
        elif found and phase == "summed" and not found.total == found.devices == devices:
            yield failure(
                f"the sum over {devices} devices is {found.total:.0f};"
                f" the task sees {found.devices}",
                "compare JAX and the devices of all tasks",
                USER,
                [task.node],
            )


def _number(text: str) -> int:
    found = re.match(r"\d{1,9}", text)
    return int(found[0]) if found else 0


def _has_status(text: str) -> bool:
    """Return whether a list of statuses, such as 1,90-99, has one of jaxsif run."""
    spans = re.findall(r"(\d{1,3})(?:-(\d{1,3}))?", text)
    return any(int(a) <= status <= int(b or a) for a, b in spans for status in ALL_USELESS)


def _preempts(slurm: Mapping[str, str], by: str) -> bool:
    """Return whether Slurm ends jobs for others without the signal that they have asked for."""
    options = slurm.get("PreemptParameters", "") + slurm.get("SlurmctldParameters", "")
    ends = re.search("REQUEUE|CANCEL", slurm.get("PreemptMode", ""))  # other modes suspend
    return bool(ends) and slurm.get("PreemptType") == by and "send_user_signal" not in options


def _is_below_bound(name: str, bound: int) -> Callable[[Mapping[str, str]], bool]:
    return lambda slurm: 0 < _number(slurm.get(name, "")) < bound


_SAVE = "save often; have the site set PreemptParameters=send_user_signal"
# Settings of slurm.conf, and of the partition, that harm runs: a test, the finding, its remedy.
_OF_SLURM: tuple[tuple[Callable[[Mapping[str, str]], bool], str, str], ...] = (
    (
        # Otherwise a grace period begins with SIGTERM.
        lambda slurm: _preempts(slurm, "preempt/partition_prio") and slurm.get("GraceTime") == "0",
        "jobs are preempted without a signal: no send_user_signal, no GraceTime",
        _SAVE,
    ),
    (
        lambda slurm: _preempts(slurm, "preempt/qos"),
        "jobs are preempted without a signal, unless their QOS has a GraceTime",
        _SAVE,
    ),
    (
        lambda slurm: _has_status(slurm.get("RequeueExit", "")),
        "RequeueExit lists one of jaxsif's exit statuses: Slurm starts a bad request again and"
        " again",
        "submit with --no-requeue; have the site remove the status",
    ),
    (
        _is_below_bound("KillWait", 10),
        "KillWait is below 10 s: a cancelled program has no time to save",
        "save often; have the site raise it",
    ),
    (
        _is_below_bound("MaxStepCount", 100),
        "MaxStepCount is below 100: each start of a program uses up a step",
        "have the site raise it",
    ),
    (
        _is_below_bound("SlurmdTimeout", 30),
        "SlurmdTimeout is below 30 s: a short network outage ends jobs",
        "have the site raise it",
    ),
)


def check_slurm(seen: DoctorFacts) -> Results:
    """Check that Slurm's configuration lets programs save, and lets each run end only once."""
    slurm = seen.host.slurm
    for test, what, remedy in _OF_SLURM:
        if test(slurm):
            yield warning(what, remedy, SITE)


def find_left(seen: DoctorFacts) -> list[int]:
    """Return the seconds until the job's time limit, as its tasks know them."""
    return [task.left for task in seen.tasks.values() if task.left != UNKNOWN]


def check_time(seen: DoctorFacts) -> Results:
    """Check that the job has time left."""
    left = min(find_left(seen))
    if left <= _LEFT:
        yield warning(f"the job ends in {left} s", "request a longer --time", USER)


def check_site(seen: DoctorFacts) -> Results:
    """Check that the site's own checks find nothing."""
    return [
        CheckResult(state, f"{name}: {evidence}", remedy or "ask the site", SITE, (node.node,))
        for node in seen.nodes.values()
        for name, state, evidence, remedy in node.site
        if state != OK
    ]
