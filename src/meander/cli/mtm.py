"""`meander mtm`: count a migration transition matrix from a trace, and show it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meander.cli.main import OK
from meander.errors import InputError
from meander.planning.ahead.mtm import KINDS, Mtm, mtm_from_trace, sequence_probability
from meander.show.forecast_plots import plot_heat_map
from meander.show.plots import plot_path

if TYPE_CHECKING:
    from meander.spark.pipeline.trace import Trace

SHOWN_MAX = 24
"""Labels of a matrix that a terminal can show; a larger one goes to --plot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander mtm`."""
    parser.add_argument("trace", metavar="TRACE", help="a trace by meander trace")
    parser.add_argument(
        "--label", choices=KINDS, default="direction",
        help="what a state knows: n; n and the direction; n and the slot of the day",
    )  # fmt: skip
    parser.add_argument("--slot-hours", type=int, default=3, metavar="H", help="hours of a slot")
    parser.add_argument(
        "--alpha", type=float, default=0.0, metavar="A",
        help="added to every count of a possible transition (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--self-transitions", action="store_true", help="also count slots without a migration"
    )
    add_span(parser)
    parser.add_argument("--sequence", metavar="A,B,…", help="also give the chance of a sequence")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it as JSON")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="draw to .png or .svg")
    parser.add_argument("--json", action="store_true", help="answer in JSON")


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add the part of the trace to use."""
    parser.add_argument("--since", metavar="TIME", help="use slots from here on")
    parser.add_argument("--until", metavar="TIME", help="use slots before this")


def span_of(args: argparse.Namespace) -> Trace:
    """Read the trace and cut it as asked."""
    from meander.spark.pipeline.trace import read_trace

    trace = read_trace(args.trace)
    if args.since is None and args.until is None:
        return trace
    return trace.between(args.since or "0001-01-01", args.until or "9999-01-01")


def run(args: argparse.Namespace) -> int:
    """Count, print, write and draw."""
    trace = span_of(args)
    mtm = mtm_from_trace(
        trace.nodes.tolist(), args.label, hours=trace.hours(), alpha=args.alpha,
        self_transitions=args.self_transitions, slot_hours=args.slot_hours,
    )  # fmt: skip
    answer = mtm.to_json() | {"migrations": int(mtm.counts.sum())}
    chance = None
    if args.sequence:
        chance = sequence_probability(mtm, [part.strip() for part in args.sequence.split(",")])
        answer["sequence_probability"] = chance
    if args.out:
        _write(args.out, json.dumps(answer, ensure_ascii=False) + "\n")
    if args.json:
        print(json.dumps(answer, ensure_ascii=False))
    else:
        show(Console(highlight=False), mtm)
        if chance is not None:
            print(f"probability of {args.sequence}: {chance:.6g}")
    if args.plot:
        plot_heat_map(mtm, args.plot)
    return OK


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def show(console: Console, mtm: Mtm) -> None:
    """Print the matrix as a table whose cells are shaded, or a summary when it is too large."""
    console.print(
        f"{len(mtm.labels)} labels ({mtm.kind}), {int(mtm.counts.sum())} transitions, "
        f"{int((mtm.counts > 0).sum())} different ones"
    )
    if mtm.unseen:
        names = ", ".join(map(str, mtm.unseen))
        console.print(f"never left in this span, so their rows are borrowed: {names}")
    if len(mtm.labels) > SHOWN_MAX:
        console.print(_likeliest(mtm))
        console.print(f"more than {SHOWN_MAX} labels: see the whole matrix with --plot or --json")
        return
    table = Table(title="from \\ to", title_justify="left", padding=(0, 0), pad_edge=False)
    table.add_column("")
    for label in mtm.labels:
        table.add_column(str(label), justify="right")
    for label, row in zip(mtm.labels, mtm.matrix, strict=True):
        table.add_row(str(label), *(_cell(float(p)) for p in row))
    console.print(table)


def _cell(chance: float) -> Text:
    """A probability on a background as dark as it is likely."""
    if chance == 0:
        return Text("  · ", style="dim")
    grey = 250 - int(chance * 18)  # the grey ramp of 256-colour terminals
    ink = "black" if grey > 243 else "white"
    return Text(f"{chance:.2f}", style=f"{ink} on color({grey})")


def _likeliest(mtm: Mtm) -> Table:
    table = Table("label", "seen", "most likely next", pad_edge=False)
    for i, label in enumerate(mtm.labels):
        order = sorted(range(len(mtm.labels)), key=lambda j: -mtm.matrix[i, j])[:3]
        parts = [f"{mtm.labels[j]} {mtm.matrix[i, j]:.0%}" for j in order if mtm.matrix[i, j] > 0]
        table.add_row(str(label), str(int(mtm.counts[i].sum())), ", ".join(parts))
    return table
