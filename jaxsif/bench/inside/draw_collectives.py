"""Draw bandwidth and time against size, a line for each operation, and the links between nodes as
bars.
"""

import re

import matplotlib.pyplot as plt
import style

MOST = 32  # links in one figure


def draw(_header, records):
    """Return the figures by their names."""
    operations = style.select(records, record="operation")
    links = style.select(records, record="link")
    figures = {}
    if operations:
        figures["bandwidth"], axes = draw_curves(operations, "bus_bandwidth", 1e9)
        style.log_axis(axes.yaxis, "{:g}".format)
        axes.set_ylabel("bus bandwidth in GB/s")
        figures["time"], axes = draw_curves(operations, "time", 1)
        style.log_axis(axes.yaxis, style.render_seconds)
        axes.set_ylabel("time")
    if links:
        figures["links"] = draw_links(links)
    return figures


def draw_curves(records, field, unit):
    """Draw a line for each operation."""
    figure, axes = plt.subplots()
    for name in dict.fromkeys(record["operation"] for record in records):
        own = sorted(style.select(records, operation=name), key=lambda record: record["size"])
        sizes = [record["size"] for record in own]
        axes.plot(sizes, [record[field] / unit for record in own], label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("size of the data on each device")
    style.byte_axis(axes.xaxis, [record["size"] for record in records])
    axes.legend()
    return figure, axes


def draw_links(records):
    """Draw a bar for each link; if there are many links, draw only the slowest ones."""
    shown = sorted(sorted(records, key=lambda record: record["bandwidth"])[:MOST], key=natural)
    figure, axes = plt.subplots(figsize=(7.2, 1.6 + 0.28 * len(shown)))
    names = [f"{record['from']} → {record['to']}" for record in shown]
    bars = axes.barh(names, [record["bandwidth"] / 1e9 for record in shown], color=style.COLOURS[0])
    axes.bar_label(bars, fmt="%.3g", padding=3)
    many = f", the {MOST} slowest of {len(records)} links" if len(records) > MOST else ""
    axes.set(xlabel=f"bandwidth in GB/s{many}")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return figure


def natural(record):
    """Return a key that orders node2 before node10."""
    words = re.split(r"(\d+)", f"{record['from']} {record['to']}")
    return [int(word) if word.isdecimal() else word for word in words]
