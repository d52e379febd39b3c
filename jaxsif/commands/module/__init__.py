"""jaxsif module …: one module a verb."""

from __future__ import annotations

import argparse


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """Add --prefix, which all verbs have."""
    parser.add_argument(
        "--prefix", metavar="FOLDER", help="the PREFIX of the installed launcher (this one's)"
    )
