"""Programs whose main thread waits for the one that runs JAX, and a launcher whose output is not read for a while."""

from __future__ import annotations

import re

import pytest
from harness import Cluster, jaxsif_run

OPTIONS = ("--nodes=2", "--ntasks-per-node=2", "--hang-timeout=5", "--on-hang=stop")


@pytest.mark.parametrize("kind", ["thread", "to_thread", "executor"])
def test_a_hang_of_another_thread_is_named(cluster: Cluster, folder: str, kind: str) -> None:
    run = jaxsif_run(*OPTIONS, "--", "timeout", "100", "python", "threads.py", kind)
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 124, done.stderr
    assert set(re.findall("likely: (.+)", done.stderr)) == {"task 2 is keeping the others waiting"}, done.stderr
    assert re.search(
        r"1 task +is sleeping +threads\.py:27 step +iteration 30 of the loop at threads\.py:\d+ ", done.stderr
    )


def test_a_lock_that_the_threads_of_each_task_hold_against_each_other(cluster: Cluster, folder: str) -> None:
    run = jaxsif_run(*OPTIONS, "--", "timeout", "100", "python", "threads.py", "lock")
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 124, done.stderr
    assert "4 tasks are waiting for a lock that no other thread can release  threads.py:58 " in done.stderr


def test_a_reader_that_pauses_ends_no_run(cluster: Cluster, folder: str) -> None:
    """The tasks wait for each other for longer than the timeout meanwhile, and the reports of that come late."""
    run = jaxsif_run(*OPTIONS, "--", "python", "pauses.py")
    done = cluster.run(f"cd {folder} && ({run} 2> >(sleep 25; cat >&2))", timeout=200)
    assert done.returncode == 0, done.stderr
    assert "hangs" not in done.stderr


@pytest.mark.parametrize("kind", ["pool", "process"])
def test_a_killed_process_that_a_task_waits_for_is_named(cluster: Cluster, folder: str, kind: str) -> None:
    run = jaxsif_run(*OPTIONS, "--", "timeout", "100", "python", "workers.py", kind)
    done = cluster.run(f"cd {folder} && {run}")
    assert done.returncode == 124, done.stderr
    ended = "a multiprocessing worker ended unexpectedly: SIGKILL"
    assert re.search(rf"^jaxsif: warning: {ended} \(task 2 on node2\)$", done.stderr, re.MULTILINE), done.stderr
    assert f"\n  try:  {ended}; the task may be waiting for that worker" in done.stderr
    assert set(re.findall("likely: (.+)", done.stderr)) == {"task 2 is keeping the others waiting"}, done.stderr
