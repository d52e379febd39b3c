"""A plan -> the command line that it stands for."""

from __future__ import annotations

from jaxsif.plan.launcher import LOCAL
from jaxsif.plan.plan import Plan


def render_command(plan: Plan) -> str:
    """Return one line for a POSIX shell that starts exactly what the run starts.

    Of local processes, it starts one.
    """
    import shlex  # here: most runs render nothing

    words = [f"{name}={shlex.quote(value)}" for name, value in plan.variables.items()]
    if plan.unset:
        words = ["env", *(f"--unset={shlex.quote(name)}" for name in plan.unset), *words]
    line = " ".join([*words, shlex.join(plan.argv)])
    if plan.launcher.name == LOCAL:  # the launcher adds what tells the processes apart
        line += f"  # one of {plan.layout.ntasks_per_node} process(es)"
    return line


def render_summary(plan: Plan) -> str:
    """Return what --verbose says before the start."""
    shape, why = plan.layout.describe(), plan.layout.why
    where, source = plan.launcher.words.where, plan.around.source
    what = f"{shape or 'one task'} {where} ({why}); image from {source}"
    return f"jaxsif: {what}\njaxsif: {render_command(plan)}"
