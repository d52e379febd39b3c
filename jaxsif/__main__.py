"""`python -m jaxsif`."""

import gc
import signal

# A Ctrl-C ends this process silently until `main` can handle it: Python would print a traceback of
# the imports. Where SIGINT is ignored, it stays so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# The imports make many objects that stay. With Python's own threshold, examining them again and
# again takes about a twentieth of the start.
gc.set_threshold(100_000)

from jaxsif.cli import run_and_exit  # noqa: E402

run_and_exit()
