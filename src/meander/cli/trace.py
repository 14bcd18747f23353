"""`meander trace`: volumes per slot to nodes per slot, and so to migrations."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK, complain
from meander.cli.sources import add_session, add_source, bad_rows, length, session_of, source_of
from meander.show.plots import plot_path
from meander.spark.pipeline.slots import iso, length_text

if TYPE_CHECKING:
    from meander.spark.pipeline.trace import Trace
    from meander.spark.pipeline.volumes import Volumes

GAPS_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input, the scale and the output."""
    add_source(parser)
    parser.add_argument(
        "--series", nargs="?", const="", metavar="NAME",
        help="INPUT holds counts, not events: take the rows whose column series is NAME",
    )  # fmt: skip
    parser.add_argument("--count", default="count", metavar="COLUMN", help="the counts of a series")
    group = parser.add_argument_group("scale")
    group.add_argument("--min", type=positive, default=8, metavar="N", help="fewest nodes (8)")
    group.add_argument("--max", type=positive, default=16, metavar="N", help="most nodes (16)")
    group.add_argument("--low", type=float, metavar="V", help="volume of --min (default: smallest)")
    group.add_argument("--high", type=float, metavar="V", help="volume of --max")
    group.add_argument(
        "--high-quantile", type=float, default=0.999, metavar="Q",
        help="without --high: this quantile of all volumes (0.999; 1 is the largest)",
    )  # fmt: skip
    group.add_argument(
        "--hysteresis", type=float, default=0.0, metavar="H",
        help="nodes by which the need must pass the next step before n changes (0)",
    )  # fmt: skip
    group.add_argument(
        "--gap", type=length, default=12 * 3600, metavar="LENGTH",
        help="so long a time without events is a gap in the data (12h)",
    )  # fmt: skip
    group.add_argument(
        "--gaps", choices=("hold", "zero"),
        help="in a gap, keep n or take it for a quiet time (default: hold for a series)",
    )  # fmt: skip
    parser.add_argument("--output", "-o", metavar="FILE", help=".parquet, .csv or .json")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="draw volume and nodes")
    add_session(parser)


def run(args: argparse.Namespace) -> int:
    """Make the trace and show it."""
    from meander.spark.pipeline.trace import Scaling, make_trace, write_trace

    scaling = Scaling(args.min, args.max, args.hysteresis, args.low, args.high, args.high_quantile)
    found = _volumes(args)
    trace = make_trace(
        found.slots, found.volume, scaling, missing=found.missing,
        gap_slots=max(1, args.gap // args.slot),
        gaps=args.gaps or ("zero" if args.series is None else "hold"),
    )  # fmt: skip
    if said := bad_rows(found.census):
        complain(said)
    if args.output:
        write_trace(trace, args.output)
    if args.plot:
        from meander.show.pipeline_plots import plot_trace

        plot_trace(trace, args.plot)
    if args.json:
        rows = {
            "rows": found.census.rows,
            **{f"rows_{k}": v for k, v in found.census.flaws.items()},
        }
        print(to_line({**trace.to_json(), **rows}))
    else:
        _show(Console(highlight=False), trace, args)
    return OK


def _volumes(args: argparse.Namespace) -> Volumes:
    from meander.spark.pipeline.volumes import volumes_of_events, volumes_of_series

    source, spark = source_of(args), session_of(args)
    if args.series is None:
        return volumes_of_events(spark, source, args.slot, strict=args.strict)
    return volumes_of_series(
        spark, source, args.slot, count=args.count, series=args.series or None, strict=args.strict
    )


def _show(console: Console, trace: Trace, args: argparse.Namespace) -> None:
    p, n = trace.parameters, trace.nodes
    console.print(
        f"{len(trace.slots):,} slots of {length_text(args.slot)}, {iso(trace.slots[0])} to "
        f"{iso(trace.slots[-1])}; volume {int(trace.volume.min()):,} to "
        f"{int(trace.volume.max()):,}; {p['low']:g} gets {p['min']} nodes, {p['high']:g} and more "
        f"get {p['max']}", soft_wrap=True,
    )  # fmt: skip
    table = Table(title=f"{len(trace.migrations):,} migrations", title_justify="left",
                  title_style="")  # fmt: skip
    for name in ("nodes", "slots", "share", "reached"):
        table.add_column(name, justify="right")
    reached = Counter(move.after for move in trace.migrations)
    for nodes, slots in sorted(Counter(n.tolist()).items()):
        table.add_row(
            str(nodes), f"{slots:,}", f"{100 * slots / len(n):.1f} %", str(reached[nodes])
        )
    console.print(table)
    for gap in trace.gaps[:GAPS_SHOWN]:
        kind = "no rows" if gap.missing else "only zeros"
        console.print(f"gap: {gap.slots} slots from {iso(gap.start)}, {kind} ({p['gaps']})")
    if len(trace.gaps) > GAPS_SHOWN:
        console.print(f"and {len(trace.gaps) - GAPS_SHOWN} more gaps (all in --json)")
    if args.output:
        console.print(f"written to {args.output}", soft_wrap=True)
