"""Paragraphs on the experiments on links: what the mechanism is worth, and what the plan."""

from __future__ import annotations

from collections.abc import Iterator

from meander.show.palette import name_of
from meander_lab.experiments.claims_links import by_link
from meander_lab.experiments.tables import TableRows


def mechanism_and_plan(rows: TableRows) -> str:
    """Tell of Figure 11 on links, rate by rate."""
    return " ".join(
        _fig11(name, some.where(migrating=True)) for name, some in by_link(rows).items()
    )


def _fig11(name: str, moves: TableRows) -> str:
    def mean(mode: str, column: str) -> float:
        return moves.where(mode=mode).mean(column)

    def worst(mode: str) -> str:
        return f"{mean(mode, 'worst_ms'):,.0f} ms"

    def took(mode: str) -> str:
        return f"{mean(mode, 'seconds'):.1f} s"

    share = {m: mean(m, "bytes_moved") / mean(m, "state_bytes") for m in ("live", "storm-live")}
    return (
        f"**{name}.** *The mechanism*, from a restart to live with all moves at once: rows wait "
        f"{worst('live')} at worst and not {worst('restart')}; in rounds that keep the pause budget "
        f"{worst('live-budget')}. *The plan*, from Storm's to ours, both live: "
        f"{100 * share['live']:.0f} % of the state moves and not {100 * share['storm-live']:.0f} %, "
        f"the migration takes {took('live')} and not {took('storm-live')}, the worst row "
        f"{worst('live')} and not {worst('storm-live')}; in rounds "
        f"{took('live-budget')} and not {took('storm-budget')}, {worst('live-budget')} and not "
        f"{worst('storm-budget')}."
    )


def methods(rows: TableRows) -> str:
    """Tell of Figure 16 on links, rate by rate, at the largest window."""
    return " ".join(_fig16(name, some) for name, some in by_link(rows).items())


def _fig16(name: str, rows: TableRows) -> str:
    window = max(rows.values("window_s"))
    some = rows.where(window_s=window)

    def told() -> Iterator[str]:
        for method in some.names("method"):
            of = some.where(method=method)
            yield (
                f"{name_of(method)} {of.mean('bytes_moved') / 1e6:.1f} MB in "
                f"{of.mean('seconds'):.2f} s, mean response {of.mean('mean_ms'):.0f} ms, worst "
                f"{of.mean('max_ms'):.0f} ms"
            )

    return f"**{name}, window {window:g} s**, means of migrations: {'; '.join(told())}."
