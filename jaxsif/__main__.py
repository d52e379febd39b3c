"""`python -m jaxsif`."""

from jaxsif.cli import run_and_exit

run_and_exit()
