"""`meander bench autoscale`: our autoscaler against others', on the same traces; checked for real."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.errors import InputError
from meander.show.plots import plot_path
from meander_lab.autoscale.traces import LATER_MAX, SEED

DATA = Path("../shared/data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench autoscale`."""
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR",
        help=f"with volumes.parquet and tweets.parquet (default: {DATA}, where it is)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=SEED, metavar="N",
        help=f"of the patterns, and the first of the constant loads (default: {SEED}, which the policy "
        "was made with)",
    )  # fmt: skip
    parser.add_argument(
        "--later", type=int, default=0, metavar="DAYS",
        help=f"recorded loads of so many days later, at most {LATER_MAX}; of the tweets, fortnights "
        "(default: 0, which the policy was made with)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=positive, default=100, help="constant loads (default: 100)")
    parser.add_argument(
        "--no-runtime", action="store_true", help="do not check the queues with the real runtime"
    )
    parser.add_argument("--quick", action="store_true", help="patterns only, and few seeds")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="the two figures, by trace")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compare and print."""
    found = measure(args)
    if args.plot:
        from meander_lab.autoscale.plots import plot_figures

        plot_figures(found["rows"], args.plot)
    print(to_line(found) if args.json else "\n".join(lines(found)))
    return OK if not found["steady"]["rescales"] else INEXACT


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Do all of it."""
    from meander_lab.autoscale.checked import checked
    from meander_lab.autoscale.compare import answered_s, claims, compare, steady, table
    from meander_lab.autoscale.queueing import Ground
    from meander_lab.autoscale.traces import traces

    if args.seed < 0 or not 0 <= args.later <= LATER_MAX:
        raise InputError(f"--seed is 0 or more, --later 0 to {LATER_MAX} days")
    ground, data = Ground(), None if args.quick else recorded(args.data)
    check = None if args.no_runtime else checked(say)
    rows = compare(ground, traces(ground.peak_rows_s, data, args.seed, args.later), say)
    seeds = min(args.seeds, 5) if args.quick else args.seeds
    say(f"{seeds} constant loads with noise of 20 %")
    return {
        "traces": list(dict.fromkeys(row.trace for row in rows)),
        "rows": table(rows),
        "claims": claims(rows),
        "steady": steady(ground, range(args.seed, args.seed + seeds)),
        "step_answered_s": answered_s(ground),
        "checked_against_runtime": check,
    }


def recorded(folder: Path) -> Path | None:
    """Give the folder with recorded loads; None, which is said: the default one is not there.

    Raises:
        InputError: if one was named that has none.
    """
    if all((folder / name).exists() for name in ("volumes.parquet", "tweets.parquet")):
        return folder
    if folder != DATA:
        raise InputError(
            f"{folder} has no volumes.parquet and tweets.parquet: --data names the folder"
        )
    say(f"no recorded loads in {folder}: made-up ones only")
    return None


def lines(found: dict[str, Any]) -> list[str]:
    """Say it in words: sums over all traces, and the claims."""
    rows, told = found["rows"], ["seconds violated and node-seconds over all traces"]
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        bad, node_s, rescales, moved = (
            sum(row[name] for row in mine)
            for name in ("violation_s", "node_s", "rescales", "bytes")
        )
        told.append(
            f"  {policy:<26}{bad:>8,} s {node_s:>12,.0f} node-s {rescales:>6,} rescales "
            f"{moved / 1e9:>8.1f} GB"
        )
    told += [
        f"  {'yes' if holds else 'NO '} {text}" for text, holds in found["claims"]["holds"].items()
    ]
    told.append(f"  beaten on a share of the traces: {found['claims']['beaten_share']}")
    told.append(f"  by the clairvoyant: {found['claims']['clairvoyant_beats_share']}")
    still = found["steady"]
    told.append(f"  {still['rescales']} rescales in {still['loads']} constant loads of an hour")
    told.append(f"  a step of 3 × is answered after {found['step_answered_s']:.0f} s")
    if found["checked_against_runtime"] is not None:
        told.append(f"  queues against the real runtime: {found['checked_against_runtime']}")
    return told
