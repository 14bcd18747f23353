"""Plots of what looks ahead: a transition matrix, and policies replayed on a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meander.planning.ahead.mtm import Mtm
from meander.show.palette import INK, POLICY_COLOR
from meander.show.plots import new_figure, save


def plot_heat_map(mtm: Mtm, path: Path) -> None:
    """Draw the matrix."""
    size = min(max(3.5, 0.28 * len(mtm.labels)), 14)
    figure = new_figure(size + 1, size)
    ax = figure.subplots()
    image = ax.imshow(mtm.matrix, cmap="Greys", vmin=0, vmax=max(0.2, float(mtm.matrix.max())))
    names = [str(label) for label in mtm.labels]
    step = max(1, len(names) // 40)
    places = list(range(0, len(names), step))
    ax.set_xticks(places, [names[i] for i in places], rotation=90)
    ax.set_yticks(places, [names[i] for i in places])
    ax.set(xlabel="next label", ylabel="label", title="Where the number of nodes goes next")
    ax.tick_params(colors=INK)
    figure.colorbar(image, label="probability", shrink=0.8)
    save(figure, path)


def plot_evaluation(answer: dict[str, Any], path: Path) -> None:
    """Draw the mean cost of every policy with its interval."""
    names: Sequence[str] = list(answer["policies"])
    rows = [answer["policies"][name] for name in names]
    figure = new_figure(7, 1 + 0.36 * len(names))
    ax = figure.subplots()
    means = [100 * row["cost_share_mean"] for row in rows]
    ends = [[m if end is None else 100 * end for end in row["ci95"]]
            for m, row in zip(means, rows, strict=True)]  # fmt: skip
    spread = [[m - low for m, (low, _) in zip(means, ends, strict=True)],
              [high - m for m, (_, high) in zip(means, ends, strict=True)]]  # fmt: skip
    colors = [
        POLICY_COLOR.get(name, "#F0E442" if name.startswith("mtm") else INK) for name in names
    ]
    ax.barh(names, means, color=colors, xerr=spread, ecolor=INK)
    ax.invert_yaxis()
    ax.set(
        xlabel="state that moves per migration, % (bars: 95 %)",
        title=f"{answer['migrations']} migrations, {answer['tasks']} tasks, tau {answer['tau']:g}",
    )
    ax.spines[["top", "right"]].set_visible(False)
    save(figure, path)
