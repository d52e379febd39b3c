"""A plan -> its command line."""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.layout.layout import Group
from jaxsif.plan.launcher import LOCAL
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import HIDDEN
from jaxsif.task.contract import CREDENTIALS
from jaxsif.text import count_of

_GOES_ON, _INDENT = " \\", "    "  # at the end of a line, and before the next one


def render_command(plan: Plan, width: int = 0) -> str:
    """Return a line for a POSIX shell that starts exactly what the run starts; with a `width`,
    several lines with at most that many columns, unless a word is longer.

    If there are several local processes, the line starts only one of them.
    """
    import shlex  # here: most runs render nothing

    words = [f"{name}={shlex.quote(value)}" for name, value in shown_variables(plan).items()]
    if plan.unset:
        words = ["env", *(f"--unset={shlex.quote(name)}" for name in plan.unset), *words]
    line = fold([*words, *map(shlex.quote, plan.argv)], width)
    if plan.launcher.name == LOCAL:  # the launcher adds what distinguishes the processes
        line += f"  # one of {count_of(plan.layout.ntasks_per_node or 1, 'process')}"
    return line


def shown_variables(plan: Plan) -> dict[str, str]:
    """Return the variables that a run sets, jaxsif's own last, with HIDDEN for the coordinator's
    key.
    """
    return {
        name: HIDDEN if name.endswith(CREDENTIALS) else plan.variables[name]
        for name in sorted(plan.variables, key=lambda name: "JAXSIF_" in name)
    }


def fold(words: Sequence[str], width: int) -> str:
    """Join words into lines that a shell reads as one; into a single line if `width` is 0."""
    text, used = words[0], len(words[0])
    for word in words[1:]:
        used += 1 + len(word)
        fits = not width or used <= width - len(_GOES_ON)
        text += f" {word}" if fits else f"{_GOES_ON}\n{_INDENT}{word}"
        used = used if fits else len(_INDENT + word)
    return text


def describe_plan(plan: Plan) -> dict[str, object]:
    """Return what a run starts, as JSON values."""
    layout, container = plan.layout, plan.container
    return {
        "launcher": plan.launcher.name,
        "command": list(plan.argv),
        "set": shown_variables(plan),
        "unset": list(plan.unset),
        "image": container.image if container else None,
        "nodes": layout.nodes,
        "tasks": layout.ntasks,
        "tasks_per_node": layout.ntasks_per_node,
        "gpus_per_node": layout.gpus_per_node,
        "why": layout.why,
        "groups": list(map(_describe_group, layout.groups)),
    }


def _describe_group(group: Group) -> dict[str, int | None]:
    """Describe a group of equal nodes of a step."""
    return {
        "nodes": group.nodes,
        "tasks_per_node": group.tasks,
        "gpus_per_node": group.gpus,
        "cpus_per_node": group.cpus,
    }


def render_summary(plan: Plan) -> str:
    """Return the lines that --verbose prints before the start."""
    shape, why = plan.layout.describe(), plan.layout.why
    where, source = plan.launcher.words.where, plan.runs_in.source
    what = f"{shape or 'one task'} {where} ({why}); image from {source}"
    return f"jaxsif: {what}\njaxsif: {render_command(plan)}"
