"""The start of each task as a bar of its phases, one panel for each variant; of several rounds the
last one.
"""

import matplotlib.pyplot as plt
import style
from startup import PHASES

COLOURS = (*style.COLOURS[:-1], "#666666", "#BBBBBB")
TITLES = {
    "node": "one container for all tasks of a node",
    "task": "a container for each task",
    "stage": "the image on each node's own disk",
    "cache, run 1": "with an empty compile cache",
    "cache, run 2": "with what that run has compiled",
}


def draw(_header, records):
    """The figure, by its name."""
    last = max(record["round"] for record in records)
    tasks = [record for record in records if record["record"] == "task" and record["round"] == last]
    variants = list(dict.fromkeys(task["variant"] for task in tasks))
    groups = [[task for task in tasks if task["variant"] == variant] for variant in variants]
    bar = min(0.22, 12 / len(tasks))  # inches
    size = (8, 1.2 + sum(0.5 + bar * len(group) for group in groups))
    ratios = [0.5 + bar * len(group) for group in groups]
    figure, panels = plt.subplots(
        len(groups), figsize=size, sharex=True, squeeze=False, height_ratios=ratios
    )
    for axes, variant, group in zip(panels[:, 0], variants, groups, strict=True):
        draw_variant(axes, group, names=bar > 0.12)
        axes.set_title(f"{variant}: {TITLES[variant]}", fontsize=9, loc="left")
    panels[-1, 0].set_xlabel("seconds after the command")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    return {"startup": figure}


def draw_variant(axes, tasks, names):
    """The tasks of a run, from the top; without names where there is no room for them."""
    rows = range(len(tasks))
    begin = [0.0] * len(tasks)
    for phase, colour in zip(PHASES, COLOURS, strict=True):
        axes.barh(
            rows, [task[phase] for task in tasks], left=begin, height=0.8, color=colour, label=phase
        )
        begin = [left + task[phase] for left, task in zip(begin, tasks, strict=True)]
    labels = [f"task {task['task']}, {task['node']}" for task in tasks]
    axes.set_yticks(rows if names else [], labels if names else [], fontsize=7)
    if not names:
        axes.set_ylabel(f"{len(tasks)} tasks", fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.02)
    axes.grid(visible=False, axis="y")
