"""Bounds for texts from outside: the length of a number, of a list of nodes, of a line."""

from __future__ import annotations

# Numbers of nodes, tasks, CPUs and seconds are 32-bit integers in Slurm and JAX.
MOST_COUNT = 2**31 - 1
# The most nodes that a Slurm cluster has, and the most names in a range of its node lists.
MOST_NODES = 65_536
# On one node: Slurm's own bound for tasks, and far more GPUs than any node has.
MOST_TASKS = 65_535
MOST_GPUS = 1_024
IDLE_GPU_MEMORY = 512  # MiB in use on a GPU without a program
MOST_TASKS_OF_A_STEP = 1 << 24
_MOST_DIGITS = 18  # always fit in 64 bits
LONGEST_LINE = 1 << 14  # bytes


def read_number(text: str) -> int | None:
    """Return the number that decimal digits spell; None for any other text or for too many digits.

    Python takes quadratic time for long numbers, and newer versions raise a ValueError.
    """
    return int(text) if len(text) <= _MOST_DIGITS and is_decimal(text) else None


def is_decimal(text: str) -> bool:
    """Return whether a text consists only of the digits 0 to 9, without those of other scripts."""
    return text.isascii() and text.isdecimal()
