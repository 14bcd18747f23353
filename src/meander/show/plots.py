"""Plots for `--plot`: drawn by matplotlib without a display, as PNG or SVG by the file's name.

One policy has one colour in every plot.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meander.errors import InputError
from meander.model import Assignment, NodeId, Plan
from meander.show.palette import INK, POLICY_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS: Final = (".png", ".svg")

NODE_COLORS: Final = (
    "#8dd3c7", "#fdb462", "#bebada", "#fb8072", "#80b1d3", "#b3de69", "#fccde5", "#ffed6f",
)  # fmt: skip


def plot_path(text: str) -> Path:
    """Check a value of `--plot` before anything is computed."""
    path = Path(text)
    if path.suffix.lower() not in KINDS:
        raise argparse.ArgumentTypeError(f"{text!r} must end in {' or '.join(KINDS)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}")
    return path


def new_figure(width: float, height: float) -> Figure:
    """Make a figure of so many inches; no display and no global state is involved."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(
        {"svg.hashsalt": "meander", "svg.fonttype": "none", "font.size": 9, "axes.edgecolor": INK}
    )
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    try:
        metadata: dict[str, Any] = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def plot_plan(plan: Plan, path: Path) -> None:
    """Draw intervals before and after with what moves between them, and the load of every node."""
    figure = new_figure(8, 4.2)
    top, bottom = figure.subplots(2, 1, height_ratios=(3, 2))
    nodes = list(dict.fromkeys((*plan.problem.current.nodes, *plan.target.nodes)))
    color = {node: NODE_COLORS[i % len(NODE_COLORS)] for i, node in enumerate(nodes)}
    _draw_runs(top, plan.problem.current, 1.0, color)
    _draw_runs(top, plan.target, 0.0, color)
    _draw_moves(top, plan, color)
    top.set(
        xlim=(0, plan.problem.workload.tasks), ylim=(-0.3, 1.3), xlabel="task",
        title=f"{plan.policy}: moves {len(plan.moves)} of {plan.problem.workload.tasks} tasks, "
        f"{plan.cost_share:.1%} of the state",
    )  # fmt: skip
    top.set_yticks([1, 0], ["before", "after"])
    _draw_loads(bottom, plan, nodes, color)
    _tidy(top, bottom)
    save(figure, path)


def _draw_runs(ax: Axes, a: Assignment, y: float, color: dict[NodeId, str]) -> None:
    for lb, ub, node in a.runs:
        ax.barh(y, ub - lb, left=lb, height=0.36, color=color[node], edgecolor="white", lw=0.8)
        if (ub - lb) * 100 > a.tasks * (len(node) + 1):
            ax.text((lb + ub) / 2, y, node, ha="center", va="center", color=INK)


def _draw_moves(ax: Axes, plan: Plan, color: dict[NodeId, str]) -> None:
    """Join before and after by a ribbon wherever neighbouring tasks move between the same nodes."""
    start = None
    for i, move in enumerate(plan.moves):
        start = move.task if start is None else start
        ahead = plan.moves[i + 1] if i + 1 < len(plan.moves) else None
        if ahead is None or (ahead.task, *ahead[1:3]) != (move.task + 1, *move[1:3]):
            span = [start, move.task + 1]
            ax.fill_between(span, 0.18, 0.82, color=color[move.target], alpha=0.55, lw=0)
            start = None


def _draw_loads(ax: Axes, plan: Plan, nodes: Sequence[NodeId], color: dict[NodeId, str]) -> None:
    before = Plan(plan.problem, plan.problem.current, "before").loads
    x = range(len(nodes))
    ax.bar(
        [i - 0.2 for i in x], [before.get(n, 0) for n in nodes], 0.38,
        color="#dddddd", label="before",
    )  # fmt: skip
    ax.bar(
        [i + 0.2 for i in x], [plan.loads.get(n, 0) for n in nodes], 0.38,
        color=[color[n] for n in nodes], label="after",
    )  # fmt: skip
    ax.axhline(plan.problem.cap, color=INK, ls="--", lw=1, label="cap")
    ax.set(ylabel="work", xlim=(-0.6, len(nodes) - 0.4))
    ax.set_xticks(list(x), nodes if len(nodes) <= 40 else [""] * len(nodes))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def plot_front(points: Sequence[tuple[float, float]], tau: float, path: Path) -> None:
    """Draw the Pareto front: (τ, share of the state that moves), ascending in τ."""
    end = max(points[-1][0] * 1.05, tau * 1.05, 0.05)
    _plot_steps(
        points, end, (tau, f"tau {tau:g}"), path,
        xlabel="tau: how much busier than the mean a node may be",
        title="The least that must move, for every tau",
    )  # fmt: skip


def plot_curve(points: Sequence[tuple[int, float]], nodes: int, path: Path) -> None:
    """Draw (number of nodes, share of the state that moves), ascending in the number."""
    _plot_steps(
        points, max(points[-1][0], nodes) + 1, (nodes, f"{nodes} nodes"), path,
        xlabel="nodes", title="The least that must move, for every number of nodes",
    )  # fmt: skip


def _plot_steps(
    points: Sequence[tuple[float, float]],
    end: float,
    here: tuple[float, str],
    path: Path,
    **labels: str,
) -> None:
    """Draw shares that fall in steps and stay at the last, and where the problem is."""
    figure = new_figure(6.5, 3.8)
    ax = figure.subplots()
    at, shares = [p[0] for p in points], [100 * p[1] for p in points]
    ax.step([*at, end], [*shares, shares[-1]], where="post", color=POLICY_COLOR["ssm"])
    ax.plot(at, shares, "o", ms=3 if len(points) < 200 else 1.5, color=POLICY_COLOR["ssm"])
    ax.axvline(here[0], color=INK, ls="--", lw=1)
    ax.annotate(
        here[1], (here[0], 1), xycoords=("data", "axes fraction"),
        xytext=(4, -4), textcoords="offset points", va="top",
    )  # fmt: skip
    ax.set(ylabel="state that moves, %", **labels)
    ax.set_ylim(bottom=0)
    ax.set_xlim(right=end)
    _tidy(ax)
    save(figure, path)


def plot_comparison(rows: Sequence[dict[str, Any]], cap_imbalance: float, path: Path) -> None:
    """Draw what each policy moves, and how uneven it leaves the load."""
    shown = [row for row in rows if row["cost"] is not None]
    figure = new_figure(8.5, 0.9 + 0.36 * max(3, len(shown)))
    left, right = figure.subplots(1, 2, sharey=True)
    names = [row["policy"] for row in shown]
    colors = [POLICY_COLOR.get(name, "#999999") for name in names]
    for ax, values, text in (
        (left, [100 * row["cost_share"] for row in shown], "{:.1f} %"),
        (right, [row["imbalance"] for row in shown], "{:.2f}"),
    ):
        drawn = ax.barh(names, values, color=colors)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        ax.bar_label(drawn, [text.format(v) for v in values], padding=4, bbox=box)
        ax.margins(x=0.18)
    left.set(xlabel="state that moves, %")
    left.invert_yaxis()
    right.axvline(cap_imbalance, color=INK, ls="--", lw=1)
    right.set(xlabel="busiest node, times the mean (dashed: 1 + tau)")
    _tidy(left, right)
    save(figure, path)


def _tidy(*axes: Axes) -> None:
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
