"""`meander run`: an operator on a stream, on Spark, rescaled while it flows."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander.cli.doors import dashboard_of, doors_of
from meander.cli.main import INTERRUPTED, OK
from meander.cli.own import operator_of
from meander.cli.patterns import patterns_of, refuse_patterns
from meander.cli.run_arguments import OPERATORS, add_arguments, source_of
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.autoscale import Autoscale
    from meander.run.apps import Application
    from meander.run.loop import RunOptions

__all__ = ["add_arguments", "live", "run", "wish_of"]

DIFFERENT = 1
"""Exit code when the counts are not those of a batch count."""
PAUSE_MS = 100.0


def run(args: argparse.Namespace) -> int:
    """Run, write results, say how it went."""
    wish = wish_of(args)
    return live(wish, f"meander run {args.operator}", json_only=args.json, log=args.log)


def wish_of(args: argparse.Namespace) -> RunOptions:
    """Make a wish of the arguments.

    Raises:
        InputError: saying which argument cannot be.
    """
    from meander.run.loop import RunOptions
    from meander.runtime.store.forecast_file import read_forecast
    from meander.wiring import Planners

    if args.pause_ms is None:
        args.pause_ms = PAUSE_MS if args.within_s is None else 0.0
    if not (math.isfinite(args.pause_ms) and args.pause_ms >= 0):
        raise InputError(f"--pause-ms must be 0 or more, not {args.pause_ms}")
    if args.within_s is not None and not (math.isfinite(args.within_s) and args.within_s > 0):
        raise InputError(f"--within-s must be more than 0, not {args.within_s}")
    for wanted in (args.nodes, *(r.nodes for r in args.rescale)):
        if wanted > args.tasks:
            raise InputError(f"{wanted} nodes are more than the {args.tasks} tasks they share")
    autoscale = autoscale_of(args)
    forecast = None if args.forecast is None else read_forecast(args.forecast)
    Planners(args.tasks, forecast).check(args.policy)
    app = app_of(args)
    source = source_of(args, app.rows)
    return RunOptions(
        source, args.output, args.nodes, args.tasks, (*args.rescale, *args.upgrade),
        args.pause_ms or None, args.policy, args.feeders, args.verify, args.master, args.checkpoint,
        doors_of(args), app, forecast, args.within_s, autoscale,
        dashboard_of(args), args.force,
    )  # fmt: skip


def autoscale_of(args: argparse.Namespace) -> Autoscale | None:
    """Make the autoscaler's options of the arguments; None: nobody wants one.

    Raises:
        InputError: saying which argument cannot be.
    """
    from meander.autoscale import Autoscale

    names = ("latency_ms", "utilisation", "dry_run")
    said = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.autoscale is None:
        for name in said:
            raise InputError(f"--{name.replace('_', '-')} is for --autoscale MIN:MAX: say both")
        return None
    if args.rescale:
        raise InputError("--rescale and --autoscale do not go together: a person's wish wins")
    autoscale = Autoscale(args.autoscale, pause_ms=args.pause_ms, **said)
    autoscale.check_tasks(args.tasks)
    return autoscale


def app_of(args: argparse.Namespace) -> Application:
    """Make the application of the arguments.

    Raises:
        InputError: if there is no such operator, or an argument is not for it.
    """
    from meander.run.apps import CountWords, RunOperator

    if args.operator == "frequent-patterns":
        return patterns_of(args)
    refuse_patterns(args)
    if args.operator == "word-count":
        return CountWords()
    if ":" not in args.operator:
        raise InputError(
            f"there is no operator {args.operator!r}: it can be {', '.join(OPERATORS)}, or "
            "MODULE:NAME for one of your own"
        )
    own = operator_of(args.operator)
    if args.verify:
        raise InputError(f"there is nothing to compare {own.name} with: run it without --verify")
    return RunOperator(own)


def live(wish: RunOptions, title: str, *, json_only: bool = False, log: str = "text") -> int:
    """Carry a wish out with a picture; print the results and give the exit code."""
    import logging
    import sys
    from contextlib import nullcontext

    from meander.cli.answers import to_line
    from meander.run.run import carry_out
    from meander.runtime.driver.log_lines import LOGGER, json_lines
    from meander.show.html_report import write
    from meander.show.live_view import View

    quiet = json_only or log == "json"
    with (
        json_lines(sys.stderr) if log == "json" else nullcontext() as lines,
        View(title, quiet=quiet) as view,
    ):
        say = logging.getLogger(f"{LOGGER}.run").info if lines is not None else view.say
        report = carry_out(wish, view.show, say, lines)
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
        decision_rows,
        latency_rows,
        migration_rows,
        rich_table,
        summary,
        top_rows,
        verdict,
    )

    console = Console(highlight=False)
    console.print()
    if report["decisions"]:
        console.print(rich_table(*decision_rows(report), "What the autoscaler decided", left=4))
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
