"""`meander bench realtime`: Kafka to Kafka, record by record, beside Structured Streaming."""

from __future__ import annotations

import argparse

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander_lab.cli.bench_messages import positives


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench realtime`."""
    parser.add_argument(
        "--rates", type=positives, default=(1_000, 20_000), metavar="N,…",
        help="records a second (default: 1000,20000)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="measured of each row (default: 60)"
    )
    parser.add_argument(
        "--warm", type=float, default=10.0, metavar="SECONDS", help="before that (default: 10)"
    )
    parser.add_argument("--keys", type=positive, default=50_000, help="default: 50000")
    parser.add_argument(
        "--side", default="", metavar="TEXT",
        help="only sides with this in their name, such as 'meander' or 'processor'",
    )  # fmt: skip
    parser.add_argument(
        "--once", default="", choices=("exactly", "at least"),
        help="only sides that promise this of every output",
    )  # fmt: skip
    parser.add_argument(
        "--servers", default="", metavar="HOST:PORT",
        help="brokers to use; topics are made there (default: one is started on loopback)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander.sources.kafka_client import KafkaTopic
    from meander_lab.bench.realtime import RealtimeSetting, lines, table

    if args.servers:
        KafkaTopic(args.servers, "any").answers()
    setting = RealtimeSetting(
        args.rates, args.seconds, args.warm, args.keys, args.side, args.once, args.servers
    )
    found = table(setting, say)
    print(to_line(found) if args.json else "\n".join(lines(found["rows"])))
    return INEXACT if any(row["exact"] is False for row in found["rows"]) else OK
