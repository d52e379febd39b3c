"""End a task whose worker runs the program again. Workers that multiprocessing spawns import the
script, and so run all of it that is not under `if __name__ == "__main__"`.

Such a worker would call jax.distributed.initialize as the process that its parent is. JAX then
aborts all processes, after 2 to 60 seconds and hundreds of lines that do not tell why.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from . import importing
from .contract import SPAWNED
from .failure import SPAWNED_HINT, Emit, find_place

_TEXT = f"RuntimeError: {SPAWNED[1]}, up to jax.distributed.initialize"


def install(emit: Emit) -> None:
    """Have `emit` told before a worker connects; nothing changes in other processes."""
    parent = os.getppid()

    def guard(module: Any) -> None:
        process: Any = sys.modules.get("multiprocessing.process")
        # Set while a worker imports the script.
        if process and getattr(process.current_process(), "_inheriting", False):
            connect = module.initialize

            def initialize(*arguments: Any, **keywords: Any) -> None:
                if arguments or keywords.keys() & {"coordinator_address", "process_id"}:
                    connect(*arguments, **keywords)  # to processes of its own
                else:
                    _end_task(emit, parent)

            module.initialize = initialize

    importing.after("jax._src.distributed", guard)


def _end_task(emit: Emit, parent: int) -> None:
    where = find_place(_list_frames())
    emit({"event": "exception", "text": _TEXT, "where": where, "hint": SPAWNED_HINT})
    if os.getppid() == parent:  # another worker may have ended it
        os.kill(parent, signal.SIGABRT)  # as JAX does
    os._exit(1)


def _list_frames() -> list[tuple[str, object]]:
    """Return the files and lines of this thread, from the outermost one."""
    frames: list[tuple[str, object]] = []
    frame = sys._getframe(1)
    while frame:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return frames[::-1]
