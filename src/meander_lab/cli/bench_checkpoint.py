"""`meander bench checkpoint`: what checkpoints cost, and how fast they bring a lost node back."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import folder, positive
from meander.cli.main import INEXACT, OK, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench checkpoint`."""
    parser.add_argument(
        "--state-mb",
        type=float,
        default=256.0,
        metavar="MB",
        help="size of the state (default: 256)",
    )
    parser.add_argument("--nodes", type=positive, default=8, help="nodes (default: 8)")
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument("--turns", type=positive, default=3, help="of each side (default: 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn (default: 5)")
    parser.add_argument(
        "--checkpoint-s", type=float, default=1.0, metavar="S", help="period (default: 1)"
    )
    parser.add_argument(
        "--where", type=folder, metavar="DIR", help="a folder on the disk to write to"
    )
    parser.add_argument("--no-spark", action="store_true", help="without Spark's own query")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    found = measure(args)
    print(to_line(found) if args.json else "\n".join(lines(found)))
    return OK if found["exact"] else INEXACT


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Do the runs, in a folder that is removed afterwards."""
    from meander_lab.bench.checkpoint import BenchPlan
    from meander_lab.bench.checkpoint import measure as ours
    from meander_lab.bench.load import LiveSetting

    setting = LiveSetting(
        nodes=args.nodes, to=args.nodes, tasks=args.tasks, state_mb=args.state_mb,
        seconds=args.seconds,
    )  # fmt: skip
    plan = BenchPlan(setting, args.turns, args.seconds, args.checkpoint_s)
    with tempfile.TemporaryDirectory(dir=args.where, prefix="meander-bench-") as scratch:
        found = ours(plan, Path(scratch, "checkpoint"), say)
        if not args.no_spark:
            from meander_lab.bench.spark_restart import measure as theirs

            found["spark"] = theirs(setting, Path(scratch, "spark"), say)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """Say it in words."""
    told = [
        f"throughput with checkpoints every {found['checkpoint_s']:g} s: "
        f"{100 * found['throughput_share']:.0f} % of that without "
        f"({100 * found['cpu_share']:.0f} % by time on the processor)",
        f"p99 latency at the same load: {found['p99_ratio']:.2f} times that without",
        f"longest turn of writing on a node's thread: {found['pause_max_ms']:.1f} ms; "
        f"a record is durable after {found['durable_p50_ms']:.0f} ms (median)",
        f"one of {found['nodes']} nodes killed: {found['recovered_mb']:.0f} MiB serve again after "
        f"{found['recovery_s']:.1f} s; tasks elsewhere: p99 {found['others_p99_before_ms']:.1f} ms "
        f"before, {found['others_p99_during_ms']:.1f} ms meanwhile",
        f"all killed: {found['restarted_mb']:.0f} MiB serve again after {found['restart_s']:.1f} s",
    ]
    if "spark" in found:
        spark = found["spark"]
        told.append(
            f"Spark's own query, killed: its next batch {spark['restart_s']:.1f} s after its start "
            f"({spark['total_s']:.1f} s with the session)"
        )
    told.append("every count right" if found["exact"] else "SOME COUNTS ARE WRONG")
    return told
