"""The GPUs of this node, as NVIDIA's driver describes them: its library libnvidia-ml.so.1, which
comes with it, through ctypes.

nvidia-ml-py would be a dependency of every node, for a dozen functions whose signatures have not
changed since 2020.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from ctypes import byref, c_uint, c_uint32, c_ulonglong, c_void_p
from typing import Any

from jaxsif.limits import MOST_GPUS
from jaxsif.task.contract import visible_gpus

LIBRARY = "libnvidia-ml.so.1"
_UNKNOWN = -1
_MEMORY, _MIG = 2, 8  # in a row
_LINKS = 18  # NVLinks of a GPU
_RECOVERY = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_UNCORRECTED, _VOLATILE = 1, 0
_NO_PERMISSION = 4  # NVML_ERROR_NO_PERMISSION


class _Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("field", c_uint32),
        ("scope", c_uint32),
        ("timestamp", ctypes.c_int64),
        ("latency", ctypes.c_int64),
        ("type", c_uint),
        ("status", c_uint),
        ("value", c_ulonglong),
    ]


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Driver:
    """The library; an older one lacks functions, which then fail."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def call(self, name: str, *arguments: Any) -> bool:
        """Call a function; return whether it has succeeded."""
        return self.status(name, *arguments) == 0

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function; return its status, or _UNKNOWN without such a function."""
        function = getattr(self._library, f"nvml{name}", None)
        return _UNKNOWN if function is None else int(function(*arguments))

    def number(self, name: str, device: Any, count: int = 1, at: int = 0) -> int:
        """Return number `at` of the `count` that a function of a device returns."""
        values = [c_uint() for _ in range(count)]
        good = self.call(f"Device{name}", device, *map(byref, values))
        return int(values[at].value) if good else _UNKNOWN


def read_driver() -> dict[str, Any]:
    """Return the driver's version and a row for each GPU (`Gpu` in jaxsif/doctor/facts.py); raise
    OSError without a driver, or with one that does not answer.
    """
    driver = _Driver()
    if not driver.call("Init_v2"):
        raise OSError("the driver's library cannot be initialized: nvmlInit failed")
    version, count = ctypes.create_string_buffer(80), c_uint()
    driver.call("SystemGetDriverVersion", version, c_uint(80))
    driver.call("DeviceGetCount_v2", byref(count))
    gpus = [_read_gpu(driver, number) for number in range(min(count.value, MOST_GPUS))]
    return {"driver": version.value.decode(errors="replace"), "gpus": list(filter(None, gpus))}


def select_gpus(gpus: list[list[Any]], environ: Mapping[str, str]) -> list[list[Any]]:
    """Return the rows of the step's own GPUs.

    Without ConstrainDevices in cgroup.conf, the driver shows those of other jobs, too, by the same
    numbers as Slurm. With it, numbers begin at 0, and all are the step's.
    """
    names = environ.get("SLURM_STEP_GPUS") or environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = visible_gpus(names)
    own = [row for row in gpus if str(row[0]) in numbers]
    return own if own and len(own) == len(numbers) else gpus


def read_memory(environ: Mapping[str, str]) -> int:
    """Return the MiB in use on the fullest of the step's own GPUs; 0 if that is not known. Others
    may use parts of a divided one.
    """
    with suppress(OSError):
        own = select_gpus(read_driver()["gpus"], environ)
        return max((0, *(int(row[_MEMORY]) for row in own if row[_MIG] != 1)))
    return 0


def _read_gpu(driver: _Driver, number: int) -> list[object]:
    """Return a GPU's row, [] if it is another job's: a cgroup hides its device, and not its
    number.
    """
    device, name = c_void_p(), ctypes.create_string_buffer(96)
    status = driver.status("DeviceGetHandleByIndex_v2", c_uint(number), byref(device))
    if status:
        return [] if status == _NO_PERMISSION else [number, "lost", *[_UNKNOWN] * 9]
    driver.call("DeviceGetName", device, name, c_uint(96))
    memory, field, errors = _Memory(), _Field(field=_RECOVERY), c_ulonglong()
    has_memory = driver.call("DeviceGetMemoryInfo", device, byref(memory))
    has_field = driver.call("DeviceGetFieldValues", device, 1, byref(field)) and not field.status
    counter = (c_uint(_UNCORRECTED), c_uint(_VOLATILE), byref(errors))
    has_errors = driver.call("DeviceGetTotalEccErrors", device, *counter)
    limits = ("PowerManagementLimit", "PowerManagementDefaultLimit")
    power = [driver.number(f"Get{limit}", device) for limit in limits]
    return [
        number,
        name.value.decode(errors="replace"),
        memory.used >> 20 if has_memory else _UNKNOWN,
        errors.value if has_errors else _UNKNOWN,
        driver.number("GetRemappedRows", device, count=4, at=2),
        driver.number("GetRemappedRows", device, count=4, at=3),
        field.value & 0xFFFFFFFF if has_field else _UNKNOWN,
        _count_down(driver, device),
        driver.number("GetMigMode", device, count=2),
        *(limit // 1000 if limit > 0 else _UNKNOWN for limit in power),
    ]


def _count_down(driver: _Driver, device: Any) -> int:
    """Return the NVLinks that are down, or _UNKNOWN if none is up, as on a GPU without any."""
    states = []
    for link in range(_LINKS):
        state = c_uint()
        if driver.call("DeviceGetNvLinkState", device, c_uint(link), byref(state)):
            states.append(state.value)
    return states.count(0) if any(states) else _UNKNOWN
