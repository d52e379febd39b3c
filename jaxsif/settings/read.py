"""What was asked for, of all sources: the command line, variables, files."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.errors import JaxsifError
from jaxsif.job.srun_args import lift
from jaxsif.job.srun_options import find_unsafe, flag_of
from jaxsif.limits import shorten
from jaxsif.settings.config import NOTHING, RIVALS, Config, Setting, read_config, resolve
from jaxsif.settings.options import split_words
from jaxsif.settings.passed import FIELD
from jaxsif.settings.request import RunOptions
from jaxsif.settings.variables import parse_env


class Settings(NamedTuple):
    """What was asked for, and what said so."""

    config: Config  # of the files
    values: Mapping[str, Setting]  # all options that something sets, by their keys
    asked: RunOptions

    def value(self, key: str) -> Any:
        """Return the value of an option, None where nothing sets it."""
        return self.values.get(key, NOTHING).value

    def is_on_command_line(self, key: str) -> bool:
        """Whether the command line sets an option."""
        return self.values.get(key, NOTHING).source == f"--{key}"


def read_settings(
    said: Mapping[str, Any],
    command: Sequence[str],
    environ: Mapping[str, str],
    in_job: bool,
    fixed: Container[str] = (),
) -> Settings:
    """Return what the command line `said`, completed from variables and files.

    Options whose keys are in `fixed` mean nothing to the command, whatever files and variables say
    of them. Raises JaxsifError for what is no setting.
    """
    config = read_config(environ, os.getcwd())
    words = tuple((said.get(FIELD) or {}).values())
    lifted, passed = lift(words, said, "the command line")
    values = resolve({**said, **lifted}, environ, config, in_job=in_job, fixed=fixed)
    attributes = _attributes(values, environ, passed, config.project)
    return Settings(config, values, RunOptions(tuple(command), **attributes))


def _attributes(
    values: Mapping[str, Setting],
    environ: Mapping[str, str],
    passed: Sequence[str],
    project: str,
) -> dict[str, Any]:
    """Return the attributes of RunOptions that are set; what has none becomes the container.

    `passed` are srun's own options, `project` is the path of the project's file.
    """
    said = {key.replace("-", "_"): setting.value for key, setting in values.items()}
    found = {field: said[field] for field in RunOptions._fields if field in said}
    sources = {key: setting.source for key, setting in values.items()}
    if _asks_for_mpirun(values):
        found["launcher"] = "mpirun"
    found["binds"] = tuple(found.get("binds", ()))
    _check_binds(found["binds"], sources.get("binds", ""))
    found["env"] = parse_env(found.get("env", ()), environ, sources.get("env", ""))
    source = sources.get("srun-args", "")
    words = [word for text in found.get("srun_args", ()) for word in split_words(text, source)]
    if source == f"run.srun-args in {project}":
        _check_project_words(words, source)
    overruled = _find_overruled(values, passed)
    lifted, found["srun_args"] = lift(words, found, source, overruled)
    found["passed"] = tuple(passed)
    found.update(_split_values(found))
    sources.update({field.replace("_", "-"): source for field in lifted})
    return {**found, **lifted, "sources": sources}


def _check_binds(binds: Sequence[str], source: str) -> None:
    """Raise JaxsifError for a bind without a path of the host, which the runtime would ignore."""
    for bind in binds:
        if not bind.partition(":")[0].strip():
            raise JaxsifError(f"a bind names no path: {bind!r}", source, "SRC[:DEST[:OPTS]]")


def _check_project_words(words: Sequence[str], source: str) -> None:
    """Raise JaxsifError for words by which srun would run a program that the project chose, on this
    host too.
    """
    found = next(find_unsafe(words), None)
    if found:
        raise JaxsifError(
            f"a project's file cannot pass this to srun: {shorten(found)}",
            source,
            "set it on the command line, or in your own jaxsif.toml",
        )


def _find_overruled(values: Mapping[str, Setting], passed: Sequence[str]) -> set[str]:
    """Return the attributes of which --srun-args say nothing: what a stronger source sets, what
    settles the same as that, and srun's own options of the command line.
    """
    own = _rank(values.get("srun-args", NOTHING).source)
    stronger = {key for key, one in values.items() if _rank(one.source) > own}
    asked = {key for key in stronger if values[key].value}
    settled = {key for key, rivals in RIVALS.items() if not asked.isdisjoint(rivals)}
    flags = {flag_of(word)[2:] for word in passed}
    return {key.replace("-", "_") for key in stronger | settled | flags}


def _rank(source: str) -> tuple[bool, bool]:
    """Return whether a source is the command line, and whether it is a variable: more is
    stronger.
    """
    return source.startswith("--"), source.endswith(" (environment)")


def _split_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that --nodes=MIN-MAX, --gpus and --gpus-per-task=TYPE:N set."""
    split: dict[str, Any] = {}
    nodes, each = found.get("nodes"), str(found.get("gpus_per_task") or "")
    if isinstance(nodes, str):
        least, _, most = nodes.partition("-")
        split.update(nodes=None, node_range=(int(least), int(most)))
    if each:
        kind, _, number = each.rpartition(":")
        split.update(gpu_type=kind, gpus_per_task=int(number))
    if found.get("gpus"):
        split["gpus"] = str(found["gpus"])
    return split


def _asks_for_mpirun(values: Mapping[str, Setting]) -> bool:
    """Return whether a list of hosts, which only mpirun takes, is stronger than the launcher's
    setting.
    """
    lists = max(_strength(values, "hosts"), _strength(values, "hostfile"))
    return lists > _strength(values, "launcher")


def _strength(values: Mapping[str, Setting], key: str) -> tuple[bool, bool]:
    """Return whether anything sets an option, and whether the command line does: more is
    stronger.
    """
    return key in values, values.get(key, NOTHING).source == f"--{key}"
