"""A run of the image on this host, under a policy and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.hosts import CONTAINER

from jaxsif.errors import HostError
from jaxsif.images.file import Allowed, find_state
from jaxsif.launch.packages import unchanged_image


@pytest.mark.parametrize("moment", ["before", "during", "never"])
def test_an_image_under_a_policy_that_changes_around_a_run_here(folder: Path, moment: str) -> None:
    image = folder / "a.sif"
    image.write_text("good")
    allowed = Allowed("sha256:0123", find_state(str(image)))
    container = CONTAINER._replace(image=str(image), allowed=allowed)
    ran: list[str] = []

    def run() -> None:
        with unchanged_image(container):
            ran.append("ran")
            if moment == "during":
                image.write_text("other")

    if moment == "before":
        image.write_text("other")
    if moment == "never":
        run()
    else:
        with pytest.raises(HostError, match=f"^the image changed while it was checked against the policy: {image}$"):
            run()
    assert ran == ([] if moment == "before" else ["ran"])


def test_without_a_policy_an_image_may_change(folder: Path) -> None:
    image = folder / "a.sif"
    image.write_text("good")
    with unchanged_image(CONTAINER._replace(image=str(image))):
        image.unlink()


def test_an_image_under_a_policy_that_is_gone(folder: Path) -> None:
    allowed = Allowed("sha256:0123", "1:2:3")
    container = CONTAINER._replace(image=str(folder / "a.sif"), allowed=allowed)
    with (
        pytest.raises(HostError, match=r"^cannot read image .*/a\.sif: No such file or directory$"),
        unchanged_image(container),
    ):
        pass
