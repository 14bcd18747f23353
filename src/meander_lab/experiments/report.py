"""Tables to a report: what the paper says, what we measured, and a verdict on every claim."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meander.errors import InputError
from meander.show.palette import THEMES, Theme, name_of
from meander_lab.experiments import links_text, plots, plots_live
from meander_lab.experiments.abstract import COLORS, MARKS, Verdicts, abstract, counts, judged
from meander_lab.experiments.canvas import to_svg
from meander_lab.experiments.claims import CLAIMS
from meander_lab.experiments.columns import KEYS, SHOWN
from meander_lab.experiments.noise import pooled
from meander_lab.experiments.page import page
from meander_lab.experiments.parameters import parameters
from meander_lab.experiments.registry import EXPERIMENTS, Experiment
from meander_lab.experiments.tables import ResultTable, TableRows, as_csv, cell_key, from_csv
from meander_lab.experiments.thresholds import THRESHOLDS
from meander_lab.experiments.verdicts import HOLDS, UNKNOWN, VERDICTS, Claim, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE: Final = "Every experiment of the paper, and what became of its claims"
PROSE: Final = Path(__file__).with_name("prose.toml")
ORDER: Final = ("fig11", "fig11-links", "fig12", "search-space", "bursts", "frequencies", "fig13",
                "fig14", "fig15", "fig16", "fig16-gap", "fig16-links", "fig17", "routing", "table3",
                "appendix-a", "drift", "state", "rounds", "scale")  # fmt: skip
DRAWINGS: Final[dict[str, Callable[[TableRows, Theme], Figure]]] = {
    "fig11": plots_live.fig11, "fig12": plots.fig12, "fig13": plots.fig13, "fig14": plots.fig14,
    "fig15": plots.fig15, "fig16": plots_live.fig16, "fig17": plots.fig17, "table3": plots.table3,
    "appendix-a": plots.appendix_a, "drift": plots.drift, "state": plots_live.state,
    "rounds": plots_live.rounds, "scale": plots_live.scale, "routing": plots.routing,
    "bursts": plots.bursts, "fig11-links": plots_live.fig11_links,
    "fig16-links": plots_live.fig16_links, "fig16-gap": plots_live.fig16_gap,
    "search-space": plots.search_space, "frequencies": plots.frequencies,
}  # fmt: skip
TABLES: Final = "tables"
"""Where a report keeps what it was made of, as CSV."""
ROWS_OPEN_MAX: Final = 12
"""Longer tables are folded."""


def read_tables(root: Path, scale: str | None) -> dict[str, TableRows]:
    """Read the tables of a scale; without one, of each experiment the largest that is complete.

    Raises:
        InputError: if nothing was measured, or what was asked for is of several runs.
    """
    found = {}
    for one in EXPERIMENTS:
        for name in (scale,) if scale else SCALES_BY_SIZE:
            rows = ResultTable(root / name, one.name).read()
            if scale and _mixed(rows):
                raise InputError(
                    f"{one.name} was measured with several data, seeds or parameters: a run was "
                    f"interrupted; let `meander experiment run {one.name}` end"
                )
            if len(rows) and (scale or name == "toy" or _complete(one, name, rows)):
                found[one.name] = rows
                break
    if not found:
        raise InputError(f"there are no tables in {root}: first `meander experiment run all`")
    return found


def kept_tables(docs: Path) -> dict[str, TableRows]:
    """Read what the last report was made of: what was not measured here stays in the next."""
    paths = {one.name: docs / TABLES / f"{one.name}.csv" for one in EXPERIMENTS}
    return {
        name: from_csv(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


SCALES_BY_SIZE: Final = ("paper", "quick")


def _complete(one: Experiment, scale: str, rows: TableRows) -> bool:
    """Whether all cells are there, of one run; a table whose rows bear a `note` says what it is."""
    if _mixed(rows):
        return False
    wanted = {cell_key(cell) for cell in one.load().cells(parameters(one.name, scale))}
    return wanted <= set(rows.column("cell")) or bool(rows.column("note"))


def _mixed(rows: TableRows) -> bool:
    """Whether rows differ in data, seed or parameters: a run with others was interrupted."""
    return len(rows.names("identity")) > 1


def write_report(fresh: Tables, docs: Path, kept: Tables | None = None) -> list[Path]:
    """Write `experiments.md`, `experiments.html`, the figures, and the tables as CSV.

    Args:
        fresh: what was measured.
        docs: where to write.
        kept: what the report there was made of; its figures and tables stay as they are.

    Raises:
        InputError: if the place cannot be written.
    """
    tables = {**(kept or {}), **fresh}
    points = {
        name: pooled(rows, KEYS[name]) if name in KEYS else rows for name, rows in tables.items()
    }
    drawn = {
        n: _drawn(n, tables[n] if n in UNPOOLED else points[n]) if n in fresh else _seen(n, docs)
        for n in tables
    }
    markdown = "\n\n".join(_report(tables, points)) + "\n"
    files = {
        docs / "experiments.md": markdown,
        docs / "experiments.html": page(
            TITLE, markdown, drawn, {MARKS[verdict]: COLORS[verdict] for verdict in VERDICTS}
        ),
    }
    for name in fresh:
        for theme, svg in zip(THEMES, drawn[name], strict=True):
            files[_figure(name, theme, docs)] = svg
        files[docs / TABLES / f"{name}.csv"] = as_csv(tables[name])
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report: {error}") from None
    return list(files)


UNPOOLED: Final = ("fig16", "fig16-gap", "fig16-links")
"""Drawn with every migration: the figure has its distribution, or its course."""


def _drawn(name: str, rows: TableRows) -> tuple[str, str]:
    light, dark = (to_svg(DRAWINGS[name](rows, theme)) for theme in THEMES)
    return light, dark


def _figure(name: str, theme: Theme, docs: Path) -> Path:
    return docs / "figures" / f"{name}-{theme.name}.svg"


def _seen(name: str, docs: Path) -> tuple[str, str]:
    """Give the figures that are there."""
    light, dark = (_figure(name, theme, docs).read_text(encoding="utf-8") for theme in THEMES)
    return light, dark


@cache
def prose() -> dict[str, Any]:
    """Read the words that no table can give."""
    return tomllib.loads(PROSE.read_text(encoding="utf-8"))


def _report(tables: Tables, points: Tables) -> Iterator[str]:
    """Give the blocks of the report."""
    verdicts = judged(tables)
    yield f"# {TITLE}"
    yield (
        "Section 6 of the paper, Figures 11 to 17, with Section 4.1 on routing, Table 3 and Appendix "
        "A, and some experiments beyond. This page is written by `meander experiment report` from "
        "tables that `meander experiment run` measures (one CSV each, with commit, machine and cell: "
        "see below); no verdict and no measured number in it is written by hand. Every parameter is in "
        "`src/meander_lab/experiments/parameters.toml`, every claim in `claims_*.py` beside it."
    )
    yield counts(verdicts)
    yield "\n".join(abstract(tables, verdicts))
    yield _contents(tables)
    yield from _origin(tables)
    yield '<a id="claims"></a>'
    yield "## The claims"
    yield (
        "Proposed methods: single-step, and MTM-aware migration as the paper has it. In brackets 95 %, "
        "of differences migration by migration, by block bootstrap, or run by run. *Undecided*: the "
        "noise is larger than the difference, or nobody knows how large it is ([–]: a single run or "
        "migration). Nothing is judged where τ was infeasible and eased."
    )
    yield _claims([claim for claim in CLAIMS if not claim.ours], verdicts, tables)
    yield "What we say of our own, by the same rules:"
    yield _claims([claim for claim in CLAIMS if claim.ours], verdicts, tables)
    yield '<a id="thresholds"></a>'
    yield _folded("What decides: every threshold, with its reason", _thresholds())
    for name in ORDER:
        if name in tables:
            yield from _section(name, tables, points, verdicts)
    yield '<a id="again"></a>'
    yield "## Do it again"
    quiet = ", ".join(one.name for one in EXPERIMENTS if one.live)
    yield (
        "`meander experiment list` says what there is; `meander experiment run all` measures at the "
        "scale `quick`, `--scale paper` with the paper's numbers, `--minutes M` in pieces: each run "
        "goes on where the last one stopped. `--data PATH` takes other tweets. `meander experiment "
        "report` writes this page, of each experiment the largest scale that is complete; what was not "
        "measured anew stays as `docs/tables` has it. As root, `meander experiment run fig11 fig16 "
        "--hosts 4` measures on links, `--link 100mbit` on those of one rate. What runs nodes as "
        f"processes ({quiet}) is worth something on a machine that does nothing else."
    )


def _contents(tables: Tables) -> str:
    links = [("the claims", "claims"), ("what decides", "thresholds")]
    links += [
        (BEYOND.get(name) or _title(name, tables[name]).split(":")[0], name)
        for name in ORDER
        if name in tables
    ]
    return "Contents: " + " · ".join(f"[{text}](#{at})" for text, at in [*links, AGAIN])


AGAIN: Final = ("do it again", "again")


def _origin(tables: Tables) -> Iterator[str]:
    lines = ["| | scale | cells | commit | measured |", "| --- | --- | --- | --- | --- |"]

    def all_of(rows: Iterable[dict[str, Any]], name: str) -> str:
        return "; ".join(dict.fromkeys(str(row[name]) for row in rows))

    for name in ORDER:
        if name in tables:
            rows = tables[name]
            days = sorted({str(row["measured_at"])[:10] for row in rows})
            lines.append(
                f"| [{name}](tables/{name}.csv) | {all_of(rows, 'scale')} | {len(rows.names('cell'))} "
                f"| {all_of(rows, 'commit')} | {' to '.join(dict.fromkeys((days[0], days[-1])))} |"
            )
    every = [row for rows in tables.values() for row in rows]
    yield (
        f"Tweets: {all_of(every, 'data')}. Machine: {all_of(every, 'machine')}. Seed "
        f"{all_of(every, 'seed')}."
    )
    yield _folded("Which scale, which commit, when", "\n".join(lines))


def _claims(claims: Sequence[Claim], verdicts: Verdicts, tables: Tables) -> str:
    lines = ["| | figure | claim | verdict | measured |", "| --- | --- | --- | --- | --- |"]
    for claim in claims:
        status, number = verdicts[claim.id]
        figure = f"[{claim.figure}](#{claim.figure})" if claim.figure in tables else claim.figure
        lines.append(
            f"| {claim.id} | {figure} | {claim.says} | {MARKS[status]} "
            f"**{status}** | {_cell_text(number)} |"
        )
    return "\n".join(lines)


def _thresholds() -> str:
    lines = ["| | decides | is taken as | because |", "| --- | --- | --- | --- |"]
    lines += [f"| {t.value:g} | {t.claims} | {t.means} | {t.reason} |" for t in THRESHOLDS]
    return "\n".join(lines)


def _folded(title: str, text: str) -> str:
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'


def _title(name: str, rows: TableRows) -> str:
    """The title of a section; of the sizes of states, what was measured."""
    if name == "state":
        sizes = rows.values("state_mb")
        return f"Beyond: from {sizes[0]:g} MiB to {sizes[-1]:g} MiB of state"
    return next(one.title for one in EXPERIMENTS if one.name == name)


REMARKS: Final[dict[str, Callable[[TableRows], str]]] = {
    "fig11-links": links_text.mechanism_and_plan, "fig16-links": links_text.methods,
}  # fmt: skip
"""Paragraphs that are made of a table."""
BEYOND: Final = {"drift": "drift", "state": "state", "rounds": "rounds", "scale": "scale"}


def _section(name: str, tables: Tables, points: Tables, verdicts: Verdicts) -> Iterator[str]:
    rows = tables[name]
    title, words = _title(name, rows), prose()["figures"][name]
    yield f'<a id="{name}"></a>'
    yield f"## {title}"
    scales, commits = (", ".join(dict.fromkeys(rows.column(key))) for key in ("scale", "commit"))
    spans = len(rows.values("span"))
    said = [f"Scale `{scales}`, commit {commits}" + (f"; {spans} test spans" if spans > 1 else "")]
    yield f"*{'. '.join([*said, *rows.names('note')])}.*"
    yield f"*The paper.* {_flat(words['says'])}"
    yield f"*Here.* {_flat(words['reads'])}"
    yield (
        f'<picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="figures/{name}-dark.svg"><img alt="{title}" src="figures/{name}-light.svg"></picture>'
    )
    yield _shown(name, points[name])
    if name in REMARKS:
        yield REMARKS[name](rows)
    for claim in CLAIMS:
        if claim.figure != name:
            continue
        status, _ = verdicts[claim.id]
        why = explanation(claim.id, status)
        if why:
            yield f"{MARKS[status]} **{claim.id} {status}.** {_flat(why)}"


def explanation(number: str, status: str) -> str:
    """Give the words on a claim that does not fully hold; some are true of one verdict alone."""
    why = prose()["explains"].get(number, "")
    if status in (HOLDS, UNKNOWN):
        return ""
    return str(why.get(status, "") if isinstance(why, dict) else why)


def _shown(name: str, rows: TableRows) -> str:
    """Print the columns that matter; a migration's facts once, not once per interval."""
    some: Iterable[dict[str, Any]] = rows
    if name.startswith("fig11"):
        some = rows.where(migrating=True)
    columns = SHOWN[name]
    found = [[_value(key, row.get(key)) for key in columns] for row in some]
    kept = [k for k in range(len(columns)) if any(line[k] for line in found)]
    heads = list(columns.values())
    lines = ["| " + " | ".join(heads[k] for k in kept) + " |", "|" + " --- |" * len(kept)]
    lines += ["| " + " | ".join(line[k] for k in kept) + " |" for line in found]
    text = "\n".join(lines)
    return text if len(found) <= ROWS_OPEN_MAX else _folded(f"All {len(found)} points", text)


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
    if key in ("master_bytes", "table_bytes", "states", "partitions", "map_rows_s",
               "intervals_rows_s", "keys", "key_rows"):  # fmt: skip
        return f"{value:,.0f}" if value < 1e12 else f"{value:.2e}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cell_text(text: str) -> str:
    return text.replace("|", "/")
