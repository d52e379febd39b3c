"""The adapter nearest to each GPU, from a tree that looks like /sys."""

from __future__ import annotations

from pathlib import Path

from jaxsif.layout.topology import Near, find_near


def device(root: Path, path: str, numa: int, *links: str) -> None:
    """A PCI device at `path`, known by the `links`."""
    folder = root / "devices" / path
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{numa}\n")
    for link in links:
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(folder)


def gpu(root: Path, path: str, numa: int) -> None:
    device(root, path, numa, f"bus/pci/drivers/nvidia/{path.rsplit('/', 1)[-1]}")


def test_below_the_same_switch_or_on_the_same_numa_node(tmp_path: Path) -> None:
    gpu(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", 0)
    gpu(tmp_path, "pci0000:40/0000:40:01.0/0000:41:00.0", 0)
    gpu(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", 1)
    (tmp_path / "bus/pci/drivers/nvidia/bind").write_text("")
    device(tmp_path, "pci0000:00/0000:00:01.0/0000:02:00.0", 0, "class/infiniband/mlx5_0/device")
    device(tmp_path, "pci0000:c0/0000:c0:01.0/0000:c1:00.0", 1, "class/infiniband/mlx5_1/device")
    assert find_near(str(tmp_path)) == (Near(0, ("mlx5_0",)), Near(0, ("mlx5_0",)), Near(1, ("mlx5_1",)))


def test_without_adapters_and_without_gpus(tmp_path: Path) -> None:
    assert find_near(str(tmp_path)) == ()
    gpu(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", -1)
    assert find_near(str(tmp_path)) == (Near(-1, ()),)
