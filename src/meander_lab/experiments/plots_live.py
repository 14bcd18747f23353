"""The figures of the live experiments. They only read tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meander.show.palette import Theme, name_of
from meander_lab.experiments.canvas import lines, new_figure, plain_numbers
from meander_lab.experiments.claims_links import rate
from meander_lab.experiments.tables import TableRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def fig11(rows: TableRows, theme: Theme) -> Figure:
    """Mean response time per interval, a panel per application."""
    applications = rows.names("application")
    figure, axes = new_figure(theme, len(applications))
    for ax, application in zip(axes, applications, strict=True):
        some = rows.where(application=application)
        seconds = some[0].get("interval_s", 0.0)
        ax.set(
            title=application, xlabel=f"interval of {seconds:g} s", yscale="log",
            ylabel="mean response time, ms",
        )  # fmt: skip
        for interval in some.where(migrating=True).values("interval"):
            ax.axvline(interval, color=theme.faint, lw=6, zorder=0)
        spread = _with_spread(some, "mode", "interval")
        lines(ax, spread, theme, "interval", "mean_ms", by="mode", low="mean_low", high="mean_high")
        ax.set_xticks(some.values("interval"))
    return figure


def fig11_links(rows: TableRows, theme: Theme) -> Figure:
    """Mean response time per interval, a panel per rate of the links."""
    rates = rows.values("link_mbit")
    figure, axes = new_figure(theme, len(rates))
    for ax, mbit in zip(axes, rates, strict=True):
        some = rows.where(link_mbit=mbit)
        ax.set(
            title=f"links of {rate(mbit)}", xlabel=f"interval of {some[0]['interval_s']:g} s",
            ylabel="mean response time, ms", yscale="log",
        )  # fmt: skip
        for interval in some.where(migrating=True).values("interval"):
            ax.axvline(interval, color=theme.faint, lw=6, zorder=0)
        spread = _with_spread(some, "mode", "interval")
        lines(ax, spread, theme, "interval", "mean_ms", by="mode", low="mean_low", high="mean_high")
        ax.set_xticks(some.values("interval"))
    return figure


def fig16_links(rows: TableRows, theme: Theme) -> Figure:
    """Duration of a migration against the window, a panel per rate of the links."""
    rates = rows.values("link_mbit")
    figure, axes = new_figure(theme, len(rates))
    for ax, mbit in zip(axes, rates, strict=True):
        ax.set(title=f"links of {rate(mbit)}", xlabel="window, s", yscale="log",
               ylabel="duration of a migration, s")  # fmt: skip
        some = rows.where(link_mbit=mbit)
        spread = _with_spread(some, "method", "window_s", column="seconds")
        lines(ax, spread, theme, "window_s", "seconds", low="mean_low", high="mean_high")
    return figure


def fig16_gap(rows: TableRows, theme: Theme) -> Figure:
    """What plans move and how long rows take, migration by migration, the means of all runs."""
    figure, (left, right) = new_figure(theme, 2)
    left.set(xlabel="migration", ylabel="state that plans have moved so far, %", title="cost")
    right.set(xlabel="migration", ylabel="mean response time, ms", title="response time")
    moved = []
    for method in rows.names("method"):
        numbers, costs = rows.where(method=method).line("migration", "plan_pct")
        moved += [
            {"method": method, "migration": number, "sum": sum_}
            for number, sum_ in zip(numbers, np.cumsum(costs).tolist(), strict=True)
        ]
    lines(left, TableRows(moved), theme, "migration", "sum", zero=True)
    lines(right, rows, theme, "migration", "mean_ms", zero=True)
    for ax in (left, right):
        ax.locator_params(axis="x", integer=True)
    return figure


def fig16(rows: TableRows, theme: Theme) -> Figure:
    """Mean response time against the window, and its distribution at one window, where it was kept."""
    kept = bool(rows.column("quantiles_ms"))
    figure, (left, *others) = new_figure(theme, 2 if kept else 1)
    left.set(xlabel="window, s", ylabel="mean response time, ms", yscale="log",
             title="after a migration")  # fmt: skip
    spread = _with_spread(rows, "method", "window_s")
    lines(left, spread, theme, "window_s", "mean_ms", low="mean_low", high="mean_high")
    for right in others:
        _distribution(right, rows, theme)
    return figure


def _distribution(ax: Axes, rows: TableRows, theme: Theme) -> None:
    window = _middle(rows)
    ax.set(xlabel="response time, ms", ylabel="share of all rows, %", xscale="log",
           title=f"distribution, window {window:g} s")  # fmt: skip
    for method in rows.names("method"):
        some = rows.where(method=method, window_s=window).column("quantiles_ms")
        if not some:
            continue
        values = np.sort(np.concatenate(some))
        share = np.linspace(0, 100, len(values))
        ax.plot(
            np.maximum(values, 0.1), share, color=theme.color(method), lw=1.6, label=name_of(method)
        )
    plain_numbers(ax)
    ax.legend(frameon=False, labelcolor=theme.ink, fontsize=8, loc="lower right")


def _middle(rows: TableRows) -> float:
    windows = rows.where(lambda row: row["method"] != "restart").values("window_s")
    return float(windows[len(windows) // 2])


def _with_spread(rows: TableRows, *keys: str, column: str = "mean_ms") -> TableRows:
    """Add the least and the largest value over migrations and runs that agree in some columns."""
    out = []
    for row in rows:
        same = rows.where(**{key: row[key] for key in keys}).column(column)
        out.append({**row, "mean_low": min(same, default=0.0), "mean_high": max(same, default=0.0)})
    return TableRows(out)


def state(rows: TableRows, theme: Theme) -> Figure:
    """Duration and worst response time against the size of the state."""
    figure, (left, right) = new_figure(theme, 2)
    for ax, y, text in (
        (left, "seconds", "duration of the migration, s"),
        (right, "worst_ms", "worst response time meanwhile, ms"),
    ):
        ax.set(xlabel="state, MiB", ylabel=text, xscale="log", yscale="log")
        lines(ax, rows, theme, "state_mb", y, by="mode")
    return figure


def rounds(rows: TableRows, theme: Theme) -> Figure:
    """Worst response time against duration: a point per limit of a round."""
    figure, (ax,) = new_figure(theme, height=3.8)
    color = {"tasks": theme.color("ssm"), "bytes": theme.color("storm"),
             "pause": theme.color("consistent-hash"), "none": theme.color("restart")}  # fmt: skip
    seen: dict[str, int] = {}
    for limit in rows.names("limit"):
        some = rows.where(limit=limit)
        x, y, kind = some.mean("seconds"), some.mean("worst_ms"), some[0]["kind"]
        text = LIMIT_TEXT[kind].format(some[0]["amount"])
        seen[kind] = seen.get(kind, -1) + 1
        ax.plot([x], [y], MARKERS[seen[kind] % len(MARKERS)], color=color[kind], label=text)
    ax.set(xlabel="duration of the migration, s", ylabel="worst response time meanwhile, ms",
           xscale="log", yscale="log")  # fmt: skip
    ax.margins(0.18)
    plain_numbers(ax)
    ax.legend(frameon=False, labelcolor=theme.ink, fontsize=8, loc="best")
    return figure


MARKERS = "osD^v"
"""One for each limit of a kind."""


LIMIT_TEXT = {
    "tasks": "tasks a round: {:.0f}",
    "bytes": "{:.0f} MiB a round",
    "pause": "pause ≤ {:.0f} ms",
    "none": "all at once",
}


def scale(rows: TableRows, theme: Theme) -> Figure:
    """Simulated time and the master's bytes against nodes; the real runtime beside the simulator."""
    figure, (left, right) = new_figure(theme, 2)
    simulated, compared = (rows.where(part=part) for part in ("simulated", "compared"))
    xs, ys = simulated.line("nodes", "virtual_s")
    left.plot(xs, ys, color=theme.color("ssm"), marker="o", ms=3.5)
    xs, ys = compared.line("nodes", "virtual_s")
    left.plot(xs, ys, color=theme.color("ssm"), marker="x", ls=":")
    left.annotate("simulated, one in four leaves", (xs[-1], ys[-1]), xytext=(6, 2), fontsize=8,
                  textcoords="offset points", color=theme.color("ssm"))  # fmt: skip
    xs, ys = compared.line("nodes", "measured_s")
    left.plot(xs, ys, color=theme.color("storm"), marker="x", ls=":")
    left.annotate("the same on the runtime", (xs[-1], ys[-1]), xytext=(6, 2), fontsize=8,
                  textcoords="offset points", color=theme.color("storm"))  # fmt: skip
    left.set(xlabel="nodes", ylabel="one rescale, s", xscale="log", yscale="log")
    plain_numbers(left)
    for y, text in (("master_bytes", "master"), ("node_bytes", "busiest node"),
                    ("server_bytes", "busiest state server")):  # fmt: skip
        xs, ys = simulated.line("nodes", y)
        right.plot(xs, [v / 2**20 for v in ys], color=theme.ink, marker="o", ms=3)
        right.annotate(text, (xs[-1], ys[-1] / 2**20), xytext=(6, 0), textcoords="offset points",
                       va="center", fontsize=8, color=theme.ink, annotation_clip=False)  # fmt: skip
    right.set(xlabel="nodes", ylabel="sent and received, MiB", xscale="log", yscale="log")
    plain_numbers(right)
    return figure
