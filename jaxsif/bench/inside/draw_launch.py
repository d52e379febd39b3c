"""The median of each way to start, with the fastest and the slowest one."""

import matplotlib.pyplot as plt


def draw(_header, records):
    """The figure, by its name."""
    figure, axes = plt.subplots(figsize=(7.2, 2.4))
    medians = [1e3 * record["median"] for record in records]
    below = [
        middle - 1e3 * record["fastest"] for middle, record in zip(medians, records, strict=True)
    ]
    above = [
        1e3 * record["slowest"] - middle for middle, record in zip(medians, records, strict=True)
    ]
    bars = axes.barh(
        [record["way"] for record in records], medians, xerr=(below, above), capsize=4, height=0.6
    )
    axes.bar_label(bars, fmt="%.0f", label_type="center", color="white")
    axes.set(xlabel="time in ms: median, fastest and slowest")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return {"launch": figure}
