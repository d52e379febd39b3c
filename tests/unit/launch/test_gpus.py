"""A new job without GPUs, for an image that wants them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.hosts import CONTAINER, LOGIN_NODE, plan_for

from jaxsif.launch.gpus import note_missing_gpus
from jaxsif.settings.options import RunOptions


@pytest.fixture(params=["cuda12", "cpu", ""])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An unpacked image, and its flavour."""
    (tmp_path / ".singularity.d").mkdir()
    labels = {"io.jaxsif.flavour": request.param} if request.param else {}
    (tmp_path / ".singularity.d/labels.json").write_text(json.dumps(labels))
    return str(tmp_path), request.param


@pytest.mark.parametrize(
    ("words", "environ", "env", "silent"),
    [
        ((), {}, (), False),
        (("srun", "--nodes=1"), {"SLURM_CONF": "x"}, (("SEED", "1"),), False),
        (("--gpus-per-node=4",), {}, (), True),
        (("--gpus-per-node=0",), {}, (), True),
        (("--gres=gpu:2",), {}, (), True),
        ((), {"SLURM_GPUS_PER_NODE": "4"}, (), True),
        ((), {"JAX_PLATFORMS": "cpu"}, (), True),
        ((), {}, (("JAX_PLATFORMS", "cpu"),), True),
    ],
)
def test_a_job_without_gpus_for_an_image_that_wants_them(
    image: tuple[str, str],
    words: tuple[str, ...],
    environ: dict[str, str],
    env: tuple[tuple[str, str], ...],
    silent: bool,
) -> None:
    path, flavour = image
    lines: list[str] = []
    asked = RunOptions(("python",), env=env)
    plan = plan_for(asked, LOGIN_NODE._replace(environ=environ), CONTAINER._replace(image=path))
    note_missing_gpus(plan, words, lines.append)
    assert len(lines) == (0 if silent or flavour != "cuda12" else 1)
    assert all(line.startswith("the job gets no GPUs, because nothing requests any: pass ") for line in lines)


@pytest.mark.parametrize("labels", ["{", None], ids=["broken", "gone"])
def test_labels_that_cannot_be_read_end_no_run(tmp_path: Path, labels: str | None) -> None:
    """The note is left out then."""
    (tmp_path / ".singularity.d").mkdir()
    (tmp_path / ".singularity.d/labels.json").write_text(labels or "{}")
    image = tmp_path if labels else tmp_path / "gone.sif"
    lines: list[str] = []
    plan = plan_for(RunOptions(("python",)), container=CONTAINER._replace(image=str(image)))
    note_missing_gpus(plan, (), lines.append)
    assert lines == []


def test_a_layout_asks_for_gpus(image: tuple[str, str]) -> None:
    lines: list[str] = []
    asked = RunOptions(("python",), gpus_per_node="4")
    note_missing_gpus(plan_for(asked, container=CONTAINER._replace(image=image[0])), (), lines.append)
    assert lines == []
