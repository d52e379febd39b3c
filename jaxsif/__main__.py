"""`python -m jaxsif`."""

import signal

# A Ctrl-C ends this process silently until `main` can handle it: Python would print a traceback of
# the imports. Where SIGINT is ignored, it stays so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from jaxsif.cli import run_and_exit

run_and_exit()
