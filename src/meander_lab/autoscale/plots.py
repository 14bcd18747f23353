"""Both figures of every policy, trace by trace: what is down and left is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from meander.show.plots import new_figure, save

MARKS = {
    "ours": ("o", "#0072B2"),
    "ours, forecast": ("*", "#56B4E9"),
    "ds2, flink": ("s", "#D55E00"),
    "ds2, every second": ("D", "#E69F00"),
    "hpa": ("^", "#CC79A7"),
    "hpa, live": ("v", "#A07090"),
    "static peak": ("P", "#999999"),
    "static mean": ("X", "#666666"),
    "clairvoyant": ("|", "#009E73"),
}


def plot_figures(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw node-seconds over the clairvoyant's against the share of seconds that were violated."""
    names = list(dict.fromkeys(row["trace"] for row in rows))
    across = 4
    down = ceil((len(names) + 1) / across)
    figure = new_figure(3.0 * across, 2.3 * down)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, name in zip(axes, names, strict=False):
        mine = {row["policy"]: row for row in rows if row["trace"] == name}
        least = mine["clairvoyant"]["node_s"]
        for policy, (mark, color) in MARKS.items():
            if policy in mine:
                row = mine[policy]
                share = 100 * row["violation_s"] / row["seconds"]
                ax.plot(row["node_s"] / least, share, mark, color=color, ms=7, label=policy)
        ax.set_yscale("symlog", linthresh=0.1)
        ax.set_ylim(-0.02, 120)
        ax.set_title(name, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[len(names)].legend(handles, labels, loc="center", fontsize=8, frameon=False)
    for ax in axes[len(names) :]:
        ax.axis("off")
    figure.supxlabel("node-seconds, times the clairvoyant's")
    figure.supylabel("seconds beyond the promise, %")
    save(figure, path)
