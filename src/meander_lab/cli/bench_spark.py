"""`meander bench spark`: Meander's sink against Spark's own streaming aggregation."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.errors import InputError

TWEETS = "tweets.parquet"
BESIDE = Path("../shared/data")
"""Where recorded tweets lie beside the project, unless MEANDER_DATA says otherwise."""
LABELS = {
    "noop": "no-op sink", "drain": "Python sink, no-op", "meander": "Meander", "spark": "Spark",
    "texts": "Meander, from texts",
}  # fmt: skip
QUICK: dict[str, Any] = {
    "keys": 20_000, "batches": 2, "rounds": 1, "tweets_per_file": 500, "keys_per_file": 2_000,
    "nodes": 3, "to": 2, "rescales": 1, "rescale_at": 3, "rescale_keys_per_file": 500,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench spark`."""
    parser.add_argument(
        "--input", type=Path, metavar="PATH",
        help="Parquet with a column text (default: recorded tweets if there are any, else generated)",
    )  # fmt: skip
    parser.add_argument("--keys", type=positive, help="wide keys (default: 1,000,000)")
    parser.add_argument(
        "--batches", type=positive, help="measured, per side and round (default: 4)"
    )
    parser.add_argument("--rounds", type=positive, help="of all sides in turn (default: 4)")
    parser.add_argument("--nodes", type=positive, help="before the rescale (default: 10)")
    parser.add_argument("--to", type=positive, help="after it (default: 8)")
    parser.add_argument("--rescales", type=positive, help="of Meander's (default: 3)")
    parser.add_argument(
        "--parts", default="tweets,wide,rescale", help="some of tweets,wide,rescale"
    )
    parser.add_argument(
        "--no-checkpoint",
        dest="durable",
        action="store_false",
        help="Meander's commits not durable",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    found = measure(args)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    return OK if found["equal"] else INEXACT


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Do the runs.

    Raises:
        InputError: for arguments that cannot be.
    """
    from meander_lab.bench.spark import PARTS, SparkSetting, bench

    parts = tuple(args.parts.split(","))
    if not set(parts) <= set(PARTS):
        raise InputError(f"--parts are some of {','.join(PARTS)}, not {args.parts!r}")
    sizes = dict(QUICK) if args.quick else {}
    for name in ("keys", "batches", "rounds", "nodes", "to", "rescales"):
        if (value := getattr(args, name)) is not None:
            sizes[name] = value
    if sizes.get("nodes", 10) == sizes.get("to", 8):
        raise InputError("--nodes and --to are the same: there would be nothing to rescale")
    setting = SparkSetting(source=_source(args.input), durable=args.durable, parts=parts, **sizes)
    return bench(setting, say)


def _source(wanted: Path | None) -> Path | None:
    """Find the tweets."""
    if wanted is not None:
        if not wanted.exists():
            raise InputError(f"cannot read {wanted}: there is no such file or directory")
        return wanted
    beside = Path(os.environ.get("MEANDER_DATA") or BESIDE) / TWEETS
    return beside if beside.is_file() else None


def show(found: dict[str, Any]) -> None:
    """Print the sides beside each other, and the ratios."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for part in ("tweets", "wide"):
        if part not in found:
            continue
        facts = found[part]
        what = f"tweets ({facts['data']})" if part == "tweets" else f"{facts['keys']:,} wide keys"
        console.print(f"{what}, {facts['rows']:,} rows a round")
        table = Table(box=None, pad_edge=False)
        for head in ("", "rows/s", "batch, median ms", "longest", "CPU s a million"):
            table.add_column(head, justify="right" if head else "left")
        for side, label in LABELS.items():
            if f"{side}_rows_s" not in facts:
                continue
            table.add_row(label, f"{facts[f'{side}_rows_s']:,.0f}",
                          f"{facts[f'{side}_batch_ms']:,.0f}",
                          f"{facts[f'{side}_batch_ms_max']:,.0f}",
                          f"{facts[f'{side}_cpu_s_per_mrow']:.2f}")  # fmt: skip
        console.print(table)
        console.print(
            f"Meander over Spark {facts['rows_ratio']:.1f}× (by processor time "
            f"{facts['cpu_ratio']:.1f}×; a Python sink that does nothing {facts['drain_ratio']:.1f}×); "
            f"no-op over Meander {facts['noop_ratio']:.2f}×"
        )
        if "texts_ratio" in facts:
            console.print(f"Meander, from texts, over Spark {facts['texts_ratio']:.1f}×")
        console.print()
    for line in remarks(found):
        console.print(line, soft_wrap=True)


def remarks(found: dict[str, Any]) -> list[str]:
    """Say what a rescale costs, and what the reader must know."""
    lines = []
    if "rescale" in found:
        facts = found["rescale"]
        steps = ", ".join(f"{name} {s:.1f} s" for name, s in facts["spark"]["steps_s"].items())
        each = ", ".join(f"{ms:.0f}" for ms in facts["meander_pauses_ms"])
        lines += [
            f"rescale {facts['nodes']} → {facts['to']} with {facts['keys']:,} keys: how much longer a "
            "row waits",
            f"  Spark    {facts['spark_pause_ms']:>9,.0f} ms   ({steps})",
            f"  Meander  {facts['meander_pause_ms']:>9,.0f} ms   (each: {each}; for a moving state: "
            f"{facts['meander_waited_ms']:.0f})",
            f"  {facts['pause_ratio']:,.0f}× shorter",
        ]
    for side in ("spark", "meander"):
        lines.append(f"{side}: {found['durability'][side]}")
    before, after = found["load_average"]
    lines.append(
        f"{found['cores']} cores, load average {before:.1f} before and {after:.1f} after; "
        f"counts are {'equal' if found['equal'] else 'DIFFERENT'}"
    )
    return lines
