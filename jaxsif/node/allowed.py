"""Whether the image on this node is the one that a policy allowed where the run was started.

The launcher hands over the digest, and the inode, size and time of change of the file that has it;
not the number of its device, which differs between hosts for one file on NFS or Lustre. Where these
differ, the digest of the file here decides: some network file systems give each host another time
of change.

The image is looked at twice: before the runtime starts, and once the runtime has mounted it, before
the program's first line. Between the two looks nothing may differ: a file that gives way to another
and comes back has been renamed, which changes its time. A link in the image's path could lead to
another file between the two looks, so the launcher follows all links before, and hands over a path
without them. Two looks cannot see a folder above the image that is exchanged, for another one or
for a link, and put back in the tenth of a second between them. Only a copy in a private folder
(--stage) is safe from that.
"""

# As little as possible, as in share.py.
import _signal  # type: ignore[import-not-found]
import _socket
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_GATE = 9  # descriptor of the gate in the container; the program does not inherit it
# Stands before the program in the container: tells that the image is mounted, and waits for the
# second look.
_WAIT = f'echo mounted >&{_GATE}; read -r go <&{_GATE} || exit 125; exec "$@" {_GATE}>&-'
_FIELDS = ("inode", "size", "time of change")


def read_state(image: str) -> str:
    """Return INODE:SIZE:TIME of the image's file, the time of its change in nanoseconds; raise
    OSError.

    As `find_state` of jaxsif/images/file.py, which takes milliseconds to import. To open the file
    makes a network file system ask its server, where stat alone may tell what was there before.
    """
    file = os.open(image, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would not return
    try:
        status = os.fstat(file)
    finally:
        os.close(file)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is not a file", image)
    return f"{status.st_ino}:{status.st_size}:{status.st_ctime_ns}"


def examine(digest: str, state: str, image: str) -> "tuple[str, str]":
    """Return the state of the image here, and why it is not the allowed one; '' if it is."""
    try:
        here = read_state(image)
        return here, "" if here == state else _find_problem(digest, image, here)
    except OSError as error:
        return "", f"cannot read it: {error.strerror}"


def _find_problem(digest: str, image: str, here: str) -> str:
    from jaxsif.errors import JaxsifError
    from jaxsif.images import file as imagefile

    try:
        found = imagefile.digest(image)
    except JaxsifError as error:
        return error.what
    return (
        describe_change(here, read_state(image))
        if found == digest
        else f"it has {found}, but the policy allowed {digest}"
    )


def describe_change(before: str, now: str) -> str:
    """Describe the difference of two states; '' for none."""
    pairs = zip(_FIELDS, before.split(":"), now.split(":"))
    changed = [f"{field} {old} became {new}" for field, old, new in pairs if old != new]
    return f"it changed while the container started: {', '.join(changed)}" if changed else ""


def admit(digest: str, state: str, image: str) -> str:
    """Return the state of an allowed image; end this task for any other."""
    here, problem = examine(digest, state, image)
    if problem:
        refuse(image, problem)
    return here


def refuse(image: str, problem: str) -> "NoReturn":
    """End this task."""
    from jaxsif.node.stage import refuse as end_task

    end_task(f"this is not the image that the policy allowed: {image}: {problem}")


def guard(image: str, here: str, program: "list[str]") -> "list[str]":
    """Return the command that begins `program` in the container after the second look."""
    ours, gate = _socket.socketpair()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        ours.close()
        os.dup2(gate.fileno(), _GATE)
        os.set_inheritable(_GATE, True)  # if it has been that one already
        return ["/bin/sh", "-c", _WAIT, "sh", *program]
    if os.fork():  # the runtime would have to wait for a child that it does not know
        os._exit(0)
    try:
        gate.close()
        _let_in(ours, image, here)
    finally:
        os._exit(0)


def _let_in(gate: _socket.socket, image: str, before: str) -> None:
    """Wait for the mount, look, and open the gate."""
    # Slurm signals every process of a step.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    if not gate.recv(1):
        return  # the runtime failed, and reports that
    problem = find_change(image, before)
    if problem:
        refuse(image, problem)
    gate.sendall(b"go\n")


def find_change(image: str, before: str) -> str:
    """Describe the change since the first look; '' for none."""
    try:
        return describe_change(before, read_state(image))
    except OSError as error:
        return f"cannot read it: {error.strerror}"
