"""What the words of srun and the runtime tell of a run whose tasks have reported nothing."""

from __future__ import annotations

import pytest
from hosts import SRUN

from jaxsif.diagnose.culprit import find_failure
from jaxsif.diagnose.facts import End
from jaxsif.errors import JaxsifError

ENDED = "srun: error: node1: task 0: Exited with exit code 255"
NO_IMAGE = (
    "FATAL:   While checking container encryption: could not open image /tmp/my x.sif: failed to retrieve path for"
    " /tmp/my x.sif: lstat /tmp/my x.sif: no such file or directory"
)
NO_BIND = (
    "FATAL:   container creation failed: mount hook function failure: mount /tmp/x->/tmp/x error: while mounting"
    " /tmp/x: mount source /tmp/x doesn't exist"
)


def find(status: int, *errors: str) -> JaxsifError:
    """The error of a run by srun that ended with `status`."""
    failure = find_failure(End(status, SRUN), [], errors)
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("errors", "what", "hint"),
    [
        ((NO_IMAGE, ENDED), "the image is not on node1: /tmp/my x.sif", "put it on a disk that all nodes see"),
        ((NO_IMAGE,), "the image is not on the node: /tmp/my x.sif", "put it on a disk that all nodes see"),
        (
            (NO_BIND, ENDED),
            "node1 has no /tmp/x, which --bind asks for",
            "put it on a disk that all nodes see, or leave out --bind",
        ),
    ],
    ids=["image", "image on a node without a name", "bind"],
)
def test_what_a_node_does_not_have(errors: tuple[str, ...], what: str, hint: str) -> None:
    error = find(255, *errors)
    assert (error.exit_code, error.what, error.hint) == (125, what, hint)


@pytest.mark.parametrize(
    ("errors", "status", "what"),
    [
        (
            (
                "srun: error: node2: task 1: Exited with exit code 3",
                "srun: error: node1: task 0: Exited with exit code 143",
            ),
            3,
            "task 1 on node2 ended with exit status 3",
        ),
        (
            (
                "srun: error: node1: task 0: Exited with exit code 143",
                "srun: error: node2: tasks 4-5,7: Exited with exit code 1",
            ),
            1,
            "task 4 on node2 ended with exit status 1",
        ),
        (("srun: error: node1: task 2: Exited with exit code 139",), 139, "task 2 on node1 was killed by SIGSEGV"),
    ],
    ids=["first", "behind one that srun ended", "signal"],
)
def test_the_first_task_that_srun_names(errors: tuple[str, ...], status: int, what: str) -> None:
    """As with --srun-args=--output=FILE; srun's own status is that of any task."""
    error = find(143, *errors)
    assert (error.exit_code, error.what) == (status, what)


def test_tasks_that_srun_has_ended_are_not_at_fault() -> None:
    error = find(143, "srun: error: node1: tasks 0-3: Exited with exit code 143")
    assert (error.exit_code, error.what) == (143, "the step ended with exit status 143, and no task said why")
