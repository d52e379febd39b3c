"""Draw the start of each task as a bar of its phases, one panel for each variant; with several
rounds, draw only the last one.
"""

import matplotlib.pyplot as plt
import numpy as np
import style
from startup import PHASES

COLOURS = (*style.COLOURS[:-1], "#666666", "#BBBBBB")
TITLES = {
    "node": "one container for all tasks on a node",
    "task": "a container for each task",
    "stage": "the image on each node's own disk",
    "cache, run 1": "with an empty compile cache",
    "cache, run 2": "with the programs compiled in run 1",
}


def draw(_header, records):
    """Return the figure by its name."""
    last = max(record["round"] for record in records)
    tasks = style.select(records, record="task", round=last)
    variants = dict.fromkeys(task["variant"] for task in tasks)
    groups = {variant: style.select(tasks, variant=variant) for variant in variants}
    bar = min(0.22, 12 / len(tasks))  # inches
    heights = [0.5 + bar * len(group) for group in groups.values()]
    figure, panels = plt.subplots(
        len(groups),
        figsize=(8, 1.2 + sum(heights)),
        sharex=True,
        squeeze=False,
        height_ratios=heights,
    )
    for axes, (variant, group) in zip(panels[:, 0], groups.items(), strict=True):
        draw_variant(axes, group, names=bar > 0.12)
        axes.set_title(f"{variant}: {TITLES[variant]}", fontsize=9, loc="left")
    panels[-1, 0].set_xlabel("seconds since the command started")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    return {"startup": figure}


def draw_variant(axes, tasks, names):
    """Draw the tasks of a run, from the top; without names if there is no room for them."""
    rows = range(len(tasks))
    begin = np.zeros(len(tasks))
    for phase, colour in zip(PHASES, COLOURS, strict=True):
        seconds = np.array([task[phase] for task in tasks])
        axes.barh(rows, seconds, left=begin, height=0.8, color=colour, label=phase)
        begin = begin + seconds
    if names:
        labels = [f"task {task['task']}, {task['node']}" for task in tasks]
        axes.set_yticks(rows, labels, fontsize=7)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(tasks)} tasks", fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.02)
    axes.grid(visible=False, axis="y")
