"""What policies say of a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.hosts import CONTAINER, LAPTOP, LOGIN_NODE
from kit.siffile import sha256, write_image

from jaxsif.errors import HostError
from jaxsif.images.file import Allowed, find_state
from jaxsif.launch import container as containers
from jaxsif.launch.probe import choose_launcher
from jaxsif.settings.config import Config, staff_files
from jaxsif.settings.options import RunOptions, Setting
from jaxsif.settings.read import Settings


def test_under_a_policy_no_link_to_the_image_is_left(tmp_path: Path) -> None:
    """It could lead elsewhere later."""
    image = write_image(tmp_path / "a.sif", b"good")
    (tmp_path / "link.sif").symlink_to(image)
    linked = CONTAINER._replace(image=str(tmp_path / "link.sif"))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    config = Config({}, (("policy.digests", Setting([sha256(b"good")], "/0.toml")),))
    host, asked = LOGIN_NODE._replace(environ=environ), RunOptions(("true",))
    found = containers._obey_policies(linked, Settings(config, {}, asked), host)
    assert found.allowed
    assert (found.image, found.allowed[:2]) == (image, (sha256(b"good"), find_state(image)))


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
    allowed = Allowed(sha256(b"good"), find_state(str(image)))
    container = CONTAINER._replace(image=str(image), allowed=allowed)
    settings = Settings(config, {}, RunOptions(("true",)))
    with pytest.raises(HostError, match="the image changed while it was checked against the policy"):
        containers._add_fabric(container, Setting("own", "--fabric"), settings, LOGIN_NODE, print)


def test_layers_need_a_runtime() -> None:
    settings = Settings(Config({}, ()), {"layers": Setting(["a"], "--layer")}, RunOptions(("true",)))
    with pytest.raises(HostError, match="layers need a container runtime") as caught:
        containers.find_container(settings, choose_launcher("local", True, None), LAPTOP, print)
    assert caught.value.where == "--layer"
