"""Which programs of tasks differ, in whatever order and at whatever times the reports come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.samples import sample

from jaxsif.diagnose.reports import Report, ReportFilter
from jaxsif.task.contract import render_position
from jaxsif.watch import programs
from jaxsif.watch.programs import ProgramCensus
from jaxsif.watch.sample import Sample
from jaxsif.watch.watcher import ProgramWatcher

JITTER = 59.9  # seconds; less than the census's patience with threads


def compiled(
    task: int, name: str, processes: int, types: str = "tensor<8xf32>", group: str = "a1", **more: str
) -> Report:
    digest = sha256(f"{name} {types} {more.get('body', '')}".encode()).hexdigest()[:16]
    made = Report(task, "node1", "program", where=more.get("where", "train.py:12"), order=int(more.get("order", "1")))
    return made._replace(group=group, processes=processes, name=name, types=types, digest=digest)


def tell(events: Sequence[tuple[float, Report]], end: float = math.inf) -> list[tuple[float, str]]:
    """What the census says of reports that come at these times, each with the time; it is asked all along."""
    census = ProgramCensus()
    said = []
    for now, report in sorted(events, key=lambda event: event[0]):
        said += [(now, found.warning) for found in census.check(now)]
        census.add(report, now)
        said += [(now, found.warning) for found in census.check(now)]
    return said + [(end, found.warning) for found in census.check(end)]


def steps(names: Mapping[int, str], processes: int, **more: str) -> list[tuple[float, Report]]:
    """Each task compiles, in other threads, the programs of these letters: one each 100 seconds."""
    return [
        (100.0 * place + task / 1000, compiled(task, f"jit_{name}", processes, order="0", **more))
        for task, text in names.items()
        for place, name in enumerate(text)
    ]


def texts(names: Mapping[int, str], end: float = math.inf) -> list[str]:
    return [text for _, text in tell(steps(names, len(names)), end)]


def test_one_of_four_has_another_shape() -> None:
    others = [(0.0, compiled(task, "jit_loss", 4)) for task in (0, 2, 3)]
    odd = compiled(1, "jit_loss", 4, "tensor<6xf32>", where="train.py:14")
    text = (
        "task 1 compiled jit_loss for (tensor<6xf32>) at train.py:14,"
        " 3 others for (tensor<8xf32>) at train.py:12: their results may be wrong"
    )
    assert tell([*others, (5.0, odd)], end=5.69) == []
    assert tell([*others, (5.0, odd)], end=5.7) == [(5.7, text)]
    assert tell([(-5.0, odd), *others], end=1.0) == [(1.0, text)]


def test_a_difference_that_the_types_do_not_show() -> None:
    events = [(0.0, compiled(task, "jit_f", 3, body=str(task == 1))) for task in range(3)]
    [(_, text)] = tell(events)
    assert text == (
        "task 1 compiled jit_f for (tensor<8xf32>) at train.py:12,"
        " 2 others another jit_f for the same types at train.py:12: their results may be wrong"
    )


def test_many_arguments_are_shown_where_they_differ() -> None:
    types = [f"tensor<{number}xf32>" for number in range(30)]
    other = [*types[:20], "tensor<7xbf16>", *types[21:]]
    events = [(0.0, compiled(task, "jit_f", 3, ", ".join(other if task == 1 else types))) for task in range(3)]
    [(_, text)] = tell(events)
    assert "for (... tensor<7xbf16>, tensor<21xf32>, " in text
    assert "for (... tensor<20xf32>, tensor<21xf32>, " in text
    assert len(text) < 400


def test_a_program_that_one_task_compiles_again_is_shown_where_it_differs_from_before() -> None:
    """As for a last batch that is shorter in one task."""
    types = [f"tensor<{number}xf32>" for number in range(30)]
    shorter = ", ".join([*types[:29], "tensor<12x16xf32>"])
    events = [(0.0, compiled(task, "jit_f", 3, ", ".join(types))) for task in range(3)]
    events.append((1.0, compiled(1, "jit_f", 3, shorter, order="2")))
    events += [(1.0, compiled(task, "jit_g", 3, "i32", order="2")) for task in (0, 2)]
    [(_, text)] = tell(events)
    assert text.startswith("task 1 compiled jit_f again for (... tensor<12x16xf32>) at ")
    assert ", 2 others went on to jit_g for (i32) at " in text


@pytest.mark.parametrize(
    ("names", "blamed"),
    [
        ({0: "abc", 1: "xabc", 2: "abc"}, "task 1 compiled jit_x for"),
        ({0: "abc", 1: "ab", 2: "abc"}, ""),  # it may still come
        ({0: "ab", 1: "ba", 2: "ab"}, "task 1 compiled jit_b for"),
        ({0: "aab", 1: "abb", 2: "aab"}, "task 1 compiled jit_b for"),
        ({0: "a", 1: "x", 2: "a", 3: "y", 4: "a"}, "task 1 compiled jit_x for"),
        ({0: "abc", 1: "xbc", 2: "abc", 3: "abc", 4: "xbc"}, "task 1 and 1 other compiled jit_x for"),
    ],
    ids=[*("one more", "late", "long out of order", "once more", "two others", "two alike")],
)
def test_what_tasks_compile_instead(names: dict[int, str], blamed: str) -> None:
    """Programs come 100 seconds apart, so nobody waits for what is missing."""
    found = texts(names)
    assert bool(found) == bool(blamed)
    assert "".join(found[:1]).startswith(blamed)
    assert len(found) == len({name for name in names.values() if blamed}) - bool(blamed)


def numbered(starts: Sequence[float], names: Sequence[str], step: float = 0.1) -> list[tuple[float, Report]]:
    """Each task compiles programs of these letters, from its start on: capital ones in the main thread."""
    events = []
    for task, (start, text) in enumerate(zip(starts, names)):
        order = 0
        for place, name in enumerate(text):
            order += name.isupper()
            report = compiled(task, f"jit_{name}", len(names))._replace(order=order * name.isupper())
            events.append((start + place * step, report))
    return events


def rounded(said: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Each time, and the tasks and programs of the text."""
    return [
        (round(now, 1), text.partition(": ")[0].replace(" for (tensor<8xf32>) at train.py:12", ""))
        for now, text in said
    ]


TWO_EARLY = numbered([0, 0, 0.2, 3, 3, 3, 3, 3], "XXYYYYYY")
ONE_EARLY = numbered([0, 0.2, 3, 3, 3, 3, 3, 3], "XYYYYYYY")
TWO_DIFFER = "task 2 compiled jit_Y, and task 0 and 1 other jit_X"
ONE_DIFFERS = "task 1 compiled jit_Y, and task 0 jit_X"
CLOCK = [(now / 10, compiled(0, "jit_x", 1)) for now in range(100)]  # which are ignored


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (TWO_EARLY, [(0.9, TWO_DIFFER), (3.0, "task 0 and 1 other compiled jit_X, 5 others jit_Y")]),
        (ONE_EARLY, [(0.9, ONE_DIFFERS), (3.0, "task 0 compiled jit_X, 5 others jit_Y")]),
        (TWO_EARLY[:3], [(0.9, TWO_DIFFER)]),
        (numbered([0, 0.2, 3, 3], "XYYX"), [(0.9, ONE_DIFFERS)]),
        (numbered([0, 0.2, 0.2, 0.2, 9], "XYYYY"), [(0.9, "task 0 compiled jit_X, 3 others jit_Y")]),
    ],
    ids=["two wrong and early", "one wrong and early", "the others never come", "halves", "early enough"],
)
def test_nobody_is_blamed_before_it_is_sure(events: list[tuple[float, Report]], said: list[tuple[float, str]]) -> None:
    """Within a second both programs are told; who is right, when the missing tasks cannot change it."""
    assert rounded(tell(events + CLOCK)) == said


PLACE = "jit_Y at train.py:12 in the main thread"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["XY", "XY", "XY", "XY"], ""),
        (["XY", "X", "XY", "XY"], f"task 1 has not compiled {PLACE}, 3 others have"),
        (["XYZ", "X", "XYZ", "XY"], f"task 1 has not compiled {PLACE}, 3 others have"),
        (["XY", "X", "X", "XY", "XY"], f"tasks 1-2 have not compiled {PLACE}, 3 others have"),
        (["XY", "X", "X", "X"], f"task 0 has compiled {PLACE}, 3 others have not"),
        (["XY", "XY", "X", "X"], ""),
        (["XY", "XY", "XY", ""], ""),  # it may not report
        (["XA", "XB", "XB", "XB", "X"], ""),
        (["Xt", "X", "X", "X"], ""),
    ],
)
def test_who_has_not_compiled_what_others_have(names: list[str], text: str) -> None:
    census = ProgramCensus()
    for now, report in numbered([0] * len(names), names):
        census.add(report, now)
    assert next(filter(None, (lead.describe() for lead in census.find_leads())), "") == text


def test_programs_of_threads_do_not_shift_those_of_the_main_thread() -> None:
    assert tell(numbered([0, 0, 0, 0], ["tA", "tA", "tA", "ABt"], 0.01) + CLOCK, end=10) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["At", "AB"], 0),  # nobody knows what the tasks would have compiled
        (["at", "ab"], 0),
        (["AC", "AB"], 1),
    ],
)
def test_the_end_of_a_run(names: list[str], said: int) -> None:
    texts: list[str] = []
    plan: Any = SimpleNamespace(options=SimpleNamespace(check_programs="warn"))
    watcher = ProgramWatcher(plan, ReportFilter(), texts.append, ProgramCensus())
    for _, report in numbered([0, 0], names):
        watcher.hear(report)
    watcher.poll()
    assert texts == []
    watcher.close()
    assert len(texts) == said


@pytest.mark.parametrize(
    "names", [["AZC", "ABC", "ABC"], ["ZBC", "ABC", "ABC"], ["AZCD", "AB", "AB"]], ids=["second", "first", "ahead"]
)
def test_a_task_of_which_a_report_is_lost_is_followed_no_longer(names: list[str]) -> None:
    events = [(now, report) for now, report in numbered([0, 0, 0], names) if report.name != "jit_Z"]
    assert tell(events + CLOCK) == []
    other = (20.0, compiled(1, "jit_E", 3)._replace(order=len(names[1]) + 1))
    another = (20.0, compiled(2, "jit_F", 3)._replace(order=len(names[1]) + 1))
    assert len(tell([*events, other, another])) == 1  # the others are


def test_a_second_python_of_a_task_begins_with_one_again() -> None:
    def run(task: int, names: Sequence[str]) -> list[tuple[float, Report]]:
        orders = [(name, order) for text in names for order, name in enumerate(text, 1)]
        return [
            (place / 10, compiled(task, f"jit_{name}", 2)._replace(order=order))
            for place, (name, order) in enumerate(orders)
        ]

    assert tell(run(0, ("ab", "cd")) + run(1, ("ab", "cd"))) == []
    assert len(tell(run(0, ("ab", "cd")) + run(1, ("ab", "ce")))) == 1
    assert tell(run(0, ("ab", "cd")) + run(1, ("a", "cd"))) == []  # the last report may be lost


def test_nobody_is_left_to_follow() -> None:
    events = numbered([0, 0], "AB")
    lost = [(3.0, compiled(task, "jit_C", 2)._replace(order=5)) for task in range(2)]
    assert len(tell(events + lost + CLOCK)) == 1


def test_any_two_programs_of_the_main_thread() -> None:
    """The sums of the hashes of tuples would be the same for some of them."""
    for number in range(200):
        names = [f"jit_{number}", f"jit_{number + 1}"]
        events = [
            (0.0, compiled(task, name, 2)._replace(order=place))
            for task, own in enumerate((names, names[::-1]))
            for place, name in enumerate(own, 1)
        ]
        assert len(tell(events)) == 1


def test_a_minority_is_not_right() -> None:
    """Two tasks are alike, and the six others differ from these and from each other."""
    said = texts({0: "a", 1: "a", **{task: f"{task}" for task in range(2, 8)}})
    assert len(said) == 6
    assert all("task 0 and 1 other compiled another" in text or "and task 0 and 1 other" in text for text in said), said


def test_nothing_is_compared_again_before_it_can_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task says nothing; the others all differ."""
    looks = []
    original = programs._find_branches
    monkeypatch.setattr(programs, "_find_branches", lambda *given: looks.append(given[2]) or original(*given))
    census = ProgramCensus()
    for task in range(7):
        census.add(compiled(task, f"jit_{task}", 8), 0.0)
    for tenth in range(1000):
        census.check(tenth / 10)
    assert len(looks) == 2, looks


def test_a_mismatch_is_said_once() -> None:
    """Of a task that differs, what it compiles afterwards is not looked at."""
    assert len(texts({0: "abcdef", 1: "xbydef", 2: "abcdef"})) == 1


def test_few_mismatches_are_said() -> None:
    assert len(texts({task: f"{chr(97 + task)}" for task in range(26)} | dict.fromkeys(range(26, 90), "A"))) == 10


def test_other_devices_are_another_group() -> None:
    """Also where the tasks are the same."""
    first = steps({0: "ab", 1: "ab"}, 2, group="a1")
    assert tell(first + steps({2: "xyz", 3: "xyz"}, 2, group="b2")) == []
    [(_, text)] = tell(first + steps({0: "x", 1: "y"}, 2, group="b2"))
    assert text.startswith("task 1 compiled jit_y")


@pytest.mark.parametrize("missing", ["group", "digest", "processes"])
def test_a_report_without_what_is_compared(missing: str) -> None:
    census = ProgramCensus()
    for task in range(2):
        whole = compiled(task, f"jit_{task}", 2)
        census.add(whole._replace(**{missing: type(getattr(whole, missing))()}), 0.0)
    assert census.check(math.inf) == []


def test_many_tasks_and_programs_take_little_memory() -> None:
    census = ProgramCensus()
    for place in range(30):
        for task in range(1000):
            census.add(compiled(task, f"jit_{place}", 1000), float(place))
    [group] = census._groups.values()
    assert len(group._states) == 1
    assert census.check(math.inf) == []


def test_a_group_in_which_nobody_catches_up_is_given_up() -> None:
    census = ProgramCensus()
    for place in range(programs._MOST_STATES + 10):
        census.add(compiled(0, f"jit_{place}", 2), 0.0)
    census.add(compiled(1, "jit_other", 2), 0.0)
    assert census.check(math.inf) == []


def test_tasks_beyond_the_most_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST_FOLLOWED", 3)
    assert len(texts({0: "ab", 1: "ay", 2: "ab", 3: "xy"})) == 1


PROGRAMS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12)


@given(st.data(), PROGRAMS, st.integers(2, 6))
def test_background_threads_change_the_order(data: st.DataObject, names: list[str], tasks: int) -> None:
    """Each program comes from all tasks within the patience: whatever the order is, nothing is said."""
    gaps = data.draw(st.lists(st.floats(0, 100), min_size=len(names), max_size=len(names)))
    jitter = st.floats(0, JITTER)
    events = [
        (sum(gaps[: place + 1]) + data.draw(jitter), compiled(task, f"jit_{name}", tasks, order="0"))
        for place, name in enumerate(names)
        for task in range(tasks)
    ]
    assert tell(events) == []


@given(st.data(), st.integers(1, 12), st.integers(2, 6))
def test_whoever_differs_is_named_in_time(data: st.DataObject, length: int, tasks: int) -> None:
    """One task has another program, one more, or one less; the times are any."""
    names = [f"jit_{place}" for place in range(length)]
    place = data.draw(st.integers(0, length - 1))
    main = data.draw(st.booleans())  # they are of the main thread
    odd = data.draw(st.integers(0, tasks - 1))
    changes = {
        "another": [*names[:place], "jit_x", *names[place + 1 :]],
        "one more": [*names[:place], "jit_x", *names[place:]],
        "one less": [*names[:place], *names[place + 1 :], "jit_y"],
    }
    own = dict.fromkeys(range(tasks), names) | {odd: changes[data.draw(st.sampled_from(sorted(changes)))]}
    events, reached = [], []
    for task in range(tasks):
        gaps = data.draw(st.lists(st.floats(0, 3), min_size=len(own[task]), max_size=len(own[task])))
        times = [sum(gaps[: step + 1]) for step in range(len(gaps))]
        told = (compiled(task, name, tasks)._replace(order=main * step) for step, name in enumerate(own[task], 1))
        events += zip(times, told)
        reached.append(times[place])
    found = [
        text for _, text in tell(events, end=max(*reached, *(now for now, _ in events)) + (1.01 if main else 60.01))
    ]
    assert found
    assert all(f"task {odd} " in text for text in found) or tasks == 2


EPOCH, STEP = "/home/ada/train.py:30", "/home/ada/train.py:38"
AT = render_position([(EPOCH, 2), (STEP, 20)])
TASKS = frozenset(range(4))


def at(*turns: int, **fields: Any) -> Sample:
    """A task in these iterations of its epochs and steps."""
    around = [[place, count] for place, count in zip((EPOCH, STEP), turns)]
    return sample(status={"around": around, "inside": bool(around), "quiet": 3.0}, **fields)


def judge(
    ahead: set[int],
    samples: Mapping[int, Sample],
    ended: Sequence[int] = (),
    before: Mapping[int, Sample] | None = None,
) -> list[str]:
    """What is said of a program that only these of four tasks have compiled."""
    census = ProgramCensus(ntasks=4)
    for task in ahead:
        census.add(compiled(task, "jit_step", 4, "tensor<4x5xf32>")._replace(at=AT), 0.0)
    seen = {task: report_programs(one, task in ahead) for task, one in samples.items()}
    found = census.judge_leads(set(ended), seen, seen if before is None else before)
    return [difference.warning for _, difference in found]


def report_programs(one: Sample, count: int) -> Sample:
    """The task when it has reported so many programs."""
    return one._replace(status=one.status._replace(programs=count))


GO_ON = "only task 2 compiled jit_step for (tensor<4x5xf32>) at train.py:12; 3 others go on without it"
MAY = ": the results may be wrong"


@pytest.mark.parametrize(
    ("turns", "is_past"),
    [((2, 21), True), ((3, 0), True), ((3,), True), ((2, 20), False), ((2, 4), False), ((1, 90), False), ((), False)],
)
def test_a_task_in_a_later_iteration_has_gone_on_without_the_program(turns: tuple[int, ...], is_past: bool) -> None:
    others = {task: at(*turns, state="R", call="") for task in TASKS - {2}}
    assert judge({2}, {**others, 2: at(2, 20)}) == [GO_ON + MAY] * is_past
    assert judge({2}, others) == [GO_ON + MAY] * is_past  # task 2 itself may be anywhere


def test_most_of_the_others_decide() -> None:
    late, past = at(2, 5), at(2, 21)
    assert judge({2}, {0: past, 1: late, 3: late}) == []
    assert judge({2}, {0: past, 1: past, 3: late}) == [GO_ON + MAY]
    assert judge({2}, {0: past}) == []


def test_the_fewer_are_named_and_of_two_halves_both() -> None:
    past = dict.fromkeys(TASKS, at(2, 21))
    program = "jit_step for (tensor<4x5xf32>) at train.py:12"
    assert judge({0, 1, 3}, past) == [f"task 2 goes on without {program}, which 3 others compiled{MAY}"]
    assert judge({0, 1}, past) == [f"task 0 and 1 other compiled {program}; task 2 and 1 other go on without it{MAY}"]


def test_tasks_that_have_ended_do_not_compile_any_more() -> None:
    text = GO_ON.replace("go on", "have ended")
    assert judge({2}, {}, ended=[0, 1, 3]) == [text + MAY]
    assert judge({2}, {}, ended=[0, 1]) == []
    assert judge({2}, {3: at(2, 21)}, ended=[0, 1]) == [GO_ON + MAY]


def test_where_all_wait_and_nothing_moves_nobody_compiles_any_more() -> None:
    stuck = dict.fromkeys(TASKS, at(2, 20))
    text = f"{GO_ON.replace('go on', 'wait')}: no task can continue"
    assert judge({2}, stuck) == [text]
    assert judge({2}, stuck, before={}) == []  # seen once
    gloo = dict.fromkeys(TASKS, at(2, 20, read=1 << 30))
    assert judge({2}, gloo, before=stuck) == []
    for other in ({"call": "clock_nanosleep"}, {"cpu": 0.7}, {"gpu": True}, {"age": 9.0}):
        assert judge({2}, {**stuck, 0: at(2, 20, **other)}) == []


def test_a_task_whose_report_is_on_its_way_has_compiled_more_than_is_known() -> None:
    """What it has done since is seen at once, and a report comes through srun, behind other output."""
    census = ProgramCensus(ntasks=4)
    census.add(compiled(2, "jit_step", 4)._replace(at=AT), 0.0)
    past = {task: report_programs(at(2, 21), 1) for task in TASKS}
    assert census.judge_leads(set(), past, past) == []
    for task in (0, 1, 3):
        past[task] = report_programs(at(2, 21), 0)
    assert len(census.judge_leads(set(), past, past)) == 1


def apart(odd: set[int], next_one: set[int], turns: Sequence[int], received: int = 0) -> frozenset[int]:
    """Who keeps the others waiting: the odd ones have compiled a program in iteration 20, then the next ones another
    in iteration 60. The tasks are in these iterations.
    """
    census = ProgramCensus(ntasks=4)
    for task in odd:
        census.add(compiled(task, "jit_norm", 4)._replace(at=AT), 0.0)
    for task in next_one:
        census.add(compiled(task, "jit_energy", 4)._replace(at=render_position([(EPOCH, 2), (STEP, 60)])), 1.0)
    census.check(3.0)
    count = {task: (task in odd | next_one) + received for task in TASKS}
    return census.find_apart({task: report_programs(at(2, one), count[task]) for task, one in enumerate(turns)})


@pytest.mark.parametrize("next_one", [set(), {0}, {0, 2, 3}], ids=["none", "one", "all"])
def test_a_task_where_only_it_has_compiled_a_program_keeps_the_others_waiting(next_one: set[int]) -> None:
    assert apart({1}, next_one, [60, 20, 31, 31]) == {1}
    assert apart({1}, next_one, [60, 20, 21, 31]) == {1}
    assert apart({1}, next_one, [60, 20, 20, 31]) == set()  # not known of most
    assert apart({1}, next_one, [19, 20, 31, 31]) == set()  # task 0 may keep it waiting
    assert apart({1}, next_one, [60, 200, 31, 31]) == set()  # it has gone on
    assert apart({1}, next_one, [60, 20, 31, 31], received=1) == set()  # a report is on its way


def test_half_of_the_tasks_keep_nobody_waiting() -> None:
    assert apart({1, 2}, set(), [60, 20, 20, 31]) == set()
    assert apart({0, 2, 3}, {1}, [20, 60, 20, 20]) == set()
    assert apart(set(), {0}, [60, 20, 31, 31]) == set()


def test_the_devices_of_few_tasks() -> None:
    """Their most are not most of the run, and of these, one may have lost a report."""
    census = ProgramCensus(ntasks=8)
    for order, tasks in (("1", range(4)), ("3", [3]), ("2", [0])):
        for task in tasks:
            census.add(compiled(task, f"jit_{order}", 4, order=order)._replace(at=AT), 0.0)
    counts = {0: 2, 1: 1, 2: 1, 3: 2}
    samples = {task: report_programs(at(2, 20 if task in (0, 3) else 31), count) for task, count in counts.items()}
    assert census.find_apart(samples) == set()
    samples[3] = samples[1]
    assert census.find_apart({**samples, 5: at(2, 10)}) == set()


def test_of_programs_of_different_iterations_the_later_one_is_the_next() -> None:
    events = [(0.0, compiled(1, "jit_norm", 4)._replace(at=AT))]
    late = render_position([(EPOCH, 2), (STEP, 60)])
    events += [(0.1, compiled(task, "jit_energy", 4)._replace(at=late)) for task in (0, 2, 3)]
    [(_, text)] = tell(events)
    assert ", 3 others went on to jit_energy for (tensor<8xf32>) at train.py:12: their results" in text
    events = [(0.0, compiled(task, "jit_norm", 4, order="2")._replace(at=AT)) for task in (0, 2, 3)]
    events += [(0.1, compiled(1, "jit_energy", 4, order="2")._replace(at=late))]
    events += [(-1.0, compiled(task, "jit_energy", 4, "i32")) for task in TASKS]
    [(_, text)] = tell(events)
    assert ", 3 others jit_norm for (tensor<8xf32>) at train.py:12: their results" in text  # they had it before


def test_a_second_python_of_a_task_begins_again() -> None:
    """All tasks have ended their first one."""
    texts: list[str] = []
    plan: Any = SimpleNamespace(options=SimpleNamespace(check_programs="warn"))
    watcher = ProgramWatcher(plan, ReportFilter(), texts.append, ProgramCensus(4))
    for task in range(4):
        watcher.hear(compiled(task, "jit_prepare", 4))
        watcher.hear(Report(task, "node1", "end"))
    watcher.hear(compiled(0, "jit_step", 4))
    watcher.close()
    assert texts == []


def test_a_lead_for_many_arguments_shows_the_one_that_is_new() -> None:
    parameters = ", ".join(f"tensor<{number}xf32>" for number in range(30))
    census = ProgramCensus(ntasks=4)
    for task in range(4):
        census.add(compiled(task, "jit_step", 4, f"{parameters}, tensor<8x32xf32>"), 0.0)
    census.add(compiled(1, "jit_step", 4, f"{parameters}, tensor<4x32xf32>", order="2"), 1.0)
    [(_, found)] = census.judge_leads({0, 2, 3}, {}, {})
    assert found.text.startswith(
        "only task 1 compiled jit_step again for (... tensor<4x32xf32>) at train.py:12; 3 others"
    )


@pytest.mark.parametrize(("number", "types"), [(1, "tensor<4xf32>"), (3, "tensor<4xf32>"), (1, "")])
def test_a_program_that_some_tasks_compiled_again_is_named_beside_arrays_of_different_sizes(
    number: int, types: str
) -> None:
    """Most tasks may have compiled it because the run ended before the others did: a fact, and no blame."""
    plan: Any = SimpleNamespace(options=SimpleNamespace(check_programs="warn"))
    seen = ReportFilter()
    watcher = ProgramWatcher(plan, seen, lambda _: None, ProgramCensus(4))
    for task in range(4):
        watcher.hear(compiled(task, "jit_step", 4, "tensor<8xf32>"))
    for task in range(number if types else 0):
        watcher.hear(compiled(task, "jit_step", 4, types, order="2"))
    watcher.close()
    assert not watcher.difference.text
    seen.errors.append("  what():  [enforce fail at pair.cc] 16 vs 12. Received data size doesn't match expected size.")
    watcher.close()
    program = "compiled jit_step again for (tensor<4xf32>) at train.py:12"
    said = {1: f"only task 0 {program}", 3: f"task 3 has not {program}, unlike 3 others"}
    assert watcher.difference.text == (said[number] if types else "")


def test_a_lead_for_the_types_of_an_earlier_program_is_another_one() -> None:
    census = ProgramCensus(ntasks=4)
    for task in range(4):
        census.add(compiled(task, "jit__lambda", 4), 0.0)
    census.add(compiled(1, "jit__lambda", 4, order="2", body="x"), 1.0)
    [(_, found)] = census.judge_leads({0, 2, 3}, {}, {})
    assert found.text.startswith(
        "only task 1 compiled another jit__lambda for (tensor<8xf32>) at train.py:12; 3 others"
    )


def test_leads_that_read_alike_are_told_once() -> None:
    """Two lambdas of one line."""
    said: list[str] = []
    plan: Any = SimpleNamespace(options=SimpleNamespace(check_programs="warn"))
    watcher = ProgramWatcher(plan, ReportFilter(), said.append, ProgramCensus(4))
    for task in TASKS:
        watcher.hear(compiled(task, "jit__lambda", 4))
    for order, body in (("2", "x"), ("3", "y")):
        watcher.hear(compiled(1, "jit__lambda", 4, "tensor<4xf32>", order=order, body=body))
    for task in (0, 2, 3):
        watcher.hear(Report(task, "node1", "end"))
    watcher.close()
    program = "jit__lambda again for (tensor<4xf32>) at train.py:12"
    ended = "3 others have ended without it: the results may be wrong"
    assert said == [f"warning: only task 1 compiled {program}; {ended}"]


def test_a_program_after_a_lead_is_no_second_difference() -> None:
    """It has the number that the lead took in one task."""
    census = ProgramCensus(ntasks=4)
    for task in TASKS:
        census.add(compiled(task, "jit_step", 4), 0.0)
    census.add(compiled(1, "jit_step", 4, "tensor<6xf32>", order="2"), 1.0)
    [(_, found)] = census.judge_leads({0, 2, 3}, {}, {})
    assert found.text.startswith("only task 1 compiled jit_step again for (tensor<6xf32>) at train.py:12; 3 others")
    for task in TASKS:
        census.add(compiled(task, "jit_end", 4, order="3" if task == 1 else "2"), 2.0)
    assert census.check(1000.0, ended=True) == []


def test_a_lead_is_told_once() -> None:
    census = ProgramCensus(ntasks=4)
    past = {task: report_programs(at(2, 21), task == 2) for task in TASKS}
    census.add(compiled(2, "jit_step", 4)._replace(at=AT), 0.0)
    assert [len(census.judge_leads(set(), past, {})) for _ in range(3)] == [1, 0, 0]
