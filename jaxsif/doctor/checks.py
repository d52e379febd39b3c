"""All checks, the most important first; each takes the facts and yields what it has found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxsif.doctor import devices, network, system
from jaxsif.doctor.facts import DoctorFacts
from jaxsif.doctor.result import OK, CheckResult, Results

Check = Callable[[DoctorFacts], Results]
CHECKS: tuple[Check, ...] = (
    system.check_answers,
    system.check_container,
    system.check_start,
    system.check_sum,
    network.check_port,
    network.check_names,
    devices.check_gpus,
    network.check_image,
    devices.check_driver,
    network.check_transport,
    network.check_links,
    network.check_folders,
    network.check_proxies,
    system.check_python,
    system.check_alike,
    system.check_flags,
    system.check_space,
    system.check_slurm,
    system.check_limits,
    system.check_cpus,
    devices.check_memory,
    network.check_clocks,
    network.check_infiniband,
    network.check_verbs,
    devices.check_health,
    devices.check_power,
    devices.check_xid,
    devices.check_nccl,
    devices.check_imex,
    system.check_places,
    system.check_user,
    system.check_sockets,
    system.check_time,
    system.check_messages,
    system.check_probes,
    system.check_site,
)


def judge(seen: DoctorFacts) -> Iterator[CheckResult]:
    """Yield the results of all checks; a check without any finding is ok."""
    for check in CHECKS:
        name, page = check.__name__.removeprefix("check_"), check.__module__.rpartition(".")[2]
        for result in list(check(seen)) or [CheckResult(OK, "")]:
            yield result._replace(check=name, page=f"docs/doctor.md#{page}")
