"""jaxsif home: the folder of slurm/, containers/ and the modules' templates."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.installation import find_share

DESCRIPTION = """\
Print the folder that has slurm/ (job scripts and programs to start from) and containers/ (what \
images are made of).
With a site's module it is also $JAXSIF_HOME.

examples:
  jaxsif home
        cp -r "$(jaxsif home)/slurm" . copies the programs
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: it has no options."""


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    print(find_share())
    return 0
