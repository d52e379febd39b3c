"""The table of the tasks' environment: which variables are set, passed on and removed, and why.
docs/environment.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from jaxsif.task import contract

# The actions for a variable; `--env` overrides all of them.
SET = "set"  # in every task, whatever the host has
DEFAULT = "default"  # set, unless the host has it
UNSET = "unset"  # removed
UPPER = "upper case"  # renamed to upper case, unless the host has that name
PASS = "passed"  # unchanged, even with --cleanenv
# Passed; each task drops it if it names no file in the container (jaxsif/task/start.sh).
PATH = "if there"
RUNTIME = "replaced"  # by the runtime: the host's value is for programs outside the container
_GIVEN = "..."  # for a value that the caller may give

REPORT = contract.REPORT
CACHE = "JAX_COMPILATION_CACHE_DIR"
PREEMPTION = "JAX_ENABLE_PREEMPTION_SERVICE"
MEMORY, OLD_MEMORY = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"


class Rule(NamedTuple):
    """The action for variables, by name; if several patterns match, such as `SLURM_*`, the longest
    pattern counts.
    """

    action: str
    names: tuple[str, ...]
    why: str
    value: str = _GIVEN  # for SET and DEFAULT
    container: bool = False  # matters only at the border of a container


RULES = (
    Rule(SET, (REPORT,), "tasks report how they end, in lines that begin with it"),
    Rule(
        SET,
        (contract.COORDINATOR_PORT,),
        "JAX's own choice would be the same for all steps of a job",
    ),
    Rule(SET, (contract.NODE_ADDRESS,), "`--node-address`, for each task"),
    Rule(
        SET,
        (contract.CREDENTIALS, contract.COORDINATOR_TLS),
        "`--coordinator-tls`: the run's certificate and its key, which the program finds in a"
        " file in memory",
    ),
    Rule(
        SET,
        (contract.INIT_TIMEOUT, contract.HEARTBEAT_TIMEOUT, contract.SHUTDOWN_TIMEOUT),
        "`--init-timeout` and similar options, for each task",
    ),
    Rule(
        SET,
        (contract.HANG_TIMEOUT,),
        "`--hang-timeout`: each task monitors itself, for hang reports and `jaxsif stacks`",
    ),
    Rule(
        SET,
        (contract.CHECK_PROGRAMS,),
        "`--check-programs`: each task reports what it compiles for several tasks",
    ),
    Rule(
        SET,
        (contract.NOTICES,),
        "`--max-requeues`, `--max-restarts`: SIGTERM may announce the end of the job; then"
        " `JAX_ENABLE_PREEMPTION_SERVICE` is 1",
    ),
    Rule(SET, (contract.TASK_LOG,), "`--log-dir`: each task copies its output into its own files"),
    Rule(SET, (contract.LAYOUT,), "each task checks what it sees against the plan"),
    Rule(
        SET,
        (contract.FABRIC, contract.FABRIC_NEEDS, contract.FABRIC_LIBRARIES),
        "`--fabric`: its name, what a node must have, where its libraries are;"
        " each task checks its node",
    ),
    Rule(
        DEFAULT,
        (MEMORY,),
        "`--share-gpus`: without it, each task takes 75 % of the GPU's memory",
    ),
    Rule(
        DEFAULT,
        (PREEMPTION,),
        "with 1, JAX ignores SIGTERM, and only SIGKILL ends the task",
        value="0",
    ),
    Rule(DEFAULT, (CACHE,), "the compile cache, where later runs find what JAX has compiled"),
    Rule(SET, (contract.OWN_CACHE,), "that folder is jaxsif's"),
    Rule(
        SET,
        ("PYTHONNOUSERSITE",),
        "`~/.local` has packages for another Python",
        value="1",
        container=True,
    ),
    Rule(
        UNSET,
        ("PYTHONHOME",),
        "the image's Python would not find its own standard library",
        container=True,
    ),
    Rule(
        UNSET,
        ("LD_PRELOAD",),
        "a library of the host may be incompatible with those of the image",
        container=True,
    ),
    Rule(
        RUNTIME,
        ("LD_LIBRARY_PATH", "PATH"),
        "the host's folders are not those of the image",
        container=True,
    ),
    Rule(
        SET,
        ("LC_ALL",),
        "images lack the host's locale; this one is UTF-8, and every image has it",
        value="C.UTF-8",
        container=True,
    ),
    Rule(PATH, ("TMPDIR", "TMP", "TEMP"), "programs use `/tmp`; jaxsif warns", container=True),
    Rule(
        PATH,
        ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        "programs use the image's certificates; jaxsif warns",
        container=True,
    ),
    Rule(
        PATH,
        (
            *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
            *("XDG_DATA_HOME", "XDG_STATE_HOME"),
        ),
        "programs use their folders under the home folder",
        container=True,
    ),
    Rule(
        UPPER,
        ("http_proxy", "https_proxy"),
        "gRPC would connect the tasks through it; most programs read both",
    ),
    Rule(UNSET, ("grpc_proxy",), "gRPC would connect the tasks through it"),
    Rule(PASS, ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy"), "for downloads"),
    Rule(
        UNSET,
        ("OMPI_*", "PMIX_*", "PRTE_*"),
        "left by an enclosing `mpirun`: JAX would trust it over Slurm",
    ),
    Rule(UNSET, ("OMPI_MCA_ess*", "OMPI_MCA_orte_*"), "likewise: how Open MPI 4 finds its daemons"),
    Rule(
        UNSET,
        ("PMI_FD", "PMI_RANK", "PMI_SIZE"),
        "likewise: the rank that MPI programs would assume",
    ),
    Rule(PASS, ("OMPI_ALLOW_*", "PRTE_ALLOW_*"), "without them, mpirun refuses to run as root"),
    Rule(
        PASS,
        ("OMPI_MCA_*", "PMIX_MCA_*", "PRTE_MCA_*"),
        "MPI parameters, for programs with mpi4py",
    ),
    Rule(PASS, ("SLURM*", "SRUN_*", "PMI_*"), "srun's options, and how JAX finds its processes"),
    Rule(PASS, ("JAX_*", "JAXSIF_*", "XLA_*", "TF_*", "LIBTPU_*", "PJRT_*"), "options of JAX"),
    Rule(
        PASS,
        ("CUDA_*", "NVIDIA_*", "GPU_*", "ROCR_*", "ZE_*"),
        "`CUDA_VISIBLE_DEVICES`: in a step with GPUs, Slurm overrides it",
    ),
    Rule(PASS, ("NCCL_*", "FI_*", "UCX_*", "MELLANOX_*"), "networks"),
    Rule(PASS, ("OMP_*", "MKL_*", "OPENBLAS_*"), "thread counts of libraries"),
    Rule(
        PASS,
        ("APPTAINER*", "SINGULARITY*"),
        "options of the runtime; `APPTAINERENV_NAME` works like `--env`",
    ),
    Rule(
        DEFAULT,
        ("COLUMNS", "LINES"),
        "the size of your terminal, for one task that writes to it",
    ),
    Rule(
        PASS,
        ("HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "TZ", "KRB5CCNAME"),
        "who and where the user is",
    ),
)

_BY_NAME = {name: rule for rule in RULES for name in rule.names}
# The same without a container: variables that matter only at its border are left unchanged.
_BY_NAME_OUTSIDE = {
    **_BY_NAME,
    **{name: rule._replace(action=PASS) for name, rule in _BY_NAME.items() if rule.container},
}
# For names such as `SLURM_*`; the longest first.
_PREFIXES = tuple(sorted((name[:-1] for name in _BY_NAME if name[-1] == "*"), key=len)[::-1])
_RUNTIME_PREFIXES = ("APPTAINERENV_", "SINGULARITYENV_")


def _find_row(name: str) -> str:
    """Return the name of a variable in the table: its own, or the pattern that matches it."""
    if name in _BY_NAME or not name.startswith(_PREFIXES):
        return name
    return next(filter(name.startswith, _PREFIXES)) + "*"


def find_rule(name: str) -> Rule | None:
    """Return the rule for a variable, or None if the table does not have it."""
    return _BY_NAME.get(_find_row(name))


def _find_action(name: str, rules: Mapping[str, Rule], clean: bool) -> str:
    """Return the action for a variable of the host."""
    rule = rules.get(_find_row(name))
    return rule.action if rule else UNSET if clean else PASS


def _find_named(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the user or the site sets in containers in the runtime's own way,
    as in APPTAINERENV_NAME=VALUE.
    """
    return {
        name.partition("ENV_")[2]: value
        for name, value in environ.items()
        if name.startswith(_RUNTIME_PREFIXES)
    }


def names_of(action: str, at_border: bool = False) -> list[str]:
    """Return the names with an action, without patterns.

    With `at_border`, return those that matter only at the border of a container.
    """
    wanted = (action, at_border)
    return [
        name
        for name, rule in _BY_NAME.items()
        if (rule.action, rule.container) == wanted and not name.endswith("*")
    ]


class Environment(NamedTuple):
    """The changes to an environment."""

    host: dict[str, str]  # to add to the variables of srun
    unset: tuple[str, ...]  # to remove from them
    container: dict[str, str]  # to set in the container, overriding the image


def resolve_environment(
    environ: Mapping[str, str],
    env: Mapping[str, str],
    values: Mapping[str, str],
    clean: bool = False,
    container: bool = True,
) -> Environment:
    """Apply the table to `environ`. `env` has the variables of --env, `values` those that the table
    marks with '...'; `clean` is --cleanenv.
    """
    host: dict[str, str] = {}
    inside: dict[str, str] = {}
    unset = []
    rules = _BY_NAME if container else _BY_NAME_OUTSIDE
    for name in environ:
        action = _find_action(name, rules, clean)
        if action in (UNSET, UPPER):
            unset.append(name)
        if action == UPPER and name.upper() not in environ:
            host[name.upper()] = environ[name]
    named = _find_named(environ)
    of_user = {SET: named, DEFAULT: {**environ, **named}}  # which the table leaves as they are
    for name, rule in rules.items():
        value = values.get(name, rule.value)
        if rule.action in of_user and name not in of_user[rule.action] and value != _GIVEN:
            inside[name] = value
    return Environment(host, tuple(unset), {**inside, **env})


class Request(NamedTuple):
    """The input of a caution."""

    values: Mapping[str, str]  # the user's variables in the container
    gpus: int | None  # on each node
    tasks: int | None  # on each node
    given: Collection[str]  # names in `values` that --env or APPTAINERENV_NAME sets


class Caution(NamedTuple):
    """A variable's value that jaxsif keeps, although it is known to break runs."""

    name: str
    when: Callable[[str, Request], object]  # true or false, for the value of `name`
    what: str  # the warning; '{}' stands for the value
    condition: str  # `when`, in words


CAUTIONS = (
    Caution(
        "JAX_PLATFORMS",
        lambda value, request: request.gpus and value and not re.search("cuda|gpu|rocm", value),
        "JAX_PLATFORMS={}: JAX will not use the requested GPUs",
        "GPUs are requested, but it names none of `cuda`, `gpu` and `rocm`",
    ),
    Caution(
        OLD_MEMORY,
        lambda value, request: value and request.values.get(MEMORY),
        "XLA_CLIENT_MEM_FRACTION and XLA_PYTHON_CLIENT_MEM_FRACTION are both set:"
        " JAX refuses that on GPUs",
        "both are set",
    ),
    Caution(
        "JAX_ENABLE_RECOVERABILITY",
        lambda value, _: value.lower() in ("1", "true", "t", "yes", "y", "on"),
        "JAX_ENABLE_RECOVERABILITY={}: even successful runs end with SIGABRT",
        "it is true",
    ),
    Caution(
        "JAX_LOCAL_DEVICE_IDS",
        lambda _, request: request.gpus and (request.tasks or 1) > 1,
        "JAX_LOCAL_DEVICE_IDS={}: all tasks on a node take the same GPUs",
        "GPUs are requested, and there are several tasks per node",
    ),
    Caution(
        "JAX_COORDINATOR_ADDRESS",
        lambda value, request: value and "JAX_COORDINATOR_ADDRESS" not in request.given,
        "JAX_COORDINATOR_ADDRESS={}: JAX would connect there, not to this run; unset it, or pass it"
        " with --env",
        "set in your shell or job script; `--env` says that it is intended",
    ),
    Caution(
        "LD_LIBRARY_PATH",
        lambda value, _: value,
        "LD_LIBRARY_PATH={}: libraries there may take the place of those that come with JAX",
        "set by `--env`; the host's value is not passed on",
    ),
    Caution(
        "PATH",
        lambda value, request: value and "PATH" in request.given,
        "PATH={}: it replaces the image's own; to add to that, --env PREPEND_PATH=DIR",
        "set by `--env`; the host's value is not passed on",
    ),
    Caution(
        "PYTHONPATH",
        lambda value, _: re.search("(site|dist)-packages", value),
        "PYTHONPATH={}: packages for another Python may hide those of the image",
        "it has `site-packages` or `dist-packages`",
    ),
    *(
        Caution(
            name,
            lambda value, _: value,
            f"{name}={{}}: JAX's processes would connect through it",
            "set by `--env`; the host's value is renamed or removed",
        )
        for name in ("http_proxy", "https_proxy", "grpc_proxy")
    ),
)


def find_cautions(
    environ: Mapping[str, str],
    env: Mapping[str, str],
    clean: bool,
    gpus: int | None,
    tasks: int | None,
) -> tuple[str, ...]:
    """Return the warnings about the user's own variables."""
    kept = (PASS, PATH, DEFAULT)
    passed = {
        name: text for name, text in environ.items() if _find_action(name, _BY_NAME, clean) in kept
    }
    given = {**_find_named(environ), **env}
    values = {**passed, **given}
    request = Request(values, gpus, tasks, given)
    return tuple(
        caution.what.format(values[caution.name])
        for caution in CAUTIONS
        if caution.name in values and caution.when(values[caution.name], request)
    )
