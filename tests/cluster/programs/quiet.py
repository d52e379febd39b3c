"""Compute for TIMES x 20 s, and print what this process, its observer and the node have written and sent each time.

quiet.py TIMES
"""

import json
import re
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp


def counters():
    """Bytes: to disks, by the process and the observer's thread; all that the process has written; on the network."""
    (observer,) = [thread.native_id for thread in threading.enumerate() if thread.name == "jaxsif-observer"]
    found = {}
    for name, path in {"process": "", "observer": f"task/{observer}/"}.items():
        fields = dict(re.findall(r"(\w+): (\d+)", Path(f"/proc/self/{path}io").read_text()))
        found.update({f"{name} disk": int(fields["write_bytes"]), f"{name} wrote": int(fields["wchar"])})
    for link, received, sent in re.findall(r"(eth\d):\s*(\d+)(?:\s+\d+){7}\s+(\d+)", Path("/proc/net/dev").read_text()):
        found.update({f"{link} received": int(received), f"{link} sent": int(sent)})
    return found


step = jax.jit(lambda value: jnp.sin(value) @ value)
value = step(jnp.ones((50, 50))).block_until_ready()


def compute(seconds):
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        step(value).block_until_ready()
        time.sleep(0.01)


compute(5)  # what the start has left to do
for _ in range(int(sys.argv[1])):
    before = counters()
    compute(20)
    after = counters()
    print(json.dumps({name: after[name] - before[name] for name in after}))
