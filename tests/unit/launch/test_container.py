"""What policies say of a container; the compile cache's folder, which is this user's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.caught import catch
from kit.hosts import CONTAINER, LAPTOP, LOGIN_NODE
from kit.siffile import descriptor, sha256, write_image

from jaxsif.errors import HostError
from jaxsif.images.file import Allowed, find_state
from jaxsif.launch import container as containers
from jaxsif.launch.container import cache_of, identify, make_private
from jaxsif.launch.probe import choose_launcher
from jaxsif.settings.config import Config, staff_files
from jaxsif.settings.options import Rank, RunOptions, Setting
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


def test_binds_keep_their_sources(tmp_path: Path) -> None:
    image, site = write_image(tmp_path / "a.sif", b"good"), staff_files()[0]
    config = Config({}, (), {"own": Setting({"binds": ["/etc/libibverbs.d"]}, site)})
    values = {
        "image": Setting(image, "--image"),
        "fabric": Setting("own", "run.fabric"),
        "binds": Setting(["/scratch:/s"], f"run.binds in {site}"),
        "log-dir": Setting("/logs/a", "--log-dir"),
        "compile-cache": Setting(False, ""),
    }
    asked = RunOptions(("true",), binds=("/scratch:/s",), log_dir="/logs/a", sources=values)
    launcher = choose_launcher("srun", True, None)
    found = containers.find_container(Settings(config, values, asked), launcher, LOGIN_NODE, print)
    assert found is not None
    assert found.binds == ("/etc/libibverbs.d", "/scratch:/s", "/logs")
    assert found.sources == {
        "/etc/libibverbs.d": f"profile.own.binds in {site}",
        "/scratch": f"run.binds in {site}",
        "/logs": "--log-dir",
    }


def test_layers_need_a_runtime() -> None:
    settings = Settings(Config({}, ()), {"layers": Setting(["a"], "--layer")}, RunOptions(("true",)))
    with pytest.raises(HostError, match="layers need a container runtime") as caught:
        containers.find_container(settings, choose_launcher("local", True, None), LAPTOP, print)
    assert caught.value.where == "--layer"


def test_a_name_stands_for_what_is_in_the_image(tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    name = identify(write_image(tmp_path / "a.sif", content))
    assert len(name) == 16
    signed = write_image(tmp_path / "b.sif", content, descriptor(0x4005, 1, 2))
    others = [content[:-1] + b"x", b"x" + content[1:], content + b"x", b"small"]
    images = [write_image(tmp_path / f"{number}.sif", other) for number, other in enumerate(others)]
    assert identify(signed) == name
    assert len({name, *map(identify, images)}) == 1 + len(others)


def test_where_it_is(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"content")
    name = identify(image)
    assert cache_of(image, None, {"HOME": "/home/u"}) == f"/home/u/.cache/jaxsif/compiled/{name}"
    assert cache_of(image, None, {"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}) == f"/c/jaxsif/compiled/{name}"
    assert cache_of(image, "/scratch", {"HOME": "/home/u"}) == f"/scratch/jaxsif-{os.getuid()}/{name}"


def test_it_is_made_for_this_user_alone_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new/compiled/key"
    for _ in range(2):
        make_private(str(path), "here")
        assert [folder.stat().st_mode & 0o777 for folder in (path, path.parent)] == [0o700, 0o700]


@pytest.mark.parametrize(
    ("folder", "mode"),
    [("compiled/key", 0o750), ("compiled/key", 0o702), ("compiled", 0o755), ("", 0o777)],
    ids=["readable by a group", "writable", "readable above", "another folder could take its place"],
)
def test_a_folder_that_others_reach_is_refused(tmp_path: Path, folder: str, mode: int) -> None:
    path = tmp_path / "compiled/key"
    make_private(str(path), "here")
    (tmp_path / folder).chmod(mode)
    error = catch(HostError, make_private, str(path), "run.compile-cache-folder in x")
    assert error.what == f"the compile cache is open to others: {tmp_path / folder}"
    assert error.where == "run.compile-cache-folder in x"
    assert error.hint.startswith("remove it" if folder else "let its owner set the sticky bit (chmod +t); or")


@pytest.mark.parametrize(
    ("rank", "home", "is_made"), [(Rank.SITE, "", False), (Rank.SITE, "/home/x", False), (Rank.USER, "", True)]
)
def test_a_folder_that_the_site_has_set_is_made_by_its_staff(
    tmp_path: Path, rank: Rank, home: str, is_made: bool
) -> None:
    """The first user's would be closed to all others; but ~/ is another folder for each of them."""
    folder = Setting(str(tmp_path / "cache"), "run.compile-cache-folder in x", rank)
    values = {"compile-cache": Setting(True, ""), "compile-cache-folder": folder}
    settings = Settings(Config({}, ()), values, RunOptions(("true",)))
    container = CONTAINER._replace(image=write_image(tmp_path / "a.sif", b"content"))
    host = LOGIN_NODE._replace(environ={"HOME": home})
    if is_made:
        assert containers._add_cache(container, settings, host, print).cache
    else:
        error = catch(HostError, containers._add_cache, container, settings, host, print)
        assert error.what == f"cannot create the compile cache {folder.value}: No such file or directory"
        assert error.hint.startswith(f"ask site staff to call install -d -m 1777 {folder.value}, or pass ")
    assert os.path.isdir(folder.value) == is_made
    if not is_made:
        Path(folder.value).touch()
        error = catch(HostError, containers._add_cache, container, settings, host, print)
        assert error.hint == "name a folder that you may write on all nodes, or pass --no-compile-cache"
        Path(folder.value).unlink()
    at_home = host._replace(environ={"HOME": str(tmp_path)})
    assert containers._add_cache(container, settings, at_home, print).cache


def test_a_sticky_folder_may_be_for_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make_private(str(tmp_path / "mine/key"), "here")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "compiled").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError):
        make_private(str(tmp_path / "compiled/key"), "here")
