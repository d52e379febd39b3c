"""A program that only some tasks compile: named where the others go on without it, and not where all is well."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, NamedTuple

import pytest
from harness import PROGRAMS, Cluster, jaxsif_run, names_in, own_ports

AT_ONCE = 3  # runs
WITHIN = 5.0 + 3.0  # seconds from the others' next iteration; 3 of them where other tests run beside
WRONG, RIGHT = (names_in("leads.py", table) for table in ("WRONG", "RIGHT"))
ODD = r"(only task 2 compiled|task 2 [a-z ]+ without)"
TEXT = (
    rf"{ODD} (another )?jit_\w+( again)? for \((\.\.\. )?tensor<.+>\) at \S+leads\.py:\d+[,;]"
    r" .*(results may be wrong|no task can continue)"
)
OPTIONS = ("--nodes=2", "--ntasks-per-node=2", "--hang-timeout=30", "--shutdown-timeout=10")


class Done(NamedTuple):
    """What a run has said, each line with the time when it came, in seconds since 1970."""

    status: int
    out: list[tuple[float, str]]
    err: list[tuple[float, str]]

    @property
    def text(self) -> str:
        return "\n".join(f"{when:.1f} {line}" for when, line in sorted(self.out + self.err))

    def times(self, word: str) -> list[float]:
        """What the program has written after a word."""
        return [float(line.split()[1]) for _, line in self.out if line.startswith(f"{word} ")]


def read(stream: IO[str] | None) -> list[tuple[float, str]]:
    assert stream
    return [(time.time(), line.rstrip()) for line in stream]


def run(cluster: Cluster, kind: str, check: str) -> Done:
    folder = cluster.check("mktemp -d ~/leads.XXXXXX").strip()
    cluster.write(f"{folder}/leads.py", (PROGRAMS / "leads.py").read_text())
    program = ("timeout", "60", "python", "leads.py", kind)
    options = (*OPTIONS, own_ports(), f"--check-programs={check}")
    process = cluster.start(f"cd {folder} && {jaxsif_run(*options, '--', *program)}")
    with ThreadPoolExecutor(2) as readers:
        out, err = readers.map(read, (process.stdout, process.stderr))
    cluster.check(["rm", "-rf", folder])
    return Done(process.wait(), out, err)


Get = Callable[[str, str], Done]


@pytest.fixture(scope="module")
def get(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Get]:
    """What a case has said; all that are wanted in this session run side by side, a few at once."""
    parameters = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    wanted = [(one["kind"], one["check"]) for one in parameters if "check" in one and "kind" in one]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done: dict[tuple[str, str], Future[Done]] = {case: pool.submit(run, cluster, *case) for case in wanted}
        yield lambda kind, check: done[kind, check].result()
        pool.shutdown(cancel_futures=True)  # of tests that were left out


@pytest.mark.parametrize("check", ["warn", "stop"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_program_of_one_task_is_named(get: Get, kind: str, check: str) -> None:
    done = get(kind, check)
    begins = r"jaxsif: warning: " if check == "warn" else r"jaxsif: error: "
    said = [when for when, line in done.err if re.match(begins + TEXT, line)]
    assert said, done.text
    # With `stop` the others wait in the same iteration.
    begin = min(done.times("next") or done.times("odd"))
    assert said[0] - begin < WITHIN, done.text
    if check == "stop":
        assert done.status == 1, done.text


@pytest.mark.parametrize("check", ["warn"])
@pytest.mark.parametrize("kind", RIGHT)
def test_unequal_compiles_are_no_fault(get: Get, kind: str, check: str) -> None:
    done = get(kind, check)
    said = [line for _, line in done.err if "Gloo" not in line]
    assert (done.status, said) == (0, []), done.text


# The tasks run ahead of their devices, up to several lines, while task 2 waits at one of its own.
APART = """\
import time

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(jax.devices(), ("d",))
ring = [(i, (i + 1) % 4) for i in range(4)]


def over(function, result):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("d"), out_specs=result))


step = over(lambda x: jnp.sin(x) + 1, P("d"))
swap = over(lambda x: jax.lax.ppermute(x, "d", ring), P("d"))
mean = over(lambda x: jax.lax.pmean(x.mean(), "d"), P())
x = jax.make_array_from_callback((256, 4), NamedSharding(mesh, P("d")), lambda at: jnp.ones((64, 4)))
for i in range(40):
    x = step(x)
    if i % 2:
        x = swap(x)
    time.sleep(0.05)
    if jax.process_index() == 2 and i % 10 == 4:
        print(float(jnp.linalg.norm(x)))
    if i % 10 == 9:
        print(float(mean(x)))
"""


def test_a_task_that_waits_where_only_it_has_compiled_a_program_is_named(cluster: Cluster, folder: str) -> None:
    cluster.write(f"{folder}/apart.py", APART)
    options = ("--nodes=2", "--ntasks-per-node=2", "--hang-timeout=5", "--on-hang=stop")
    done = cluster.run(f"cd {folder} && {jaxsif_run(*options, '--', 'python', 'apart.py')}")
    line = 1 + APART.splitlines().index("        print(float(jnp.linalg.norm(x)))")
    assert done.returncode == 124, done.stderr
    error, where = done.stderr.splitlines()[-3:-1]
    assert error.startswith("jaxsif: error: task 2 on node2 kept the others waiting for "), done.stderr
    assert where.startswith(f"  from: apart.py:{line} <module>; "), done.stderr
