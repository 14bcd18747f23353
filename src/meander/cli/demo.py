"""`meander demo`: a stream that is rescaled while it flows; `--plan`: how a rescale is planned."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from meander.cli.doors import add_dashboard, add_log, dashboard_of
from meander.cli.main import OK
from meander.model import Phase, Round

if TYPE_CHECKING:
    from meander.runtime.driver.options import Dashboard

BANDWIDTH = 100e6
PAUSE_MS = 50
OVERHEAD_MS = 10
PHASES_SHOWN = 8

STREAM_S, TWEETS_S = 26.0, 2000.0
RESCALES = ((7.0, 6), (16.0, 3))
"""(second of the stream, nodes)."""
VACATE_AT_S = 21.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander demo`."""
    parser.add_argument(
        "--plan", action="store_true", help="show how a rescale is planned instead; needs no Spark"
    )
    add_dashboard(parser)
    add_log(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="for state and report (default: a new directory)"
    )


def run(args: argparse.Namespace) -> int:
    """Run a stream and rescale it, or explain a plan."""
    return (
        explain() if args.plan else stream(args.output, dashboard=dashboard_of(args), log=args.log)
    )


def stream(
    output: Path | None,
    doors: Mapping[str, Any] | None = None,
    vacate: str = "",
    dashboard: Dashboard | bool = False,
    log: str = "text",
) -> int:
    """Count generated tweets on Spark, from 4 nodes to 6 and back to 3 while they flow.

    Args:
        output: for state and report; None: a new directory.
        doors: `host` and the like of the deployment.
        vacate: a host that is left at last.
        dashboard: a page to watch it.
        log: `json`: lines of JSON instead of the picture.
    """
    from meander.cli.run import live
    from meander.run.flow import Step
    from meander.run.loop import RunOptions
    from meander.sources.generated import Tweets

    _announce()
    where = output or Path(tempfile.mkdtemp(prefix="meander-demo-"))
    wish = RunOptions(
        Tweets(STREAM_S, TWEETS_S), where, nodes=4, tasks=64,
        rescales=tuple(Step(*r) for r in RESCALES), pause_ms=100.0, verify=True,
        doors=doors or {},
        dashboard=dashboard,
    )  # fmt: skip
    if vacate:
        wish = replace(wish, rescales=(*wish.rescales, Step(VACATE_AT_S, 0, vacate=vacate)))
    print(
        f"Word count of {wish.source.describe()}, on nodes that live in Spark tasks: 4 nodes, then "
        f"6, then 3{f', and then nobody stays on {vacate}' if vacate else ''}, while tuples flow.\n",
        flush=True,
    )
    return live(wish, "word count, live", log=log)


def explain() -> int:
    """Plan a small rescale and explain every part of it."""
    _announce()
    from meander.cli import compare
    from meander.planning import plan
    from meander.planning.exact.rounds import PauseBudget, RoundLimits, rounds
    from meander.planning.instances import instance
    from meander.show import picture

    problem = instance(64, 6, 8, "0.2")
    found = plan(problem)
    pause = PauseBudget(PAUSE_MS, BANDWIDTH, OVERHEAD_MS)
    steps = rounds(found, RoundLimits(pause=pause))
    console = Console(highlight=False)
    _say(
        console, "1. What to move",
        "An operator has 64 tasks on 6 nodes. The load has grown: 8 nodes shall share it, none "
        "with more than 1.2 times the mean work. Which tasks must move, if the fewest bytes shall?",
    )  # fmt: skip
    console.print(picture.summary(found), soft_wrap=True)
    console.print()
    for line in picture.bars(found, console.width):
        console.print(line, no_wrap=True, overflow="crop")
    console.print()
    console.print(picture.node_table(found))
    _say(
        console, "2. In which steps",
        f"While a task moves, its tuples wait. At most {PAUSE_MS} ms are allowed; a link passes "
        f"{BANDWIDTH / 1e6:.0f} MB a second and a round costs {OVERHEAD_MS} ms anyway. So the plan "
        "is carried out in rounds; the busiest nodes are relieved first.",
    )  # fmt: skip
    console.print(picture.round_table(steps, pause))
    _show_phases(console, steps)
    _say(console, "4. What others would do", "")
    console.print(compare.comparison_table(compare.compare(problem)))
    console.print()
    console.print(compare.footnote(problem), soft_wrap=True)
    _say(console, "Go on", "meander plan FILE · meander compare FILE · meander bench plan · --help")
    return OK


def _announce() -> None:
    from meander.planning import kernels

    cache = Path(kernels.__file__).parent / "__pycache__"
    if not any(cache.glob("ssm.solve*.nbi")):
        print(
            "compiling the planners: this first run takes a minute …", file=sys.stderr, flush=True
        )


def _say(console: Console, title: str, text: str) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    if text:
        console.print(f"{text}\n")


def _show_phases(console: Console, steps: tuple[Round, ...]) -> None:
    from meander.planning.exact.phases import check_phases, makespan, phases

    largest = max(steps, key=lambda round_: len({m[1:3] for m in round_.moves}))
    schedule = phases(largest.moves)
    check_phases(schedule, largest.moves)
    _say(
        console, "3. Who sends when",
        "Inside a round each node sends to one and receives from one at a time. The phases of "
        f"round {steps.index(largest) + 1} take as long as its busiest link is busy, "
        f"{makespan(largest.moves) / BANDWIDTH * 1000:.1f} ms, which is the least possible.",
    )  # fmt: skip
    console.print(_phase_table(schedule))


def _phase_table(schedule: tuple[Phase, ...]) -> Table:
    from meander.show.picture import amount

    table = Table(box=None, pad_edge=False)
    for column in ("phase", "bytes each"):
        table.add_column(column, justify="right")
    table.add_column("transfers side by side")
    for k, phase in enumerate(schedule[:PHASES_SHOWN], 1):
        sending = "  ".join(f"{t.source}→{t.target}" for t in sorted(phase.transfers))
        table.add_row(str(k), amount(phase.size), sending)
    if len(schedule) > PHASES_SHOWN:
        table.add_row("…", "", f"{len(schedule) - PHASES_SHOWN} more")
    return table
