"""`meander bench pipeline`: a profile against plain Spark SQL that counts the same words."""

from __future__ import annotations

import argparse
import tempfile

from rich.console import Console
from rich.table import Table

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK
from meander.cli.sources import add_session, session_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the size, or files to take."""
    parser.add_argument("input", nargs="*", metavar="INPUT", help="Parquet with ts and text")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N",
        help="without INPUT: generate so many tweets first (1_000_000)",
    )  # fmt: skip
    parser.add_argument("--tasks", "-m", type=positive, default=64, metavar="M", help="64")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    add_session(parser)


def run(args: argparse.Namespace) -> int:
    """Generate if need be, measure both sides, print."""
    from meander.spark.pipeline.generate import Stream, write_tweets
    from meander_lab.bench.pipeline import bench

    with tempfile.TemporaryDirectory(prefix="meander-bench-") as scratch:
        paths = args.input
        if not paths:
            paths = [f"{scratch}/tweets"]
            spark = session_of(args)
            write_tweets(spark, Stream(rows=args.rows), paths[0])
            spark.stop()
        found = bench(paths, args.tasks, args.master)
    if args.json:
        print(to_line(found))
        return OK
    table = Table(title=f"{found['rows']:,} tweets, {found['words']:,} words, {found['tasks']} "
                  f"tasks, {found['cores']} cores", title_justify="left", title_style="")  # fmt: skip
    for name in ("", "rows/s", "seconds", "CPU s", "peak MB"):
        table.add_column(name, justify="right" if name else "left")
    for side, label in (("sql", "plain SQL count"), ("profile", "meander profile")):
        table.add_row(label, f"{found[f'{side}_rows_s']:,.0f}", f"{found[f'{side}_s']:.1f}",
                      f"{found[f'{side}_cpu_s']:.1f}", f"{found[f'{side}_peak_mb']:,.0f}")  # fmt: skip
    Console(highlight=False).print(table, f"ratio {found['ratio']:.2f}")
    return OK
