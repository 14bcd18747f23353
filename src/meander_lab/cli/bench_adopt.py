"""`meander bench adopt`: a query of Spark's taken over while rows arrive, and given back."""

from __future__ import annotations

import argparse

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench adopt`."""
    parser.add_argument("--keys", type=positive, default=1_000_000, help="(default: 1,000,000)")
    parser.add_argument("--nodes", type=positive, default=4, help="(default: 4)")
    parser.add_argument("--seed", type=positive, default=1, help="of the rows that arrive")
    parser.add_argument(
        "--running", action="store_true", help="the old query runs until the nodes are up"
    )
    parser.add_argument("--quick", action="store_true", help="a small state: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.adopting import AdoptSetting, bench

    setting = AdoptSetting(args.keys, args.nodes, seed=args.seed, running=args.running)
    if args.quick:
        setting = AdoptSetting(2_000, min(2, args.nodes), 1.0, 1.0, args.seed, args.running)
    found = bench(setting, say)
    if args.json:
        print(to_line(found))
    else:
        right = {True: "every count right", False: "WRONG COUNTS"}
        print(
            f"{setting.keys:,} keys adopted in {found['adopt_s']:.1f} s, a gap of "
            f"{found['gap_s']:.1f} s, {right[found['exact']]}; exported in "
            f"{found['export_s']:.1f} s, {right[found['exact_back']]}"
        )
    return OK
