"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with SIGINT ignored, and all that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
