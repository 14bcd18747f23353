"""`meander bench throughput`: what elasticity costs, and what the keyed table brings.

Two nodes stand side by side: one of a deployment (`runtime`), one without any migration machinery
(`baselines.static_node`). The same words go to one, then the other, in pairs of alternating order, so
that a noisy moment falls on both alike. Each rate is rows over the time until all are applied. The
share is the median of the pairs' ratios, with an interval that holds the true median 19 times in 20.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK
from meander.runtime.clients.feeder import FeederClient

if TYPE_CHECKING:
    import pyarrow as pa

PAIRS, QUICK_PAIRS = 12, 3
ROWS, QUICK_ROWS = 20_000_000, 400_000
BATCH_ROWS = 16_384
"""What a feeder sends at once."""
TASKS = 64
TABLE_S, QUICK_TABLE_S = 4.0, 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench throughput`."""
    parser.add_argument("--pairs", type=positive, help=f"how many (default: {PAIRS})")
    parser.add_argument("--rows", type=positive, help=f"words a run (default: {ROWS:,})")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    pairs = args.pairs or (QUICK_PAIRS if args.quick else PAIRS)
    rows = args.rows or (QUICK_ROWS if args.quick else ROWS)
    found = measure(pairs, rows, QUICK_TABLE_S if args.quick else TABLE_S)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    return OK if found["exact"] else INEXACT


def measure(pairs: int, rows: int, table_s: float) -> dict[str, Any]:
    """Run the pairs, and the table against a dict."""
    import pyarrow as pa

    from meander.operators import WordCount
    from meander.runtime.driver.local import deploy_local
    from meander_lab.baselines.static_node import StaticNode
    from meander_lab.bench.table import table_over_dict, zipf_words

    table = table_over_dict(table_s)
    words = pa.table({"word": zipf_words(min(rows, 1_000_000), seed=1)})
    once = words.to_batches(max_chunksize=BATCH_ROWS)
    batches = (once * math.ceil(rows / words.num_rows))[: math.ceil(rows / BATCH_ROWS)]
    op = deploy_local(WordCount(), tasks=TASKS, nodes=1)
    with op, op.feeder("bench") as feeder, StaticNode(TASKS) as plain:
        sides: dict[str, FeederClient | StaticNode] = {"elastic": feeder, "plain": plain}
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():
            _rate(side.feed, side.flush, batches)  # fills the tables
        for pair in range(pairs):
            for name in sorted(sides, reverse=bool(pair % 2)):
                rates[name].append(_rate(sides[name].feed, sides[name].flush, batches))
            print(f"pair {pair + 1} of {pairs}", file=sys.stderr, end="\r", flush=True)
        exact = _same(op.state().select(["word", "count"]), plain.counts())
    print(file=sys.stderr)
    return {**summary(rates), "table_over_dict": table["table_over_dict"],
            "rows": sum(b.num_rows for b in batches), "exact": exact and table["exact"]}  # fmt: skip


def _rate(
    feed: Callable[[pa.RecordBatch], None], flush: Callable[[], None], batches: list[pa.RecordBatch]
) -> float:
    began = time.perf_counter()
    for batch in batches:
        feed(batch)
    flush()
    return float(sum(b.num_rows for b in batches)) / (time.perf_counter() - began)


def _same(ours: pa.Table, theirs: pa.Table) -> bool:
    order = [("word", "ascending")]
    return bool(ours.sort_by(order).equals(theirs.sort_by(order).cast(ours.schema)))


def summary(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Give medians, the share, and its interval.

    >>> found = summary({"elastic": [9.0, 8.0, 10.0], "plain": [10.0, 10.0, 10.0]})
    >>> found["elastic_share"], found["elastic_share_low"], found["elastic_share_high"]
    (0.9, 0.8, 1.0)
    """
    shares = sorted(a / b for a, b in zip(rates["elastic"], rates["plain"], strict=True))
    low, high = median_interval(len(shares))
    return {
        "elastic_rows_s": statistics.median(rates["elastic"]),
        "plain_rows_s": statistics.median(rates["plain"]),
        "elastic_share": statistics.median(shares),
        "elastic_share_low": shares[low], "elastic_share_high": shares[high],
        "pairs": len(shares),
    }  # fmt: skip


def median_interval(count: int) -> tuple[int, int]:
    """Give the ranks (from 0) between which the median lies with 95 %; all there are if too few.

    The number of values below the median is binomial, whatever their distribution.

    >>> median_interval(12), median_interval(3)
    ((2, 9), (0, 2))
    """
    below, k = 0.5**count, 0
    while below + math.comb(count, k + 1) * 0.5**count <= 0.025:
        k += 1
        below += math.comb(count, k) * 0.5**count
    if below > 0.025:
        return 0, count - 1
    return k, count - 1 - k


def show(found: dict[str, Any]) -> None:
    """Print the figures."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"word count, {found['rows']:,} words a run, {found['pairs']} pairs, one node\n"
        f"  elastic node        {found['elastic_rows_s']:>12,.0f} rows a second\n"
        f"  without machinery   {found['plain_rows_s']:>12,.0f} rows a second\n"
        f"  elastic over plain  {found['elastic_share']:>12.3f}   "
        f"(95 %: {found['elastic_share_low']:.3f} to {found['elastic_share_high']:.3f})\n"
        f"  keyed table over a dict  {found['table_over_dict']:>7.1f}×\n"
        f"counts of both are {'equal' if found['exact'] else 'DIFFERENT'}",
        soft_wrap=True,
    )
