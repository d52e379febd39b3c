"""The keeper of a node's container: it starts the container, lets each task enter it, and ends it
after the last task.

It runs beside the first task. Each task holds a socket to the keeper, which the kernel closes
however the task ends. The container ends with the keeper, because the container's only process
reads from a pipe of the keeper.
"""

# As few imports as possible, as in share.py: all tasks of the node wait for the container.
import _signal  # type: ignore[import-not-found]
import _socket
import os
import select

from jaxsif.node.copies import find_damage, hold
from jaxsif.node.share import TIMEOUT, enter_namespaces, pack, parse_variables, peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BEGIN, _END = b"\x1ejaxsif ", b"\0jaxsif end\n"
# The container's only process: it prints its number and variables, then waits for the pipe's end.
_HOLD = (
    r"""printf '\036jaxsif %s\n' "$$"; cat /proc/self/environ; printf 'jaxsif end\n'"""
    "; trap '' TERM; exec cat >/dev/null"
)


def keep(
    listener: int, container: list[str], expected: int, staged: list[str], allowed: list[str]
) -> None:
    """Keep a container for `expected` tasks, which connect to the descriptor `listener`.

    `staged` is the container's image, if that is on the node's disk; `allowed` is what a policy
    allows. If the image is not the allowed one, each task starts its own container, and finds that
    out itself.
    """
    # Slurm signals every process of a step, but the keeper must only end with the tasks.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    os.setsid()
    os.environ.pop("SLURM_PROCID", None)  # the container is no task's, and outlives the first one
    _leave_core()
    void = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(void, stream)
    answer, entry = _open_allowed(container, allowed) if allowed else _open(container, staged)
    _serve(_socket.socket(fileno=listener), answer, expected, entry)


def _leave_core() -> None:
    """Let the server of the image's files run on all cores, not only those of the first task."""
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    except OSError:
        return  # not permitted


def _open_allowed(container: list[str], allowed: list[str]) -> tuple[bytes, list[int]]:
    """Do the same as `_open`, but only if the image is the allowed one."""
    from jaxsif.node.allowed import examine, find_change

    here, problem = examine(*allowed)
    return (b"", []) if problem else _open(container, [], lambda: find_change(allowed[-1], here))


def _open(
    container: list[str], staged: list[str], find_problem: "Callable[[], str]" = str
) -> tuple[bytes, list[int]]:
    """Start the container; return the answer to the tasks and the pipe from the container, or an
    empty answer and no pipe if the tasks cannot use the container.
    """
    stdin, entry = _start(container)
    # Checked while it starts, before any program does. If it is damaged, each task starts its
    # own container, and the first task restores the image.
    damaged = any(hold(place) is None or find_damage(place) for place in staged)
    answer = b"" if damaged else _find_entry(entry)
    if answer and not find_problem():
        return answer, [entry]
    os.close(stdin)
    return b"", []


def _start(container: list[str]) -> tuple[int, int]:
    """Start the container; return the ends of the pipes to and from its process."""
    its_stdin, stdin = os.pipe()
    entry, its_stdout = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, its_stdin, 0), (os.POSIX_SPAWN_DUP2, its_stdout, 1)]
    os.posix_spawnp(
        container[0], [*container, "/bin/sh", "-c", _HOLD], os.environb, file_actions=actions
    )
    os.close(its_stdin)
    os.close(its_stdout)
    return stdin, entry


def _find_entry(entry: int) -> bytes:
    """Return the answer to the tasks, or b'' if they cannot enter, or the container does not
    start.
    """
    data = b""
    while _END not in data:
        chunk = os.read(entry, 65536)
        if not chunk:
            return b""  # each task then starts the runtime itself, which reports the problem
        data += chunk
    # The image may have printed something before and after it.
    pid, _, variables = data.partition(_END)[0].partition(_BEGIN)[2].partition(b"\n")
    answer = compare(os.environb, parse_variables(variables.split(b"\0")), int(pid))
    return answer if _can_enter(int(pid)) else b""


def compare(host: "Mapping[bytes, bytes]", container: "Mapping[bytes, bytes]", pid: int) -> bytes:
    """Return the runtime's changes to the first task's variables, which the other tasks need, too.

    Any other variable is each task's own, such as SLURM_PROCID, unless --env has set it for all.
    """

    def is_for_all(name: bytes) -> bool:
        prefixed = {b"APPTAINERENV_" + name, b"SINGULARITYENV_" + name} & host.keys()
        return name != b"_" and (bool(prefixed) or host.get(name) != container[name])

    changed = [name + b"=" + value for name, value in container.items() if is_for_all(name)]
    return pack(pid, sorted(host.keys() - container.keys()), changed)


def _can_enter(pid: int) -> bool:
    """Return whether a task can enter: a setuid runtime makes no user namespace, so that only root
    can enter.
    """
    trial = os.fork()
    if trial == 0:
        try:
            enter_namespaces(pid)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(trial, 0)[1] == 0


def _serve(listener: _socket.socket, answer: bytes, expected: int, entry: list[int]) -> None:
    """Answer `expected` tasks, and wait until they or the container have ended."""
    come = listener.fileno()
    tasks: dict[int, _socket.socket] = {}  # by their descriptors
    while expected or tasks:
        ready = set(select.select([come, *entry, *tasks], [], [], TIMEOUT)[0])
        if not ready and not tasks:
            return  # nobody came
        if not all(os.read(pipe, 65536) for pipe in ready.intersection(entry)):
            return  # the container is gone
        for ended in tasks.keys() & ready:
            tasks.pop(ended).close()  # tasks send nothing: it has ended
        if come in ready:
            task = _socket.socket(fileno=listener._accept()[0])  # type: ignore[attr-defined]
            # The container's variables are private to this user.
            awaited = expected > 0 and peer(task) == os.getuid()
            expected -= awaited
            if awaited and answer and _send(task, answer):
                tasks[task.fileno()] = task
            else:
                task.close()


def _send(task: _socket.socket, answer: bytes) -> bool:
    """Send the answer; return False if the task has already ended."""
    try:
        task.sendall(answer + b"\0\n")
    except OSError:
        return False
    return True
