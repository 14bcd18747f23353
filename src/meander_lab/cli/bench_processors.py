"""`meander bench processors`: StatefulProcessors here and in Spark's own transformWithState."""

from __future__ import annotations

import argparse

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench processors`."""
    parser.add_argument("--keys", type=positive, default=2_000, help="(default: 2,000)")
    parser.add_argument("--rows", type=positive, default=4_000, help="in a batch (default: 4,000)")
    parser.add_argument(
        "--batches", type=positive, default=6, help="the first two warm up (default: 6)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.processors import ProcessorSetting, bench

    if args.quick:
        args.keys, args.rows, args.batches = 50, 100, 3
    found = bench(ProcessorSetting(args.keys, args.rows, max(3, args.batches)), say)
    if args.json:
        print(to_line(found))
    else:
        for one in found["processors"]:
            print(
                f"{one['processor']}: {one['rows_s']:,.0f} rows/s, Spark {one['spark_rows_s']:,.0f}, "
                f"{one['ratio']:.1f}×"
            )
        print(f"median {found['ratio']:.1f}×, least {found['ratio_min']:.1f}×")
    return OK
