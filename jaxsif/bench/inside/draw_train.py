"""Draw the step times of the modes side by side, and the scaling of the sharded mode beside the
ideal.
"""

import matplotlib.pyplot as plt
import style


def draw(_header, records):
    """Return the figures by their names."""
    most = max(record["batch"] for record in records)
    modes = {record["mode"]: record for record in style.select(records, batch=most)}
    runs = sorted(style.select(records, mode="sharded"), key=lambda run: run["devices"])
    figures = {"steps": draw_modes(modes)}
    if len(runs) > 1:
        figures["scaling"] = draw_scaling(runs)
    return figures


def draw_modes(modes):
    """Draw a bar for each mode; if a mode has several runs, draw the one with the most devices."""
    figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.45 * len(modes)))
    names = [
        f"{name}, {one['devices']} device{'s' * (one['devices'] > 1)}"
        for name, one in modes.items()
    ]
    bars = axes.barh(names, [1e3 * one["step_time"] for one in modes.values()], height=0.6)
    axes.bar_label(bars, fmt="%.3g", padding=3)
    axes.set(xlabel="step time in ms (median)")
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    return figure


def draw_scaling(runs):
    """Draw examples per second against devices, on log axes, where the ideal is a straight line."""
    figure, axes = plt.subplots()
    devices = [one["devices"] for one in runs]
    speeds = [one["examples_per_second"] for one in runs]
    axes.plot(devices, speeds, label="measured")
    ideal = [speeds[0] * number / devices[0] for number in devices]
    axes.plot(devices, ideal, color=style.GREY, linestyle="--", marker="", label="ideal")
    place = {"xytext": (4, -12), "textcoords": "offset points", "fontsize": 8, "color": style.GREY}
    for one in runs[1:]:
        point = (one["devices"], one["examples_per_second"])
        axes.annotate(f"{100 * one['efficiency']:.2g}%", point, **place)
    axes.set(xscale="log", yscale="log", xlabel="devices", ylabel="examples per second")
    axes.set_xscale("log", base=2)
    axes.set_xticks(devices, [str(number) for number in devices])
    axes.legend(title="sharded mode; % of ideal")
    return figure
