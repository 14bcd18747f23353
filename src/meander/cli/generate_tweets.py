"""`meander generate tweets`."""

from __future__ import annotations

import argparse
import time

from meander.cli.answers import to_line
from meander.cli.main import OK
from meander.cli.sources import add_session, moment, session_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the size of the stream; the defaults are the size of the paper's data."""
    parser.add_argument("--rows", type=int, default=28_700_000, metavar="N", help="28_700_000")
    parser.add_argument("--users", type=int, default=2_200_000, metavar="N", help="2_200_000")
    parser.add_argument("--days", type=int, default=61, metavar="N", help="61")
    parser.add_argument("--seed", type=int, default=7, metavar="S", help="7")
    parser.add_argument(
        "--start", type=moment, default="2011-10-01", metavar="T", help="2011-10-01"
    )
    parser.add_argument("--output", "-o", required=True, metavar="DIR", help="Parquet goes here")
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    add_session(parser)


def run(args: argparse.Namespace) -> int:
    """Generate, and say how long it took."""
    from meander.spark.pipeline.generate import Stream, write_tweets

    stream = Stream(args.rows, args.users, args.days, args.seed, args.start)
    spark = session_of(args)
    begin = time.perf_counter()
    facts = write_tweets(spark, stream, args.output, force=args.force)
    seconds = time.perf_counter() - begin
    if args.json:
        print(to_line({**facts, "seconds": seconds, "rows_s": stream.rows / seconds}))
    else:
        print(f"{stream.rows:,} tweets in {seconds:.1f} s "
              f"({stream.rows / seconds:,.0f} a second), written to {args.output}")  # fmt: skip
    return OK
