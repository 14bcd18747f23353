"""`meander bench vacate`: nodes leave under load, again and again; and upgrades."""

from __future__ import annotations

import argparse

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench vacate`."""
    parser.add_argument("--nodes", type=positive, default=2, help="(default: 2)")
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument(
        "--state-mb", type=float, default=512.0, metavar="MB",
        help="size of the state in MiB; one node's share leaves (default: 512)",
    )  # fmt: skip
    parser.add_argument("--rate", type=float, default=20_000.0, help="rows a second (20,000)")
    parser.add_argument("--times", type=int, default=20, help="vacates (default: 20)")
    parser.add_argument("--upgrades", type=int, default=2, help="upgrades after them (default: 2)")
    parser.add_argument("--pause-ms", type=float, default=100.0, help="budget (default: 100)")
    parser.add_argument("--within-s", type=float, default=15.0, help="for each (default: 15)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.days import vacate
    from meander_lab.bench.load import LiveSetting
    from meander_lab.cli.bench_live import deploying

    if args.quick:
        args.state_mb, args.times, args.upgrades = 8.0, 2, 1
    setting = LiveSetting(
        args.nodes, args.nodes, args.tasks, args.state_mb, pause_ms=args.pause_ms, rate=args.rate
    )
    with deploying(setting, spark=False) as deploy:
        found = vacate(setting, deploy, args.times, args.upgrades, args.within_s, say)
    if args.json:
        print(to_line(found))
    else:
        for run in found["runs"]:
            worst = run["latency"]["max_ms"]
            print(
                f"{run['what']}: {run['seconds']:.2f} s, {run['bytes_moved'] / 2**20:.0f} MiB in "
                f"{run['rounds']} rounds; longest wait for a state {run['waited_max_ms']:.0f} ms, "
                f"worst latency {worst:.0f} ms"
            )
        print(f"before: p99 {found['quiet']['p99_ms']:.1f} ms; exact: {found['exact']}")
    return OK if found["exact"] else INEXACT
