"""What was asked for, of all sources: the command line, variables, files."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.job.srun_args import lift
from jaxsif.settings.config import NOTHING, Config, Setting, read_config, resolve
from jaxsif.settings.options import split_words
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
    values = resolve(said, environ, config, in_job=in_job, fixed=fixed)
    return Settings(config, values, RunOptions(tuple(command), **_attributes(values, environ)))


def _attributes(values: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of RunOptions that are set; what has none becomes the container."""
    said = {key.replace("-", "_"): setting.value for key, setting in values.items()}
    found = {field: said[field] for field in RunOptions._fields if field in said}
    sources = {key: setting.source for key, setting in values.items()}
    if _asks_for_mpirun(values):
        found["launcher"] = "mpirun"
    found["binds"] = tuple(found.get("binds", ()))
    found["env"] = parse_env(found.get("env", ()), environ, sources.get("env", ""))
    source = sources.get("srun-args", "")
    words = [word for text in found.get("srun_args", ()) for word in split_words(text, source)]
    lifted, found["srun_args"] = lift(words, found)
    sources.update({field.replace("_", "-"): source for field in lifted})
    return {**found, **lifted, "sources": sources}


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
