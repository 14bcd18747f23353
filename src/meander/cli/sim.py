"""`meander sim`: run the migration protocol in the seeded simulator and check every run.

Exit code 1 says that a run broke a promise, or that many runs never tried something they must.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meander.cli.arguments import positive
from meander.cli.main import INTERRUPTED, OK
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.testing.campaign import Report, Scope
    from meander.testing.faults import Schedule
    from meander.testing.simulate import Outcome

BROKEN: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is to be run and how it is shown."""
    add = parser.add_argument
    add("--seeds", type=positive, default=500, metavar="N", help="how many schedules (500)")
    add("--first-seed", type=_natural, default=0, metavar="N", help="the first seed (0)")
    add("--nodes", type=positive, default=8, metavar="N", help="nodes at the start (8)")
    add("--tasks", type=positive, default=64, metavar="M", help="tasks of the operator (64)")
    add("--faults", default="all", metavar="KINDS", help="all, none, or crash,loss,… (all)")
    add("--seconds", type=float, default=8.0, metavar="S", help="virtual seconds of faults (8)")
    add("--jobs", type=positive, metavar="N", help="processes (one per core)")
    add("--json", action="store_true", help="answer in JSON")
    add("--out", type=Path, default=Path(), metavar="DIR", help="where failing schedules go (.)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--replay", metavar="FILE", help="run one schedule from a file")
    what.add_argument(
        "--print-schedule", action="store_true", help="print the schedule of --first-seed"
    )
    what.add_argument(
        "--scale", action="store_true", help="rescale 1,000 nodes and show how costs grow"
    )


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run schedules, or one, or print one."""
    if args.scale:
        from meander.cli.sim_scale import run as run_scale

        return run_scale(args)
    if args.replay:
        return _replay(args)
    scope = _scope(args)
    if args.print_schedule:
        from meander.testing.faults import generate

        print(generate(args.first_seed, *scope).dump())
        return OK
    return _campaign(args, scope)


def _scope(args: argparse.Namespace) -> Scope:
    from meander.testing.campaign import Scope
    from meander.testing.faults import FAULTS, parse_faults

    if args.nodes > args.tasks:
        raise InputError(f"{args.nodes} nodes need at least as many tasks, not {args.tasks}")
    if not 1 <= args.seconds < 10_000:
        raise InputError("--seconds must be at least 1 and less than 10000")
    kinds = parse_faults(args.faults)
    return Scope(args.nodes, args.tasks, tuple(k for k in FAULTS if k in kinds), args.seconds)


# ---------------------------------------------------------------------------- many


def _campaign(args: argparse.Namespace, scope: Scope) -> int:
    from meander.testing.campaign import Report, campaign, minimised

    report, interrupted, begun = Report(scope), False, time.perf_counter()
    jobs = args.jobs or os.cpu_count() or 1
    with _progress(args.seeds) as advance:
        try:
            campaign(args.first_seed, args.seeds, scope, min(jobs, args.seeds), advance, report)
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.perf_counter() - begun
    files = {} if interrupted else minimised(report, args.out)
    if args.json:
        answer = report.as_dict()
        for failure in answer["violations"]:
            failure["schedule"] = files.get(failure["seed"])
        print(json.dumps({**answer, "seconds": round(seconds, 3), "interrupted": interrupted}))
    else:
        _show(report, seconds, files, interrupted=interrupted)
    if report.failed or report.untested():
        return BROKEN
    return INTERRUPTED if interrupted else OK


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the time left, if somebody looks."""
    if not sys.stderr.isatty():
        yield lambda done, failed: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )  # fmt: skip

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("schedules", total=total)

        def advance(done: int, failed: int) -> None:
            label = f"schedules ({failed} failed)" if failed else "schedules"
            bar.update(row, completed=done, description=label)

        yield advance


def _show(report: Report, seconds: float, files: dict[int, str], *, interrupted: bool) -> None:
    from meander.testing.campaign import MUST_HAPPEN, MUST_NOT_HAPPEN

    counts = report.counts
    done = counts["schedules"]
    state = "interrupted after" if interrupted else "ran"
    print(
        f"{state} {done:,} schedules in {seconds:.1f} s ({done / max(seconds, 1e-9):.1f} a second)"
    )
    for name in (*MUST_HAPPEN[1:], *MUST_NOT_HAPPEN):
        print(f"  {name.replace('_', ' '):16}{counts[name]:>12,}")
    for failure in report.failures[:10]:
        _show_failure(failure, files.get(failure.schedule.seed))
    if report.failed > 10:
        print(f"and {report.failed - 10} more failed")
    if untested := report.untested():
        print(f"not tested: {', '.join(untested)} never happened")
    elif not report.failed:
        print("no violations")


def _show_failure(failure: Outcome, file: str | None) -> None:
    schedule = failure.schedule
    print(f"seed {schedule.seed} FAILED")
    for text in failure.violations[:5]:
        print(f"  {text}")
    if file is not None:
        print(f"  minimised: meander sim --replay {file}")


# ---------------------------------------------------------------------------- one


def _replay(args: argparse.Namespace) -> int:
    from meander.testing.faults import Schedule
    from meander.testing.simulate import run as run_one

    schedule = Schedule.read(args.replay)
    outcome = run_one(schedule, digest=True)
    if args.json:
        facts = {"counts": dict(sorted(outcome.counts.items())), "violations": outcome.violations}
        print(json.dumps({**facts, "digest": outcome.digest}))
    else:
        _show_schedule(schedule)
        for text in outcome.violations:
            print(text)
        print(f"{len(outcome.violations)} violations; digest {outcome.digest}")
    return BROKEN if outcome.failed else OK


def _show_schedule(schedule: Schedule) -> None:
    seed, nodes, tasks, seconds, incidents = schedule
    print(f"seed {seed}: {nodes} nodes, {tasks} tasks, {seconds:g} s")
    for incident in incidents:
        lasts = f" for {incident.seconds:g} s" if incident.seconds else ""
        print(f"  {incident.at:7.3f}  {incident.kind} {incident.target}{lasts}")
