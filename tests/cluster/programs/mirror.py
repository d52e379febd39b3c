"""Print, as JSON, what a program can see of how Python was started; compared with and without the task shim."""

import json
import sys
import threading

import __main__

print(
    json.dumps(
        {
            "argv": sys.argv,
            "orig_argv": sys.orig_argv[1:],
            "path": sys.path,
            "flags": str(sys.flags),
            "name": __name__,
            "file": globals().get("__file__"),
            "package": __package__,
            "spec": __spec__ and __spec__.name,
            "main is this": vars(__main__) is globals(),
            "excepthook": sys.excepthook is sys.__excepthook__,
            "threads": threading.active_count(),
            "stdout": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through],
        },
        indent=1,
    )
)
