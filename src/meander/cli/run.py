"""`meander run`: an operator on a stream, on Spark, rescaled while it flows."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander.cli.arguments import positive
from meander.cli.doors import add_doors, doors_of
from meander.cli.main import INTERRUPTED, OK
from meander.cli.patterns import add_patterns, patterns_of, refuse_patterns
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.run.apps import Application
    from meander.run.flow import Step
    from meander.run.loop import RunOptions
    from meander.sources.files import TextSource

DIFFERENT = 1
"""Exit code when the counts are not those of a batch count."""
OPERATORS = ("word-count", "frequent-patterns")
MASTERS = r"local$|local\[|local-cluster\[|spark://|yarn$|k8s://"
GENERATED_S = 60.0
PAUSE_MS = 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander run`."""
    parser.add_argument(
        "operator", metavar="OPERATOR", help="what to run: " + " or ".join(OPERATORS)
    )
    parser.add_argument(
        "--input", required=True, metavar="PATH",
        help="Parquet, CSV or JSON lines with columns ts and text; `generated`; "
        "or socket://HOST:PORT, lines of text",
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
        "--pause-ms", type=float, metavar="MS",
        help="longest wait for a moving state (default: 100, or what --within-s takes); "
        "0: everything moves at once",
    )  # fmt: skip
    parser.add_argument(
        "--within-s", type=float, metavar="S",
        help="how long a rescale may take: rows then wait as little as that allows",
    )  # fmt: skip
    parser.add_argument("--policy", default="ssm", help="which planner decides (default: ssm)")
    parser.add_argument(
        "--forecast", metavar="FILE", help="for --policy mtm: what meander forecast wrote"
    )
    parser.add_argument("--feeders", type=positive, default=1, help="source tasks (default: 1)")
    parser.add_argument("--master", help="Spark master (default: local, with enough slots)")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where nodes store their state; a lost one is replaced"
    )
    parser.add_argument("--verify", action="store_true", help="compare with a Spark batch job")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
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
    stream.add_argument("--ts", default="ts", help="name of the time stamp's column")
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


def run(args: argparse.Namespace) -> int:
    """Run, write results, say how it went."""
    wish = wish_of(args)
    return live(wish, f"meander run {args.operator}", json_only=args.json)


def wish_of(args: argparse.Namespace) -> RunOptions:
    """Make a wish of the arguments.

    Raises:
        InputError: saying which argument cannot be.
    """
    from meander.run.loop import RunOptions
    from meander.runtime.store.forecast_file import read_forecast
    from meander.wiring import Planners

    if args.operator not in OPERATORS:
        raise InputError(
            f"there is no operator {args.operator!r}: it can be {', '.join(OPERATORS)}"
        )
    if args.pause_ms is None:
        args.pause_ms = PAUSE_MS if args.within_s is None else 0.0
    if not (math.isfinite(args.pause_ms) and args.pause_ms >= 0):
        raise InputError(f"--pause-ms must be 0 or more, not {args.pause_ms}")
    if args.within_s is not None and not (math.isfinite(args.within_s) and args.within_s > 0):
        raise InputError(f"--within-s must be more than 0, not {args.within_s}")
    if args.master and not re.match(MASTERS, args.master):
        raise InputError(
            f"Spark knows no master {args.master!r}: local[N,4], spark://HOST:PORT, yarn or k8s://…"
        )
    for wanted in (args.nodes, *(r.nodes for r in args.rescale)):
        if wanted > args.tasks:
            raise InputError(f"{wanted} nodes are more than the {args.tasks} tasks they share")
    forecast = None if args.forecast is None else read_forecast(args.forecast)
    Planners(args.tasks, forecast).check(args.policy)
    source = source_of(args)
    if args.force:
        from meander.run.output import clear

        clear(args.output)
    return RunOptions(
        source, args.output, args.nodes, args.tasks, tuple(args.rescale), args.pause_ms or None,
        args.policy, args.feeders, args.verify, args.master, args.checkpoint,
        doors_of(args), app_of(args), forecast, args.within_s,
    )  # fmt: skip


def app_of(args: argparse.Namespace) -> Application:
    """Make the application of the arguments."""
    from meander.run.apps import CountWords

    if args.operator == "frequent-patterns":
        return patterns_of(args)
    refuse_patterns(args)
    return CountWords()


def source_of(args: argparse.Namespace) -> TextSource:
    """Make a source of the arguments."""
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
    return FileReplay(args.input, args.speedup, args.ts, args.text, args.ts_unit, limit)


def live(wish: RunOptions, title: str, *, json_only: bool = False) -> int:
    """Carry a wish out with a picture; print the results and give the exit code."""
    from meander.cli.answers import to_line
    from meander.run.run import carry_out
    from meander.show.html_report import write
    from meander.show.live_view import View

    with View(title, quiet=json_only) as view:
        report = carry_out(wish, view.show, view.say)
    page = write(report, wish.output)
    if json_only:
        print(to_line(report))
    else:
        summarise(report, page)
    if report["interrupted"]:
        return INTERRUPTED
    return OK if report["verify"] is None or report["verify"]["exact"] else DIFFERENT


def summarise(report: dict[str, Any], page: Path) -> None:
    """Print tables, the verdict and where things are."""
    from rich.console import Console

    from meander.show.html_report import (
        latency_rows,
        migration_rows,
        rich_table,
        summary,
        top_rows,
        verdict,
    )

    console = Console(highlight=False)
    console.print()
    if report["rescales"]:
        console.print(rich_table(*migration_rows(report), "What moved"))
        console.print()
    console.print(rich_table(*latency_rows(report), "Latency, from when rows were due"))
    console.print(f"\n{summary(report)} in {report['output']}/state", soft_wrap=True)
    if report.get("top"):
        console.print()
        console.print(rich_table(*top_rows(report), "Reported"))
        console.print()
    console.print(verdict(report), soft_wrap=True)
    console.print(f"report: {page}", soft_wrap=True)
