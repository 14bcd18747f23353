"""`meander experiment`: the experiments of the paper, measured, judged and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path

from meander.cli.main import OK, say
from meander_lab.experiments.parameters import SCALES, parameters

UNDONE = 1
"""Exit code when some cell could not be measured."""
TABLES = Path("experiments")
DOCS = Path("docs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `run` and `report`."""
    rows = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = rows.add_parser("list", help="what there is, and what it takes")
    measure = rows.add_parser("run", help="measure; what is measured already is skipped")
    measure.add_argument("names", nargs="+", metavar="NAME", help="experiments, or all")
    measure.add_argument(
        "--data", type=Path, metavar="PATH",
        help="Parquet with ts and text (default: ../shared/data if it is there, else generated)",
    )  # fmt: skip
    measure.add_argument(
        "--keep", action="store_true", help="take cells that other code has measured as they are"
    )
    measure.add_argument(
        "--minutes", type=float, default=float("inf"), metavar="M",
        help="begin no further cell after so long; the next run goes on from there",
    )  # fmt: skip
    report = rows.add_parser("report", help="tables to docs/experiments.md, figures and a page")
    report.add_argument(
        "--docs", type=Path, default=DOCS, metavar="DIR", help=f"where to write (default: {DOCS})"
    )
    for row in (listing, measure):
        row.add_argument("--scale", choices=SCALES, default="quick", help="(default: quick)")
    report.add_argument(
        "--scale", choices=SCALES, help="(default: of each experiment the largest that is complete)"
    )
    for row in (measure, report):
        row.add_argument(
            "--out", type=Path, default=TABLES, metavar="DIR",
            help=f"where the tables are, in a directory per scale (default: {TABLES})",
        )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Do what is asked."""
    return {"list": listed, "run": measured, "report": reported}[args.action](args)


def listed(args: argparse.Namespace) -> int:
    """Print the experiments."""
    from meander_lab.experiments.registry import EXPERIMENTS

    for one in EXPERIMENTS:
        wanted = parameters(one.name, args.scale)
        count = len(one.load().cells(wanted))
        took = wanted.budget_s
        print(f"{one.name:11} {one.title:55} {count:4} cells, about {took:g} s")
    return OK


def measured(args: argparse.Namespace) -> int:
    """Measure, and tell how far it is."""
    from meander_lab.experiments.ground import ExperimentGround
    from meander_lab.experiments.registry import EXPERIMENTS, experiment
    from meander_lab.experiments.runner import run as measure

    chosen = list(EXPERIMENTS) if "all" in args.names else [experiment(n) for n in args.names]
    folder = args.out / args.scale
    ground = ExperimentGround(args.scale, args.data, folder)
    say(f"tables in {folder}; tweets {ground.data}")
    trouble = measure(chosen, ground, folder, say, keep=args.keep, stop_s=60 * args.minutes)
    for text in trouble:
        say(f"not measured: {text}")
    return UNDONE if trouble else OK


def reported(args: argparse.Namespace) -> int:
    """Judge and draw what was measured."""
    from meander_lab.experiments.report import read_tables, write_report

    for path in write_report(read_tables(args.out, args.scale), args.docs):
        print(path)
    return OK
