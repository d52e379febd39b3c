"""What was asked for, of all sources: the command line, variables, files."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from jaxsif.job.srun_args import lift
from jaxsif.settings.config import Config, Setting, read_config, resolve
from jaxsif.settings.options import split_words
from jaxsif.settings.request import RunOptions
from jaxsif.settings.variables import parse_env

# The keys that are no attributes of RunOptions: what they name becomes the container.
_OF_CONTAINER = frozenset(
    (
        *("image", "layers", "fabric", "stage", "stage-folder"),
        *("compile-cache", "compile-cache-folder"),
    )
)


class Settings(NamedTuple):
    """What was asked for, and what said so."""

    config: Config  # of the files
    values: Mapping[str, Setting]  # all options that something sets, by their keys
    asked: RunOptions

    def value(self, key: str) -> Any:
        """Return the value of an option, None where nothing sets it."""
        return self.values[key].value if key in self.values else None

    def is_on_command_line(self, key: str) -> bool:
        """Whether the command line sets an option."""
        return key in self.values and self.values[key].source == f"--{key}"


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
    """Return the attributes of RunOptions that are set."""
    taken = {key: setting for key, setting in values.items() if key not in _OF_CONTAINER}
    found = {key.replace("-", "_"): setting.value for key, setting in taken.items()}
    sources = {key: setting.source for key, setting in values.items()}
    if _asks_for_mpirun(values):
        found["launcher"] = "mpirun"
    if "binds" in taken:
        found["binds"] = tuple(found["binds"])
    if "env" in taken:
        found["env"] = parse_env(found["env"], environ, sources["env"])
    if "srun-args" in taken:
        source = sources["srun-args"]
        words = [word for text in found["srun_args"] for word in split_words(text, source)]
        lifted, found["srun_args"] = lift(words, found)
        found.update(lifted)
        sources.update({field.replace("_", "-"): source for field in lifted})
    return {**found, "sources": sources}


def _asks_for_mpirun(values: Mapping[str, Setting]) -> bool:
    """Whether a list of hosts, which only mpirun takes, is stronger than the launcher's setting."""
    launcher = values["launcher"].source if "launcher" in values else ""
    for key in ("hosts", "hostfile"):
        if key in values and not launcher:
            return True
        if key in values and values[key].source == f"--{key}" and launcher != "--launcher":
            return True
    return False
