"""jaxsif completion: what a shell needs to complete the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from jaxsif.help.bash import render_bash
from jaxsif.help.fish import render_fish
from jaxsif.help.zsh import render_zsh

DESCRIPTION = """\
Print a script by which a shell completes commands, options, files and layers. It starts no jaxsif.

examples:
  source <(jaxsif completion bash)
        in this shell; an installed jaxsif has the scripts below $JAXSIF_HOME/share
  source <(jaxsif completion zsh)
        after compinit
  jaxsif completion fish | source
"""


RENDER = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of `jaxsif completion`."""
    parser.add_argument("shell", choices=tuple(RENDER), help="the shell")
    parser.set_defaults(program=None)  # by cli.py


def call(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print it."""
    print(RENDER[arguments.shell](arguments.program), end="")
    return 0
