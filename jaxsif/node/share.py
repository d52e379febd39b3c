"""Start one container on each node, for all tasks of a step there.

    share.py [--alone] [--staged PLACE DIGEST FILE | --allowed DIGEST STATE FILE] \
        RUNTIME OPTION... IMAGE -- PROGRAM [ARGUMENT...]

The first task of a node starts a keeper (keeper.py), which has the runtime start the container;
then each task enters the container's namespaces and executes the program there. So a node reads and
unpacks the image once, and starts the runtime once. If that is not possible (one task, a setuid
runtime), each task executes the runtime itself.

With --alone, each task has its own container. With --staged, IMAGE is what stage.py has put into
PLACE from FILE: it is checked before a program runs from it. With --allowed, a policy has allowed
the image in the state that FILE had (allowed.py).

No file is made: the keeper's socket has an abstract name (unix(7)), and mounts vanish with the
container's namespaces.
"""

# As few imports as possible, since each task imports it. The modules with an underscore are the
# basis of socket and signal, which also import enum; importing them takes half as long.
import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys
import time

# Type checkers take it for true; the names imported under it are quoted below.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT = 20.0  # seconds to wait for the keeper, and for the keeper to wait for missing tasks
_LIVENESS = 9  # descriptor of the socket in the task; start.sh hides it from the program
_NEWNS, _NEWUSER = 0x20000, 0x10000000  # setns(2)
_CAPBSET_DROP, _SET_CHILD_SUBREAPER, _NO_NEW_PRIVS = 24, 36, 38  # prctl(2)


def tasks_here(environ: "Mapping[str, str]") -> int:
    """Return the number of this step's tasks on this node, like tasks_on_node in
    jaxsif/task/contract.py, or 1 if it is not known.
    """
    if environ.get("SLURM_GTIDS"):
        return len(environ["SLURM_GTIDS"].split(","))
    try:
        before = int(environ["SLURM_NODEID"])  # nodes before this one, in the rest of the list
        for part in environ["SLURM_STEP_TASKS_PER_NODE"].split(","):
            count, _, nodes = part.rstrip(")").partition("(x")
            before -= int(nodes or 1)
            if before < 0:
                return int(count)
    except (KeyError, ValueError):
        return 1
    return 1


def address(environ: "Mapping[str, str]") -> str:
    """Return the abstract name of the keeper's socket for this step and node, which another user
    cannot guess.
    """
    names = ("JAXSIF_STEP", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID")
    return "\0jaxsif-" + "-".join(environ.get(name, "") for name in names)


def pack(pid: int, unset: list[bytes], changed: list[bytes]) -> bytes:
    """Encode how to enter the container: through its process `pid`, without the variables `unset`,
    and with `changed`.
    """
    return b"\0".join([b"%d" % pid, b"%d" % len(unset), *unset, *changed])


def unpack(data: bytes) -> tuple[int, list[bytes], list[bytes]]:
    """Return the arguments of `pack`."""
    pid, number, *rest = data.split(b"\0")
    return int(pid), rest[: int(number)], rest[int(number) :]


def parse_variables(entries: "Iterable[bytes]") -> dict[bytes, bytes]:
    """Parse NAME=VALUE, as in /proc/PID/environ."""
    pairs = (entry.partition(b"=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals}


def request_entry(name: str) -> "tuple[bytes, _socket.socket] | None":
    """Return the keeper's answer and the socket to hold, or None to start a separate container."""
    keeper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        _connect(keeper, name)
        if peer(keeper) != os.getuid():
            return None  # somebody else took the name
        answer = b""
        while not answer.endswith(b"\0\n"):  # no variable ends like this: it would have no '='
            chunk = keeper.recv(65536)  # once the container has started
            if not chunk:
                return None
            answer += chunk
    except OSError:
        return None  # it is gone, or never came up
    return answer[:-2], keeper


def _connect(keeper: _socket.socket, name: str) -> None:
    keeper.settimeout(0)  # otherwise a full queue would block us forever
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            keeper.connect(name)
            break
        # The first task is not ready yet, or many tasks connect at the same time.
        except (ConnectionRefusedError, BlockingIOError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    keeper.settimeout(None)


def peer(connection: _socket.socket) -> int:
    """Return the user at the other end of a socket; see unix(7)."""
    # A process id, a user id and a group id.
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def enter_namespaces(pid: int) -> None:
    """Move this process into the container of process `pid`; raise OSError."""
    import ctypes  # by now, the first task has started the keeper

    names = ("ns/user", "ns/mnt", "root", "cwd")
    user, mounts, root, folder = (os.open(f"/proc/{pid}/{name}", os.O_RDONLY) for name in names)
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor, kind in ((user, _NEWUSER), (mounts, _NEWNS)):
        if libc.setns(descriptor, kind):
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
    os.fchdir(root)
    os.chroot(".")
    os.fchdir(folder)
    # Like the runtime: no way to gain more rights than an ordinary user has.
    capability = 0
    while libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1  # until the first one unknown to the kernel
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)


def adopt_orphans(wanted: bool = True) -> None:
    """Make this process the parent of processes whose own parents end, or of no more of them."""
    import ctypes

    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def execute(answer: bytes, keeper: _socket.socket, program: list[str]) -> None:
    """Become the program, in the container."""
    pid, unset, changed = unpack(answer)
    enter_namespaces(pid)
    adopt_orphans()  # this process becomes start.sh, which ends them when the program fails
    variables = {name: value for name, value in os.environb.items() if name not in unset}
    variables.update(parse_variables(changed))
    os.dup2(keeper.fileno(), _LIVENESS)
    os.set_inheritable(_LIVENESS, True)  # if it had that number already
    forget_python()
    os.execve(program[0], program, variables)


def forget_python() -> None:
    """Restore the default handling of two signals that Python ignores, before a program is
    executed.
    """
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)


def _start_keeper(
    name: str, container: list[str], tasks: int, staged: list[str], allowed: list[str]
) -> None:
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        listener.bind(name)
    except OSError:
        return  # taken by somebody else: nobody answers, and each task starts its own container
    listener.listen(tasks)
    if os.fork():
        listener.close()
        return
    try:
        from jaxsif.node.keeper import keep

        keep(listener.detach(), container, tasks, staged, allowed)
    finally:
        os._exit(0)


# Option -> the number of words after it.
_OPTIONS = {"--alone": 0, "--staged": 3, "--allowed": 3}


def parse(argv: list[str]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Split the arguments into options with their words, the container's command and the
    program.
    """
    options = {}
    while argv[0] in _OPTIONS:
        end = 1 + _OPTIONS[argv[0]]
        options[argv[0]] = argv[1:end]
        argv = argv[end:]
    end = argv.index("--")
    return options, argv[:end], argv[end + 1 :]


def main(argv: list[str]) -> None:
    """Run the command line."""
    # At the end: only Python's own modules are imported in most tasks.
    sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
    options, container, program = parse(argv)
    staged, allowed = options.get("--staged", []), options.get("--allowed", [])
    tasks = 1 if "--alone" in options else tasks_here(os.environ)
    if tasks > 1:
        name = address(os.environ)
        if os.environ.get("SLURM_LOCALID") == "0":
            _start_keeper(name, container, tasks, staged[:1], allowed)
        found = request_entry(name)
        if found:
            execute(*found, program)
    if staged:
        from jaxsif.node.stage import restore

        restore(*staged)
    if allowed:
        from jaxsif.node.allowed import admit, guard

        program = guard(allowed[-1], admit(*allowed), program)
    forget_python()
    try:
        os.execvp(container[0], [*container, *program])
    except OSError as error:
        sys.exit(f"FATAL: cannot execute {container[0]}: {error.strerror}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(f"FATAL: cannot start the container: {error.strerror or error}")
