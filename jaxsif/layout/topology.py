"""Which network adapter and NUMA node are nearest to each GPU of this host, as Linux tells."""

from __future__ import annotations

import os
from typing import NamedTuple


class Near(NamedTuple):
    """What stands beside one GPU."""

    numa: int  # NUMA node, -1 where the machine has one only
    nics: tuple[str, ...]  # the InfiniBand or RoCE adapters that are nearest; () without any


def find_near(root: str = "/sys") -> tuple[Near, ...]:
    """Return one entry for each NVIDIA GPU, in the order of their PCI addresses, which is CUDA's in
    our containers.
    """
    driver = os.path.join(root, "bus/pci/drivers/nvidia")
    gpus = sorted(name for name in _names(driver) if name.count(":") == 2)
    adapters = {
        name: os.path.join(root, "class/infiniband", name, "device")
        for name in _names(f"{root}/class/infiniband")
    }
    return tuple(_look(os.path.join(driver, gpu), adapters) for gpu in gpus)


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _look(gpu: str, adapters: dict[str, str]) -> Near:
    """Return what is nearest: an adapter below the same PCI switch before one of the same NUMA
    node, and that before any other.
    """
    nearness = {
        name: (_common(gpu, device), _numa(gpu) == _numa(device))
        for name, device in adapters.items()
    }
    best = max(nearness.values(), default=None)
    return Near(_numa(gpu), tuple(name for name, value in nearness.items() if value == best))


def _common(one: str, other: str) -> int:
    """Return how many bridges two devices have in common."""
    return os.path.commonpath([os.path.realpath(one), os.path.realpath(other)]).count(os.sep)


def _numa(device: str) -> int:
    try:
        with open(os.path.join(device, "numa_node")) as file:
            return int(file.read())
    except OSError:
        return -1
