"""Check that the image on this node is the one that a policy allowed where the run was started.

The launcher passes the image's digest, and the inode, size and change time of its file, but not
the device number, which differs between hosts for one file on NFS or Lustre. If the file on this
node has other values, its digest decides: some network file systems give each host a different time
of change.

The image is checked twice: before the runtime starts, and once the runtime has mounted it, before
the program's first line. Nothing may change between the two checks: a file that was replaced and
then put back has been renamed, which changes its time. A link in the image's path could lead to
another file between the two checks, so the launcher resolves all links beforehand, and passes a
path without links. Two checks cannot detect that a folder above the image was swapped for another
one or for a link, and put back within the tenth of a second between them. Only a copy in a private
folder (--stage) is safe from that.
"""

# As few imports as possible, as in share.py.
import _signal  # type: ignore[import-not-found]
import _socket
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_GATE = 9  # descriptor of the gate in the container; the program does not inherit it
# Runs before the program in the container: reports that the image is mounted, and waits for the
# second check.
_WAIT = f'echo mounted >&{_GATE}; read -r go <&{_GATE} || exit 125; exec "$@" {_GATE}>&-'
_FIELDS = ("inode", "size", "change time")


def read_state(image: str) -> str:
    """Return INODE:SIZE:TIME of the image's file, where TIME is its change time in nanoseconds;
    raise OSError.

    Like `find_state` in jaxsif/images/file.py, which takes milliseconds to import. Opening the file
    makes a network file system ask its server, whereas stat alone may return outdated values.
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
    """Return the state of the image here, and the reason why it is not the allowed image, or '' if
    it is.
    """
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
    """Describe the difference between two states, or return '' if there is none."""
    pairs = zip(_FIELDS, before.split(":"), now.split(":"))
    changed = [f"{field} {old} became {new}" for field, old, new in pairs if old != new]
    return f"it changed while the container started: {', '.join(changed)}" if changed else ""


def admit(digest: str, state: str, image: str) -> str:
    """Return the state of an allowed image; end this task if the image is not allowed."""
    here, problem = examine(digest, state, image)
    if problem:
        refuse(image, problem)
    return here


def refuse(image: str, problem: str) -> "NoReturn":
    """End this task."""
    from jaxsif.node.stage import refuse as end_task

    is_missing = problem == f"cannot read it: {os.strerror(errno.ENOENT)}"
    hint = "put it on a disk that all nodes see, or pass --stage" if is_missing else ""
    end_task(f"this is not the image that the policy allowed: {image}: {problem}", hint)


def guard(image: str, here: str, program: "list[str]") -> "list[str]":
    """Return the command that starts `program` in the container after the second check."""
    ours, gate = _socket.socketpair()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        ours.close()
        os.dup2(gate.fileno(), _GATE)
        os.set_inheritable(_GATE, True)  # if it had that number already
        return ["/bin/sh", "-c", _WAIT, "sh", *program]
    if os.fork():  # the runtime would have to wait for a child that it does not know
        os._exit(0)
    try:
        gate.close()
        _let_in(ours, image, here)
    finally:
        os._exit(0)


def _let_in(gate: _socket.socket, image: str, before: str) -> None:
    """Wait for the mount, check the image, and open the gate."""
    # Slurm signals every process of a step.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    if not gate.recv(1):
        return  # the runtime failed, and reports that
    problem = find_change(image, before)
    if problem:
        refuse(image, problem)
    gate.sendall(b"go\n")


def find_change(image: str, before: str) -> str:
    """Describe the change since the first check, or return '' if there is none."""
    try:
        return describe_change(before, read_state(image))
    except OSError as error:
        return f"cannot read it: {error.strerror}"
