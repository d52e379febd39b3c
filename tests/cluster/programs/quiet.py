"""Compute for TIMES x 20 s, and print what this process, its observer and the node have written and sent each time.

quiet.py TIMES
"""

import json
import re
import socket
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp


def counters():
    """Bytes that the process and its observer have written, to disks and in all; packets that the node has sent."""
    (observer,) = [thread.native_id for thread in threading.enumerate() if thread.name == "jaxsif-observer"]
    found = {}
    for name, path in {"process": "", "observer": f"task/{observer}/"}.items():
        fields = dict(re.findall(r"(\w+): (\d+)", Path(f"/proc/self/{path}io").read_text()))
        found.update({f"{name} disk": int(fields["write_bytes"]), f"{name} wrote": int(fields["wchar"])})
    names, values = re.findall(r"^Ip: (.*)", Path("/proc/net/snmp").read_text(), re.MULTILINE)
    found["packets"] = int(dict(zip(names.split(), values.split()))["OutRequests"])
    return found


step = jax.jit(lambda value: jnp.sin(value) @ value)
value = step(jnp.ones((50, 50))).block_until_ready()


def compute(seconds):
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        step(value).block_until_ready()
        time.sleep(0.01)


compute(5)  # what the start has left to do
found = []
for _ in range(int(sys.argv[1])):
    before = counters()
    compute(20)
    after = counters()
    found.append({"node": socket.gethostname(), **{name: after[name] - before[name] for name in after}})
print(*map(json.dumps, found), sep="\n")  # now: what is printed is sent
