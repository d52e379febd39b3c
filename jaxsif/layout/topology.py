"""The network adapters and the NUMA node nearest to each GPU of this host, according to Linux."""

from __future__ import annotations

import os
from typing import NamedTuple


class Near(NamedTuple):
    """The hardware nearest to one GPU."""

    numa: int  # NUMA node, -1 if the machine has only one
    nics: tuple[str, ...]  # the nearest InfiniBand or RoCE adapters; () without any


def find_near(root: str = "/sys") -> tuple[Near, ...]:
    """Return an entry for each NVIDIA GPU, in the order of their PCI addresses, which is CUDA's in
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
    """Return the nearest adapters: under the same PCI switch, or else on the same NUMA node, or
    else any.
    """
    nearness = {
        name: (_common(gpu, device), _numa(gpu) == _numa(device))
        for name, device in adapters.items()
    }
    best = max(nearness.values(), default=None)
    return Near(_numa(gpu), tuple(name for name, value in nearness.items() if value == best))


def _common(one: str, other: str) -> int:
    """Return the number of bridges that two devices have in common."""
    return os.path.commonpath([os.path.realpath(one), os.path.realpath(other)]).count(os.sep)


def _numa(device: str) -> int:
    try:
        with open(os.path.join(device, "numa_node")) as file:
            return int(file.read())
    except OSError:
        return -1
