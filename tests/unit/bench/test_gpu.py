"""`make gpu`: each row of its table, from recorded facts: good ones, bad ones, and none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kit.scripts import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "bench/gpu.py"
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [*sys.path])  # the script adds its own folder, and has modules in it
    gpu = load_script(SCRIPT)
PARTS = {part.name: part for part in gpu.PARTS}
GOOD, BAD, UNKNOWN = gpu.OK, gpu.NOT_OK, gpu.UNKNOWN


def judge(part: str, facts: dict[str, Any], platform: str = "gpu") -> tuple[str, str]:
    row = gpu.judge(PARTS[part], facts, platform)
    assert (row.part, row.bound) == (part, PARTS[part].bound)
    return row.result, row.found


def doctor(status: int = 0, **states: str) -> dict[str, Any]:
    all_states = {"gpus": "ok", "sum": "ok", "driver": "ok", "image": "unknown", **states}
    return {
        "status": status,
        "results": [
            {"check": check, "state": state, "evidence": "" if state == "ok" else f"{check} is {state}"}
            for check, state in all_states.items()
        ],
    }


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (doctor(), (GOOD, "3 checks ok; unknown: image")),
        (doctor(memory="warning"), (GOOD, "3 checks ok; warning: memory; unknown: image")),
        (doctor(1, driver="failure"), (BAD, "driver: driver is failure")),
        (doctor(125), (BAD, "exit status: 125")),
        (doctor(gpus="unknown"), (UNKNOWN, "2 checks ok; unknown: gpus, image")),
        ({"status": 0, "results": []}, (UNKNOWN, "0 checks ok")),
    ],
)
def test_doctor(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert judge("doctor", facts) == expected


def pairs(*ratios: float) -> dict[str, Any]:
    return {"pairs": [(0.001, 0.001 * ratio) for ratio in ratios]}


@pytest.mark.parametrize(
    ("part", "facts", "result"),
    [
        ("train", pairs(1.01, 1.0, 1.0, 0.99, 1.0, 1.01), GOOD),
        ("train", pairs(1.05, 1.06, 1.05, 1.04, 1.05, 1.06), BAD),  # all of them above
        ("train", pairs(1.05, 1.06, 0.99, 1.04, 1.05, 1.06), UNKNOWN),  # or noise
        ("train", pairs(0.9, 0.95, 1.0, 1.0, 1.0, 1.1), UNKNOWN),  # a machine at work
        ("train", pairs(1.0, 1.0, 1.0, 1.0, 1.0), UNKNOWN),  # too few
        ("train", pairs(), UNKNOWN),
        ("train", {**pairs(), "lacks": "no Flax or optax: python3 -m pip install flax optax"}, UNKNOWN),
        ("train", {}, UNKNOWN),
        ("watch", pairs(1.001, 1.002, 1.001, 1.003, 1.0, 1.001), GOOD),
        ("watch", pairs(1.01, 1.02, 1.01, 1.02, 1.01, 1.02), BAD),
        ("watch", pairs(1.01, 0.99, 1.01, 1.02, 1.01, 1.02), UNKNOWN),
        ("watch", {}, UNKNOWN),
    ],
)
def test_ratios(part: str, facts: dict[str, Any], result: str) -> None:
    assert judge(part, facts)[0] == result


def test_a_ratio_has_its_interval() -> None:
    found = "ratio 1.0005, from 0.9900 to 1.0100; 6 pairs, step 1.00 ms"
    assert judge("train", pairs(1.01, 1.0, 1.0, 0.99, 1.001, 1.001)) == (GOOD, found)


def test_the_bound_of_the_watch_is_that_of_make_bench_watch() -> None:
    assert pytest.approx(1.005) == gpu.WATCH_BOUND


KERNEL = {
    "refused": "",
    "kernels": ["__gpu$xla.gpu.triton"],
    "text": "aa",
    "right": True,
    "digest": "d1",
    "other": "d2",
}


def census(**second: Any) -> dict[str, Any]:
    return {"runs": [KERNEL, {**KERNEL, "text": "bb", **second}]}


REFUSED = {"refused": "ValueError: Only interpret mode is supported on CPU backend.", "kernels": [], "digest": ""}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (census(), (GOOD, "d1 twice, of __gpu$xla.gpu.triton; the texts differ")),
        (census(text="aa"), (GOOD, "d1 twice, of __gpu$xla.gpu.triton; the texts are equal")),
        (census(digest="d3"), (BAD, "d1 and d3, of __gpu$xla.gpu.triton")),
        (census(right=False), (BAD, "the kernel computes wrong numbers")),
        ({"runs": [{**KERNEL, "other": "d1"}, KERNEL]}, (BAD, "another program has the same digest d1")),
        (
            {"runs": [{**KERNEL, **REFUSED}] * 2},
            (UNKNOWN, "no Pallas kernel here: ValueError: Only interpret mode is supported on CPU backend."),
        ),
        (
            {"runs": [{**KERNEL, "kernels": []}] * 2},
            (UNKNOWN, "no Pallas kernel here: JAX compiled it as other operations"),
        ),
        ({}, (UNKNOWN, "no facts: runs")),
    ],
)
def test_census(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert judge("census", facts) == expected


# As jaxsif printed it on CPUs; on a GPU, a task that waits for its device may look as one in a collective.
COMPUTES = """\
jaxsif: warning: no container runtime here: running in this machine's own Python
jaxsif: tasks have been waiting for 9 s: 2 tasks on 1 node
jaxsif:   1 task is waiting in a collective  spin.py:19 <module>    task 0 on vm
jaxsif:   1 task is computing                spin.py:17 <module>    task 1 on vm
jaxsif:   likely: task 1 is keeping the others waiting
"""
WAITS = COMPUTES.replace("is computing               ", "is waiting in a collective ")
BLAMES_NONE = WAITS.rpartition("jaxsif:   likely")[0]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (COMPUTES, GOOD),
        (WAITS, GOOD),
        (BLAMES_NONE, GOOD),
        (COMPUTES.replace("likely: task 1", "likely: task 0"), BAD),
        (COMPUTES.replace("spin.py:17", "spin.py:18"), BAD),
        (COMPUTES.replace("spin.py:17", "spin.py:170"), BAD),
        (COMPUTES.replace("task 1 on", "task 2 on"), BAD),
        (COMPUTES.partition("\n")[0], BAD),
        # What a run says when it is stopped is no report of a wait.
        ("jaxsif: tasks were at spin.py:19 (task 0), spin.py:17 (task 1)\n", BAD),
    ],
)
def test_hang(text: str, result: str) -> None:
    facts = {"report": gpu.read_report(text), "seconds": 11.4, "place": "spin.py:17"}
    assert judge("hang", facts)[0] == result


def test_a_hang_is_told_in_one_line() -> None:
    facts = {"report": gpu.read_report(COMPUTES), "seconds": 11.4, "place": "spin.py:17"}
    assert judge("hang", facts) == (GOOD, "1 task is computing; spin.py:17 <module>; task 1 on vm, after 11 s")
    assert judge("hang", {"report": [], "seconds": 60.2, "place": "spin.py:17"}) == (BAD, "no report within 60 s")
    assert judge("hang", {"report": []}) == (UNKNOWN, "no facts: seconds, place")


FULL = [
    "jaxsif: error: task 0 on vm failed: JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.",
    "  from: /somewhere/full.py:9",
    "  try:  use a smaller batch or more devices",
]


@pytest.mark.parametrize(
    ("error", "result", "found"),
    [
        (FULL, GOOD, "task 0 on vm at full.py:9: use a smaller batch or more devices"),
        (FULL[:2], BAD, "the error lacks a remedy: "),
        ([FULL[0].replace("task 0 on vm", "srun")], BAD, "the error lacks the task, the line, a remedy: "),
        ([FULL[0], "  from: /somewhere/full.py:7", FULL[2]], BAD, "the error lacks the line: "),
        (["jaxsif: error: task 0 on vm was killed by SIGKILL"], BAD, "status 1: task 0 on vm was killed by SIGKILL"),
        ([], BAD, "status 1: no error"),
    ],
)
def test_memory(error: list[str], result: str, found: str) -> None:
    facts = {"status": 1, "error": error, "allocated": False, "place": "full.py:9"}
    assert judge("memory", facts)[0] == result
    assert judge("memory", facts)[1].startswith(found)


def test_memory_that_a_device_gives_proves_nothing() -> None:
    facts = {"status": 0, "error": [], "allocated": True, "place": "full.py:9"}
    assert judge("memory", facts)[0] == UNKNOWN
    assert judge("memory", {"status": 1})[0] == UNKNOWN


def cache(hits: int, asked: int = 3, *keys: str) -> dict[str, Any]:
    first = {"asked": 3, "hits": 0, "keys": ["a", "b", "c"]}
    return {"starts": [first, {"asked": asked, "hits": hits, "keys": ["a", "b", "c", *keys]}]}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (cache(3), (GOOD, "3 of 3 programs found, 0 new keys")),
        (cache(2, 3, "d"), (BAD, "2 of 3 programs found, 1 new keys")),
        (cache(2), (BAD, "2 of 3 programs found, 0 new keys")),
        (cache(0, 0), (BAD, "0 of 3 programs found, 0 new keys")),
        ({"starts": [{"asked": 3, "hits": 0, "keys": []}] * 2}, (BAD, "the first start kept no program")),
        ({}, (UNKNOWN, "no facts: starts")),
    ],
)
def test_cache(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert judge("cache", facts) == expected


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_failed_or_took_too_long(part: str) -> None:
    assert judge(part, {"failed": "exit status 1: boom"}) == (BAD, "failed: exit status 1: boom")
    assert judge(part, {"late": True}) == (UNKNOWN, f"not done in {PARTS[part].limit} s")


@pytest.mark.parametrize("part", [name for name in PARTS if name != "doctor"])
def test_numbers_of_a_cpu_are_never_a_gpus(part: str) -> None:
    facts = {**{name: [] for name in PARTS[part].needs}, "platforms": ["cpu", "gpu"]}
    assert judge(part, facts) == (BAD, "JAX computed on cpu")


@pytest.mark.parametrize(
    ("stderr", "text"),
    [
        (
            "Traceback\njaxsif: error: task 0 on vm failed: KeyError\n  try:  it\n",
            "jaxsif: error: task 0 on vm failed: KeyError",
        ),
        ("Traceback\nKeyError: 1\n\n", "KeyError: 1"),
        ("", "no message"),
    ],
)
def test_a_program_that_fails_is_told_with_its_error(stderr: str, text: str) -> None:
    with pytest.raises(gpu.FailedError, match=f"exit status 3: {text}$"):
        gpu.Done(3, "", stderr).check()


def test_a_result_is_found_among_other_lines() -> None:
    assert gpu.Done(0, '[Gloo] Rank 0 {"a": 1}\nlast\n', "").read() == {"a": 1}
    with pytest.raises(gpu.FailedError, match="the program printed no result"):
        gpu.Done(0, "last\n", "").read()


def test_platforms_are_found_among_other_lines() -> None:
    assert gpu.read_platforms("[Gloo] Rank 0 is connected\nplatform gpu\nplatform gpu\nno platform cpu\n") == ["gpu"]


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (gpu.LateError(), {"late": True}),
        (gpu.FailedError("exit status 1: boom"), {"failed": "exit status 1: boom"}),
        (KeyError("step_seconds"), {"failed": "KeyError('step_seconds')"}),
    ],
)
def test_a_part_that_fails_does_not_stop_the_others(error: Exception, facts: dict[str, Any]) -> None:
    def fail(_machine: object) -> None:
        raise error

    assert gpu.collect(PARTS["cache"]._replace(produce=fail), None) == facts


def test_all_parts_take_ten_minutes_at_most() -> None:
    assert gpu.START + sum(part.limit for part in gpu.PARTS) <= 600


@pytest.mark.parametrize(("program", "mark"), [("spin.py", "# spins"), ("full.py", "# too large")])
def test_marked_lines_exist(program: str, mark: str) -> None:
    name, _, number = gpu.find_line(program, mark).partition(":")
    assert mark in (gpu.PROGRAMS / name).read_text().splitlines()[int(number) - 1]


@pytest.mark.parametrize(
    ("found", "platform", "text"),
    [
        ({"problem": "ModuleNotFoundError: No module named 'jax'"}, "gpu", "no GPU: ModuleNotFoundError: No module"),
        ({"jax": "0.12.0", "platform": "cpu", "device": "cpu"}, "gpu", "no GPU: JAX 0.12.0 computes on cpu"),
        ({"problem": "ModuleNotFoundError: No module named 'jax'"}, "cpu", "no JAX: ModuleNotFoundError: No module"),
    ],
)
def test_refusal(found: dict[str, str], platform: str, text: str) -> None:
    assert gpu.explain_refusal(found, platform).startswith(f"make gpu: error: {text}")


def test_no_refusal() -> None:
    assert gpu.explain_refusal({"jax": "0.12.0", "platform": "gpu", "device": "NVIDIA H100"}, "gpu") == ""


def test_table() -> None:
    row = gpu.Row("cache", "3 of 3 programs found", "all found", GOOD)
    found = {"jax": "0.12.0", "platform": "gpu", "device": "NVIDIA H100"}
    title, heading, line = gpu.render(found, [row]).splitlines()
    assert title == "NVIDIA H100, JAX 0.12.0, gpu"
    assert heading.split() == ["PART", "FOUND", "BOUND", "RESULT"]
    assert line == "cache  3 of 3 programs found  all found  ok"
    cpu = gpu.render({**found, "platform": "cpu"}, [row]).splitlines()[0]
    assert cpu.endswith(": a rehearsal, which says nothing about a GPU")


def test_container_runtimes_are_hidden_and_other_programs_are_not(tmp_path: Path) -> None:
    tools, other = tmp_path / "tools", tmp_path / "other"
    tools.mkdir()
    other.mkdir()
    for name in ("apptainer", "openssl"):
        (tools / name).touch()
    assert gpu.hide_runtimes([str(other)], tmp_path) == [other]
    first, second = gpu.hide_runtimes([str(other), str(tools)], tmp_path)
    assert first == other
    assert [entry.name for entry in second.iterdir()] == ["openssl"]


def test_variables_of_a_job_or_module_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "JAXSIF_IMAGE", "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    environ = gpu.make_environ("gpu", tmp_path)
    assert not [name for name in environ if name.startswith(("SLURM", "JAXSIF_", "JAX_COORDINATOR"))]
    assert (environ["XLA_FLAGS"], environ["CUDA_VISIBLE_DEVICES"]) == ("--xla_dump_to=/tmp", "3")
    assert sys.executable in Path(environ["PATH"].partition(":")[0], "python3").read_text()
