"""Settings -> the text of slurm.conf, gres.conf, cgroup.conf and /etc/hosts."""

from __future__ import annotations

from .settings import CPUS_PER_NODE, GPUS_PER_NODE, Settings

LOGIN = "login"
# The box has a network namespace of its own, so a fixed private range meets nobody else's.
_LOGIN_ADDRESS = "10.77.0.1"
# The nodes have a second network, as clusters have: their names there end so, and Slurm knows nothing of it.
_SECOND = ("10.77.", "10.78.", "-ib")


def addresses(settings: Settings) -> dict[str, str]:
    """Name -> IPv4 address of the login node and every compute node."""
    compute = {name: f"10.77.1.{i}" for i, name in enumerate(settings.node_names, 1)}
    return {LOGIN: _LOGIN_ADDRESS, **compute}


def render_hosts(settings: Settings) -> str:
    """/etc/hosts, the cluster's only name service."""
    first, second, suffix = _SECOND
    lines = [f"{address} {name}" for name, address in addresses(settings).items()]
    lines += [f"{address.replace(first, second)} {name}{suffix}" for name, address in addresses(settings).items()]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost ip6-localhost", *lines]) + "\n"


def render_slurm_conf(settings: Settings) -> str:
    """slurm.conf, with the lines of MINICLUSTER_SLURM_CONF at its end.

    CPUs and memory are declared, not measured (config_overrides): a 2-core laptop plays a 64-core cluster.
    """
    nodes = ",".join(settings.node_names)
    extra = settings.extra_conf.read_text() if settings.extra_conf else ""
    return f"""\
# A cluster in a box, Debian {settings.suite}.
ClusterName=minicluster
SlurmctldHost={LOGIN}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/{"cgroup" if settings.has_freezer else "linuxproc"}
TaskPlugin=task/none
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
# Heterogeneous jobs start in the turns of the backfill scheduler, which come every 30 s by default.
SchedulerParameters=sched_min_interval=50000,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
GresTypes=gpu
NodeName={nodes} CPUs={CPUS_PER_NODE} RealMemory=20000 Gres=gpu:a100:{GPUS_PER_NODE} Feature=a100 State=UNKNOWN
PartitionName=batch Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
{extra}"""


def render_gres_conf() -> str:
    """gres.conf: made-up GPUs, device nodes that lead to /dev/null."""
    return f"AutoDetect=off\nName=gpu Type=a100 File=/dev/fakegpu[0-{GPUS_PER_NODE - 1}]\n"


def render_cgroup_conf(settings: Settings) -> str:
    """cgroup.conf."""
    return f"CgroupPlugin={'cgroup/v1' if settings.has_freezer else 'disabled'}\n"
