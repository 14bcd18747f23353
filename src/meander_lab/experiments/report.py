"""Tables to a report: what the paper says, what we measured, and a verdict on every claim."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meander.errors import InputError
from meander.show.palette import THEMES, Theme, name_of
from meander_lab.experiments import plots, plots_live
from meander_lab.experiments.canvas import to_svg
from meander_lab.experiments.claims import CLAIMS
from meander_lab.experiments.columns import SHOWN
from meander_lab.experiments.page import page
from meander_lab.experiments.registry import EXPERIMENTS
from meander_lab.experiments.tables import ResultTable, TableRows
from meander_lab.experiments.verdicts import HOLDS, UNKNOWN, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE: Final = "Every experiment of the paper, and what became of its claims"
PROSE: Final = Path(__file__).with_name("prose.toml")
ORDER: Final = ("fig11", "fig12", "fig13", "fig14", "fig15", "fig16", "fig17", "table3", "appendix-a",
                "drift", "state", "rounds", "scale")  # fmt: skip
DRAWINGS: Final[dict[str, Callable[[TableRows, Theme], Figure]]] = {
    "fig11": plots_live.fig11, "fig12": plots.fig12, "fig13": plots.fig13, "fig14": plots.fig14,
    "fig15": plots.fig15, "fig16": plots_live.fig16, "fig17": plots.fig17, "table3": plots.table3,
    "appendix-a": plots.appendix_a, "drift": plots.drift, "state": plots_live.state,
    "rounds": plots_live.rounds, "scale": plots_live.scale,
}  # fmt: skip
ROWS_SHOWN_MAX: Final = 60
"""Longer tables are in the CSV."""


def write_report(folder: Path, docs: Path, scale: str) -> list[Path]:
    """Write `experiments.md`, `experiments.html` and the figures.

    Raises:
        InputError: if nothing was measured, or the place cannot be written.
    """
    tables = {one.name: ResultTable(folder, one.name).read() for one in EXPERIMENTS}
    tables = {name: rows for name, rows in tables.items() if len(rows)}
    if not tables:
        raise InputError(f"there are no tables in {folder}: first `meander experiment run all`")
    drawn = {n: _drawn(n, rows) for n, rows in tables.items()}
    markdown = "\n\n".join(_report(tables, scale)) + "\n"
    files = {
        docs / "experiments.md": markdown,
        docs / "experiments.html": page(TITLE, markdown, drawn),
    }
    for name, pictures in drawn.items():
        for theme, svg in zip(THEMES, pictures, strict=True):
            files[docs / "figures" / f"{name}-{theme.name}.svg"] = svg
    try:
        (docs / "figures").mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report: {error}") from None
    return list(files)


def _drawn(name: str, rows: TableRows) -> tuple[str, str]:
    light, dark = (to_svg(DRAWINGS[name](rows, theme)) for theme in THEMES)
    return light, dark


@cache
def prose() -> dict[str, Any]:
    """Read the words that no table can give."""
    return tomllib.loads(PROSE.read_text(encoding="utf-8"))


def _report(tables: Tables, scale: str) -> Iterator[str]:
    """Give the blocks of the report."""
    yield f"# {TITLE}"
    yield (
        "Section 6 of the paper, Figures 11 to 17, Table 3 and Appendix A, and some experiments "
        "beyond. This page is written by `meander experiment report` from the tables that `meander "
        "experiment run all` measures; nothing in the table of claims is written by hand. Every "
        "parameter is in `src/meander_lab/experiments/parameters.toml`, every claim in "
        "`src/meander_lab/experiments/claims_*.py`."
    )
    yield from _origin(tables, scale)
    yield "## The claims"
    yield _claims(tables)
    for name in ORDER:
        if name in tables:
            yield from _section(name, tables)
    yield "## Do it again"
    yield (
        "`meander experiment list` says what there is; `meander experiment run all` measures (15 "
        "minutes on 2 idle cores; it goes on where it was interrupted), `--scale paper` with the "
        "paper's numbers (hours), `--data PATH` with other tweets; `meander experiment report` writes "
        "this page."
    )


def _origin(tables: Tables, scale: str) -> Iterator[str]:
    rows = [row for some in tables.values() for row in some]

    def all_of(name: str) -> str:
        return "; ".join(dict.fromkeys(str(row[name]) for row in rows))

    days = sorted(str(row["measured_at"])[:10] for row in rows)
    yield "\n".join([
        "| | |", "| --- | --- |", f"| scale | {scale} |", f"| tweets | {all_of('data')} |",
        f"| commit | {all_of('commit')} |", f"| machine | {all_of('machine')} |",
        f"| measured | {days[0]} to {days[-1]}, seed {all_of('seed')} |",
    ])  # fmt: skip


def _claims(tables: Tables) -> str:
    lines = ["| | figure | claim | verdict | measured |", "| --- | --- | --- | --- | --- |"]
    for claim in CLAIMS:
        status, number = claim.verdict(tables)
        mark = f"**{status}**" if status != UNKNOWN else f"*{status}*"
        lines.append(
            f"| {claim.id} | {claim.figure} | {claim.says} | {mark} | {_cell_text(number)} |"
        )
    return "\n".join(lines)


def _section(name: str, tables: Tables) -> Iterator[str]:
    title = next(one.title for one in EXPERIMENTS if one.name == name)
    words = prose()["figures"][name]
    yield f"## {title}"
    yield f"*The paper.* {_flat(words['says'])}"
    yield f"*Here.* {_flat(words['reads'])}"
    yield (
        f'<picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="figures/{name}-dark.svg"><img alt="{title}" src="figures/{name}-light.svg"></picture>'
    )
    yield _shown(name, tables[name])
    for claim in CLAIMS:
        if claim.figure != name:
            continue
        status, _ = claim.verdict(tables)
        why = prose()["explains"].get(claim.id)
        if status not in (HOLDS, UNKNOWN) and why:
            yield f"**{claim.id} {status}.** {_flat(why)}"


def _shown(name: str, rows: TableRows) -> str:
    """Print the columns that matter; a migration's facts once, not once per interval."""
    some: Iterable[dict[str, Any]] = rows
    if name == "fig11":
        some = rows.where(migrating=True)
    columns = SHOWN[name]
    found = [[_value(key, row.get(key)) for key in columns] for row in some]
    kept = [k for k in range(len(columns)) if any(line[k] for line in found)]
    heads = list(columns.values())
    lines = ["| " + " | ".join(heads[k] for k in kept) + " |", "|" + " --- |" * len(kept)]
    lines += ["| " + " | ".join(line[k] for k in kept) + " |" for line in found[:ROWS_SHOWN_MAX]]
    text = "\n".join(lines)
    left = len(found) - ROWS_SHOWN_MAX
    return text if left <= 0 else f"{text}\n\n… and {left} more rows in `{name}.csv`."


def _value(key: str, value: Any) -> str:
    """Write a value for people.

    >>> _value("met_tau_share", 0.5), _value("bytes_moved", 2_500_000), _value("tau", 0.25)
    ('50 %', '2.5 MB', '0.25')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if key in ("method", "mode"):
        return name_of(value)
    if key.endswith("_share"):
        return f"{100 * value:.0f} %"
    if key == "bytes_moved":
        return f"{value / 1e6:.3g} MB"
    if key in ("master_bytes", "table_bytes", "states", "partitions"):
        return f"{value:,.0f}" if value < 1e12 else f"{value:.2e}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cell_text(text: str) -> str:
    return text.replace("|", "/")
