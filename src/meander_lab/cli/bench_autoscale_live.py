"""`meander bench autoscale-live`: real nodes, a spike, the autoscaler on; every count compared."""

from __future__ import annotations

import argparse
from pathlib import Path

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander_lab.cli.bench_autoscale import DATA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench autoscale-live`."""
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="for an hour of tweets (default: 600)"
    )
    parser.add_argument("--spike", type=positive, default=5, help="times the load (default: 5)")
    parser.add_argument("--kills", type=int, default=0, help="nodes to kill meanwhile (default: 0)")
    parser.add_argument(
        "--standalone", action="store_true",
        help="on a Spark Standalone cluster of its own, with dynamic allocation (default: no Spark)",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR", help="with tweets.parquet"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run it and print."""
    from meander_lab.autoscale.live import LiveSetting, live

    setting = LiveSetting(
        args.seconds, args.spike, args.kills, data=args.data, standalone=args.standalone
    )
    found = live(setting, say)
    if args.json:
        print(to_line(found))
    else:
        latency = found["latency"]
        print(
            f"{found['words']:,} words in {found['seconds']:g} s, {found['rescales']} rescales, "
            f"{found['node_s']:,} node-seconds, {found['most_nodes']} nodes at most\n"
            f"{found['violation_s']} seconds beyond the promise; p50 {latency['p50_ms']:.0f} ms, "
            f"p99 {latency['p99_ms']:.0f} ms, worst {latency['max_ms']:.0f} ms\n"
            + (f"{max(found['executors'])} executors at most\n" if args.standalone else "")
            + ("every count is right" if found["exact"] else "COUNTS DIFFER")
        )
    return OK if found["exact"] else INEXACT
