"""Policies on digests, and what no policy allows; those on signatures are tested in the cluster, with the runtime."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.caught import catch
from kit.siffile import sha256, write_image

from jaxsif import installation
from jaxsif.container.policy import (
    Allowed,
    Subject,
    check_binds,
    check_environment,
    check_fabric,
    check_policies,
    find_checksum,
    find_keys,
)
from jaxsif.errors import HostError
from jaxsif.images.file import find_state
from jaxsif.runtime import Runtime
from jaxsif.settings.config import Config, staff_files
from jaxsif.settings.fabric import Fabric
from jaxsif.settings.options import Setting

GOOD, BAD = sha256(b"good"), sha256(b"bad")


def check(folder: Path, image: str | None, *policies: tuple[str, object]) -> Allowed:
    """`check_policies` for these (key, value), each of a file of its own."""
    config = Config({}, tuple((key, Setting(value, f"/{n}.toml")) for n, (key, value) in enumerate(policies)))
    subject = Subject(image, "--image", Runtime("apptainer", "APPTAINERENV_") if image else None)
    return check_policies(config, subject, {"XDG_CACHE_HOME": str(folder / "cache")})


def refusal(folder: Path, image: str | None, *policies: tuple[str, object]) -> str:
    return catch(HostError, check, folder, image, *policies).render()


def test_digests_of_all_files_hold(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    held = check(tmp_path, image, ("policy.digests", [BAD, GOOD]), ("policy.digests", [GOOD]))
    reasons = tuple(f"policy.digests of /{n}.toml is satisfied: {GOOD}" for n in (0, 1))
    assert held == Allowed(GOOD, find_state(image), reasons)


def test_an_image_that_changes_after_the_policy_allowed_it(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    allowed = check(tmp_path, image, ("policy.digests", [GOOD]))
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert len(find_checksum(image, allowed.state, "--image", environ)) == 64
    write_image(tmp_path / "a.sif", b"bad")
    with pytest.raises(HostError, match=r"the image changed while it was checked against the policy: .*/a\.sif"):
        find_checksum(image, allowed.state, "--image", environ)


def test_digest_of_one_file_does_not_hold(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert refusal(tmp_path, image, ("policy.digests", [GOOD]), ("policy.digests", [BAD])) == (
        f"jaxsif: error: the policy refuses this run: the digest of {image} is {GOOD}\n"
        "  from: policy.digests in /1.toml; the image is from --image\n"
        "  try:  run an image that the policy allows, or ask whoever set it"
    )


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("policy.digests", [], "the digest of "),
        ("policy.signed-by", [], "no signing key is accepted for "),
        ("policy.signed-by", ["gone.pem"], "cannot read the key /gone.pem: No such file or directory\n"),
        ("policy.signed-by", [""], "key is a folder, not a file: /\n"),
        ("policy.signed-by", ["/dev"], "key is a folder, not a file: /dev\n"),
    ],
)
def test_policy_that_nothing_fulfils(tmp_path: Path, key: str, value: list[str], reason: str) -> None:
    image = write_image(tmp_path / "a.sif", b"good")
    assert refusal(tmp_path, image, (key, value)).startswith(f"jaxsif: error: the policy refuses this run: {reason}")


def test_a_short_fingerprint_brings_the_form_of_a_key(tmp_path: Path) -> None:
    """It is taken for the name of a file."""
    hint = refusal(tmp_path, write_image(tmp_path / "a.sif", b"good"), ("policy.signed-by", ["ABCD"])).splitlines()[-1]
    assert hint == "  try:  name a PEM file that users may read, or a PGP key by its 40 hexadecimal digits"
    hint = refusal(tmp_path, str(tmp_path / "a.sif"), ("policy.signed-by", ["SHA256:JRpR"])).splitlines()[-1]
    assert hint == "  try:  name the key's PEM file: its fingerprint, which this is, does not identify it"


@pytest.mark.parametrize("key", ["policy.digests", "policy.signed-by"])
def test_no_folder_and_no_run_without_a_container(tmp_path: Path, key: str) -> None:
    said = refusal(tmp_path, str(tmp_path), (key, [GOOD]))
    assert f"this run: {tmp_path} is a folder, and has neither digest nor signature\n" in said
    assert "this run: there is no container here\n" in refusal(tmp_path, None, (key, [GOOD]))


ENVIRON = {"HOME": "/root", "PATH": "/usr/bin"}


@pytest.mark.parametrize(
    ("bind", "hidden"),
    [
        ("/scratch", None),
        ("/data/my set:/data:ro", None),
        ("/root/x:/root/y", None),
        ("/lustre:/home/a,/x:/mnt/y", None),
        ("/lustre:/var/tmp/x", None),
        ("/usr", "/usr"),
        ("/root/python:/usr/bin/python3", "/usr/bin/python3"),
        ("/x:/scratch/../usr/bin:ro", "/usr/bin"),
        ("/x://usr", "/usr"),
        ("/x:/data,/y:/lib64:ro", "/lib64"),
        ("/root/x:/", "/"),
        ("/root/x:/.singularity.d/env", "/.singularity.d/env"),
        ("/x:/opt/jaxsif/task", "/opt/jaxsif/task"),
        ("/x:/rootless", None),
        ("/x:/root", None),
        ("/x:/var/tmpfiles", "/var/tmpfiles"),
        ("/x:/data:ro,image-src=/y,rw,id=2", None),
        ("/x:/data:ro,/y: /usr", "/usr"),
        ("/scratch,", None),
    ],
)
def test_binds_over_the_system_of_the_image(bind: str, hidden: str | None) -> None:
    variables = {"APPTAINER_BIND": bind}
    if hidden is None:
        check_binds([bind], "--bind", ENVIRON)
        check_environment({**ENVIRON, **variables})
        return
    for source, call in (
        ("--bind", lambda: check_binds(["/scratch", bind], "--bind", ENVIRON)),
        ("APPTAINER_BIND (environment)", lambda: check_environment({**ENVIRON, **variables})),
    ):
        error = catch(HostError, call)
        assert error.what == f"the policy refuses this run: {hidden} of the image would be hidden by {bind}"
        assert error.where == source


@pytest.mark.parametrize(
    ("bind", "problem"),
    [
        ("lib", "the relative destination lib: lib"),
        ("/x:usr", "the relative destination usr: /x:usr"),
        ("/x:/data,/y:../usr:ro", "the relative destination ../usr: /x:/data,/y:../usr:ro"),
        (r"/x\:/data:/usr", r"a backslash: /x\:/data:/usr"),
        (r"/x:/data\,/y:/usr", r"a backslash: /x:/data\,/y:/usr"),
    ],
)
def test_binds_whose_destination_is_not_plain(bind: str, problem: str) -> None:
    """The runtime could lay them elsewhere than we think."""
    error = catch(HostError, check_binds, [bind], "--bind", ENVIRON)
    assert error.what == f"the policy refuses this run: a bind has {problem}"
    assert error.hint == "leave it out; site staff can set such binds in the site's jaxsif.toml"


def test_a_home_that_is_the_root_allows_nothing() -> None:
    with pytest.raises(HostError):
        check_binds(["/usr"], "--bind", {"HOME": "/"})


@pytest.mark.parametrize("prefix", ["APPTAINER_", "SINGULARITY_"])
@pytest.mark.parametrize("name", ["MOUNT", "OVERLAY", "OVERLAYIMAGE", "CONTAINLIBS", "FUSESPEC", "CONFIG_FILE"])
def test_variables_of_the_runtime_that_lay_something_over_the_image(prefix: str, name: str) -> None:
    check_environment({**ENVIRON, prefix + name: ""})
    error = catch(HostError, check_environment, {**ENVIRON, prefix + name: "x"})
    assert error.what == "the policy refuses this run: the image would be hidden by x"
    assert (error.where, error.hint) == (f"{prefix}{name} (environment)", f"unset {prefix}{name}")


def test_files_of_keys() -> None:
    policy = Setting(["a.pem", "/b.pem", "~/c.pem", "A" * 40], "/etc/jaxsif/jaxsif.toml")
    home = os.path.expanduser("~")
    assert find_keys(policy) == ["/etc/jaxsif/a.pem", "/b.pem", f"{home}/c.pem", "A" * 40]


def test_what_the_staff_asks_for_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "SITE_FOLDER", "/sw/jaxsif")
    site, host = staff_files()
    for file in (site, host):
        check_binds(["/usr"], f"run.binds in {file}", ENVIRON)
    fabric = Fabric("hdr", {"libraries": Setting(["/usr/lib/libx.so"], f"profile.hdr.libraries in {site}")}, {})
    check_fabric(fabric, ENVIRON)
    for other in ("/home/a/jaxsif.toml", f"/home/a/x in {site}"):
        with pytest.raises(HostError):
            check_binds(["/usr"], f"run.binds in {other}", ENVIRON)
        setting = Setting(["/usr/lib/libx.so"], f"profile.hdr.libraries in {other}")
        with pytest.raises(HostError, match="/opt/jaxsif/fabric of the image would be hidden by "):
            check_fabric(Fabric("hdr", {"libraries": setting}, {}), ENVIRON)


def test_a_runtime_that_others_can_change(tmp_path: Path) -> None:
    runtime = tmp_path / "fake"
    runtime.touch(mode=0o755)
    environ = {**ENVIRON, "JAXSIF_RUNTIME": str(runtime)}
    check_environment(environ)  # of the owner of this launcher
    runtime.chmod(0o775)
    assert catch(HostError, check_environment, environ).what == (
        "the policy refuses this run:"
        f" JAXSIF_RUNTIME must name a runtime that only root or the owner of jaxsif can change: {runtime}"
    )
