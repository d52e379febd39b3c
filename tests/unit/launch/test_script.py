"""Job scripts: names, #SBATCH lines, what an image does not do by itself; words that a shell gives back unchanged."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.hosts import CONTAINER, plan_for

from jaxsif.errors import JaxsifError
from jaxsif.launch.script import Foreign, JobOptions, Script, judge_image, quote_directive, render_script
from jaxsif.layout.layout import Group, Layout
from jaxsif.settings.options import RunOptions

CACHED = CONTAINER._replace(cache="/home/a/.cache/c")
JOB, NOTHING = JobOptions("a"), Foreign()


def layout(nodes: int | None, tasks: int | None, gpus: int | None) -> Layout:
    return Layout((Group(nodes, tasks, gpus),), "")


TWO_OF_FOUR = layout(2, 2, 4)


def script(run: RunOptions, job: JobOptions = JOB, foreign: Foreign = NOTHING) -> str:
    plan = plan_for(run, container=CACHED)
    assert plan.container
    return render_script(Script(plan, plan.container, job, foreign))


def read_directive(line: str) -> list[str]:
    """The words of an #SBATCH line, as Slurm's _get_argument (src/sbatch/opt.c) takes them apart."""
    words, word, quote, escaped, begun = [], "", "", False, False
    for letter in line:
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\":
            escaped = begun = True
        elif quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "\"'":
            quote, begun = letter, True
        elif letter == "#":
            break
        elif letter.isspace():
            words, word, begun = ([*words, word] if begun else words), "", False
        else:
            word, begun = word + letter, True
    return [*words, word] if begun else words


@given(st.lists(st.text(st.characters(blacklist_characters="\n\r\0")), min_size=1))
def test_words_of_directives_reach_sbatch(words: list[str]) -> None:
    assert read_directive(" ".join(quote_directive(word, "") for word in words)) == words


@given(
    st.lists(st.text(st.characters(blacklist_characters="\0")), min_size=1, max_size=4).filter(
        lambda words: ":" not in words
    )
)
def test_words_of_the_program_reach_it(command: list[str]) -> None:
    """Bytes that are no UTF-8 are surrogates here."""
    text = script(RunOptions(tuple(command)))
    step = text[text.index("\nsrun ") :]
    assert shlex.split(step)[-len(command) :] == command


@pytest.mark.parametrize(
    ("flavour", "shape", "expected"),
    [
        pytest.param("cuda12", TWO_OF_FOUR, Foreign(platforms="cuda"), id="ours with GPUs"),
        pytest.param("cuda12", layout(2, 2, None), Foreign(), id="ours without"),
        pytest.param("cpu", TWO_OF_FOUR, Foreign(), id="a rehearsal"),
        pytest.param(None, layout(2, 4, 4), Foreign(), id="foreign, a GPU for each task"),
        pytest.param(None, layout(2, 1, 4), Foreign(local_device_ids="0,1,2,3"), id="foreign, all GPUs for one task"),
        pytest.param(None, layout(None, None, None), Foreign(), id="foreign, nothing known"),
    ],
)
def test_judge_image(flavour: str | None, shape: Layout, expected: Foreign) -> None:
    assert judge_image(flavour, shape) == expected


def test_a_foreign_image_cannot_share_gpus_among_tasks() -> None:
    with pytest.raises(JaxsifError, match="2 tasks on 4 GPUs"):
        judge_image(None, TWO_OF_FOUR)


@pytest.mark.parametrize("option", ["job_name", "output", "dependency"])
def test_a_directive_has_one_line(option: str) -> None:
    job = JobOptions("a")._replace(**{option: "a\n#SBATCH --exclusive"})
    with pytest.raises(JaxsifError, match="more than one line") as caught:
        script(RunOptions(("true",)), job)
    assert caught.value.where == "--" + option.replace("_", "-")


def test_own_variables_win() -> None:
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_PLATFORMS", "JAX_LOCAL_DEVICE_IDS", "PYTHONUNBUFFERED")
    run = RunOptions(("true",), env=tuple((name, "mine") for name in names))
    text = script(run, foreign=Foreign("cuda", "0,1"))
    assert [line for line in text.splitlines() if any(name in line for name in names)] == [
        f"export APPTAINERENV_{name}=mine" for name in names
    ]


def test_nothing_internal_is_in_a_script() -> None:
    """No protocol between the launcher and the tasks, no path of the launcher, no port of this moment."""
    text = script(RunOptions(("true",), gpus_per_node="4"))
    # By the first, our images give each task its GPUs; by the other, `jaxsif stacks` shows iterations.
    text = re.sub("APPTAINERENV_JAXSIF_(LAYOUT|HANG_TIMEOUT)", "", text)
    assert not any(word in text for word in ("JAXSIF", "/sw/jaxsif/lib", "/usr/bin/python3", "0a1b", "61234"))


def test_each_name_of_the_node_in_an_address_counts() -> None:
    text = script(RunOptions(("true",), node_address="%N.$x.%N-ib"))
    address = '"${SLURMD_NODENAME}.\\$x.${SLURMD_NODENAME}-ib:$port"'
    assert f"export APPTAINERENV_JAX_COORDINATOR_ADDRESS={address}" in text.splitlines()
