"""A plan -> a kernel specification: the image as a kernel of a Jupyter that runs outside it."""

from __future__ import annotations

import json

from jaxsif.plan.container import Container
from jaxsif.plan.plan import Plan

MARK = "jaxsif"  # in a kernel's metadata: ours to replace
_COMMAND = ("python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")


def render_kernel(name: str, plan: Plan, container: Container, engine: str) -> str:
    """Return the text of kernel.json.

    `engine` is the path of the container engine: whoever starts kernels may have another PATH.
    """
    runtime = container.runtime._replace(command=engine)
    alone = container._replace(runtime=runtime, alone=True)
    # The kernel starts later, when the image may differ from the one that a policy allowed.
    argv = alone.share(plan.host, _COMMAND) if container.allowed else alone.execute(_COMMAND)
    variables = plan.environment.container.items()
    kernel = {
        "argv": argv,
        "display_name": name,
        "language": "python",
        # The engine is between Jupyter and Python; a message gets through.
        "interrupt_mode": "message",
        "env": runtime.environ(pair for pair in variables if not pair[0].startswith("JAXSIF_")),
        "metadata": {MARK: {"image": container.image}},
    }
    return json.dumps(kernel, indent=1) + "\n"
