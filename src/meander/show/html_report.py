"""The report of a run: JSON, and one HTML page that needs no other file.

The page is made of the JSON's values alone, so it can be drawn again from a stored report.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2
from markupsafe import Markup
from rich.table import Table

from meander.errors import InputError
from meander.show.palette import INK, POLICY_COLOR
from meander.show.picture import amount
from meander.show.plots import NODE_COLORS, new_figure
from meander.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAIN, OTHER, THIRD = POLICY_COLOR["ssm"], POLICY_COLOR["storm"], POLICY_COLOR["consistent-hash"]
SHADE = "#eeeeee"
LATENCY_FLOOR_MS = 0.5

PAGE = Path(__file__).with_name("html_report.html.jinja")

Report: TypeAlias = dict[str, Any]
"""What `meander run` tells of a run, as it stands in `report.json`."""


def write(report: Report, where: Path) -> Path:
    """Write `report.json` and `report.html`; give the page.

    Raises:
        InputError: if that cannot be written.
    """
    page = where / "report.html"
    try:
        (where / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        page.write_text(render(report), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{where} cannot be written: {error.strerror}") from None
    return page


# --------------------------------------------------------------------------- tables

Rows = list[tuple[str, ...]]


def migration_rows(report: Report) -> tuple[Sequence[str], Rows]:
    """Say what each rescale moved, and its pauses."""
    head = ("rescale", "tasks moved", "bytes", "rounds", "seconds", "pause predicted", "measured")
    rows: Rows = [
        (
            f"{f['from']} → {f['to']} at {f['began_s']:.1f} s",
            str(f["moved"]),
            amount(f["bytes_moved"]),
            str(len(f["rounds"])),
            f"{f['ended_s'] - f['began_s']:.2f}",
            f"{f['pause_predicted_ms']:.0f} ms",
            f"{f['pause_measured_ms']:.0f} ms",
        )
        for f in report["rescales"]
    ]
    return head, rows


def latency_rows(report: Report) -> tuple[Sequence[str], Rows]:
    """Say the latencies before, during and after each rescale."""
    head = ("rows due", "rows", "p50", "p99", "p99.9", "max")
    names = {
        "before": "before", "during": "during", "during_moved": "… of moved tasks",
        "during_waited": "… that waited for a state", "after": "after",
    }  # fmt: skip
    rows = [
        (f"{f['from']} → {f['to']}: {text}", f"{s['rows']:,}", *_figures(s))
        for f in report["rescales"]
        for name, text in names.items()
        for s in (f["latency"][name],)
    ]
    rows.append(("the whole run", f"{report['latency']['rows']:,}", *_figures(report["latency"])))
    return head, rows


def decision_rows(report: Report) -> tuple[Sequence[str], Rows]:
    """Say what the autoscaler has decided, and why."""
    head = ("at", "decision", "nodes", "why")
    rows: Rows = [
        (
            f"{d['at_s']:.1f} s",
            d["action"] if d["carried_out"] else f"{d['action']} (only said)",
            f"{d['nodes_before']} → {d['nodes_after']}",
            "; ".join(d["reasons"]),
        )
        for d in report["decisions"]
    ]
    return head, rows


def _figures(summary: dict[str, float]) -> tuple[str, ...]:
    if not summary["rows"]:
        return ("–",) * 4
    return tuple(f"{summary[n]:.1f} ms" for n in ("p50_ms", "p99_ms", "p999_ms", "max_ms"))


def verdict(report: Report) -> str:
    """Say whether the counts are right."""
    found = report["verify"]
    if found is None:
        why = "the run was interrupted" if report["interrupted"] else "not asked for"
        return f"not compared with a batch count ({why})"
    noun, reported = report["noun"], ""
    if noun == "patterns":
        reported = f", and the {found['reported']:,} patterns reported,"
    if found["exact"]:
        of = "the window's content" if reported else "the same input"
        return (
            f"all {found['words']:,} counts{reported} equal Spark's batch count of {of} "
            f"({found['total']:,} {noun})"
        )
    shown = "; ".join(found["examples"])
    return f"{found['differing']:,} of {found['words']:,} counts DIFFER from Spark's: {shown}"


def summary(report: Report) -> str:
    """Say in a sentence what flowed, and what came of it."""
    noun = report["noun"]
    said = (
        f"{report['texts']:,} texts, {report['rows']:,} {noun} in {report['seconds']:.1f} s; "
        f"{report['distinct']:,} different {noun}"
    )
    if noun == "rows":
        said = (
            f"{report['rows']:,} rows in {report['seconds']:.1f} s; the state has "
            f"{report['distinct']:,} rows"
        )
    if noun == "patterns":
        said = (
            f"{report['texts']:,} texts, {report['rows']:,} changes of pattern counts in "
            f"{report['seconds']:.1f} s; at the end {report['reported']:,} patterns are reported, of "
            f"{report['distinct']:,}"
        )
    if report.get("cut"):
        said += f" ({report['cut']:,} texts had more words than are taken)"
    return said


def top_rows(report: Report) -> tuple[Sequence[str], Rows]:
    """List the most frequent of the patterns that are reported."""
    return ("pattern", "count"), [(name, f"{count:,}") for name, count in report["top"]]


def rich_table(head: Sequence[str], rows: Rows, title: str, left: int = 1) -> Table:
    """Make a table for the terminal, whose first columns are texts and the others numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < left else "right")
    for row in rows:
        table.add_row(*row)
    return table


# --------------------------------------------------------------------------- the page


def render(report: Report) -> str:
    """Make the page."""
    figures = {
        "latency": _svg(latency_figure(report)),
        "throughput": _svg(throughput_figure(report)),
        "rounds": _svg(rounds_figure(report))
        if any(f["rounds"] for f in report["rescales"])
        else "",
        "owners": _svg(owners_figure(report)),
    }
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return page.from_string(PAGE.read_text(encoding="utf-8")).render(
        report=report,
        good=report["verify"] is None or report["verify"]["exact"],
        summary=summary(report),
        verdict=verdict(report),
        top=top_rows(report) if report.get("top") else None,
        migrations=migration_rows(report),
        decisions=decision_rows(report) if report.get("decisions") else None,
        latencies=latency_rows(report),
        figures=figures,
        version=__version__,
    )


def _svg(figure: Figure) -> Markup:
    """Give a figure as markup that can stand in a page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return Markup(text[text.index("<svg") :])


# --------------------------------------------------------------------------- pictures


def latency_figure(report: Report) -> Figure:
    """Draw latencies over time, on a log scale."""
    figure = new_figure(9, 3.4)
    ax, curves = figure.subplots(), report["curves"]
    for name, color, label in (
        ("max_ms", OTHER, "worst"), ("p99_ms", THIRD, "p99"), ("p50_ms", MAIN, "median"),
    ):  # fmt: skip
        values = [max(LATENCY_FLOOR_MS, v) if v else float("nan") for v in curves[name]]
        ax.plot(curves["at_s"], values, color=color, lw=1.2, label=label)
    if report["pause_ms"]:
        ax.axhline(report["pause_ms"], color=INK, ls=":", lw=1, label="pause budget")
    ax.set(yscale="log", ylabel="ms", xlabel="seconds of the stream")
    _mark(ax, report)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def throughput_figure(report: Report) -> Figure:
    """Draw rows applied a second."""
    figure = new_figure(9, 2.4)
    ax, curves = figure.subplots(), report["curves"]
    ax.fill_between(curves["at_s"], curves["rows_s"], color=MAIN, alpha=0.3, lw=0)
    ax.plot(curves["at_s"], curves["rows_s"], color=MAIN, lw=1)
    ax.set(ylabel=f"{report['noun']} a second", xlabel="seconds of the stream")
    ax.set_ylim(bottom=0)
    _mark(ax, report)
    return figure


def rounds_figure(report: Report) -> Figure:
    """Draw the pause of every round, predicted and measured."""
    rounds = [r for f in report["rescales"] for r in f["rounds"]]
    figure = new_figure(9, 2.4)
    ax, x = figure.subplots(), range(len(rounds))
    for shift, name, color in ((-0.2, "predicted_s", "#cccccc"), (0.2, "measured_s", OTHER)):
        heights = [1000 * r[name] for r in rounds]
        ax.bar([i + shift for i in x], heights, 0.4, color=color, label=name.removesuffix("_s"))
    if report["pause_ms"]:
        ax.axhline(report["pause_ms"], color=INK, ls=":", lw=1, label="budget")
    ax.set(ylabel="pause, ms", xlabel="round")
    ax.set_xticks(list(x), [str(i + 1) for i in x])
    _tidy(ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def owners_figure(report: Report) -> Figure:
    """Draw who owned which task, over time."""
    figure = new_figure(9, 3.2)
    ax, colors = figure.subplots(), dict[str, str]()
    ends = [o["at_s"] for o in report["owners"][1:]] + [report["seconds"]]
    for owned, end in zip(report["owners"], ends, strict=False):
        begin = max(0.0, owned["at_s"])
        for node, lb, ub in owned["runs"]:
            color = colors.setdefault(node, NODE_COLORS[len(colors) % len(NODE_COLORS)])
            ax.fill_between([begin, max(begin, end)], lb, ub, color=color, lw=0)
    for node, color in colors.items():
        ax.fill_between([], [], color=color, label=node)
    ax.set(ylabel="task", xlabel="seconds of the stream", ylim=(report["tasks"], 0))
    _tidy(ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _mark(ax: Axes, report: Report) -> None:
    for f in report["rescales"]:
        ax.axvspan(f["began_s"], f["ended_s"], color=SHADE, lw=0, zorder=0)
        ax.annotate(
            f"{f['from']} → {f['to']}", (f["began_s"], 1), xycoords=("data", "axes fraction"),
            xytext=(2, -2), textcoords="offset points", va="top", color=INK,
        )  # fmt: skip
    _tidy(ax)


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
