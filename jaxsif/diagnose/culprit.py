"""Find the first cause of a failure in the tasks' reports and srun's messages, as an error.

Each stage knows a few causes; `find_failure` returns the first one found.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from jaxsif.diagnose.facts import (
    ABORTED,
    AFTER_EXCEPTION,
    INIT_BARRIER,
    JAX_BARRIERS,
    NEVER_CONNECTED,
    NO_REPORT,
    End,
    Facts,
    Hang,
    Match,
    build_mismatch_error,
    find_early_exit,
    list_few,
    match_symptoms,
    parse_ends,
    render_activity,
    render_places,
)
from jaxsif.diagnose.reports import REFUSALS, Barrier, Report
from jaxsif.diagnose.starts import render_unstarted
from jaxsif.diagnose.symptoms import (
    ALL_ALIKE,
    BAD_VALUE,
    BARRIER,
    CANCELLED,
    CONTAINER,
    EXCLUSIVE,
    IMAGE_READ,
    INTRUDED,
    JOB_ENDED,
    NO_CONTROLLER,
    NO_FOLDER,
    NO_GPU,
    NO_IMAGE,
    NO_JAXSIF,
    NO_OPTION,
    NODE_FAILURE,
    NOT_EXECUTED,
    NOT_LAUNCHED,
    NOT_REACHED,
    OUT_OF_MEMORY,
    SAME_ARRAYS,
    SAME_ID,
    SIGNALS,
    SRUN_GAVE_UP,
    STEP_REFUSED,
    TASK_EXITED,
    TASK_PROLOG,
    TASKS_RAN,
    TIME_LIMIT,
    TIMED_OUT,
    UNKNOWN_FLAGS,
)
from jaxsif.errors import (
    LOST_NODE,
    REFUSED_TASK,
    Cause,
    Fault,
    HostError,
    JaxsifError,
    PortTakenError,
    RunError,
)
from jaxsif.job.srun_options import FORMS, suggest_list
from jaxsif.plan.container import Container
from jaxsif.plan.launcher import LOCAL, SRUN
from jaxsif.settings.config import for_staff, tell_staff
from jaxsif.settings.options import RunOptions
from jaxsif.task.contract import (
    INITIALIZED,
    OTHER_PROGRAM,
    SPAWNED,
    STOP,
    UNKNOWN_ADDRESS,
    WORKER_ENDED,
    signal_name,
)
from jaxsif.text import count_of, enclose

# Somebody sends these, also to the server of the image's files: a lost image causes none of them.
_SENT = [128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)]
_LAST_CALL = "sys.exit(),"  # as in sys.exit(main())
_OTHER_PLACE = "sync_global_devices name mismatch"  # raised in all tasks
# That error, and Gloo's where programs have other devices, or have them in another order.
_OF_DIFFERENCE = re.compile(f"{_OTHER_PLACE}|Gloo context initialization failed: DEADLINE_EXCEEDED")
# It says more than the last line, "Requested node configuration is not available".
_UNSATISFIED = re.compile("can ?not be satisfied")
_LAST_SIGNAL = 64  # on Linux; a greater status was passed to exit()
_ENDINGS = {"exit": "ended with exit status 0", "end": "reached the end of the program"}


def find_failure(
    end: End, reports: Sequence[Report], errors: Sequence[str], barriers: Sequence[Barrier] = ()
) -> JaxsifError | None:
    """Return the first cause of a run's end, as an error with jaxsif's exit code, or None if
    nothing failed.
    """
    if end.exit_code == 0:
        return None
    facts = Facts(end, reports, errors, barriers)
    for blame in [_blame_outside] if end.interrupted else _STAGES:
        error = blame(facts)
        if error:
            folder = None if error.hint else facts.find(NO_FOLDER)
            if folder:
                _add_folder(error, folder, end.options)
            if end.difference.text and _OF_DIFFERENCE.search(error.what):
                error.what = f"{error.what}; {end.difference.text}"
                error.hint = ALL_ALIKE
            return error
    return None


def _add_folder(error: JaxsifError, folder: Match, options: RunOptions | None) -> None:
    """Add the remedy for a folder that a node lacks, and the setting that names it, if one does."""
    error.hint = folder.remedy
    if options and "--chdir" in [argument.flag for argument in options.srun_arguments]:
        source = options.srun_source("--chdir")
        error.where = "; ".join(filter(None, (error.where, source)))
        error.hint = for_staff(folder.remedy, source)


def _blame_launch(facts: Facts) -> JaxsifError | None:
    """Blame a task that refused its program, or the node or srun if no program started."""
    end = facts.end
    for report in facts.reports:
        # A task that refuses ends with 125: one with another status has started its program.
        exited = facts.exits.get(report.task)
        if report.event in REFUSALS and (not exited or exited.status == HostError.exit_code):
            return _describe_refusal(report, end.options)
    if end.killed and end.launcher.name != LOCAL:
        return RunError(
            f"{end.launcher.name} was killed by {signal_name(end.status - 128)}",
            "this host",
            "the kernel's log names the processes it killed; `squeue --me --steps` lists the"
            " remaining steps",
            end.status,
        )
    # On one node; the others were ended for that.
    message = facts.find(NOT_REACHED, NOT_LAUNCHED, NO_JAXSIF, TASK_PROLOG, NOT_EXECUTED, node="")
    if message is None:
        partly = facts.find(*CONTAINER, node="") if facts.events["started"] else None
        return _blame_some_containers(facts, partly) if partly else None
    if message.symptom is TASK_PROLOG:
        is_own = message.words["prolog"].startswith("--")  # else Slurm's configuration names it
        where = _name_requester(facts, "--task-prolog") if is_own else end.launcher.name
        return HostError(message.what, where, message.remedy)
    if message.symptom in (NO_JAXSIF, NOT_EXECUTED):
        return _describe_lacking(facts, message)
    error = HostError(message.what, end.launcher.name, message.remedy)
    error.cause = Cause(Fault.NODE, (message.words["node"],), LOST_NODE)
    return error


def _name_requester(facts: Facts, reason: str) -> str:
    """Return the source of what was asked of the launcher, and refused for this reason."""
    options, launcher = facts.end.options, facts.end.launcher.name
    if options is None:
        return launcher
    if launcher == SRUN:
        return options.name_requester(launcher, reason)
    chosen = [options.source(key) for key in ("launcher", "hosts") if key in options.sources]
    return "; ".join((launcher, *chosen))


def _blame_some_containers(facts: Facts, message: Match) -> HostError | None:
    """Blame nodes on which the container did not start, although it did on others."""
    nodes = _list_silent_nodes(facts)
    if not nodes:
        return None
    error = _describe_container(facts, message, ", ".join(nodes))
    error.cause = Cause(Fault.NODE, nodes, LOST_NODE)
    return error


def _describe_container(facts: Facts, message: Match, node: str) -> HostError:
    container, where = facts.end.container, "the runtime, on a node"
    if container and message.symptom is NO_IMAGE:
        where = container.source
    elif container:
        where = container.sources.get(_find_bind(container, message), where)
    words = {**message.words, "node": node}
    return HostError(message.symptom.what.format(**words), where, message.remedy)


def _find_bind(container: Container, message: Match) -> str:
    """Return the host's path of the bind that a message names by that, or by a wrong option."""
    syntax = re.search(r'bad bind syntax "([^:"]+)', message.what)
    if syntax:
        return syntax[1].rstrip("/")
    option = re.search(r"(\S+) is not a valid bind option", message.what)
    binds = (re.split("[:,]", bind) for bind in container.binds)
    paths = (bind[0].rstrip("/") for bind in binds if option and option[1] in bind)
    return next(paths, message.words.get("bind", ""))


def _list_silent_nodes(facts: Facts) -> tuple[str, ...]:
    """Return the nodes of tasks that ended by themselves, according to srun, and never reported
    anything.
    """
    ends = parse_ends([TASK_EXITED], facts.errors)
    silent = (end for end in ends if end.task not in facts.exits and end.status not in _SENT)
    return tuple(dict.fromkeys(end.node for end in silent))


def _describe_lacking(facts: Facts, message: Match) -> HostError | None:
    """Describe nodes that lack the runtime, Python or jaxsif's files; None if it was a program that
    said so. Not every message names its node, but srun does.
    """
    nodes = _list_silent_nodes(facts)
    if not nodes and facts.exits:
        return None
    words = {**message.words, "node": ", ".join(nodes) or "a node"}
    error = HostError(message.symptom.what.format(**words), facts.end.launcher.name, message.remedy)
    error.cause = Cause(Fault.NODE, nodes, LOST_NODE)
    if len(nodes) > 1:  # not the fault of one of them
        error.hint = "install it where all nodes and users can read it"
        error.cause = Cause(Fault.REQUEST)
    return error


def _blame_outside(facts: Facts) -> RunError | None:
    """Blame Slurm, if it ended the run, or tasks that others were waiting for at the time."""
    end, cancelled = facts.end, facts.cancelled
    is_outside = end.interrupted or cancelled
    if is_outside and facts.ended_early and facts.connected and not facts.early_waited:
        error = _describe_early(facts, facts.ended_early, end.exit_code)
    elif cancelled:
        what, remedy = _describe_cancelled(cancelled, end.hang)
        error = RunError(what, render_places(facts.reports), remedy, end.exit_code)
    else:
        return None
    is_node = cancelled and cancelled.symptom in (NODE_FAILURE, SRUN_GAVE_UP)
    if not (cancelled and cancelled.symptom is OUT_OF_MEMORY):  # that is the program's
        error.cause = Cause(Fault.NODE if is_node else Fault.OUTSIDE)
    return error


def _describe_cancelled(cancelled: Match, hang: Hang | None) -> tuple[str, str]:
    """Return why the run was cancelled, with the tasks that were at fault, and the remedy."""
    if not (hang and hang.what and cancelled.symptom in (CANCELLED, TIME_LIMIT)):
        return cancelled.what, cancelled.remedy
    needs_time = cancelled.symptom is TIME_LIMIT and not hang.is_certain
    remedy = f"{hang.remedy}, or {cancelled.remedy}" if needs_time else hang.remedy
    return f"{cancelled.what}; {hang.what}", remedy


def _blame_raised(facts: Facts) -> RunError | None:
    """Blame a task that waited for all others because of an exception, if it was known to wait
    elsewhere than the others. Where most tasks have such an exception, the program handles it.
    """
    if not facts.events["raised"]:
        return None
    known = [report for report in facts.last["raised"].values() if report.text]
    raised = [one for one in known if not any(match_symptoms([TIMED_OUT], [one.text]))]
    if facts.barrier.name == "Shutdown":
        raised = [report for report in raised if report.task == facts.barrier.first]
    elif 2 * len(raised) > facts.tasks or not _waits_apart(facts):
        return None
    if not raised:
        return None
    what = f"{raised[0].place} failed: {raised[0].text}"
    return RunError(what, raised[0].where, AFTER_EXCEPTION, facts.culprit.status)


def _waits_apart(facts: Facts) -> bool:
    """Return whether tasks have met in different collectives, or at different barriers."""
    culprit = facts.culprit
    if _OTHER_PLACE in facts.find_last(culprit).text:
        return True
    return bool(facts.sizes_differ) and facts.aborted is not NO_REPORT and culprit is facts.first


def _blame_program(facts: Facts) -> RunError | None:
    """Blame flags unknown to XLA, programs or arrays that differ, or a worker that ran the script
    again.
    """
    culprit = facts.culprit
    message = facts.find(UNKNOWN_FLAGS) if culprit.status == 1 else None
    if message:
        where = f"{_name_variable(facts, message.words['variable'])}, in {culprit.place}"
        error = RunError(message.what, where, message.remedy, culprit.status)
        error.cause = Cause(Fault.REQUEST)
        return error
    difference = facts.end.difference.text
    if difference and OTHER_PROGRAM in facts.find_last(culprit).text:
        # The task compared with the one that differs may end first.
        return build_mismatch_error(difference, "", culprit.status)
    message = facts.sizes_differ if culprit.status == ABORTED or facts.first_follows else None
    if message and facts.aborted is not NO_REPORT:
        # Gloo ends any of the tasks, not only the one with the other size.
        return _describe_sizes(facts, message)
    for report in facts.events["exception"]:
        if any(map(report.text.__contains__, SPAWNED)):
            # If all tasks fail as neighbours do, JAX has aborted them because of the worker.
            if not (facts.first_follows or culprit.task == report.task):
                break
            end = facts.exits.get(report.task, culprit)
            return RunError(
                f"{report.place} failed: {report.text}", report.where, report.hint, end.status
            )
    return None


def _describe_sizes(facts: Facts, message: Match) -> RunError:
    """Describe arrays of different sizes in a collective."""
    options, difference = facts.end.options, facts.end.difference.text
    what = ": ".join(filter(None, (message.what, difference)))
    remedy = message.remedy
    if difference:
        remedy = SAME_ARRAYS
    elif options and options.check_programs == STOP:
        remedy = (
            f"{SAME_ARRAYS}; no difference between programs was found: look for a call that some"
            " tasks skip or make with other shapes"
        )
    others = [one for one in facts.reports if one.task != facts.aborted.task]
    places = (_render_place(facts.aborted), render_places(others, "the others"))
    return RunError(what, "; ".join(filter(None, places)), remedy, ABORTED)


def _name_variable(facts: Facts, name: str) -> str:
    """Return the name of a variable of the program, with the source that sets it, if known."""
    options = facts.end.options
    given = options.source("env") if options and name in dict(options.env) else ""
    return f"{name}{enclose(' of ', given)}"


def _blame_connection(facts: Facts) -> RunError | None:
    """Blame tasks that never started, or a process that connected in place of another."""
    culprit = facts.culprit
    at_init = facts.waited or facts.barrier.name == INIT_BARRIER
    unstarted = facts.end.name_unstarted() if at_init else ""
    if unstarted:
        return _describe_unstarted(facts, unstarted)
    if facts.events["arguments"] and (facts.is_apart or facts.find(INTRUDED, SAME_ID)):
        return _describe_arguments(facts)
    intruder = facts.find(INTRUDED) if culprit.status == ABORTED else None
    if intruder:
        return RunError(intruder.what, _render_place(culprit), intruder.remedy, culprit.status)
    return None


def _blame_others(facts: Facts) -> RunError | None:
    """Blame tasks for which others waited: early ones, those missing at a barrier, a stuck one."""
    at_init = facts.barrier.name == INIT_BARRIER
    # The consequence of another task's end, about which nothing more was reported.
    follows = facts.culprit is facts.first and (facts.first_follows or facts.waited)
    if follows and (at_init or not facts.barrier.name):
        early = facts.absent if facts.is_apart else facts.ended_early
        if _were_awaited(early, facts.end.hang):
            return _describe_early(facts, early, facts.culprit.status, facts.is_apart)
    if facts.barrier.name:
        return _describe_barrier(facts)
    if not facts.waited or facts.stuck is NO_REPORT or _is_of_difference(facts):
        return None
    return _describe_stuck(facts)


def _is_of_difference(facts: Facts) -> bool:
    """Return whether the programs of tasks differ, and the wait may come of that."""
    text = facts.find_last(facts.culprit).text
    return bool(facts.end.difference.text and _OF_DIFFERENCE.search(text))


def _were_awaited(early: Mapping[int, Report], hang: Hang | None) -> bool:
    """Return whether others waited for early tasks, unless a report of the wait names others."""
    return bool(early) and not (hang and hang.tasks and hang.tasks.isdisjoint(early))


def _blame_culprit(facts: Facts) -> RunError | None:
    """Blame the task that failed first, and its image if that has changed."""
    culprit, image = facts.culprit, facts.end.changed_image
    if culprit is NO_REPORT:
        return None
    last = facts.find_last(culprit)
    if _OTHER_PLACE in last.text:
        culprit, last = _find_odd_place(facts, last)
    error = _describe_end(culprit, last)
    if image:
        error.where = (
            f"{enclose('', error.where, ' and ')}{image}, which was written to during the run"
        )
        if error.exit_code > 128 or not error.hint or re.match(IMAGE_READ.pattern, last.text):
            error.hint = IMAGE_READ.remedy
    elif culprit.task in facts.last["unmounted"] and culprit.status not in _SENT:
        node = culprit.node or "its node"
        error.what += f"; the image on {node} can no longer be read"
        error.hint = (
            f"read the kernel's log on {node}: memory ran out, or a signal killed squashfuse"
        )
    return error


def _find_odd_place(facts: Facts, last: Report) -> tuple[Report, Report]:
    """Return the end and the exception of the first task of a minority at another place; those of
    the task with the exception `last` if there is no minority.
    """
    known = facts.last["exception"].values()
    alike = [one for one in known if _OTHER_PLACE in one.text and one.task in facts.exits]
    places = Counter(one.text.partition("Expected")[0] for one in alike)
    few = (one for one in alike if 2 * places[one.text.partition("Expected")[0]] < len(alike))
    odd = next(few, last)
    return facts.exits.get(odd.task, facts.culprit), odd


def _blame_request(facts: Facts) -> JaxsifError:
    """Blame the runtime, the request, or srun's first failed task, if no task has reported."""
    end, errors, ended = facts.end, facts.errors, facts.first_ended
    started, launcher = facts.events["started"], end.launcher
    exited = facts.find(TASK_EXITED)
    node = exited.words["node"] if exited else "the node"
    message = None if started else facts.find(*CONTAINER, node=node)
    if message:
        return _describe_container(facts, message, node)
    # The reports of some tasks go elsewhere, as with srun --output=log-%t.txt.
    if not started and not facts.find(TASKS_RAN):
        if not errors:
            return HostError(f"no task started (exit status {end.status})", launcher.name)
        requester = _name_requester(facts, " ".join(errors))
        known = facts.find(BAD_VALUE, NO_OPTION, JOB_ENDED, NO_CONTROLLER)
        if known:
            return _describe_refused(known, end, requester)
        said = next(filter(_UNSATISFIED.search, errors), errors[-1])
        reason = re.split("(?:error|fatal): ", said, maxsplit=1)[-1]
        what = f"{launcher.words.refuses} refused the request: {reason}"
        refusal = facts.find(STEP_REFUSED, EXCLUSIVE)
        remedy = refusal.remedy if refusal else suggest_list(reason) or launcher.words.remedy
        return HostError(what, requester, remedy)
    if ended is not NO_REPORT:
        return _describe_end(ended, facts.find_last(ended))
    return RunError(
        f"the step ended with exit status {end.status}, and no task said why",
        [launcher.name, *errors][-1],
        launcher.words.hint,
        end.status,
    )


_STAGES: Sequence[Callable[[Facts], JaxsifError | None]] = (
    _blame_launch,
    _blame_outside,
    _blame_raised,
    _blame_program,
    _blame_connection,
    _blame_others,
    _blame_culprit,
    _blame_request,
)


def _describe_refusal(report: Report, options: RunOptions | None) -> HostError:
    """Describe a task that did not start its program, in the task's own words."""
    if report.event == "port-taken":
        hint = "run it again to get another port, or pass --coordinator-ports"
        return PortTakenError(report.text, report.place, hint)
    error = HostError(report.text, report.place, report.hint)
    key = "fabric" if report.event == "lacking" else ""
    if options and options.node_address and report.text.startswith(UNKNOWN_ADDRESS):
        key = "node-address"
    if options and key:
        source = options.source(key)
        error.where += f"; {source}"
        advise = tell_staff if key == "fabric" else for_staff  # a fabric's remedy is an option
        error.hint = advise(error.hint, source) or f"correct {key}"
    error.cause = Cause(Fault.REQUEST, (report.node,), REFUSED_TASK)
    return error


def _describe_refused(known: Match, end: End, requester: str) -> JaxsifError:
    """Describe a request that the launcher refused for a known reason."""
    if known.symptom in (BAD_VALUE, NO_OPTION):
        form = FORMS.get(known.words.get("option", ""), "")
        return JaxsifError(known.what, requester, form or known.remedy)
    given = end.options.srun_arguments if end.options else ()
    if known.symptom is JOB_ENDED and any(one.flag == "--jobid" for one in given):
        return HostError(known.what, "--jobid", "squeue --me lists your jobs")
    return HostError(known.what, end.launcher.name, known.remedy)


def _describe_arguments(facts: Facts) -> RunError:
    """Describe a call of jax.distributed.initialize for other processes than this run's, or with an
    address at which they cannot connect.
    """
    first, *others = {report.task: report for report in facts.events["arguments"]}.values()
    what = f"{first.place} {INITIALIZED}{first.text})"
    unlike = f" in a run of {count_of(facts.tasks, 'task')}"
    if first.text.startswith("coordinator_address"):
        unlike = ", where not all its processes can connect"
    too = enclose("; so did ", count_of(len(others), "other task") if others else "")
    hint = "leave these arguments out: JAX gets them from jaxsif"
    return RunError(f"{what}{unlike}{too}", first.where, hint, facts.culprit.status)


def _describe_unstarted(facts: Facts, unstarted: str) -> RunError:
    """Describe tasks that never started, for which others waited in jax.distributed.initialize."""
    culprit = facts.culprit
    what = f"{render_unstarted(unstarted)}, and {culprit.place} timed out waiting"
    at = enclose(" at ", facts.find_last(culprit).where)
    hint = (
        "find out what is delaying the container there, such as the image's disk; --exclude leaves"
        " a node out"
    )
    return RunError(f"{what}{at}", "", hint, culprit.status)


def _describe_early(
    facts: Facts, known: Mapping[int, Report], exit_code: int, at_init: bool = False
) -> RunError:
    """Describe known tasks that ended without an error while others waited for them."""
    early = list(known.values())
    who = list_few([report.place for _, report in sorted(known.items())], len(early))
    how = _ENDINGS[early[-1].event]  # exits come first
    others = [report for report in facts.reports if report.task not in known]
    number = facts.end.interrupted
    by_signal = f"{signal_name(number)} ended the run" if number else ""
    outside = facts.cancelled.what if facts.cancelled else by_signal
    places = (outside, find_early_exit(facts.reports, known), render_places(others, "the others"))
    where = "; ".join(filter(None, places))
    left = facts.ended_well.keys() | known.keys()
    missing = f", and {facts.tasks - len(left)} of {facts.tasks} tasks did not"
    hint = BARRIER.remedy
    if at_init:
        missing = " and never reached jax.distributed.initialize, where the others waited"
        hint = NEVER_CONNECTED
    return RunError(f"{who} {how}{missing}", where, hint, exit_code)


def _describe_barrier(facts: Facts) -> RunError:
    """Describe the tasks that are not where the others are: the minority, whether they reached the
    barrier or not.
    """
    barrier = facts.barrier
    other = (f"the barrier {barrier.name}", BARRIER.remedy)
    at, hint = JAX_BARRIERS.get(barrier.name, other)
    absent = barrier.processes - barrier.reached
    left = find_early_exit(facts.reports, facts.last["end"])
    # Of two halves, who left is odd, unless that may be how the program ends.
    has_left = bool(left) and not left.startswith(_LAST_CALL)
    if 2 * barrier.reached >= barrier.processes + has_left:
        left = ""
        missing = [_name_task(task, facts) for task in barrier.missing]
        odd = list_few(missing, absent)  # JAX does not list all
        what = f"{odd} did not reach {at}, but {barrier.reached} of {barrier.processes} did"
    else:
        odd = _name_task(barrier.first, facts)
        what = f"{odd} reached {at}, but {absent} of {barrier.processes} did not"
        if barrier.reached != 1:
            what += f"; it was the first of {barrier.reached}"
    known = {report.task: report for report in reversed(facts.reports) if report.where}
    places = (_render_place(known[task]) for task in barrier.missing if task in known)
    ends = (render_activity(facts.exits[task]) for task in barrier.missing if task in facts.exits)
    where = "; ".join(filter(None, (left, next(places, "") or next(ends, ""))))
    return RunError(what, where, hint, facts.culprit.status)


def _name_task(task: int, facts: Facts) -> str:
    return facts.exits[task].place if task in facts.exits else f"task {task}"


def _render_place(report: Report) -> str:
    return f"{report.where}, where {report.place} was" if report.where else report.place


def _describe_stuck(facts: Facts) -> RunError:
    """Describe the task for which the others waited until they gave up."""
    stuck, culprit = facts.stuck, facts.culprit
    last = facts.find_last(culprit)
    more = "--init-timeout sets how long others wait in jax.distributed.initialize"
    if last.event == "exception":
        more = f"the other one raised {last.text}"
    advice = "see what is keeping it there"
    for warning in facts.events["warning"]:
        if warning.task == stuck.task and warning.text.startswith(WORKER_ENDED):
            advice = f"{warning.text}; the task may be waiting for that worker"
    return RunError(
        f"{stuck.place} never arrived, and {culprit.place} timed out waiting"
        f"{enclose(' at ', last.where)}",
        _render_place(stuck),
        f"{advice}; {more}",
        culprit.status,
    )


def _describe_end(end: Report, last: Report) -> RunError:
    """Describe the exit of a task with its last exception."""
    what = f"{end.place} ended with exit status {end.status}"
    if 128 < end.status <= 128 + _LAST_SIGNAL:
        what = f"{end.place} was killed by {signal_name(end.status - 128)}"
    elif last.text:
        what = f"{end.place} failed: {last.text}"
    known = SIGNALS.get(end.status - 128)
    hint = known.remedy if known else ""
    if re.match(NO_GPU.pattern, last.text):
        hint = NO_GPU.remedy
    where = last.where or render_activity(end)
    if last.hides:
        where += f", while handling {last.hides}"
    return RunError(what, where, last.hint or hint, end.status)
