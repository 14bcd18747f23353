"""The figures of the planning experiments. They only read tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meander.show.palette import Theme, name_of
from meander_lab.experiments.canvas import dress, lines, new_figure, plain_numbers, powers
from meander_lab.experiments.claims_reasons import growth
from meander_lab.experiments.tables import TableRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fig12(rows: TableRows, theme: Theme) -> Figure:
    """Cost against τ, a panel per application."""
    applications = rows.names("application")
    figure, axes = new_figure(theme, len(applications), height=4.2)
    for ax, application in zip(axes, applications, strict=True):
        some = rows.where(application=application)
        ax.set(
            title=application, xlabel="τ: how much busier than the mean a node may be",
            ylabel="state that moves in a migration, %", yscale="log",
        )  # fmt: skip
        lines(ax, some, theme, "tau", "cost_pct", low="cost_low", high="cost_high")
    return figure


def fig13(rows: TableRows, theme: Theme) -> Figure:
    """Time of a plan against τ."""
    applications = rows.names("application")
    figure, axes = new_figure(theme, len(applications))
    for ax, application in zip(axes, applications, strict=True):
        ax.set(title=application, xlabel="τ", ylabel="time of one plan, µs", yscale="log")
        ax.axhline(2000, color=theme.ink, ls="--", lw=0.8)
        ax.annotate(
            "2 ms", (0, 2000), xycoords=("axes fraction", "data"), xytext=(3, 3),
            textcoords="offset points", color=theme.ink, fontsize=8,
        )  # fmt: skip
        some = rows.where(application=application)
        lines(ax, some, theme, "tau", "plan_us", low="plan_low", high="plan_high")
    return figure


def fig14(rows: TableRows, theme: Theme) -> Figure:
    """Time of the pre-computation, and the number of partitions, against τ."""
    figure, (left, right) = new_figure(theme, 2)
    rows = rows.where(weights="recorded")
    left.set(xlabel="τ", ylabel="pre-computation, s", yscale="log", title="time")
    lines(left, rows, theme, "tau", "seconds")
    right.set(xlabel="τ", ylabel="feasible partitions", yscale="log", title="partitions, n even")
    xs, ys = rows.line("tau", "states")
    right.plot(xs, ys, color=theme.ink, marker="o", ms=3.5)
    plain_numbers(right)
    return figure


def fig15(rows: TableRows, theme: Theme) -> Figure:
    """Cost and time against m."""
    applications = rows.names("application")
    figure, axes = new_figure(theme, 2 * len(applications))
    for k, application in enumerate(applications):
        some = rows.where(application=application)
        cost, spent = axes[2 * k : 2 * k + 2]
        cost.set(title=f"{application}: cost", xlabel="tasks m", xscale="log",
                 ylabel="state that moves in a migration, %")  # fmt: skip
        lines(cost, some, theme, "tasks", "cost_pct", low="cost_low", high="cost_high", zero=True)
        spent.set(title=f"{application}: time", xlabel="tasks m", xscale="log", yscale="log",
                  ylabel="time of one plan, µs")  # fmt: skip
        lines(spent, some, theme, "tasks", "plan_us", low="plan_low", high="plan_high")
        for ax in (cost, spent):
            powers(ax, some.values("tasks"))
    return figure


def fig17(rows: TableRows, theme: Theme) -> Figure:
    """Cost and pre-computation against γ."""
    applications = rows.names("application")
    figure, axes = new_figure(theme, 2 * len(applications))
    for k, application in enumerate(applications):
        some = rows.where(application=application)
        cost, spent = axes[2 * k : 2 * k + 2]
        cost.set(
            title=f"{application}: cost", xlabel="γ", ylabel="state that moves in a migration, %"
        )
        costs = some.where(lambda row: row.get("cost_pct") is not None)
        lines(cost, costs, theme, "gamma", "cost_pct", low="cost_low", high="cost_high", zero=True)
        spent.set(
            title=f"{application}: pre-computation", xlabel="γ", ylabel="sweeps", yscale="log"
        )
        counted = [
            {"gamma": row["gamma"], "method": kind, "count": row[kind]}
            for row in some.where(method="PMC")
            for kind in ("sweeps", "sweeps_plain")
        ]
        lines(spent, TableRows(counted), theme, "gamma", "count")
    return figure


def routing(rows: TableRows, theme: Theme) -> Figure:
    """Rows a second, both ways."""
    figure, (ax,) = new_figure(theme)
    ax.set(xlabel="tasks m", ylabel="rows a second, million", xscale="log", yscale="log")
    both = [
        {"tasks": row["tasks"], "way": way, "rate": row[f"{key}_rows_s"] / 1e6}
        for row in rows
        for way, key in (("a map from tasks to nodes", "map"), ("intervals", "intervals"))
    ]
    lines(ax, TableRows(both), theme, "tasks", "rate", by="way")
    return figure


def bursts(rows: TableRows, theme: Theme) -> Figure:
    """The mean of the largest spike, as it is and as chance would have it."""
    pieces = rows.values("piece_h")
    figure, axes = new_figure(theme, len(pieces), height=2.4)
    for ax, hours in zip(axes, pieces, strict=True):
        some = rows.where(piece_h=hours)
        names = some.names("application")
        for k, (what, text) in enumerate((("spike", "seen"), ("chance", "by chance"))):
            ys = [i + 0.2 * (2 * k - 1) for i in range(len(names))]
            values = [some.where(application=a).mean(what) for a in names]
            ax.barh(ys, values, 0.36, color=theme.color("ssm" if not k else "redist"), label=text)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set(xlabel="largest share of a task over its mean share", title=f"pieces of {hours} h")
        ax.legend(frameon=False, labelcolor=theme.ink, fontsize=8)
    return figure


def search_space(rows: TableRows, theme: Theme) -> Figure:
    """The number of feasible partitions against τ, and how it grows with every n."""
    figure, (left, right) = new_figure(theme, 2)
    left.set(
        xlabel="τ", ylabel="feasible partitions, mean over n", yscale="log", title="partitions"
    )
    lines(left, rows, theme, "tau", "states", by="application")
    try:
        found = growth(rows)
    except LookupError:  # fewer than two τ are met
        right.set_axis_off()
        return figure
    right.set(
        xlabel="nodes n", ylabel="times as many", yscale="log",
        title=f"growth from τ {found.low:g} to {found.high:g}",
    )  # fmt: skip
    times = [
        {"application": application, "nodes": n, "times": x}
        for application, some in found.by_nodes.items()
        for n, x in some.items()
    ]
    lines(right, TableRows(times), theme, "nodes", "times", by="application")
    return figure


def frequencies(rows: TableRows, theme: Theme) -> Figure:
    """How many keys are never frequent, and how many rows are filtered, against the threshold."""
    windows = rows.values("window_s")
    some = rows.where(window_s=windows[len(windows) // 2])
    figure, axes = new_figure(theme, 2)
    for ax, column, title in zip(
        axes, ("rare_pct", "filtered_pct"),
        ("keys that are never frequent, %", "rows that end at their counter, %"), strict=True,
    ):  # fmt: skip
        ax.set(xlabel="frequent is what comes more often in a window", ylabel=title, xscale="log")
        lines(ax, some, theme, "threshold", column, by="application", zero=True)
        powers(ax, some.values("threshold"))
    return figure


def drift(rows: TableRows, theme: Theme) -> Figure:
    """Cost of every method, as weights drift more and more."""
    drifts = rows.names("drift")
    figure, (ax,) = new_figure(theme, height=4.0)
    series = [
        (method, refresh)
        for method in rows.names("method")
        for refresh in rows.where(method=method).values("refresh")
    ]
    width = 0.8 / max(1, len(series))
    for k, (method, refresh) in enumerate(series):
        some = [rows.where(method=method, refresh=refresh, drift=d) for d in drifts]
        xs = [i - 0.4 + (k + 0.5) * width for i in range(len(drifts))]
        ys = [part.mean("cost_pct") for part in some]
        ends = [
            [part.mean(end) if part.column(end) else y for y, part in zip(ys, some, strict=True)]
            for end in ("cost_low", "cost_high")
        ]
        spread = [
            [y - low for y, low in zip(ys, ends[0], strict=True)],
            [high - y for y, high in zip(ys, ends[1], strict=True)],
        ]
        label = name_of(method) + (f", refreshed every {refresh}" if refresh else "")
        ax.bar(
            xs, ys, width * 0.92, color=theme.color(method), alpha=0.6 if refresh else 1.0,
            yerr=[[max(0.0, v) for v in side] for side in spread], ecolor=theme.ink, label=label,
            error_kw={"elinewidth": 0.8},
        )  # fmt: skip
    ax.set_xticks(range(len(drifts)), [d if d == "recorded" else f"σ = {d}" for d in drifts])
    ax.set(ylabel="state that moves in a migration, %", xlabel="how weights drift")
    ax.legend(frameon=False, labelcolor=theme.ink, fontsize=8, loc="upper left")
    return figure


def table3(rows: TableRows, theme: Theme) -> Figure:
    """Both steps of every sequence, stacked."""
    figure, (ax,) = new_figure(theme, height=3.2)
    dress(ax, theme)
    names = rows.column("method")
    first, second = rows.column("first"), rows.column("second")
    ax.barh(names, first, color=theme.color("ssm"), label="2 → 3 nodes")
    ax.barh(names, second, left=first, color=theme.color("storm"), label="3 → 4 nodes")
    for k, total in enumerate(rows.column("total")):
        ax.annotate(f"{total}", (total, k), xytext=(4, 0), textcoords="offset points", va="center",
                    color=theme.ink)  # fmt: skip
    ax.invert_yaxis()
    ax.grid(False)
    ax.set(xlabel="tasks that move")
    ax.legend(frameon=False, labelcolor=theme.ink, fontsize=8)
    return figure


def appendix_a(rows: TableRows, theme: Theme) -> Figure:
    """What a third node makes move."""
    sizes = rows.names("sizes")
    figure, axes = new_figure(theme, len(sizes), height=2.6)
    for ax, size in zip(axes, sizes, strict=True):
        some = rows.where(lambda row: row.get("part") != "two nodes", sizes=size)
        names = [name_of(m) for m in some.column("method")]
        ax.barh(
            names, some.column("cost"), color=[theme.color(_kind(m)) for m in some.column("method")]
        )
        ax.invert_yaxis()
        ax.set(xlabel="state that moves", title=f"states {size}")
    return figure


def _kind(method: str) -> str:
    return "ssm" if method.startswith("single-step") else method
