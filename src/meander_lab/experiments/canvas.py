"""What all figures share: size, fonts, light and dark, lines that bear their own names."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from meander.show.palette import Theme, name_of
from meander_lab.experiments.tables import TableRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 0.062
"""Least distance of two labels, as a share of the height of the axes."""


NEAR = 0.8
"""Share of the width from which on a line ends at the right: others bear their name where they end."""


def new_figure(theme: Theme, panels: int = 1, *, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels side by side, two in a row."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "meander", "svg.fonttype": "none", "font.size": 9})
    rows = 1 if panels <= 2 else -(-panels // 2)
    columns = -(-panels // rows)
    figure = Figure(
        figsize=(6.4 if columns == 1 else 5.4 * columns, height * rows), layout="constrained",
        facecolor=theme.paper,
    )  # fmt: skip
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        dress(ax, theme)
    return figure, axes


def dress(ax: Axes, theme: Theme) -> None:
    """Give axes the colours of the page."""
    ax.set_facecolor(theme.paper)
    ax.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(theme.ink)
    ax.tick_params(colors=theme.ink, which="both")
    for label in (ax.xaxis.label, ax.yaxis.label, ax.title):
        label.set_color(theme.ink)
    ax.grid(True, axis="y", color=theme.faint, lw=0.5)
    ax.set_axisbelow(True)


def lines(
    ax: Axes, rows: TableRows, theme: Theme, x: str, y: str, *, by: str = "method",
    low: str | None = None, high: str | None = None, zero: bool = False,
) -> None:  # fmt: skip
    """Draw y against x, a line per method, with bars from `low` to `high`; name each at its end.

    With `zero` the axis begins there. Dashed: methods that do not keep to τ. Hollow: τ was eased.
    """
    ends: list[tuple[float, float, str]] = []
    for method in rows.names(by):
        some = rows.where(**{by: method})
        xs, ys = some.line(x, y)
        if not xs:
            continue
        spread: Any = None
        if low and high:
            lows, highs = some.line(x, low)[1], some.line(x, high)[1]
            if len(lows) == len(ys) == len(highs):
                spread = [
                    [max(0.0, a - b) for a, b in zip(ys, lows, strict=True)],
                    [max(0.0, b - a) for a, b in zip(ys, highs, strict=True)],
                ]
        free = any(share < 1 for share in some.column("met_tau_share"))
        color = theme.color(method)
        ax.errorbar(
            xs, ys, yerr=spread, color=color, marker="o", ms=3.5, lw=1.2 if free else 1.6,
            ls="--" if free else "-", elinewidth=0.8, capsize=2,
        )  # fmt: skip
        eased = {row[x] for row in some if row.get("relaxed")}
        hollow = [(a, b) for a, b in zip(xs, ys, strict=True) if a in eased]
        if hollow:
            ax.plot(
                *zip(*hollow, strict=True), "o", ms=4.5, mfc=theme.paper, mec=color, zorder=5,
            )  # fmt: skip
        ends.append((xs[-1], ys[-1], method))
    if zero:
        ax.set_ylim(bottom=0)
    label_ends(ax, theme, ends)


def label_ends(ax: Axes, theme: Theme, ends: Sequence[tuple[float, float, str]]) -> None:
    """Write each method's name right of the axes, tied to its last point, none on another.

    A line that ends long before has its name there.
    """
    plain_numbers(ax)
    to_axes = ax.transData + ax.transAxes.inverted()
    ax.autoscale_view()
    for x, y, method in ends:
        if float(to_axes.transform((x, y))[0]) < NEAR:
            ax.annotate(
                name_of(method), (x, y), xytext=(7, 5), textcoords="offset points", fontsize=8,
                color=theme.color(method),
            )  # fmt: skip
    places = sorted(
        (float(to_axes.transform((x, y))[1]), x, y, method)
        for x, y, method in ends
        if float(to_axes.transform((x, y))[0]) >= NEAR
    )
    heights = apart([place[0] for place in places], GAP)
    for height, (_, x, y, method) in zip(heights, places, strict=True):
        color = theme.color(method)
        ax.annotate(
            name_of(method), (x, y), xytext=(1.05, height), textcoords="axes fraction", color=color,
            va="center", fontsize=8, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, "alpha": 0.7, "shrinkB": 3},
        )  # fmt: skip


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as little as can be (least squares) so that all are `gap` apart.

    Less k·gap they must not fall: pool neighbours that do, and give each pool its mean.

    >>> apart([0.5, 0.5, 0.9], 0.1)
    [0.45, 0.55, 0.9]
    """
    pools: list[tuple[float, int]] = []
    for k, height in enumerate(heights):
        mean, count = height - k * gap, 1
        while pools and pools[-1][0] > mean:
            other, size = pools.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    return [round(mean + k * gap, 9) for k, mean in enumerate(flat)]


def plain_numbers(ax: Axes) -> None:
    """Write 0.01, 100 and 10,000 on logarithmic axes, not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    for axis, kind in ((ax.xaxis, ax.get_xscale()), (ax.yaxis, ax.get_yscale())):
        if kind == "log":
            low, high = axis.get_view_interval()
            wide = high > 1000 * max(low, 1e-300)
            subs = (1.0,) if wide else (1.0, 2.0, 5.0)
            axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=9))
            axis.set_major_formatter(
                FuncFormatter(lambda x, _: f"{x:,.6g}" if x < 1e6 else f"{x:.0e}")
            )
            axis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def powers(ax: Axes, values: Sequence[int]) -> None:
    """Put the ticks of a logarithmic x-axis at the values that were measured."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.xaxis.set_major_locator(FixedLocator(list(values)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    ax.tick_params(axis="x", labelsize=7.5)


def to_svg(figure: Figure) -> str:
    """Write a figure; the same figure gives the same text."""
    out = StringIO()
    figure.savefig(
        out, format="svg", metadata={"Date": None, "Creator": None},
        facecolor=figure.get_facecolor(),
    )  # fmt: skip
    text = out.getvalue()
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
