"""This package's slot, one of the six for tools, in Python's sys.monitoring (3.12 and later)."""

from __future__ import annotations

import sys
from typing import Any

# A slot that no debugger, profiler or coverage tool uses.
TOOL = 3
_NAME = "jaxsif"


def claim() -> Any:
    """Return sys.monitoring, for the events of TOOL, or None before Python 3.12 or if another tool
    holds the slot.
    """
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    holder = monitoring.get_tool(TOOL)
    if holder is None:
        monitoring.use_tool_id(TOOL, _NAME)
    return monitoring if holder in (None, _NAME) else None
