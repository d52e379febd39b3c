"""Profiles of fabrics: inheritance, what they set, what is refused; those of jaxsif and the examples of sites."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.caught import catch

from jaxsif.errors import JaxsifError
from jaxsif.settings.config import Config, read_config, read_profiles
from jaxsif.settings.fabric import Fabric, find_variables, resolve_fabric, shim_variables
from jaxsif.settings.options import Setting

CHOSEN = Setting("ours", "--fabric")
SITES = Path(__file__).parents[3] / "docs/sites"
OURS = read_profiles(Config({}, ()))


def profiles(**tables: dict[str, object]) -> dict[str, Setting]:
    return {name: Setting(keys, "FILE") for name, keys in tables.items()}


def variables(fabric: Fabric) -> dict[str, str]:
    return find_variables(fabric, {}, {})[0]


def test_lists_replace_and_variables_are_merged_by_name() -> None:
    fabric = resolve_fabric(
        CHOSEN,
        profiles(
            base={"env": ["A=1", "B=1"], "devices": ["/dev/a"], "binds": ["/b"]},
            middle={"inherits": "base", "devices": ["/dev/c", "/dev/d*"], "interfaces": ["ib?"]},
            ours={"inherits": "middle", "env": ["B=2=3", "C="]},
        ),
    )
    assert variables(fabric) == {"A": "1", "B": "2=3", "C": ""}
    assert fabric.env["A"] == Setting("A=1", "profile.base.env in FILE")
    assert fabric.items("binds") == ("/b",)
    assert fabric.items("libraries") == ()
    assert fabric.needs() == ("/dev/c", "/dev/d*", "/sys/class/net/ib?")
    assert shim_variables(fabric, ("/x", "/y")) == {
        "JAXSIF_FABRIC": "ours",
        "JAXSIF_FABRIC_NEEDS": "/dev/c /dev/d* /sys/class/net/ib?",
        "JAXSIF_FABRIC_LIBRARIES": "/x:/y",
    }


def test_the_users_own_values_stand() -> None:
    fabric = resolve_fabric(CHOSEN, profiles(ours={"env": ["A=1", "B=1", "C=1", "D=1", "E=1"]}))
    environ = {"A": "2", "B": "1", "APPTAINERENV_C": "2"}
    found, notes = find_variables(fabric, {"A": "3", "D": "2"}, environ)
    assert found == {"E": "1"}
    assert notes == (
        "keeping your A=3 (profile.ours.env in FILE sets 1)",
        "keeping your C=2 (profile.ours.env in FILE sets 1)",
        "keeping your D=2 (profile.ours.env in FILE sets 1)",
    )


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"our": {}}, "no fabric profile 'ours'\n  from: --fabric\n  try:  our?"),
        (
            {"ours": {"inherits": "nope"}, "ib": {}, "none": {}},
            "no fabric profile 'nope'\n  from: profile.ours.inherits in FILE\n  try:  one of ib",
        ),
        (
            {"ours": {"inherits": "inn"}, "ib": {}},
            "no fabric profile 'inn'\n  from: profile.ours.inherits in FILE\n  try:  one of ib",
        ),
        (
            {"ours": {"inherits": "a"}, "a": {"inherits": "b"}, "b": {"inherits": "a"}},
            "a fabric profile inherits from itself: a -> b -> a\n  from: profile.b.inherits in FILE\n  try:  give one",
        ),
        (
            {"ours": {"inherits": "ours"}},
            "a fabric profile inherits from itself: ours -> ours\n  from: profile.ours.inherits in FILE",
        ),
        ({"ours": {"devices": ["ib0"]}}, "not an absolute path: 'ib0'\n  from: profile.ours.devices in FILE"),
        ({"ours": {"libraries": ["/a:/b"]}}, "not an absolute path: '/a:/b'\n  from: profile.ours.libraries in FILE"),
        ({"ours": {"devices": ['/dev/"']}}, "not an absolute path: '/dev/\"'\n  from: profile.ours.devices in FILE"),
        ({"ours": {"interfaces": ["/dev/ib0"]}}, "not the name of an interface: '/dev/ib0'\n  from: profile.ours."),
    ],
    ids=["unknown", "not near none", "unknown parent", "circle", "itself", "device", "library", "quote", "interface"],
)
def test_refused(tables: dict[str, dict[str, object]], message: str) -> None:
    said = catch(JaxsifError, resolve_fabric, CHOSEN, profiles(**tables)).render()
    assert said.startswith(f"jaxsif: error: {message}")


@pytest.mark.parametrize(("pair", "message"), [("A B=1", "not a variable: 'A B=1'"), ("A", "variable A is not set")])
def test_variables_refused(pair: str, message: str) -> None:
    with pytest.raises(JaxsifError, match=message) as caught:
        variables(resolve_fabric(CHOSEN, profiles(ours={"env": [pair]})))
    assert caught.value.where == "profile.ours.env in FILE"


@pytest.mark.parametrize(
    ("name", "net"),
    [("none", None), ("tcp", "Socket"), ("ib", "IB"), ("slingshot", "AWS Libfabric"), ("efa", "AWS Libfabric")],
)
def test_profiles_that_come_with_jaxsif(name: str, net: str | None) -> None:
    fabric = resolve_fabric(Setting(name, "--fabric"), OURS)
    assert variables(fabric).get("NCCL_NET") == net


def test_every_profile_that_comes_with_jaxsif_is_tested() -> None:
    assert set(OURS) == {"none", "tcp", "ib", "slingshot", "efa"}


def read_site(name: str, folder: Path) -> Config:
    (folder / "jaxsif.toml").write_text((SITES / name).read_text())
    return read_config({"HOME": str(folder)}, str(folder))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "infiniband.toml",
            {"NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_4,mlx5_5", "NCCL_SOCKET_IFNAME": "ib"},
        ),
        (
            "slingshot.toml",
            {"NCCL_NET": "AWS Libfabric", "FI_CXI_RX_MATCH_MODE": "software", "FI_CXI_RDZV_GET_MIN": "0"},
        ),
        ("box.toml", {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "=eth0"}),
    ],
)
def test_examples_of_sites(name: str, expected: dict[str, str], tmp_path: Path) -> None:
    config = read_site(name, tmp_path)
    for profile in config.profiles:
        resolve_fabric(Setting(profile, "--fabric"), read_profiles(config))
    fabric = resolve_fabric(config.settings["run.fabric"], read_profiles(config))
    assert expected.items() <= variables(fabric).items()
    assert fabric.needs()


def test_every_example_is_tested() -> None:
    assert {path.name for path in SITES.iterdir()} == {"infiniband.toml", "slingshot.toml", "box.toml"}
