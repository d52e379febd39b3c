"""The snapshot of a step: groups of tasks, in few lines."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.bounds import least_seconds
from kit.samples import MAIN, STATUS, USER, line, sample

from jaxsif.watch.sample import HIDDEN_FAILURE, UNMET, Sample, parse_line
from jaxsif.watch.snapshot import Snapshot, describe_odd, make_snapshot, render_json, render_text

DATA = [["/home/ada/data.py", 57, "next_batch"], MAIN]


def many(count: int, **odd: dict[str, Any]) -> list[Sample]:
    """Tasks that wait for each other, 8 on a node, but for the odd ones: 't617' -> its fields."""
    return [sample(task=task, node=f"n{task // 8:04}", **odd.get(f"t{task}", {})) for task in range(count)]


def test_the_example() -> None:
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA, "status": {"turns": 12043}}
    stopped = {"state": "T", "frames": [], "answered": False, "status": None}
    snapshot = make_snapshot(many(1024, t617=read, t1021=stopped))
    assert render_text(snapshot, "step 12.0") == [
        "step 12.0: 1024 tasks on 128 nodes",
        "  1022 tasks are waiting in a collective  train.py:41 step       iteration 12044 of the loop at train.py:38"
        "  tasks 0-616,618-1020,1022-1023",
        "     1 task  is reading from a pipe       data.py:57 next_batch  iteration 12043 of the loop at train.py:38"
        "  task 617 on n0077",
        "     1 task  is stopped (SIGSTOP)         python3                                                          "
        "  task 1021 on n0127",
        "  likely: tasks 617,1021 are keeping the others waiting",
    ]


def test_a_task_behind_by_one_iteration_is_the_odd_one() -> None:
    snapshot = make_snapshot(many(8, t5={"status": {"turns": 12043}}))
    assert [(one.turns, len(one.samples)) for one in snapshot.groups] == [((12044, 12044), 7), ((12043, 12043), 1)]
    assert [one.first.task for one in snapshot.odd] == [5]


def find_odd(*samples: Sample) -> list[int]:
    """The tasks that keep the others waiting."""
    snapshot = make_snapshot(one._replace(task=task) for task, one in enumerate(samples))
    return [one.task for group in snapshot.odd for one in group.samples]


STEP, EPOCH, LEAVES = "/home/ada/train.py:38", "/home/ada/train.py:30", "/home/ada/save.py:4"
SAVE = [["/home/ada/save.py", 5, "save"], MAIN]
SYNC = [["/opt/lib/python3.13/site-packages/jax/experimental/multihost_utils.py", 9, "sync"], MAIN]
ENDED = [["/opt/lib/python3.13/site-packages/jax/_src/distributed.py", 1, "shutdown"]]


def at(*loops: tuple[str, int], frames: Any = None, **fields: Any) -> Sample:
    """A task that waits inside of these loops, the outermost first."""
    around = [list(loop) for loop in loops]
    return sample(frames=frames or SYNC, status={"around": around, "inside": bool(around)}, **fields)


def test_of_two_halves_nobody_is_odd() -> None:
    """The one ahead may have skipped a sum, or the one behind may be slow."""
    there = {"frames": [["/home/ada/train.py", 99, "step"], MAIN]}
    for two in ({"status": {"turns": 12043}}, there, {**there, "status": {"turns": 7}}):
        assert make_snapshot(many(2, t1=two)).odd == ()
        assert make_snapshot(many(4, t1=two, t2=two)).odd == ()


COMPARE = [["/opt/lib/python3.13/site-packages/jaxsif_task/watch/census.py", 272, "compare"], MAIN]


@pytest.mark.parametrize(("compiled", "odd"), [(7, [2]), (6, [1])])
def test_a_task_that_has_ended_keeps_nobody_waiting_for_what_it_has_compiled(compiled: int, odd: list[int]) -> None:
    """With --check-programs=stop: its last program ran on, while a slower task has yet to compile it."""
    wait = sample(frames=COMPARE, status={"programs": 7})
    slow = sample(frames=[MAIN], call="clock_nanosleep", status={"programs": 6})
    assert find_odd(wait, sample(frames=ENDED, status={"programs": compiled}), slow, wait) == odd


@pytest.mark.parametrize(("least", "odd"), [(0.3, []), (0.01, [3])])
def test_a_task_that_gets_more_of_few_cpus_is_not_odd(least: float, odd: list[int]) -> None:
    """All compute one long program; where the others have nothing to compute, they wait for the one that has."""
    others = [sample(frames=[MAIN], cpu=cpu) for cpu in (0.4, least, 0.4)]
    assert find_odd(*others, sample(frames=[MAIN], cpu=0.6)) == odd
    assert find_odd(*others, sample(frames=SAVE, cpu=0.6)) == [3]


@pytest.mark.parametrize("turns", [12, 47])
def test_an_iteration_behind_is_odd_also_where_another_task_saves(turns: int) -> None:
    """Process 0 waits for its device at a line of its own, in a loop of its own; it is where the others are."""
    saves = at((STEP, 51), (LEAVES, 3), frames=SAVE)
    assert find_odd(saves, at((STEP, 51)), at((STEP, turns)), at((STEP, 51))) == [2]
    assert find_odd(saves, at((STEP, 51)), at((STEP, turns)), at((STEP, 52))) == [2]


@pytest.mark.parametrize("turns", [50, 51])
def test_nobody_is_odd_where_one_is_ahead_and_another_elsewhere(turns: int) -> None:
    """Tasks run ahead of their devices until they wait for the one at a line of its own."""
    elsewhere, usual = at((STEP, turns), frames=[USER, MAIN]), at((STEP, 51))
    assert find_odd(usual, elsewhere, at((STEP, 60)), usual, at((STEP, 50))) == []
    assert find_odd(usual, elsewhere, at((STEP, 52)), usual, usual) == [1] * (turns == 50)
    assert find_odd(usual, at((STEP, turns)), at((STEP, 60)), usual, at((STEP, 50))) == [2]
    assert find_odd(elsewhere, usual, at((STEP, 60)), usual, usual) == []  # process 0, too


def test_a_task_known_to_be_odd_is_the_odd_one() -> None:
    samples = [one._replace(task=task) for task, one in enumerate((at((STEP, 60)), *[at((STEP, 51))] * 3))]
    assert [group.tasks for group in make_snapshot(samples).odd] == [[0]]
    assert [group.tasks for group in make_snapshot(samples, apart=frozenset([2])).odd] == [[2]]


def test_a_task_in_another_epoch_is_odd() -> None:
    usual = at((EPOCH, 1), (STEP, 5))
    assert find_odd(usual, usual, at((EPOCH, 2), (STEP, 0)), usual) == [2]
    assert find_odd(usual, usual, at((EPOCH, 1), (STEP, 3)), usual) == [2]
    assert find_odd(usual, usual, at(), usual) == [2]  # it has left all loops


def test_another_line_is_odd_where_it_is_the_only_other_one() -> None:
    usual, saves = at((STEP, 51)), at((STEP, 51), (LEAVES, 3), frames=SAVE)
    assert find_odd(usual, saves, usual, usual) == [1]
    assert find_odd(usual, saves, usual, at((STEP, 51), frames=[USER, MAIN])) == []
    # Process 0 waits for its devices at a line of its own.
    assert find_odd(saves, usual, usual, usual) == []
    assert find_odd(saves, usual, at((STEP, 51), frames=[USER, MAIN]), usual) == [2]


def test_a_task_that_waits_otherwise_at_the_same_line_is_not_odd() -> None:
    """Process 0 logs a value at its own line; the next program of all is compiled at one line."""
    usual, logs = at((STEP, 51)), at((STEP, 51), frames=SAVE)
    compares = at((STEP, 51), frames=[*COMPARE[:1], *SYNC[-1:]])
    assert compares.frames[-1] == usual.frames[-1]
    assert find_odd(logs, compares, usual, usual) == []


def test_loops_that_are_not_counted_prove_nothing() -> None:
    usual = at((STEP, 51))
    assert find_odd(usual, usual, at((STEP, -1)), usual) == []
    assert find_odd(usual, usual, at((STEP, 12), age=60.0), usual) == []
    assert find_odd(usual, usual, sample(frames=SYNC, status=None), usual) == []


def test_a_task_that_has_ended_is_odd_whatever_the_others_do() -> None:
    usual, ended = at((STEP, 51)), sample(frames=ENDED)
    saves = at((STEP, 51), (LEAVES, 3), frames=SAVE)
    writes = sample(call="write", file="/scratch/checkpoint", frames=SAVE)
    assert find_odd(saves, usual, ended, usual) == [2]
    assert find_odd(writes, usual, ended, usual) == [2]
    assert find_odd(ended, writes, ended, ended) == [1]  # which nobody waits for, but at the end


def test_a_task_that_never_connected_is_odd_where_all_others_wait() -> None:
    usual, left = at((STEP, 51)), sample(pid=0, frames=())._replace(state=UNMET)
    reads = sample(call="read", descriptor=5, file="pipe", frames=DATA)
    assert find_odd(usual, left, usual) == [1]
    assert find_odd(usual, left, usual, reads) == [3]
    assert find_odd(usual, left, left) == []  # they may be the ones that did the right thing
    assert find_odd(reads, left) == []  # nobody waits
    initializes = sample(frames=[["/x/site-packages/jax/_src/distributed.py", 9, "initialize"], ["/home/a.py", 1, "m"]])
    assert find_odd(initializes, left, left, left) == [1, 2, 3]  # for which the first one waits in vain


def test_a_task_whose_failure_is_hidden_is_shown_and_not_blamed() -> None:
    """The others may need nothing of it, as in a sweep."""
    usual, failed = at((STEP, 51)), sample(pid=0, frames=())._replace(state=HIDDEN_FAILURE)
    reads = sample(call="read", descriptor=5, file="pipe", frames=DATA)
    assert find_odd(usual, failed, usual) == []
    assert find_odd(usual, failed, usual, reads) == [3]
    assert find_odd(usual, usual, at((STEP, 50)), failed) == [2]
    assert find_odd(reads, failed, failed, failed) == []  # nobody waits
    rows = render_text(make_snapshot([*many(3), failed._replace(task=3)]), "step 12.0")
    assert re.fullmatch(r"  1 task  has failed .* task 3 on node\d", rows[-1]), rows


def test_a_task_at_work_in_an_earlier_iteration_is_odd_where_others_have_ended() -> None:
    """Dispatch has run ahead of the devices: those that have ended wait for its data."""
    usual, ended = at((STEP, 3)), sample(frames=ENDED, status={"turns": 3})
    for turns, odd in ((0, [1]), (2, [1]), (3, [2, 3])):
        loads = sample(call="read", descriptor=5, file="pipe", frames=DATA, status={"turns": turns})
        assert find_odd(usual, loads, ended, ended) == odd, turns
    assert find_odd(usual, at((STEP, 2)), ended, ended) == [2, 3]
    lock = sample(frames=[MAIN], call="read", file="pipe", descriptor=5)
    for turns, odd in ((2, [1]), (3, [2, 3])):  # in a generator, which the loop calls
        inner = lock.status._replace(loop=LEAVES, turns=9, around=((STEP, turns), (LEAVES, 9)))
        assert find_odd(usual, lock._replace(status=inner), ended, ended) == odd, turns


def test_nobody_is_odd_where_a_task_was_not_seen() -> None:
    """It may be that one."""
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA}
    assert make_snapshot(many(4, t1=read), ["n9"]).odd == ()
    snapshot = make_snapshot(many(4, t1=read), unseen=2)
    assert snapshot.odd == ()
    assert render_text(snapshot, "step 12.0")[-1] == "  nothing is known about 2 other tasks"


def test_iterations_count_in_loops_that_stand_still() -> None:
    snapshot = make_snapshot(many(4, t1={"status": {"turns": 12043, "quiet": 0.0}}))
    assert len(snapshot.groups) == 1
    assert snapshot.odd == ()


def test_iterations_do_not_count_beside_another_odd_one() -> None:
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA}
    snapshot = make_snapshot(many(8, t5={"status": {"turns": 12043}}, t6=read))
    assert [one.turns for one in snapshot.groups] == [(12043, 12044), (12044, 12044)]
    assert "iteration 12043-12044 of the loop" in render_text(snapshot, "x")[1]


def test_nobody_is_odd_where_most_compute_or_nobody_waits() -> None:
    runs = {"state": "R", "call": ""}
    assert make_snapshot(many(4, t0=runs, t1=runs, t2=runs)).odd == ()
    assert make_snapshot([sample(state="R", call="")]).odd == ()
    assert make_snapshot([]).odd == ()


def test_silent_nodes() -> None:
    nodes = [f"n{number}" for number in range(9)]
    assert render_text(make_snapshot([], nodes), "step 1.0") == [
        "step 1.0: no task was found",
        "  no answer from n0, n1, n2, n3 and 5 other nodes",
    ]


def test_a_task_that_two_nodes_tell_of_is_one() -> None:
    assert make_snapshot([sample(), sample(node="node2")]).size == 1


def test_json() -> None:
    snapshot = make_snapshot(many(3, t1={"state": "T"}))
    found = json.loads(json.dumps(render_json(snapshot, "12.0")))
    assert (found["step"], found["tasks"], found["silent"], found["unseen"]) == ("12.0", 3, [], 0)
    assert [(one["tasks"], one["kind"], one["odd"]) for one in found["groups"]] == [
        ("0,2", "collective", False),
        ("1", "stopped", True),
    ]
    group = found["groups"][0]
    assert (group["loop"], group["turns"]) == ("/home/ada/train.py:38", [12044, 12044])
    assert group["members"][0]["box"] == {**STATUS, "around": [[STATUS["loop"], STATUS["turns"]]]}


def test_json_of_what_is_missing() -> None:
    found = json.loads(json.dumps(render_json(make_snapshot(many(3, t1={"state": "T"}), ["n9"], 2), "12.0")))
    assert (found["tasks"], found["silent"], found["unseen"]) == (3, ["n9"], 2)
    assert [(one["kind"], one["odd"]) for one in found["groups"]] == [("collective", False), ("stopped", False)]


_STATES = st.fixed_dictionaries(
    {
        "state": st.sampled_from("RSDTZ"),
        "call": st.sampled_from(["", "futex", "read", "clock_nanosleep"]),
        "frames": st.lists(st.tuples(st.text(max_size=200), st.integers(0, 99), st.text(max_size=99)), max_size=3),
        "node": st.sampled_from([f"{'n' * 50}{number}" for number in range(50)]),
    }
)


@given(st.lists(_STATES, max_size=60), st.lists(st.sampled_from(["a", "b" * 255, "c"])))
def test_a_text_is_short_for_any_step(fields: list[dict[str, Any]], silent: list[str]) -> None:
    snapshot = make_snapshot((sample(task=task, **one) for task, one in enumerate(fields)), silent)
    lines = render_text(snapshot, "step 1.0")
    assert len(lines) <= 25
    assert all(text.isprintable() for text in lines)
    assert snapshot.size == len(fields)
    json.dumps(render_json(snapshot, "1.0"))


def test_a_thousand_tasks_take_little_time() -> None:
    frames = [[f"/opt/venv/lib/python3.13/site-packages/jax/_src/a{number}.py", number, "f"] for number in range(20)]
    lines = [line(task=task, node=f"n{task}", frames=[*frames, *DATA]) for task in range(1000)]

    def draw() -> Snapshot:
        snapshot = make_snapshot([found for found in map(parse_line, lines) if isinstance(found, Sample)])
        render_text(snapshot, "step 1.0")
        return snapshot

    snapshot = draw()
    assert isinstance(snapshot, Snapshot)
    assert snapshot.size == 1000
    assert least_seconds(draw) < 0.5  # 0.1 s where nothing else runs


def test_a_loop_that_a_task_has_left_is_behind_it() -> None:
    """Not if its main thread drives another."""
    for frames, thread, is_for, words in (
        (DATA, 0, False, "last in iteration 12044"),
        (DATA, 0, True, "last in iteration 12043-12044"),
        (DATA, 9, True, "iteration 12044"),
        (ENDED, 0, False, "the end of the program  last in iteration 12044"),
    ):
        status = {"inside": False, "may_be_over": is_for, "thread": thread}
        odd = {"call": "read", "frames": frames, "status": status}
        row = next(row for row in render_text(make_snapshot(many(8, t5=odd)), "step 12.0") if "task 5 " in row)
        assert f"  {words} of the loop at train.py:38  " in row


def test_a_long_place_of_a_loop_keeps_its_line() -> None:
    odd = {"call": "read", "frames": DATA, "status": {"loop": "/a/train_matrix_factorisation_sharded.py:138"}}
    row = next(row for row in render_text(make_snapshot(many(8, t5=odd)), "step 12.0") if "task 5 " in row)
    assert "  iteration 12044 of the loop at …_factorisation_sharded.py:138  " in row


def test_a_count_that_is_old_is_a_least_one() -> None:
    stopped = {"state": "T", "frames": [], "age": 60.0, "status": {"turns": 12030}}
    row = next(row for row in render_text(make_snapshot(many(8, t5=stopped)), "step 12.0") if "SIGSTOP" in row)
    assert "  iteration 12030 or later of the loop at train.py:38  " in row


READS = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA}
LEFT = {"frames": ENDED}
STOPPED: dict[str, Any] = {"state": "T", "frames": []}


def draw(**odd: dict[str, Any]) -> Snapshot:
    """8 tasks on 4 nodes that wait in a sum, but for the odd ones."""
    return make_snapshot(sample(task=task, node=f"n{task // 2}", **odd.get(f"t{task}", {})) for task in range(8))


KEPT = "kept the others waiting for 61 s"
OTHERS = "iteration 12044 of the loop at train.py:38; the others are at train.py:41 step"


@pytest.mark.parametrize(
    ("found", "who", "place"),
    [
        (draw(t5=READS), f"task 5 on n2 {KEPT}: it is reading from a pipe", "data.py:57 next_batch"),
        (draw(t4=READS, t5=READS), f"tasks 4-5 {KEPT}: they are reading from a pipe", "data.py:57 next_batch"),
        (draw(t5=LEFT), f"task 5 on n2 {KEPT}: it has ended, and is waiting for the others", OTHERS),
        (
            draw(t5={"frames": [["/home/ada/train.py", 50, "save"], MAIN]}),
            f"task 5 on n2 {KEPT}: it is waiting in a collective",
            "train.py:50 save; the others are at train.py:41 step",
        ),
        (
            draw(t5={"status": {"turns": 12043}}),
            f"task 5 on n2 {KEPT}: it is waiting in a collective",
            "train.py:41 step",
        ),
        (draw(t5=STOPPED), f"task 5 on n2 {KEPT}: it is stopped (SIGSTOP)", OTHERS),
        (
            draw(t5={**STOPPED, "age": 60.0}),
            f"task 5 on n2 {KEPT}: it is stopped (SIGSTOP)",
            OTHERS.replace("12044", "12044 or later"),
        ),
        (
            draw(**{f"t{task}": READS for task in range(6)}),
            "tasks have been waiting for 61 s: tasks 0-5 are reading from a pipe; tasks 6-7 are at train.py:41 step",
            "data.py:57 next_batch",
        ),
        (
            draw(**{f"t{task}": {"frames": [["/home/ada/train.py", 50, "save"], MAIN]} for task in range(4)}),
            "tasks have been waiting for 61 s at different lines",
            "train.py:50 save (tasks 0-3), train.py:41 step (tasks 4-7)",
        ),
        (
            draw(
                t6={"frames": [["/home/ada/train.py", 50, "save"], MAIN]},
                t7={"frames": [["/home/ada/train.py", 60, "test"], MAIN]},
            ),
            "tasks have been waiting for 61 s at different lines",
            "train.py:41 step (tasks 0-5), train.py:50 save (task 6 on n3), train.py:60 test (task 7 on n3)",
        ),
        (draw(), "all tasks have been waiting for 61 s: each is waiting in a collective", "train.py:41 step"),
        (draw(t4=LEFT, t5=LEFT), f"tasks 4-5 {KEPT}: they have ended, and are waiting for the others", OTHERS),
    ],
)
def test_who_keeps_the_others_waiting(found: Snapshot, who: str, place: str) -> None:
    assert describe_odd(found, 61.2) == (who, place)
