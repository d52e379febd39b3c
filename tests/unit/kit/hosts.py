"""A host and a container that plans are made for in tests."""

from __future__ import annotations

from collections.abc import Mapping

from jaxsif.job.allocation import Allocation
from jaxsif.job.srun_options import SrunArgument, split_options
from jaxsif.launch.coordinator import find_coordinator
from jaxsif.launch.probe import choose_launcher
from jaxsif.plan.container import Container
from jaxsif.plan.host import Host
from jaxsif.plan.plan import Plan, build
from jaxsif.runtime import Runtime
from jaxsif.settings.options import TASK, RunOptions

APPTAINER = Runtime("apptainer", "APPTAINERENV_")
LOGIN_NODE = Host(srun=True, runtime=APPTAINER, python="/usr/bin/python3", package="/sw/jaxsif/lib/jaxsif")
WORKSTATION = LOGIN_NODE._replace(srun=False, gpus=2)
LAPTOP = LOGIN_NODE._replace(srun=False, runtime=None, package="/home/a/jaxsif")
CONTAINER = Container(APPTAINER, "/sw/containers/jax.sif", "JAX_IMAGE (environment)")
NONCES = ("2c3d", "4e5f")
SRUN = choose_launcher("srun", True, None)


def srun_words(*words: str) -> tuple[SrunArgument, ...]:
    """Options of srun as RunOptions has them."""
    return tuple(split_options(words))


def plan_for(
    asked: RunOptions,
    host: Host = LOGIN_NODE,
    container: Container = CONTAINER,
    environ: Mapping[str, str] | None = None,
    credentials: str = "",
) -> Plan:
    """The plan on that host, in the job that `environ` tells of, if it is given; the port is 61234."""
    if environ is not None:
        host = host._replace(allocation=Allocation.from_environ(environ), environ=environ)
    launcher = choose_launcher(asked.launcher, host.srun, host.allocation)
    coordinator = find_coordinator(asked, 61234, "0a1b", one_machine=not launcher.spans_nodes)
    mine = None
    if host.runtime:
        binds = (*container.binds, *asked.binds)
        mine = container._replace(runtime=host.runtime, binds=binds, alone=asked.containers == TASK)
    return build(asked, launcher, host, mine, coordinator, NONCES, credentials)


def launch_words(plan: Plan) -> tuple[str, ...]:
    """The launcher and its options, without what each task executes."""
    return plan.argv[: -len(plan.task_argv)]
