"""All checks, the most important first; each takes the facts and yields its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from jaxsif.doctor import devices, network, system
from jaxsif.doctor.facts import DoctorFacts
from jaxsif.doctor.result import OK, CheckResult, Results, unknown
from jaxsif.task.contract import DRIVER, IMAGE, KERNEL_LOG, NETWORK, SITE_CHECKS

Check = Callable[[DoctorFacts], Results]


class Need(NamedTuple):
    """Facts without which a check has nothing to judge."""

    reason: str  # shown if they are missing
    is_met: Callable[[DoctorFacts], bool]
    probe: str = ""  # of jaxsif/node/node_facts.py, which collects the facts


_NODES = Need("there is only one node", lambda seen: len(seen.nodes) > 1)
_TASKS = Need("no task has reported", lambda seen: bool(seen.tasks))
_SUM = Need("--no-sum", lambda seen: not seen.host.quick)
_NCCL = Need("NCCL has not run", lambda seen: any(one.network for one in seen.sums.values()))
_PLANNED = Need("no task uses NVIDIA GPUs", lambda seen: bool(devices.find_gpu_tasks(seen)))
_DRIVER = Need("no node has the NVIDIA driver", lambda seen: _any(seen, "driver"), DRIVER)
_GPUS = Need("no node has visible NVIDIA GPUs", lambda seen: _any(seen, "gpus"), DRIVER)
_RATES = Need(
    "rates are measured only in steps of 2 to 128 nodes",
    lambda seen: _any(seen, "rate"),
    NETWORK,
)
_IMAGE = Need("the nodes mount no image file", lambda seen: _any(seen, "image"), IMAGE)
_FOLDERS = Need("no folder was given", lambda seen: _any(seen, "folders"), NETWORK)
_LOG = Need(
    "users are not allowed to read the kernel's log",
    lambda seen: any(node.kernel is not None for node in seen.nodes.values()),
    KERNEL_LOG,
)
_SLURM = Need("scontrol does not show Slurm's configuration", lambda seen: bool(seen.host.slurm))
_END = Need("the job's end time is not known", lambda seen: bool(system.find_left(seen)))
_OWN = Need("the site has no checks", lambda seen: _any(seen, "site"), SITE_CHECKS)
CHECKS: tuple[tuple[Check, Need | None], ...] = (
    (system.check_answers, None),
    (system.check_container, None),
    (system.check_start, None),
    (system.check_sum, _SUM),
    (network.check_port, _NODES),
    (network.check_names, _NODES),
    (devices.check_gpus, _PLANNED),
    (network.check_image, _IMAGE),
    (devices.check_driver, _DRIVER),
    (network.check_transport, _NCCL),
    (network.check_links, _RATES),
    (network.check_folders, _FOLDERS),
    (network.check_proxies, _TASKS),
    (system.check_python, _TASKS),
    (system.check_alike, _TASKS),
    (system.check_flags, _TASKS),
    (system.check_space, None),
    (system.check_slurm, _SLURM),
    (system.check_limits, _TASKS),
    (system.check_cpus, _TASKS),
    (devices.check_memory, _GPUS),
    (network.check_clocks, _NODES),
    (network.check_infiniband, None),
    (network.check_verbs, _TASKS),
    (devices.check_health, _GPUS),
    (devices.check_power, _GPUS),
    (devices.check_xid, _LOG),
    (devices.check_nccl, _TASKS),
    (devices.check_imex, _TASKS),
    (system.check_places, _TASKS),
    (system.check_user, _TASKS),
    (system.check_sockets, _TASKS),
    (system.check_time, _END),
    (system.check_messages, None),
    (system.check_probes, None),
    (system.check_site, _OWN),
)


def _any(seen: DoctorFacts, name: str) -> bool:
    return any(getattr(node, name) for node in seen.nodes.values())


def _explain_lack(need: Need, seen: DoctorFacts) -> str:
    failed = {probe for node in seen.nodes.values() for probe, _ in node.failed}
    return f"cannot examine {need.probe}" if need.probe in failed else need.reason


def judge(seen: DoctorFacts) -> Iterator[CheckResult]:
    """Yield the results of all checks: one without findings is ok; one that lacks facts is unknown,
    not ok.
    """
    for check, need in CHECKS:
        lack = _explain_lack(need, seen) if need and not need.is_met(seen) else ""
        found = [unknown(lack)] if lack else list(check(seen)) or [CheckResult(OK, "")]
        name, page = check.__name__.removeprefix("check_"), check.__module__.rpartition(".")[2]
        for result in found:
            yield result._replace(check=name, page=f"docs/doctor.md#{page}")
