"""What settings bring before a plan is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hosts import LOGIN_NODE
from siffile import sha256, write_image

from jaxsif.errors import HostError
from jaxsif.images.file import find_state
from jaxsif.launch import prepare
from jaxsif.launch.prepare import note_missing_gpus, warn_of_secrets
from jaxsif.settings.config import Config, Setting, staff_files
from jaxsif.settings.request import RunOptions

FILE = "run.env in /home/user/jaxsif.toml"


@pytest.mark.parametrize(
    ("source", "place"),
    [("--env", "the list of processes"), (FILE, FILE), ("JAXSIF_ENV (environment)", None)],
)
def test_a_secret_that_others_may_read_is_named(source: str, place: str | None) -> None:
    lines: list[str] = []
    warn_of_secrets({"env": Setting(["SEED=1", "HF_TOKEN=s3cret", "API_KEY"], source)}, lines.append)
    expected = f"warning: HF_TOKEN looks like a secret, and others may read its value in {place}:"
    assert lines == ([f"{expected} export HF_TOKEN, and name it alone, as in --env HF_TOKEN"] if place else [])


def test_no_variables() -> None:
    lines: list[str] = []
    warn_of_secrets({}, lines.append)
    assert lines == []


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
    note_missing_gpus(RunOptions(("python",), env=env), path, words, environ, lines.append)
    assert len(lines) == (0 if silent or flavour != "cuda12" else 1)
    assert all(line.startswith("the job gets no GPUs, because nothing asks for any: pass ") for line in lines)


@pytest.mark.parametrize("labels", ["{", None], ids=["broken", "gone"])
def test_labels_that_cannot_be_read_end_no_run(tmp_path: Path, labels: str | None) -> None:
    """The note is left out then."""
    (tmp_path / ".singularity.d").mkdir()
    (tmp_path / ".singularity.d/labels.json").write_text(labels or "{}")
    image = tmp_path if labels else tmp_path / "gone.sif"
    lines: list[str] = []
    note_missing_gpus(RunOptions(("python",)), str(image), (), {}, lines.append)
    assert lines == []


def test_under_a_policy_no_link_to_the_image_is_left(tmp_path: Path) -> None:
    """It could lead elsewhere later."""
    image = write_image(tmp_path / "a.sif", b"good")
    (tmp_path / "link.sif").symlink_to(image)
    host = LOGIN_NODE._replace(image=str(tmp_path / "link.sif"))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    config = Config({}, (("policy.digests", Setting([sha256(b"good")], "/0.toml")),))
    found, _ = prepare._obey_policies(config, host, "--image", {}, environ)
    assert (found.image, found.allowed) == (image, (sha256(b"good"), find_state(image)))
    assert prepare._obey_policies(Config({}, ()), host, "--image", {}, environ) == (host, ())


def test_under_a_policy_libraries_are_compared_with_the_image_that_was_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in the image tells its system, on this host."""
    image, library = tmp_path / "a.sif", tmp_path / "libx.so"
    image.write_text("good")
    library.touch()

    def check_libraries(*_: object) -> tuple[str, ...]:
        image.write_text("other")
        return ()

    monkeypatch.setattr("jaxsif.container.libraries.check_libraries", check_libraries)
    config = Config({}, (), {"own": Setting({"libraries": [str(library)]}, staff_files()[0])})
    host = LOGIN_NODE._replace(image=str(image), allowed=(sha256(b"good"), find_state(str(image))))
    with pytest.raises(HostError, match="the image changed while the policy looked at it"):
        prepare._add_fabric(RunOptions(("true",)), Setting("own", "--fabric"), config, host, {}, print)
