"""`meander profile`: raw events to work and state per slot and task."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK, complain
from meander.cli.sources import add_session, add_source, length, session_of, source_of
from meander.show.plots import plot_path
from meander.spark.pipeline import skew
from meander.spark.pipeline.slots import length_text

if TYPE_CHECKING:
    from meander.spark.pipeline.profile import Profile
    from meander.spark.pipeline.profiling import ProfileSettings

KEY_WIDTH_MAX = 40
BAD = ("malformed", "null_time", "unparsable_time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input, the application and the output."""
    add_source(parser)
    parser.add_argument(
        "--output", "-o", required=True, metavar="DIR", help="where the profile goes"
    )
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    parser.add_argument(
        "--app", default="word-count", choices=("word-count", "frequent-patterns", "key"),
        help="what an event is (default: word-count, or key with --key)",
    )  # fmt: skip
    parser.add_argument("--tasks", "-m", type=positive, default=64, metavar="M", help="default: 64")
    parser.add_argument("--text", default="text", metavar="COLUMN", help="the texts")
    parser.add_argument("--key", action="append", default=[], metavar="COLUMN", help="a key column")
    parser.add_argument("--top", type=positive, default=20, metavar="K", help="heavy hitters shown")
    group = parser.add_argument_group("frequent patterns")
    group.add_argument("--window", type=length, default=90, metavar="LENGTH", help="default: 90s")
    group.add_argument(
        "--pattern-size", type=positive, default=2, metavar="K", help="words in a pattern (2)"
    )
    group.add_argument(
        "--words-max", type=positive, default=20, metavar="K", help="words of a tweet (20)"
    )
    group.add_argument("--stop-words", type=Path, metavar="FILE", help="words to leave out")
    group.add_argument("--dictionary", type=Path, metavar="FILE", help="the only words to take")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    parser.add_argument("--plot", type=plot_path, metavar="FILE", help="draw skew and volume")
    add_session(parser)


def run(args: argparse.Namespace) -> int:
    """Profile and show what was found."""
    wanted, source = _settings(args), source_of(args)
    from meander.spark.pipeline.profiling import profile

    found = profile(session_of(args), source, args.output, wanted, force=args.force)
    load = found.workload("total")
    facts = {**found.facts, "output": args.output, "work": load.total_work,
             "bytes": load.total_size, **skew.summarise_tasks(load.work, load.size)}  # fmt: skip
    for flaw in BAD:
        if count := found.facts[f"rows_{flaw}"]:
            share = 100 * count / found.facts["rows"]
            complain(f"{count} rows ({share:.2g} %) are in no slot: {flaw.replace('_', ' ')}")
    if args.plot:
        from meander.show.pipeline_plots import plot_profile

        plot_profile(found, args.plot)
    if args.json:
        print(to_line(facts))
    else:
        _show(Console(highlight=False), found, facts)
    return OK


def _settings(args: argparse.Namespace) -> ProfileSettings:
    from meander.operators.patterns.rules import PatternRules, read_words
    from meander.spark.pipeline.profiling import ProfileSettings

    listed = [frozenset[str]() if p is None else read_words(p)
              for p in (args.stop_words, args.dictionary)]  # fmt: skip
    rules = PatternRules(args.window, args.pattern_size, args.words_max, *listed)
    app = "key" if args.key and args.app == "word-count" else args.app
    return ProfileSettings(app, args.tasks, args.slot, args.text, tuple(args.key), rules, args.top,
                    args.strict)  # fmt: skip


def _show(console: Console, found: Profile, facts: dict[str, object]) -> None:
    f = found.facts
    slot = length_text(f["slot_s"])
    unused = sum(f[f"rows_{flaw}"] for flaw in (*BAD, "outside"))
    console.print(
        f"{f['application']}: {f['rows'] - unused:,} rows in {f['slots']:,} slots of {slot}, "
        f"{f['first_slot']} to {f['last_slot']}; {facts['work']:,} events on {f['tasks']} tasks, "
        f"{facts['bytes']:,} bytes of state at the end", soft_wrap=True,
    )  # fmt: skip
    console.print(
        f"busiest task {facts['work_max_over_mean']:.2f} times the mean "
        f"(Gini {facts['work_gini']:.2f}), largest state "
        f"{facts['bytes_max_over_mean']:.2f} times", soft_wrap=True,
    )  # fmt: skip
    console.print(_spread(f["summary"]), soft_wrap=True)
    console.print(_top_table(f["summary"]))
    console.print(f"written to {found.path}", soft_wrap=True)


def _spread(summary: dict[str, Any]) -> str:
    said = ", ".join(f"top {k} {100 * share:.1f} %" for k, share in summary["top_share"].items())
    return (
        f"{summary['keys']:,} distinct {summary['of']}, {summary['once']:,} of them once; "
        f"{said}; Zipf slope {summary['zipf_slope']:.2f}"
    )


def _top_table(summary: dict[str, Any]) -> Table:
    table = Table()
    table.add_column(str(summary["of"])[:-1])
    table.add_column("count", justify="right")
    table.add_column("share", justify="right")
    for row in summary["top"]:
        name = row["key"] if len(row["key"]) <= KEY_WIDTH_MAX else row["key"][:KEY_WIDTH_MAX] + "…"
        table.add_row(name, f"{row['count']:,}", f"{100 * row['share']:.2f} %")
    return table
