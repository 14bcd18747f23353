"""`meander bench transfer`: how fast states move between two nodes that have nothing else to do."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench transfer`."""
    parser.add_argument(
        "--state-mib", type=positive, default=1024, metavar="MIB",
        help="what moves; there is twice as much (default: 1024)",
    )  # fmt: skip
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument(
        "--pause-ms", type=float, default=100.0, metavar="MS",
        help="copied ahead within this budget (default: 100); 0: all at once",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.load import LiveSetting
    from meander_lab.bench.transfer import transfer
    from meander_lab.cli.bench_live import deploying

    setting = LiveSetting(
        nodes=2, to=1, tasks=args.tasks, state_mb=2 * args.state_mib, pause_ms=args.pause_ms
    )
    say(f"filling {setting.keys:,} keys, of which half will move …")
    with deploying(setting, spark=False) as deploy:
        found = transfer(setting, deploy)
    print(to_line(found) if args.json else told(found))
    return OK if found["exact"] else INEXACT


def told(found: dict[str, Any]) -> str:
    """Say it in a line."""
    return (
        f"{found['bytes_moved'] / 2**20:,.0f} MiB in {found['seconds']:.2f} s, "
        f"{len(found['rounds'])} rounds: {found['mb_s']:,.0f} MB/s; a bare Flight stream: "
        f"{found['bare_mb_s']:,.0f} MB/s, {found['bare_kept_mb_s']:,.0f} to whoever keeps the bytes"
        + ("" if found["exact"] else "; THE COUNTS DIFFER")
    )
