"""`meander sim`: run whole deployments, or the protocol alone, in the seeded simulator, and check them.

Exit code 1 says that a run broke a promise, or that many runs never tried something they must.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Final

from meander.cli.arguments import positive
from meander.cli.main import INTERRUPTED, OK
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.testing.campaign import Report, Scope
    from meander.testing.faults import Schedule
    from meander.testing.outcome import Outcome

BROKEN: Final = 1
SAY_S: Final = 60.0
"""How often a campaign that writes to a file says how far it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is to be run and how it is shown."""
    add = parser.add_argument
    add("--world", choices=("full", "protocol"), default="full",
        help="whole processes on simulated wires and disks, or the protocol alone (full)")  # fmt: skip
    add("--seeds", type=positive, default=500, metavar="N", help="how many schedules (500)")
    add("--first-seed", type=_natural, default=0, metavar="N", help="the first seed (0)")
    add("--nodes", type=positive, metavar="N", help="nodes at the start (3; protocol: 8)")
    add("--tasks", type=positive, metavar="M", help="tasks of the operator (8; protocol: 64)")
    add("--faults", default="all", metavar="KINDS", help="all, none, or crash,loss,… (all)")
    add("--seconds", type=float, metavar="S", help="virtual seconds of faults (2; protocol: 8)")
    add("--trial", metavar="NAME", help="words, patterns, windows, reminders, emits, processor,"
        " relays or cascades, in the full world (drawn)")  # fmt: skip
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
        print(scope.schedule(args.first_seed).dump())
        return OK
    return _campaign(args, scope)


def _scope(args: argparse.Namespace) -> Scope:
    from meander.testing.campaign import SCOPES
    from meander.testing.faults import TRIALS, WORLDS, parse_faults

    usual, kinds = SCOPES[args.world], parse_faults(args.faults, args.world)
    if args.trial is not None and args.world != "full":
        raise InputError("--trial is for the full world")
    if args.trial not in (None, *TRIALS):
        raise InputError(f"there is no trial {args.trial!r}: choose from {', '.join(TRIALS)}")
    scope = usual._replace(
        nodes=args.nodes or usual.nodes,
        tasks=args.tasks or usual.tasks,
        faults=tuple(kind for kind in WORLDS[args.world] if kind in kinds),
        seconds=usual.seconds if args.seconds is None else args.seconds,
        trial=args.trial or "",
    )
    if scope.nodes > scope.tasks:
        raise InputError(f"{scope.nodes} nodes need at least as many tasks, not {scope.tasks}")
    if not 1 <= scope.seconds < 10_000:
        raise InputError("--seconds must be at least 1 and less than 10000")
    return scope


# ---------------------------------------------------------------------------- many


def _campaign(args: argparse.Namespace, scope: Scope) -> int:
    from meander.testing.campaign import MINIMISED_MAX, Report, campaign, minimised

    report, interrupted, begun = Report(scope), False, time.perf_counter()
    jobs = args.jobs or os.cpu_count() or 1
    told: set[int] = set()
    with _progress(args.seeds) as advance, _interruptible() as check:

        def progress(done: int, failed: int) -> None:
            advance(done, failed)
            _tell(report.failures, told)
            check()

        try:
            campaign(args.first_seed, args.seeds, scope, min(jobs, args.seeds), progress, report)
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.perf_counter() - begun
    files: dict[int, str] = {}
    try:
        for failure in report.failures[: 0 if interrupted else MINIMISED_MAX]:
            files[failure.schedule.seed] = minimised(failure, args.out)
    except KeyboardInterrupt:
        interrupted = True
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
def _interruptible() -> Iterator[Callable[[], None]]:
    """Give what raises KeyboardInterrupt after SIGINT (ignored in the background) or SIGTERM.

    It is asked between schedules: within one, the product would take it for an error of its own.
    Whoever says it twice does not wait for that.
    """
    told: list[int] = []

    def hear(number: int, _: object) -> None:
        told.append(number)
        if len(told) > 1:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, hear) for number in numbers]

    def check() -> None:
        if told:
            raise KeyboardInterrupt

    try:
        yield check
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _tell(failures: list[Outcome], told: set[int]) -> None:
    """Say at once which seeds have failed: a long campaign ends late."""
    for failure in failures:
        if failure.schedule.seed not in told:
            told.add(failure.schedule.seed)
            print(f"seed {failure.schedule.seed}: {failure.violations[0][:200]}", file=sys.stderr)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the time left, if somebody looks; else say now and then how far it is."""
    if not sys.stderr.isatty():
        yield _said_now_and_then(total)
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


def _said_now_and_then(total: int) -> Callable[[int, int], None]:
    began = said = time.monotonic()

    def advance(done: int, failed: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= SAY_S:
            said = now
            a_second = done / (now - began)
            left = (total - done) / a_second / 60 if done else float("inf")
            print(
                f"{done:,} of {total:,} schedules, {failed} failed, {a_second:.1f} a second, "
                f"{left:.0f} minutes left",
                file=sys.stderr,
                flush=True,
            )

    return advance


def _show(report: Report, seconds: float, files: dict[int, str], *, interrupted: bool) -> None:
    from meander.testing.campaign import MUST_HAPPEN, MUST_NOT_HAPPEN
    from meander.testing.faults import WORLDS

    counts, world = report.counts, report.scope.world
    done = counts["schedules"]
    state = "interrupted after" if interrupted else "ran"
    print(
        f"{state} {done:,} schedules in {seconds:.1f} s ({done / max(seconds, 1e-9):.1f} a second)"
    )
    kinds = WORLDS[world]
    paths = [n for n in MUST_HAPPEN[world][1:] if n not in kinds and not n.startswith("trial_")]
    for name in (*paths, *MUST_NOT_HAPPEN[world]):
        print(f"  {name.replace('_', ' '):22}{counts[name]:>12,}")
    if report.scope.faults:
        print(fill("by kind: " + ", ".join(f"{k} {counts[k]:,}" for k in report.scope.faults), 100))
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
    how = "an accident: an exception that is no checker's" if failure.accident else "FAILED"
    print(f"seed {schedule.seed} {how}")
    for text in failure.violations[:5]:
        print(f"  {text}")
    if file is not None:
        print(f"  minimised: meander sim --replay {file}")


# ---------------------------------------------------------------------------- one


def _replay(args: argparse.Namespace) -> int:
    from meander.testing.faults import Schedule
    from meander.testing.playing import play

    schedule = Schedule.read(args.replay)
    outcome = play(schedule, digest=True)
    if args.json:
        facts = {
            "world": schedule.world, "counts": dict(sorted(outcome.counts.items())),
            "violations": outcome.violations, "caught_by": outcome.caught_by,
            "accident": outcome.accident, "digest": outcome.digest,
        }  # fmt: skip
        print(json.dumps(facts))
    else:
        _show_schedule(schedule)
        for text in outcome.violations:
            print(text)
        accident = ", an accident" if outcome.accident else ""
        print(f"{len(outcome.violations)} violations{accident}; digest {outcome.digest}")
    return BROKEN if outcome.failed else OK


def _show_schedule(schedule: Schedule) -> None:
    seed, nodes, tasks, seconds, incidents, world, trial = schedule
    of = f", {trial}" if trial else ""
    print(f"seed {seed}: {nodes} nodes, {tasks} tasks, {seconds:g} s, world {world}{of}")
    for incident in incidents:
        lasts = f" for {incident.seconds:g} s" if incident.seconds else ""
        print(f"  {incident.at:7.3f}  {incident.kind} {incident.target}{lasts}")
