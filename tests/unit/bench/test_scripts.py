"""tests/bench/launch.py and image.py: what they start, and what they make of the times."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import load_script

FOLDER = Path(__file__).resolve().parents[2] / "bench"
launch = load_script(FOLDER / "launch.py")
image = load_script(FOLDER / "image.py")
TIMES = {"jaxsif run": [0.2, 0.1889, 1.5], "bare srun": [0.16, 0.1, 0.17]}


def test_both_ways_of_a_launch_are_the_same_tasks() -> None:
    options = launch.parse_options(["--nodes=2", "--ntasks-per-node=4"])
    layout = ("--nodes=2", "--ntasks-per-node=4")
    assert launch.find_ways(options, "/a.sif") == {
        "jaxsif run": ("jaxsif", "run", "--image=/a.sif", *layout, "--", "true"),
        "bare srun": ("srun", *layout, "--ntasks=8", "apptainer", "run", "--nv", "/a.sif", "true"),
    }


def test_a_launch_has_its_defaults_and_no_bound() -> None:
    options = launch.parse_options([])
    assert (options.nodes, options.ntasks_per_node, options.pairs) == (1, 1, 20)
    assert launch.judge(TIMES, options.bound_ratio) == 0


def test_the_times_of_launches() -> None:
    assert launch.render_table(TIMES) == [
        "way                median      fastest      slowest  starts",
        "jaxsif run      200.00 ms    188.90 ms   1500.00 ms  3",
        "bare srun       160.00 ms    100.00 ms    170.00 ms  3",
    ]


@pytest.mark.parametrize(("bound", "status"), [(1.2, 1), (1.25, 0), (1.45, 0)])
def test_the_bound_of_launches(bound: float, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.judge(TIMES, bound) == status
    out, err = capsys.readouterr()
    assert out == "difference of medians 40 ms, ratio 1.25\n"
    assert err == ("the ratio 1.250 is above --bound-ratio 1.2\n" if status else "")


def test_ways_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is first changes, and the first pair does not count."""
    seen: list[str] = []
    monkeypatch.setattr(launch, "run", lambda argv: seen.append(argv[0]) or float(len(seen)))
    times = launch.take_turns({"a": ("a",), "b": ("b",)}, 2)
    assert (seen, times) == (list("abbaab"), {"a": [4.0, 5.0], "b": [3.0, 6.0]})


def test_the_package_that_changes_is_locked() -> None:
    recipe = image.read_recipe(image.SOURCE, "cpu")
    assert image.find_version(recipe, "numpy")[0].isdigit()
    with pytest.raises(SystemExit, match=r"no nonsense in .*/cpu\.txt"):
        image.find_version(recipe, "nonsense")


def test_what_builds_tell(capsys: pytest.CaptureFixture[str]) -> None:
    times = (("cold", 30.0, 70 << 20), ("plain", 120.0, 100 << 20), ("numpy changed", 6.0, 70 << 20))
    image.show(image.Build("cpu", *build) for build in times)
    assert capsys.readouterr().out.splitlines() == [
        "flavour       way                  time         size",
        "cpu           cold              30.00 s       70 MiB",
        "cpu           plain            120.00 s      100 MiB",
        "cpu           numpy changed       6.00 s       70 MiB",
        "cold: 1/4.0 of the plain way's time, 0.70 of its size",
        "numpy changed: 1/5.0 of the cold time",
    ]


def test_the_options_of_builds() -> None:
    options = image.parse_options(["--flavour=cpu", "--pause=1"])
    assert (options.flavour, options.package, options.pause) == ("cpu", "numpy", 1)
