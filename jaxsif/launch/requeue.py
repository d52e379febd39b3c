"""`jaxsif run --max-requeues`: put the job back into Slurm's queue after a program has saved
because its job is about to end, or after the run has lost a node. Only runs with that option import
this module.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxsif import process
from jaxsif.errors import Notify
from jaxsif.job.allocation import name_job, outside_of_job
from jaxsif.launch.checkpoints import find_saved
from jaxsif.limits import read_number
from jaxsif.settings.options import RunOptions


class Requeue:
    """Decides at the end of a run whether its job goes back into the queue."""

    def __init__(self, options: RunOptions, environ: Mapping[str, str]) -> None:
        """Take the newest checkpoint before the run."""
        self._job = name_job(environ)
        self._options = options
        self._environ = environ
        self._step = find_saved(options.checkpoints).step

    def refuse(self) -> str:
        """Return why the job must not be requeued, or ''."""
        before, most = self._count(), self._options.max_requeues or 0
        if not self._options.checkpoints:
            return "without --checkpoints=DIR, jaxsif cannot see whether the program has saved"
        if find_saved(self._options.checkpoints).step <= self._step:
            return f"no new checkpoint in {self._options.checkpoints}"
        return "" if before < most else f"it has been requeued {before} times"

    def _count(self) -> int:
        """Return how often Slurm has requeued the job, for whatever reason."""
        return read_number(self._environ.get("SLURM_RESTART_COUNT", "")) or 0

    def requeue(self, why: str, notify: Notify) -> None:
        """Requeue the job, which ends this process, or say why not.

        This comes before the end of the script: in a grace period, Slurm itself requeues a job
        whose script ends, but holds it after the fifth time. If a node is lost, Slurm requeues a
        job only if its script is still running when Slurm notices, minutes later.
        """
        reason = self.refuse()
        if not reason:
            notify(f"{why}: job {self._job} goes back into the queue")
            reason = self._ask()
        if reason:
            notify(f"warning: job {self._job} is not requeued: {reason}")

    def _ask(self) -> str:
        """Ask Slurm to requeue the job; return its refusal, or ''."""
        argv = ("scontrol", "requeue", self._job)
        try:
            done = process.captured(argv, outside_of_job(self._environ))
        except OSError as error:
            return f"{error.strerror} (scontrol)"
        return done.stderr.strip() if done.returncode else ""
