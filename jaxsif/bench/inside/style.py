"""The look of plots: colours that colour-blind people can distinguish (Okabe and Ito), each with
its own marker.
"""

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#555555"


# Field of a header -> its form in the title.
TITLE = {
    "nodes": "{} nodes",
    "processes": "{} processes",
    "devices": "{} devices",
    "device": "{}",
    "jax": "JAX {}",
}


def apply():
    """Set the style of all figures from here on."""
    plt.rcParams.update(
        {
            "figure.figsize": (7.2, 4.6),
            "figure.dpi": 150,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS),
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": "#DDDDDD",
            "lines.markersize": 5,
            "legend.frameon": False,
            "svg.fonttype": "none",
        }
    )


def title(header):
    """Return the benchmark, the system and the date."""
    words = [text.format(header[name]) for name, text in TITLE.items() if name in header]
    return f"{header['bench']}: {', '.join([*words, header['created'][:10]])}"


def select(records, **values):
    """Return the records whose fields have these values."""
    return [record for record in records if values.items() <= record.items()]


def render_seconds(value):
    """Render a time as a tick label, such as '200 µs'."""
    for unit, name in ((1e-6, "µs"), (1e-3, "ms")):
        if value < 999 * unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} s"


def render_bytes(value):
    """Render a size as a tick label, such as '64 KiB'."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:g} {unit}"
        value /= 1024
    return f"{value:g} GiB"


def log_axis(axis, render):
    """Set ticks at 1, 2 and 5 times powers of ten, if there is room for them, rendered by
    `render`.
    """
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: render(value)))
    axis.set_minor_formatter(NullFormatter())


def byte_axis(axis, values):
    """Set ticks at the given sizes, in the form that users write."""
    axis.set_ticks(sorted(set(values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: render_bytes(value)))
    axis.set_tick_params(labelsize=7.5)
    axis.set_minor_locator(NullLocator())
