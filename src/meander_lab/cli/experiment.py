"""`meander experiment`: the experiments of the paper, measured, judged and drawn."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander.cli.main import OK, say
from meander.errors import InputError
from meander_lab.experiments.parameters import SCALES, parameters
from meander_lab.hosts.inside import here, run_inside

if TYPE_CHECKING:
    from meander_lab.experiments.registry import Experiment

UNDONE = 1
"""Exit code when some cell could not be measured."""
TABLES = Path("experiments")
DOCS = Path("docs")
HOSTS_MAX = 9
LINK_MBIT_MAX = 100_000.0


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
    measure.add_argument(
        "--hosts", type=int, metavar="N",
        help="fig11 and fig16 on N hosts (2 to 9) with links, which are network namespaces of this "
        "machine; needs root",
    )  # fmt: skip
    measure.add_argument(
        "--link", type=link_rate, action="append", metavar="RATE",
        help="of those links, as in 100mbit or 1gbit; may be given again (default: both)",
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


def link_rate(text: str) -> float:
    """Read the rate of a link, in Mbit/s.

    >>> link_rate("100mbit"), link_rate("1gbit")
    (100.0, 1000.0)
    """
    number, unit = text[:-4], {"mbit": 1.0, "gbit": 1000.0}.get(text[-4:].lower())
    try:
        rate = float(number) * (unit or math.nan)
    except ValueError:
        rate = math.nan
    if not 1.0 <= rate <= LINK_MBIT_MAX:
        raise argparse.ArgumentTypeError(f"a rate is as 100mbit or 1gbit, not {text!r}")
    return rate


def chosen_of(args: argparse.Namespace) -> list[Experiment]:
    """Give the experiments that are meant; with hosts, those that run on links.

    Raises:
        InputError: for names that are none, or do not go together.
    """
    from meander_lab.experiments.registry import EXPERIMENTS, LINKS, experiment

    linked = args.hosts is not None or args.link is not None
    if "all" in args.names:
        return [one for one in EXPERIMENTS if one.hosts == linked]
    names = [n if not linked or n.endswith(LINKS) else n + LINKS for n in args.names]
    known = {one.name for one in EXPERIMENTS}
    if linked and (wrong := [n for n in names if n not in known]):
        some = " and ".join(one.name.removesuffix(LINKS) for one in EXPERIMENTS if one.hosts)
        raise InputError(f"{some} run on links, and not {wrong[0].removesuffix(LINKS)}")
    chosen = [experiment(name) for name in names]
    if len({one.hosts for one in chosen}) > 1:
        raise InputError("what runs on hosts runs by itself: name the others in a run of their own")
    return chosen


def measured(args: argparse.Namespace) -> int:
    """Measure, and tell how far it is."""
    from meander_lab.experiments.ground import ExperimentGround
    from meander_lab.experiments.runner import run as measure

    chosen, changes = chosen_of(args), dict[str, Any]()
    if chosen[0].hosts:
        count = args.hosts or parameters(chosen[0].name, args.scale).hosts
        if not 2 <= count <= HOSTS_MAX:
            raise InputError(f"--hosts is from 2 to {HOSTS_MAX}, not {count}")
        if here() is None:
            return run_inside(["experiment", *args.argv], count)
        changes = {"hosts": count} if args.hosts else {}
        changes |= {"links_mbit": args.link} if args.link else {}
    folder = args.out / args.scale
    ground = ExperimentGround(args.scale, args.data, folder)
    say(f"tables in {folder}; tweets {ground.data}")
    trouble = measure(chosen, ground, folder, say, keep=args.keep, stop_s=60 * args.minutes,
                      changes=changes)  # fmt: skip
    for text in trouble:
        say(f"not measured: {text}")
    return UNDONE if trouble else OK


def reported(args: argparse.Namespace) -> int:
    """Judge and draw what was measured; what the last report had beside it stays."""
    from meander_lab.experiments.report import kept_tables, read_tables, write_report

    kept = kept_tables(args.docs) if args.scale is None else {}
    for path in write_report(read_tables(args.out, args.scale), args.docs, kept):
        print(path)
    return OK
