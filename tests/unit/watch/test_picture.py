"""The picture of a step: groups of tasks, in few lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bounds import least_seconds
from hypothesis import given
from hypothesis import strategies as st
from sights import BOX, MAIN, USER, line, sight

from jaxsif.watch.picture import Picture, conjugate, make_picture, render_json, render_text
from jaxsif.watch.sight import Sight, parse_line

DATA = [["/home/ada/data.py", 57, "next_batch"], MAIN]


def many(count: int, **odd: dict[str, Any]) -> list[Sight]:
    """Tasks that wait for each other, 8 on a node, but for the odd ones: 't617' -> its fields."""
    return [sight(task=task, node=f"n{task // 8:04}", **odd.get(f"t{task}", {})) for task in range(count)]


def test_the_example() -> None:
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA, "box": {"turns": 12043}}
    stopped = {"state": "T", "frames": [], "answered": False, "box": None}
    picture = make_picture(many(1024, t617=read, t1021=stopped))
    assert render_text(picture, "step 12.0") == [
        "step 12.0: 1024 tasks on 128 nodes",
        "  1022 tasks wait in a collective  train.py:41 step       iteration 12044 of the loop at train.py:38"
        "  tasks 0-616,618-1020,1022-1023",
        "     1 task  reads from a pipe     data.py:57 next_batch  iteration 12043 of the loop at train.py:38"
        "  task 617 on n0077",
        "     1 task  is stopped (SIGSTOP)  python3                                                          "
        "  task 1021 on n0127",
        "  likely: tasks 617,1021 keep the others waiting",
    ]


def test_a_task_behind_by_one_iteration_is_the_odd_one() -> None:
    picture = make_picture(many(8, t5={"box": {"turns": 12043}}))
    assert [(one.turns, len(one.sights)) for one in picture.groups] == [((12044, 12044), 7), ((12043, 12043), 1)]
    assert [one.first.task for one in picture.odd] == [5]


def find_odd(*sights: Sight) -> list[int]:
    """The tasks that keep the others waiting."""
    picture = make_picture(one._replace(task=task) for task, one in enumerate(sights))
    return [one.task for group in picture.odd for one in group.sights]


STEP, EPOCH, LEAVES = "/home/ada/train.py:38", "/home/ada/train.py:30", "/home/ada/save.py:4"
SAVE = [["/home/ada/save.py", 5, "save"], MAIN]
SYNC = [["/opt/lib/python3.13/site-packages/jax/experimental/multihost_utils.py", 9, "sync"], MAIN]
ENDED = [["/opt/lib/python3.13/site-packages/jax/_src/distributed.py", 1, "shutdown"]]


def at(*loops: tuple[str, int], frames: Any = None, **fields: Any) -> Sight:
    """A task that waits inside of these loops, the outermost first."""
    around = [list(loop) for loop in loops]
    return sight(frames=frames or SYNC, box={"around": around, "inside": bool(around)}, **fields)


def test_of_two_halves_nobody_is_odd() -> None:
    """The one ahead may have skipped a sum, or the one behind may be slow."""
    there = {"frames": [["/home/ada/train.py", 99, "step"], MAIN]}
    for two in ({"box": {"turns": 12043}}, there, {**there, "box": {"turns": 7}}):
        assert make_picture(many(2, t1=two)).odd == ()
        assert make_picture(many(4, t1=two, t2=two)).odd == ()


@pytest.mark.parametrize("turns", [12, 47, 60])
def test_an_iteration_ahead_or_behind_is_odd_also_where_another_task_saves(turns: int) -> None:
    """Process 0 waits for its device at a line of its own, in a loop of its own; it is where the others are."""
    saves = at((STEP, 51), (LEAVES, 3), frames=SAVE)
    assert find_odd(saves, at((STEP, 51)), at((STEP, turns)), at((STEP, 51))) == [2]
    assert find_odd(saves, at((STEP, 51)), at((STEP, turns)), at((STEP, 52))) == [2]


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


def test_loops_that_are_not_counted_prove_nothing() -> None:
    usual = at((STEP, 51))
    assert find_odd(usual, usual, at((STEP, -1)), usual) == []
    assert find_odd(usual, usual, at((STEP, 12), age=60.0), usual) == []
    assert find_odd(usual, usual, sight(frames=SYNC, box=None), usual) == []


def test_a_task_that_has_ended_is_odd_whatever_the_others_do() -> None:
    usual, ended = at((STEP, 51)), sight(frames=ENDED)
    saves = at((STEP, 51), (LEAVES, 3), frames=SAVE)
    writes = sight(call="write", file="/scratch/checkpoint", frames=SAVE)
    assert find_odd(saves, usual, ended, usual) == [2]
    assert find_odd(writes, usual, ended, usual) == [2]
    assert find_odd(ended, writes, ended, ended) == [1]  # which nobody waits for, but at the end


def test_nobody_is_odd_where_a_task_was_not_seen() -> None:
    """It may be that one."""
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA}
    assert make_picture(many(4, t1=read), ["n9"]).odd == ()
    picture = make_picture(many(4, t1=read), unseen=2)
    assert picture.odd == ()
    assert render_text(picture, "step 12.0")[-1] == "  nothing is known of 2 other tasks"


def test_iterations_count_in_loops_that_stand_still() -> None:
    picture = make_picture(many(4, t1={"box": {"turns": 12043, "quiet": 0.0}}))
    assert len(picture.groups) == 1
    assert picture.odd == ()


def test_iterations_do_not_count_beside_another_odd_one() -> None:
    read = {"call": "read", "descriptor": 5, "file": "pipe", "frames": DATA}
    picture = make_picture(many(8, t5={"box": {"turns": 12043}}, t6=read))
    assert [one.turns for one in picture.groups] == [(12043, 12044), (12044, 12044)]
    assert "iteration 12043-12044 of the loop" in render_text(picture, "x")[1]


def test_who_waits_for_the_end_has_left_the_others() -> None:
    ended = {"frames": [["/a/lib/python3.13/site-packages/jax/_src/distributed.py", 1, "shutdown"]]}
    assert [one.first.task for one in make_picture(many(2, t0=ended)).odd] == [0]
    assert [one.first.task for one in make_picture(many(3, t1=ended, t2=ended)).odd] == [0]


def test_nobody_is_odd_where_most_compute_or_nobody_waits() -> None:
    runs = {"state": "R", "call": ""}
    assert make_picture(many(4, t0=runs, t1=runs, t2=runs)).odd == ()
    assert make_picture([sight(state="R", call="")]).odd == ()
    assert make_picture([]).odd == ()


def test_words_of_many() -> None:
    assert conjugate("is stopped (SIGSTOP)", 2) == "are stopped (SIGSTOP)"
    assert conjugate("has ended", 2) == "have ended"
    assert conjugate("sleeps", 2) == "sleep"
    assert conjugate("sleeps", 1) == "sleeps"


def test_silent_nodes() -> None:
    nodes = [f"n{number}" for number in range(9)]
    assert render_text(make_picture([], nodes), "step 1.0") == [
        "step 1.0: no task was found",
        "  no answer from n0, n1, n2, n3 and 5 other nodes",
    ]


def test_a_task_that_two_nodes_tell_of_is_one() -> None:
    assert make_picture([sight(), sight(node="node2")]).size == 1


def test_json() -> None:
    picture = make_picture(many(3, t1={"state": "T"}))
    found = json.loads(json.dumps(render_json(picture, "12.0")))
    assert (found["step"], found["tasks"], found["silent"], found["unseen"]) == ("12.0", 3, [], 0)
    assert [(one["tasks"], one["kind"], one["odd"]) for one in found["groups"]] == [
        ("0,2", "collective", False),
        ("1", "stopped", True),
    ]
    group = found["groups"][0]
    assert (group["loop"], group["turns"]) == ("/home/ada/train.py:38", [12044, 12044])
    assert group["members"][0]["box"] == {**BOX, "around": [[BOX["loop"], BOX["turns"]]]}


def test_json_of_what_is_missing() -> None:
    found = json.loads(json.dumps(render_json(make_picture(many(3, t1={"state": "T"}), ["n9"], 2), "12.0")))
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
    picture = make_picture((sight(task=task, **one) for task, one in enumerate(fields)), silent)
    lines = render_text(picture, "step 1.0")
    assert len(lines) <= 25
    assert all(text.isprintable() for text in lines)
    assert picture.size == len(fields)
    json.dumps(render_json(picture, "1.0"))


def test_a_thousand_tasks_take_little_time() -> None:
    frames = [[f"/opt/venv/lib/python3.13/site-packages/jax/_src/a{number}.py", number, "f"] for number in range(20)]
    lines = [line(task=task, node=f"n{task}", frames=[*frames, *DATA]) for task in range(1000)]

    def draw() -> Picture:
        picture = make_picture([found for found in map(parse_line, lines) if isinstance(found, Sight)])
        render_text(picture, "step 1.0")
        return picture

    picture = draw()
    assert isinstance(picture, Picture)
    assert picture.size == 1000
    assert least_seconds(draw) < 0.5  # 0.1 s where nothing else runs


def test_a_count_that_is_old_is_a_least_one() -> None:
    stopped = {"state": "T", "frames": [], "age": 60.0, "box": {"turns": 12030}}
    row = next(row for row in render_text(make_picture(many(8, t5=stopped)), "step 12.0") if "SIGSTOP" in row)
    assert "  iteration 12030 or later of the loop at train.py:38  " in row
