"""What --srun-args says of the layout, which the planner must know as if it had been asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxsif.errors import JaxsifError
from jaxsif.limits import read_number

# srun's option -> the attribute of RunOptions that means the same, and what reads its value.
_LONG: dict[str, tuple[str, Any]] = {
    "--nodes": ("nodes", read_number),
    "--ntasks": ("ntasks", read_number),
    "--ntasks-per-node": ("ntasks_per_node", read_number),
    "--gpus-per-node": ("gpus_per_node", str),
    "--gpus-per-task": ("gpus_per_task", read_number),
    "--cpus-per-task": ("cpus_per_task", read_number),
    "--gpu-bind": ("gpu_bind", str),
}
_OTHER: tuple[str, Any] = ("", lambda _value: None)  # says nothing of the layout
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-c": "--cpus-per-task"}
_GRES = "--gres=gpu:"


def lift(words: Sequence[str], given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the attributes that `words` set, and the words that are left for srun.

    A value that is no plain number, such as --nodes=2-4, is left to srun too. Raises JaxsifError
    where an option of `jaxsif run` in `given` says something else.
    """
    found: dict[str, Any] = {}
    left: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, value, used = _read(word, rest)
        field, read = _LONG.get(name, _OTHER)
        said = read(value)
        if said is None:
            left.append(word)
            continue
        del rest[:used]
        found[field] = said
        if given.get(field) not in (None, said):
            raise JaxsifError(
                f"{name}={given[field]} and {name}={value} contradict each other", "--srun-args"
            )
    return found, tuple(left)


def _read(word: str, following: Sequence[str]) -> tuple[str, str, int]:
    """Return the long name, the value, and how many of the following words it took.

    The forms are --a=1, --a 1, -a1 and -a 1.
    """
    if word.startswith(_GRES) and "," not in word:
        return "--gpus-per-node", word[len(_GRES) :], 0
    name, separator, value = word.partition("=")
    if word[:2] in _SHORT:
        name, separator, value = _SHORT[word[:2]], word[2:], word[2:]
    if separator or not following:
        return name, value, 0
    return name, following[0], 1
