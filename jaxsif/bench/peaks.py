"""What NVIDIA says that its GPUs can do at most: dense products of bfloat16 matrices with sums in
float32.

From the data sheets and architecture papers of the A100, H100, H200, L40S and B200; where a sheet
gives the figure "with sparsity", half of it. GPUs before Ampere, such as the V100, have no
bfloat16.
"""

from __future__ import annotations

# A part of JAX's device_kind -> FLOP/s; the first that fits counts.
_PEAKS = (
    ("A100", 312e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("GH200", 989e12),
    ("H200", 989e12),
    ("L40S", 362e12),
    ("GB200", 2500e12),
    ("B200", 2250e12),
)


def find_peak(device_kind: str, precision: str) -> float | None:
    """Return the FLOP/s of such a device; None where it is not known."""
    if precision != "bfloat16" or "MIG" in device_kind:  # a MIG device is a part of a GPU
        return None
    return next((peak for part, peak in _PEAKS if part in device_kind), None)
