"""A host that plans are made for in tests."""

from __future__ import annotations

from jaxsif.plan.host import Host
from jaxsif.runtime import Runtime

LOGIN_NODE = Host(
    srun=True,
    runtime=Runtime("apptainer", "APPTAINERENV_"),
    image="/sw/containers/jax.sif",
    python="/usr/bin/python3",
    package="/sw/jaxsif/lib/jaxsif",
    port=61234,
    step="0a1b",
    gpus=0,
    job_gpus=None,
    nonces=("2c3d", "4e5f"),
)
