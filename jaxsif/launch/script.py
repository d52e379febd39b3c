"""Render a plan as a job script that does the same without jaxsif, or as one that calls
`jaxsif run`, where the job may go on after its first attempt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jaxsif.container.environment import DEFAULT, SET, UNSET, UPPER, find_rule, names_of
from jaxsif.errors import ALL_USELESS, JaxsifError
from jaxsif.job.srun_options import BOTH, JOB, OWN, REFUSED, STEP, StepOptions, join, select
from jaxsif.launch.coordinator import parse_ports
from jaxsif.launch.launchers.srun import layout_options
from jaxsif.layout.layout import Layout
from jaxsif.plan.container import Container
from jaxsif.plan.plan import Plan
from jaxsif.settings.options import NOTICE
from jaxsif.task import contract
from jaxsif.text import enclose

# Between the launcher and the tasks, which have no launcher here.
_OF_THE_LAUNCHER = (
    *(contract.REPORT, contract.COORDINATOR_PORT, contract.OWN_CACHE),
    contract.CHECK_PROGRAMS,
    *(contract.FABRIC, contract.FABRIC_NEEDS, contract.FABRIC_LIBRARIES),
)


class JobOptions(NamedTuple):
    """The options for sbatch besides those of a run; None if not given."""

    job_name: str
    array: str | None = None  # 0-9%2
    dependency: str | None = None  # afterok:4711
    requeue: bool = False  # Slurm may start the job again
    chain: int | None = None  # the number of jobs, of which each goes on after the one before
    max_restarts: int | None = None  # of `jaxsif run` in the job
    spare_nodes: int | None = None  # likewise
    output: str | None = None  # a file's name, with %j and others
    error: str | None = None  # likewise
    task_output: str | None = None  # likewise, with %t for each task's own
    sbatch_args: tuple[tuple[str, ...], ...] = ()  # further options, in lines of words


class Foreign(NamedTuple):
    """Variables that the script must set itself, since no jaxsif hook in the image does."""

    platforms: str | None = None  # JAX_PLATFORMS
    local_device_ids: str | None = None  # JAX_LOCAL_DEVICE_IDS


class Script(NamedTuple):
    """Everything that a job script is made of."""

    plan: Plan
    container: Container
    job: JobOptions
    foreign: Foreign = Foreign()
    inherited: tuple[str, ...] = ()  # variables of --env that take the value that the job finds
    # Under a policy, the SHA-256 of the image's file: a shell cannot find the root file system in
    # it. '' without a policy.
    checksum: str = ""
    # `jaxsif run` and its options, in lines of words; () for a script that needs no jaxsif.
    run: tuple[tuple[str, ...], ...] = ()
    exports: tuple[str, ...] = ()  # variables of --env that its command line must not show

    @property
    def announces_limit(self) -> bool:
        """Whether Slurm announces the end of the job before its time limit."""
        return self.job.requeue or self.job.chain is not None


# Runs before the program in the container: reports that the image is mounted, and waits for the
# second check.
_WAIT = 'echo mounted >&8; read -r go <&9 || exit 125; exec "$@" 8>&- 9<&-'
_LOOKS = r"""
# A policy allowed the image as it was when this script was written. Each task compares the file's
# inode, size and change time, or else its SHA-256, before the container starts, and checks again
# once the image is mounted, before the program begins: nothing may change between the two checks.
image={image}
state={state}
checksum={checksum}
look() {{ [ -f "$image" ] && LC_ALL=C stat --format=%i:%s:%.9Z - <"$image"; }}
refuse() {{ # WHY
    echo "jaxsif: error: this is not the image that the policy allowed:" \
        "$image on $SLURMD_NODENAME: $1" >&2
    echo "  try:  submit the program again with jaxsif submit, perhaps with another image" >&2
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
        found=${{found%% *}}
        [ "$found" = "$checksum" ] || refuse "its file has SHA-256 $found instead of $checksum"
    fi
    coproc look_again "$before"
    # Copies made by >& would be closed by exec.
    exec "$@" 8>"/proc/self/fd/${{COPROC[1]}}" 9<"/proc/self/fd/${{COPROC[0]}}"
}}"""
# Each task executes the functions, and then the command.
_START = (
    r'"$(declare -p image state checksum; declare -f look refuse look_again start); start \"\$@\""'
)

_COORDINATOR = """
# JAX's processes meet at a free port on the first node, which runs this script. The port that JAX
# would choose depends only on the job ID, and would be the same after a requeue.
for _ in {{1..100}}; do
    port=$(({first} + RANDOM % {count}))
    (exec 3<>"/dev/tcp/localhost/$port") 2>/dev/null || break # nobody answers
done
export {prefix}JAX_COORDINATOR_ADDRESS="{address}:$port\""""
_BEFORE_SRUN = """
# The only setting of the job that its steps do not inherit.
if [ -n "${SLURM_CPUS_PER_TASK-}" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi

# Without --kill-on-bad-exit, the other tasks would wait for one that has failed."""
_BEFORE_CHAIN = """\
# At the time limit, Slurm ends this shell: not before jaxsif run has named the reason.
trap : TERM"""
_END_CHAIN = """\
status=$?
case $status in
    {useless}) scancel --me --state=PENDING --name={name} ;; # they would fail, too
esac
exit $status"""
# Removes variables of the host, following the table of variables.
_UNSET = """
# gRPC, and so JAX, would send even local connections to a proxy. Other programs read the \
upper-case names.
{moves}
unset {proxies}
# The first would point the image's Python at another library, and the second would load \
incompatible libraries.
unset {others}"""
_MOVE = 'if [ -n "${{{name}-}}" ]; then export {upper}="${{{upper}-${name}}}"; fi'


def judge_image(flavour: str | None, layout: Layout) -> Foreign:
    """Return the variables that the script must set for an image of this flavour (None if jaxsif
    did not build it); raise JaxsifError if no variable would help.
    """
    tasks, gpus = layout.ntasks_per_node, layout.gpus_per_node
    if not gpus:
        return Foreign()
    if flavour is not None:
        return Foreign(platforms="cuda" if flavour.startswith("cuda") else None)
    if tasks in (None, gpus):
        return Foreign()  # JAX's own choice: the GPU with the task's number
    if tasks == 1:
        return Foreign(local_device_ids=",".join(map(str, range(gpus))))
    raise JaxsifError(
        f"in a job script, {tasks} tasks on {gpus} GPUs of a node need an image built by jaxsif",
        "the layout",
        f"--ntasks-per-node={gpus} or 1, or `jaxsif run` in a script of your own",
    )


def render_script(script: Script) -> str:
    """Return the script's text; raise JaxsifError for values that no #SBATCH line can have."""
    body = list(_run(script) if script.run else (*_variables(script), *_step(script)))
    quoted = any("'" in line and re.search(r"[$`\\]", line) for line in body)
    # shellcheck takes '$' and '\\' in single quotes for mistakes.
    remark = ["# shellcheck disable=SC1003,SC2016"] if quoted else []
    return "\n".join([*_head(script), *remark, *body]) + "\n"


def _head(script: Script) -> Iterator[str]:
    plan, job, options = script.plan, script.job, script.plan.options
    yield "#!/bin/bash"
    yield f"# {_one_line(job.job_name, '--job-name')}{enclose(': ', plan.layout.describe())}"
    needs = "calls `jaxsif run`, which starts it again" if script.run else "needs no jaxsif"
    yield (
        f"# Written by `jaxsif submit`; {needs}."
        " Hand it to sbatch in the folder that the program starts in."
    )
    layout = dict(layout_options(options, plan.layout, None).planned)
    if job.spare_nodes:
        layout["--nodes"] = (plan.layout.nodes or 1) + job.spare_nodes
    after = ",".join(filter(None, (job.dependency, "singleton" if job.chain else "")))
    directives = {
        "--job-name": job.job_name,
        **layout,
        "--array": job.array,
        "--dependency": after or None,
        "--output": job.output,
        "--error": job.error,
    }
    for word in (*StepOptions(directives).words, *join(select(options.srun_arguments, JOB, BOTH))):
        option, separator, value = word.partition("=")
        yield f"#SBATCH {option}{separator}{quote_directive(value, option) if separator else ''}"
    yield from _going_on(script)
    for line in job.sbatch_args:
        yield "#SBATCH " + " ".join(quote_directive(word, "--sbatch-args") for word in line)


def _going_on(script: Script) -> Iterator[str]:
    """Yield the lines about losing a node, the time limit and a requeue."""
    if script.job.max_restarts:
        yield "# The job continues if Slurm loses one of the job's nodes."
        yield "#SBATCH --no-kill"
    if script.announces_limit:
        yield "# Three to four minutes before the time limit, Slurm notifies the program."
        yield f"#SBATCH {NOTICE}"
    yield f"#SBATCH --{'' if script.job.requeue else 'no-'}requeue"
    if script.run:
        yield "#SBATCH --open-mode=append"


def quote_directive(word: str, source: str) -> str:
    """Quote a word of an #SBATCH line: sbatch removes quotes, and `\\` before any character, and
    cuts at '#'.
    """
    if re.fullmatch(r"[\w@%+=:,./&|*!()\[\]<>~^$;?{}-]+", word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", _one_line(word, source)) + '"'


def _one_line(text: str, source: str) -> str:
    if "\n" in text or "\r" in text:
        raise JaxsifError(f"more than one line in {text!r}", source, "write it on one line")
    return text


def _run(script: Script) -> Iterator[str]:
    """Yield the lines that call `jaxsif run`; in a chain, they end it where it cannot go on."""
    lines = (*script.run, ("--", *script.plan.options.command))
    command = " \\\n    ".join(map(shlex.join, lines))
    yield ""
    values = dict(script.plan.options.env)
    for name in script.exports:
        yield f"export {name}={shlex.quote(values[name])}"
    if script.job.chain is None:
        yield f"exec {command}"
        return
    yield _BEFORE_CHAIN
    yield command
    name, useless = shlex.quote(script.job.job_name), " | ".join(map(str, ALL_USELESS))
    yield _END_CHAIN.format(name=name, useless=useless)


def _variables(script: Script) -> Iterator[str]:
    """Yield the lines that set variables, for the job and for the container."""
    prefix = script.container.runtime.prefix
    inside = script.plan.environment.container
    variables = {name: text for name, text in inside.items() if name not in _OF_THE_LAUNCHER}
    if "JAX_COORDINATOR_ADDRESS" not in variables:
        yield from _coordinator(prefix, script.plan)
    yield ""
    for name, text in variables.items():
        rule = find_rule(name)
        if rule and rule.action in (SET, DEFAULT):
            why = rule.why.replace("`", "")
            yield f"# {why[0].upper()}{why[1:]}."
        value = f'"${{{name}?is not set}}"' if name in script.inherited else shlex.quote(text)
        yield f"export {prefix}{name}={value}"
    cache = script.container.cache
    if cache:
        yield (
            "# Private, because JAX executes what is in it:"
            " without this, JAX makes it readable by everyone."
        )
        yield f"(umask 077 && mkdir -p {shlex.quote(cache)})"
    if inside.get(contract.FABRIC_LIBRARIES):
        yield "# The host's libraries for its network come first."
        others = f"${{{prefix}LD_LIBRARY_PATH:-/.singularity.d/libs}}"
        ours = shlex.quote(inside[contract.FABRIC_LIBRARIES])
        yield f'export {prefix}LD_LIBRARY_PATH={ours}:"{others}"'
    if "PYTHONUNBUFFERED" not in variables:
        yield "# Lines appear as they are printed, not only when 8 KiB have accumulated."
        yield f"export {prefix}PYTHONUNBUFFERED=1"
    yield from _devices(prefix, script.foreign, variables)
    yield from _unset_variables().split("\n")


def _unset_variables() -> str:
    moved = names_of(UPPER)
    proxies = [name for name in names_of(UNSET) if name.endswith("_proxy")]
    return _UNSET.format(
        moves="\n".join(_MOVE.format(name=name, upper=name.upper()) for name in moved),
        proxies=" ".join([*moved, *proxies]),
        others=" ".join(names_of(UNSET, at_border=True)),
    )


def _coordinator(prefix: str, plan: Plan) -> Iterator[str]:
    ports = parse_ports(plan.options)
    address = re.sub(r'(["$`\\])', r"\\\1", plan.options.node_address or "%N").replace(
        "%N", "${SLURMD_NODENAME}"
    )
    text = _COORDINATOR.format(first=ports.start, count=len(ports), prefix=prefix, address=address)
    yield from text.split("\n")


def _devices(prefix: str, foreign: Foreign, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that set variables in place of a jaxsif hook in the image."""
    if foreign.platforms and "JAX_PLATFORMS" not in variables:
        yield "# Otherwise, where JAX cannot use the GPUs, it runs on the CPU, and nobody notices."
        yield f'export {prefix}JAX_PLATFORMS="${{JAX_PLATFORMS-{foreign.platforms}}}"'
    if foreign.local_device_ids and "JAX_LOCAL_DEVICE_IDS" not in variables:
        yield "# All GPUs of the node: without this, JAX takes the one with the task's number."
        yield f"export {prefix}JAX_LOCAL_DEVICE_IDS={foreign.local_device_ids}"


class _Check(NamedTuple):
    """The check of the image by each task: none, unless a policy has allowed the image."""

    functions: tuple[str, ...] = ()  # of the shell
    start: tuple[str, ...] = ()  # the command that srun starts instead of the runtime
    wait: tuple[tuple[str, ...], ...] = ()  # the command before the program in the container


def _find_check(container: Container, checksum: str) -> _Check:
    if container.allowed is None:
        return _Check()
    inode, size, time = container.allowed.state.split(":")
    state = f"{inode}:{size}:{time[:-9]}.{time[-9:]}"  # as stat writes nanoseconds
    functions = _LOOKS.format(image=shlex.quote(container.image), state=state, checksum=checksum)
    return _Check((functions,), (f"bash -c {_START} bash",), (("sh", "-c", _WAIT, "sh"),))


def _step(script: Script) -> Iterator[str]:
    """Yield the lines with srun, the runtime, and the program."""
    options, container = script.plan.options, script.container
    check = _find_check(container, script.checksum)
    yield from check.functions
    yield from _BEFORE_SRUN.split("\n")
    output = script.job.task_output
    srun = [
        *("srun", "--export=ALL", "--kill-on-bad-exit=1"),
        *([] if output is None else [f"--output={output}"]),
        *(["--label"] if options.label else []),
    ]
    # One option per line, with its value; the image; the program with its arguments.
    program = ((container.image,), *check.wait, options.command)
    lines = (container.runtime.run_head, *container.mounts, *program)
    own = join(select(options.srun_arguments, STEP, OWN, REFUSED))
    start = (shlex.join((*srun, *own)), *check.start)
    yield " \\\n    ".join([*start, *map(shlex.join, lines)])
