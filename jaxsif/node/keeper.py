"""The keeper of a node's container: start it, send each task the way in, and end it after the last
task.

It lives beside the first task. Each task holds a socket to it, and the kernel closes that however
the task ends. The container ends with the keeper, because its one process reads the keeper's pipe.
"""

# As little as possible, as in share.py: all tasks of the node wait for the container.
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
# The container's one process: its number and its variables, then nothing until the pipe is closed.
_HOLD = (
    r"""printf '\036jaxsif %s\n' "$$"; cat /proc/self/environ; printf 'jaxsif end\n'"""
    "; exec cat >/dev/null"
)


def keep(
    listener: int, container: list[str], expected: int, staged: list[str], allowed: list[str]
) -> None:
    """Keep a container for `expected` tasks, which connect to the descriptor `listener`.

    `staged` is its image, if that is on the node's disk; `allowed` what a policy allows. Where the
    image is another, each task goes alone, and finds that itself.
    """
    # Slurm sends a step's signals to every process of it; what ends the keeper is the end of the
    # tasks.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    os.setsid()
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
        return  # it may not


def _open_allowed(container: list[str], allowed: list[str]) -> tuple[bytes, list[int]]:
    """Do as `_open`, unless the image is not the one that was allowed."""
    from jaxsif.node.allowed import examine, find_change

    here, problem = examine(*allowed)
    return (b"", []) if problem else _open(container, [], lambda: find_change(allowed[-1], here))


def _open(
    container: list[str], staged: list[str], find_problem: "Callable[[], str]" = str
) -> tuple[bytes, list[int]]:
    """Start the container; return the answer to the tasks and the pipe from the container, or
    neither where the tasks cannot use it.
    """
    stdin, entry = _start(container)
    # While it starts, and before a program does. Where there is damage each task goes alone, and
    # the first restores it.
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
    """Return the answer to the tasks; b'' where the container does not start, or is closed."""
    data = b""
    while _END not in data:
        chunk = os.read(entry, 65536)
        if not chunk:
            return b""  # each task then starts the runtime itself, which says what is wrong
        data += chunk
    # Before and after it, the image may have said something.
    pid, _, variables = data.partition(_END)[0].partition(_BEGIN)[2].partition(b"\n")
    answer = compare(os.environb, parse_variables(variables.split(b"\0")), int(pid))
    return answer if _can_enter(int(pid)) else b""


def compare(host: "Mapping[bytes, bytes]", container: "Mapping[bytes, bytes]", pid: int) -> bytes:
    """Return the runtime's changes to the variables of the first task, which those of the others
    need, too.

    Any other variable is each task's own, such as SLURM_PROCID, unless --env has set it for all.
    """

    def is_for_all(name: bytes) -> bool:
        prefixed = {b"APPTAINERENV_" + name, b"SINGULARITYENV_" + name} & host.keys()
        return name != b"_" and (bool(prefixed) or host.get(name) != container[name])

    changed = [name + b"=" + value for name, value in container.items() if is_for_all(name)]
    return pack(pid, sorted(host.keys() - container.keys()), changed)


def _can_enter(pid: int) -> bool:
    """Return whether a task can enter: a setuid runtime makes no user namespace, and then only root
    can.
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
    """Answer `expected` tasks, and wait until they have ended, or the container has."""
    come = listener.fileno()
    tasks: dict[int, _socket.socket] = {}  # by their descriptors
    while expected or tasks:
        ready = set(select.select([come, *entry, *tasks], [], [], TIMEOUT)[0])
        if not ready and not tasks:
            return  # nobody came
        if not all(os.read(pipe, 65536) for pipe in ready.intersection(entry)):
            return  # the container is gone
        for ended in tasks.keys() & ready:
            tasks.pop(ended).close()  # a task says nothing: it has ended
        if come in ready:
            task = _socket.socket(fileno=listener._accept()[0])  # type: ignore[attr-defined]
            # What the container's variables are is this user's own.
            awaited = expected > 0 and peer(task) == os.getuid()
            expected -= awaited
            if awaited and answer and _send(task, answer):
                tasks[task.fileno()] = task
            else:
                task.close()


def _send(task: _socket.socket, answer: bytes) -> bool:
    """Send the answer; return False when the task has ended meanwhile."""
    try:
        task.sendall(answer + b"\0\n")
    except OSError:
        return False
    return True
