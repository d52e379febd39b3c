"""A plan -> the text of a job script that does the same without jaxsif."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxsif.container.environment import DEFAULT, REPORT, SET, find_rule
from jaxsif.errors import JaxsifError
from jaxsif.layout.layout import Layout
from jaxsif.plan.coordinator import PORT_VARIABLE, parse_ports
from jaxsif.plan.host import Host
from jaxsif.plan.plan import LaunchPlan
from jaxsif.plan.step import layout_options
from jaxsif.settings.fabric import LIBRARIES, NEEDS
from jaxsif.settings.fabric import NAME as FABRIC
from jaxsif.settings.options import OPTIONS
from jaxsif.settings.request import RunOptions

# Between the launcher and the tasks, who are alone here.
_OF_THE_LAUNCHER = (REPORT, PORT_VARIABLE, FABRIC, NEEDS, LIBRARIES, "JAXSIF_CACHE")


class JobOptions(NamedTuple):
    """What is asked of sbatch beside the options of a run; None where nothing is."""

    job_name: str
    array: str | None = None  # 0-9%2
    dependency: str | None = None  # afterok:4711
    requeue: bool = False  # start again after a node failed
    output: str | None = None  # a file's name, with %j and others
    error: str | None = None  # likewise
    task_output: str | None = None  # likewise, with %t for each task's own
    sbatch_args: tuple[tuple[str, ...], ...] = ()  # further options, in lines of words


class Foreign(NamedTuple):
    """What the script must do itself for the image, since no hook of jaxsif in it does."""

    platforms: str | None = None  # JAX_PLATFORMS
    local_device_ids: str | None = None  # JAX_LOCAL_DEVICE_IDS


class AllowedFile(NamedTuple):
    """The image's file that a policy allows, as the job knows it again."""

    state: str  # INODE:SIZE:TIME, as `find_state` of jaxsif/images/file.py tells
    # SHA-256 of the whole file: to find the root file system in it takes more than a shell.
    checksum: str


# Stands before the program in the container: tells that the image is mounted, and waits for the
# second look.
_WAIT = 'echo mounted >&8; read -r go <&9 || exit 125; exec "$@" 8>&- 9<&-'
_LOOKS = r"""
# A policy allowed the image as it was when this script was written. Each task compares the file's inode, size and time
# of change, or else its SHA-256, before the container starts. It looks again once the image is mounted, and lets the
# program begin: between the two looks nothing may change.
image={image}
state={state}
checksum={checksum}
look() {{ [ -f "$image" ] && LC_ALL=C stat --format=%i:%s:%.9Z - <"$image"; }}
refuse() {{ # WHY
    echo "jaxsif: error: this is not the image that the policy allowed: $image on $SLURMD_NODENAME: $1" >&2
    exit 125
}}
look_again() {{ # FIRST LOOK
    read -r # until the image is mounted
    [ "$(look)" = "$1" ] || refuse "it changed while the container started"
    echo go
}}
start() {{ # RUNTIME OPTION... IMAGE PROGRAM...
    before=$(look) || refuse "cannot read it"
    if [ "$before" != "$state" ]; then
        found=$(sha256sum <"$image")
        [ "${{found%% *}}" = "$checksum" ] || refuse "its file has SHA-256 ${{found%% *}} instead of $checksum"
    fi
    coproc look_again "$before"
    exec "$@" 8>"/proc/self/fd/${{COPROC[1]}}" 9<"/proc/self/fd/${{COPROC[0]}}" # exec closes copies made by >&
}}"""
# What each task executes: the functions, and then the command.
_START = (
    r'"$(declare -p image state checksum; declare -f look refuse look_again start); start \"\$@\""'
)


def name_job(command: Sequence[str]) -> str:
    """A name after the program: 'train' for `python -u train.py`; fit for a file's name too."""
    program, *arguments = command
    script = next((word for word in arguments if word.endswith((".py", ".sh"))), program)
    name = script.rsplit("/", 1)[-1]
    return (
        re.sub(r"[^\w.-]+", "-", re.sub(r"\.(py|sh)$", "", name), flags=re.ASCII).strip("-.")
        or "job"
    )


def judge_image(flavour: str | None, layout: Layout) -> Foreign:
    """What the image of this flavour (None: not ours) does not do by itself; raises JaxsifError
    where nothing helps.
    """
    tasks, gpus = layout.ntasks_per_node, layout.gpus_per_node
    if flavour is not None:
        return Foreign(platforms="cuda" if gpus and flavour.startswith("cuda") else None)
    if not tasks or not gpus or tasks == gpus:
        return Foreign()  # JAX's own choice: the GPU with the task's number
    if tasks == 1:
        return Foreign(local_device_ids=",".join(map(str, range(gpus))))
    raise JaxsifError(
        f"{tasks} tasks on {gpus} GPUs of a node need an image of jaxsif in a job script",
        "the layout",
        f"--ntasks-per-node={gpus} or 1, or `jaxsif run` in a script of your own",
    )


def render_script(
    run: RunOptions,
    job: JobOptions,
    plan: LaunchPlan,
    host: Host,
    foreign: Foreign,
    inherited: Sequence[str] = (),
    allowed: AllowedFile | None = None,
) -> str:
    """The script; of the variables `inherited`, it takes the values that the job finds.

    `allowed` is the image's file where there is a policy.
    """
    variables, step = (
        list(_variables(run, plan, host, foreign, inherited)),
        list(_step(run, job, host, allowed)),
    )
    quoted = any("'" in line and re.search(r"[$`\\]", line) for line in (*variables, *step))
    # In single quotes, shellcheck takes '$' and '\\' for mistakes.
    remark = ["# shellcheck disable=SC1003,SC2016"] if quoted else []
    return "\n".join([*_head(run, job, plan.layout), *remark, *variables, *step]) + "\n"


def _head(run: RunOptions, job: JobOptions, layout: Layout) -> Iterator[str]:
    counts = (
        (layout.nodes, "node(s)"),
        (layout.ntasks_per_node, "task(s) a node"),
        (layout.gpus_per_node, "GPU(s) a node"),
    )
    shape = ", ".join(f"{count} {unit}" for count, unit in counts if count)
    yield "#!/bin/bash"
    yield f"# {_one_line(job.job_name, '--job-name')}{': ' if shape else ''}{shape}"
    yield "# Written by `jaxsif submit`; needs no jaxsif. Hand it to sbatch in the folder that the program starts in."
    yield _directive("--job-name", job.job_name)
    for word in layout_options(run, layout, None):
        name, _, value = word.partition("=")
        yield _directive(name, value)
    for asked in OPTIONS:
        if asked.of_job and getattr(run, asked.field) is not None:
            yield _directive(asked.flag, getattr(run, asked.field))
    for option in ("--array", "--dependency", "--output", "--error"):
        value = getattr(job, option[2:])
        if value is not None:
            yield _directive(option, value)
    if job.requeue:
        yield "# After a node has failed, the job starts again, and goes on in its output file."
        yield "#SBATCH --requeue"
        yield "#SBATCH --open-mode=append"
    for words in job.sbatch_args:
        yield "#SBATCH " + " ".join(quote_directive(word, "--sbatch-args") for word in words)


def _directive(option: str, value: str) -> str:
    return f"#SBATCH {option}={quote_directive(value, option)}"


def quote_directive(word: str, source: str) -> str:
    """A word of an #SBATCH line: sbatch takes quotes off, `\\` before any character, and cuts at
    '#'.
    """
    if re.fullmatch(r"[\w@%+=:,./&|*!()\[\]<>~^$;?{}-]+", word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", _one_line(word, source)) + '"'


def _one_line(text: str, source: str) -> str:
    if "\n" in text or "\r" in text:
        raise JaxsifError(f"more than one line in {text!r}", source, "an #SBATCH line has one")
    return text


def _variables(
    run: RunOptions, plan: LaunchPlan, host: Host, foreign: Foreign, inherited: Sequence[str]
) -> Iterator[str]:
    assert host.runtime is not None  # submit requires one
    prefix = host.runtime.prefix
    asked = {
        name[len(prefix) :]: value for name, value in plan.set_environ if name.startswith(prefix)
    }
    variables = {name: value for name, value in asked.items() if name not in _OF_THE_LAUNCHER}
    if "JAX_COORDINATOR_ADDRESS" not in variables:
        yield from _coordinator(prefix, run)
    yield ""
    for name, value in variables.items():
        rule = find_rule(name)
        if rule and rule.action in (SET, DEFAULT):
            why = rule.why.replace("`", "")
            yield f"# {why[0].upper()}{why[1:]}."
        yield f"export {prefix}{name}=" + (
            f'"${{{name}?is not set}}"' if name in inherited else shlex.quote(value)
        )
    if host.cache:
        yield "# For this user alone, since JAX executes what is in it; by itself JAX would make it for all to read."
        yield f"(umask 077 && mkdir -p {shlex.quote(host.cache)})"
    if asked.get(LIBRARIES):
        yield "# The host's libraries for its network come first."
        others = f"${{{prefix}LD_LIBRARY_PATH:-/.singularity.d/libs}}"
        yield f'export {prefix}LD_LIBRARY_PATH={shlex.quote(asked[LIBRARIES])}:"{others}"'
    if "PYTHONUNBUFFERED" not in variables:
        yield "# Lines are seen when they are printed, not when 8 KiB are full."
        yield f"export {prefix}PYTHONUNBUFFERED=1"
    yield from _devices(
        prefix, {name: value for name, value in foreign._asdict().items() if value}, variables
    )
    yield ""
    yield "# gRPC, and so JAX, would send even local connections to a proxy. Other programs read the upper-case names."
    for name in ("http_proxy", "https_proxy"):
        yield f'if [ -n "${{{name}-}}" ]; then export {name.upper()}="${{{name.upper()}-${name}}}"; fi'
    yield "unset http_proxy https_proxy grpc_proxy"
    yield "# The first would lead the image's Python to another library, the second bring libraries that do not fit it."
    yield "unset PYTHONHOME LD_PRELOAD"


def _coordinator(prefix: str, run: RunOptions) -> Iterator[str]:
    ports = parse_ports(run.coordinator_ports, run.source("coordinator-ports"))
    port = f"$(({ports.start} + RANDOM % {len(ports)}))"
    yield ""
    yield "# JAX's processes meet at a port of the first node, which runs this script; it is free there. What JAX"
    yield "# would choose depends on the job's number alone, and is the same again after a requeue."
    yield "for _ in {1..100}; do"
    yield f"    port={port}"
    yield '    (exec 3<>"/dev/tcp/localhost/$port") 2>/dev/null || break # nobody answers'
    yield "done"
    address = re.sub(r'(["$`\\])', r"\\\1", run.node_address or "%N").replace(
        "%N", "${SLURMD_NODENAME}"
    )
    yield f'export {prefix}JAX_COORDINATOR_ADDRESS="{address}:$port"'


def _devices(prefix: str, wanted: dict[str, str], variables: dict[str, str]) -> Iterator[str]:
    if "platforms" in wanted and "JAX_PLATFORMS" not in variables:
        yield "# Otherwise JAX runs on the CPU where it cannot use the GPUs, and nobody notices."
        yield f'export {prefix}JAX_PLATFORMS="${{JAX_PLATFORMS-{wanted["platforms"]}}}"'
    if "local_device_ids" in wanted and "JAX_LOCAL_DEVICE_IDS" not in variables:
        yield "# All GPUs of the node: by itself JAX takes the one with the task's number."
        yield f"export {prefix}JAX_LOCAL_DEVICE_IDS={wanted['local_device_ids']}"


def _looks(image: str, allowed: AllowedFile) -> str:
    """The shell's functions by which each task looks at the image."""
    inode, size, time = allowed.state.split(":")
    state = f"{inode}:{size}:{time[:-9]}.{time[-9:]}"  # as stat writes nanoseconds
    return _LOOKS.format(image=shlex.quote(image), state=state, checksum=allowed.checksum)


def _step(
    run: RunOptions, job: JobOptions, host: Host, allowed: AllowedFile | None
) -> Iterator[str]:
    assert host.runtime is not None
    assert host.image is not None
    if allowed:
        yield _looks(host.image, allowed)
    yield ""
    yield "# The one thing of the job that its steps do not take over."
    yield 'if [ -n "${SLURM_CPUS_PER_TASK-}" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi'
    yield ""
    yield "# Without --kill-on-bad-exit, the other tasks would wait for one that has failed."
    srun = [
        "srun",
        "--export=ALL",
        "--kill-on-bad-exit=1",
        *(["--label"] if run.label else []),
        *run.srun_args,
    ]
    if job.task_output is not None:
        srun.insert(3, f"--output={job.task_output}")
    # One option a line, with its value; the image; the program with its arguments.
    options = host.runtime.run_argv(host.image, run.binds, (), host.layers)[:-1]
    wait = ("sh", "-c", _WAIT, "sh") if allowed else ()
    words = [srun, *_option_lines(options), (host.image,), *([wait] if wait else []), run.command]
    lines = [" ".join(map(shlex.quote, line)) for line in words]
    if allowed:
        lines.insert(1, f"bash -c {_START} bash")
    yield " \\\n    ".join(lines)


def _option_lines(words: Sequence[str]) -> list[Sequence[str]]:
    starts = [index for index, word in enumerate(words) if word in ("--bind", "--overlay")]
    cuts = [0, *starts, len(words)]
    return [words[start:end] for start, end in zip(cuts, cuts[1:])]
