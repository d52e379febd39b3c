"""One of the six places for tools in Python's sys.monitoring (3.12 and later), for this package."""

from __future__ import annotations

import sys
from typing import Any

# A place that no debugger, profiler or coverage tool claims.
TOOL = 3
_NAME = "jaxsif"


def claim() -> Any:
    """Return sys.monitoring, for the events of TOOL; None before Python 3.12, or where somebody
    else has the place.
    """
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    holder = monitoring.get_tool(TOOL)
    if holder is None:
        monitoring.use_tool_id(TOOL, _NAME)
    return monitoring if holder in (None, _NAME) else None
