"""The arguments of `meander run`, and what they stand for."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from meander.cli.arguments import positive, spark_master
from meander.cli.doors import add_dashboard, add_doors, add_log
from meander.cli.own import operator_of
from meander.cli.patterns import add_patterns
from meander.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.run.flow import Step
    from meander.sources.files import TextSource

OPERATORS = ("word-count", "frequent-patterns")
GENERATED_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander run`."""
    parser.add_argument(
        "operator", metavar="OPERATOR",
        help=f"what to run: {', '.join(OPERATORS)}, or MODULE:NAME, an operator of your own",
    )  # fmt: skip
    parser.add_argument(
        "--input", required=True, metavar="PATH",
        help="Parquet, CSV or JSON lines with columns ts and text (for MODULE:NAME: those of its "
        "schema); `generated`; or socket://HOST:PORT, lines of text",
    )  # fmt: skip
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="for the results")
    parser.add_argument("--force", action="store_true", help="replace an earlier run in DIR")
    parser.add_argument("--nodes", type=positive, default=4, help="to start with (default: 4)")
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument(
        "--rescale", action="append", default=[], type=rescale, metavar="N@T",
        help="go to N nodes T seconds into the stream, as 6@20s; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--upgrade", action="append", default=[], type=upgrade, metavar="MODULE:CLASS@T",
        help="replace the operator by another version of it T seconds into the stream, as "
        "counts_v2:WordCount@60s; it has the same name, and the same state or a `migrate`",
    )  # fmt: skip
    parser.add_argument(
        "--pause-ms", type=float, metavar="MS",
        help="longest wait for a moving state (default: 100, or what --within-s takes); "
        "0: everything moves at once",
    )  # fmt: skip
    parser.add_argument(
        "--within-s", type=float, metavar="S",
        help="how long a rescale may take: rows then wait as little as that allows",
    )  # fmt: skip
    parser.add_argument(
        "--autoscale", metavar="MIN:MAX", type=limits,
        help="rescale by itself between so many nodes, as 2:12; every decision says why",
    )  # fmt: skip
    parser.add_argument(
        "--latency-ms", type=float, metavar="MS",
        help="what --autoscale promises (default: 200)",
    )  # fmt: skip
    parser.add_argument(
        "--utilisation", type=float, metavar="X",
        help="how busy --autoscale plans nodes to be (default: 0.7)",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run",
        action="store_true",
        default=None,
        help="--autoscale only says what it would do",
    )
    parser.add_argument(
        "--policy",
        default="ssm",
        help="which planner decides (default: ssm; ahead learns as it runs)",
    )
    parser.add_argument(
        "--forecast", metavar="FILE", help="for --policy mtm: what meander forecast wrote"
    )
    parser.add_argument("--feeders", type=positive, default=1, help="source tasks (default: 1)")
    parser.add_argument(
        "--master", type=spark_master, help="Spark master (default: local, with enough slots)"
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where nodes store their state; a lost one is replaced"
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare with a Spark batch job (not for MODULE:NAME)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_dashboard(parser)
    add_log(parser)
    add_doors(parser)
    add_patterns(parser)
    stream = parser.add_argument_group("the stream")
    stream.add_argument(
        "--speedup", type=float, default=600.0, metavar="X",
        help="seconds of event time in one second (default: 600); 0: as fast as there is room",
    )  # fmt: skip
    stream.add_argument(
        "--seconds", type=float, default=None, metavar="S",
        help=f"end the stream after S seconds (generated: {GENERATED_S:g} by default)",
    )  # fmt: skip
    stream.add_argument(
        "--rate", type=float, default=2000.0, help="generated: tweets a second (default: 2000)"
    )
    stream.add_argument("--seed", type=int, default=7, help="generated: another stream")
    stream.add_argument(
        "--ts", default="ts", help="name of the time stamp's column; rows are due by it"
    )
    stream.add_argument("--text", default="text", help="name of the text's column")
    stream.add_argument("--ts-unit", default="", help="s, ms or us, for numbers since 1970")


def rescale(text: str) -> Step:
    """Read `6@20s`.

    >>> step = rescale("6@20s")
    >>> step.nodes, step.at_s
    (6, 20.0)
    """
    from meander.run.flow import Step

    found = re.fullmatch(r"(\d{1,4})@(\d{1,7}(?:\.\d{1,6})?)s?", text)
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no rescale: write NODES@SECONDS, for example 6@20s"
        )
    return Step(float(found[2]), int(found[1]))


def limits(text: str) -> tuple[int, int]:
    """Read `2:12`.

    >>> limits("2:12")
    (2, 12)
    """
    found = re.fullmatch(r"(\d{1,4}):(\d{1,4})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} are no limits: write the fewest and the most nodes, for example 2:12"
        )
    return int(found[1]), int(found[2])


def upgrade(text: str) -> Step:
    """Read `module:Class@60s`, and make that operator.

    >>> step = upgrade("meander.operators:WordCount@60s")
    >>> type(step.operator).__name__, step.at_s
    ('WordCount', 60.0)
    """
    from meander.run.flow import Step

    found = re.fullmatch(r"(.+)@(\d{1,7}(?:\.\d{1,6})?)s?", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no upgrade: write MODULE:CLASS@SECONDS, for example counts_v2:WordCount@60s"
        )
    try:
        return Step(float(found[2]), 0, operator=operator_of(found[1]))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def source_of(args: argparse.Namespace, rows: pa.Schema | None) -> TextSource:
    """Make a source of the arguments; of a file, `rows` are the columns to read (None: texts)."""
    from meander.sources.files import FileReplay, SocketLines
    from meander.sources.generated import Tweets

    if args.seconds is not None and not (math.isfinite(args.seconds) and args.seconds > 0):
        raise InputError(f"--seconds must be a positive number, not {args.seconds}")
    if args.input == "generated":
        if not args.speedup:
            raise InputError("generated tweets come by the clock: --speedup must be above 0")
        return Tweets(args.seconds or GENERATED_S, args.rate, args.speedup, args.seed)
    limit = args.seconds or math.inf
    if args.input.startswith("socket://"):
        host, _, port = args.input.removeprefix("socket://").rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f"{args.input} is no address: write socket://HOST:PORT")
        if args.verify or args.feeders > 1:
            raise InputError("a socket is read once, by one feeder: no --verify, no --feeders")
        return SocketLines(host, int(port), limit)
    if args.verify and args.seconds is not None and args.operator == "word-count":
        raise InputError("--verify counts the whole input: it cannot go with --seconds and a file")
    return FileReplay(args.input, args.speedup, args.ts, args.text, args.ts_unit, limit, rows)
