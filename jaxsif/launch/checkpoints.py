"""The program's folder of checkpoints: what is saved, and what a failure has cost since then."""

from __future__ import annotations

import math
import os
import re
from operator import sub
from typing import NamedTuple

# Names of checkpoints: 40, step_40, ckpt-40.npz; and of those that are still being written.
_OF_A_STEP = re.compile(r"(?i)step\D?(\d{1,18})|(\d{1,18})(?=(?:\.[a-z]\w*)?$)")
_UNFINISHED = re.compile(
    r"(?i)^\.|(?<![a-z])(?:tmp|(?:temp(?:orary)?|part(?:ial)?|incomplete)(?![a-z]))"
)
_COMMITTED = "commit_success.txt"  # in Orbax's finished checkpoints, also where nothing is renamed


class Saved(NamedTuple):
    """The complete checkpoints in a folder."""

    step: int = -1  # of the newest one; -1 if there is none
    time: float = 0.0  # when that was completed, in seconds since 1970
    steps: frozenset[int] = frozenset()  # of all


def find_saved(folder: str | None) -> Saved:
    """Return the complete checkpoints in a folder; none if the folder cannot be read."""
    steps = _list_complete(folder or "")
    newest = max(steps.values(), default=-1)
    try:
        # Not the times of the data: a rename, which completes them, changes only the inode.
        times = [os.stat(path).st_ctime for path, step in steps.items() if step == newest]
    except OSError:  # the program has just removed it
        times = []
    return Saved(newest, max(times, default=0.0), frozenset(steps.values()))


def _list_complete(folder: str) -> dict[str, int]:
    """Return the paths of the complete checkpoints in a folder, with their steps."""
    try:
        names = [name for name in os.listdir(folder) if not _UNFINISHED.search(name)]
    except OSError:
        return {}
    paths = [os.path.join(folder, name) for name in names]
    # On a disk without renames, only this file shows which folders are complete.
    marked = [path for path in paths if os.path.exists(os.path.join(path, _COMMITTED))]
    steps = ((path, parse_step(os.path.basename(path))) for path in marked or paths)
    return {path: step for path, step in steps if step >= 0}


def parse_step(name: str) -> int:
    """Return the step in the name of a checkpoint, -1 for other names."""
    found = _OF_A_STEP.search(name)
    return int(found[1] or found[2]) if found else -1


class FailedAttempt(NamedTuple):
    """A failed attempt, with the checkpoints at its beginning and at its end."""

    begin: float  # seconds since 1970
    end: float
    before: Saved
    after: Saved

    @property
    def last_progress(self) -> float | None:
        """Return when the newest checkpoint was completed, in seconds since 1970, or when this
        attempt began, if it saved none; None if that is not known.
        """
        if self.before.step == self.after.step:
            return self.begin
        is_new = self.before.step < self.after.step and self.begin <= self.after.time <= self.end
        return self.after.time if is_new else None  # the clock of the disk may be another one

    def count_repeated(self, turns: int) -> int | None:
        """Return how many iterations, at least, the next attempt computes again if all tasks of
        this one came to iteration `turns` of the outermost loop; None if that is not known.

        The steps in the names of checkpoints may count something else, such as epochs. Then the
        program would seem to have left out a checkpoint.
        """
        saved = self.after.step - self.before.step
        # The first step may be 0 or 1: with -1 for none, this is the smaller number.
        repeated = turns - saved
        steps = sorted({0, *self.after.steps, max(0, self.before.step)})
        apart = min(map(sub, steps[1:], steps), default=math.inf)
        return repeated if saved >= 0 and 0 < repeated < apart else None
