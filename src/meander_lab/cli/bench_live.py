"""`meander bench live`: a live migration, all at once, and a restart, under the same load."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.errors import InputError

if TYPE_CHECKING:
    from meander.operators import WordCount
    from meander.runtime.driver.elastic import ElasticOperator
    from meander_lab.bench.live import Deploy
    from meander_lab.bench.load import LiveSetting

QUICK = {"nodes": 3, "to": 2, "state_mb": 8.0, "seconds": 6.0}
FULL = {"nodes": 10, "to": 8, "state_mb": 256.0, "seconds": 60.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench live`."""
    parser.add_argument("--nodes", type=positive, help=f"before (default: {FULL['nodes']})")
    parser.add_argument("--to", type=positive, help=f"after (default: {FULL['to']})")
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument(
        "--state-mb", type=float, metavar="MB", help="size of the state in MiB (default: 256)"
    )
    parser.add_argument(
        "--rate", type=float, metavar="ROWS_PER_S",
        help="load, instead of --load",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=float, default=0.6, metavar="SHARE",
        help="of the processors' time; the rate that takes it is measured first (default: 0.6)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, help="of the stream, for each mode (default: 60)")
    parser.add_argument(
        "--pause-ms", type=float, default=100.0, metavar="MS", help="budget of live (default: 100)"
    )
    parser.add_argument(
        "--modes", default="live,all_at_once,restart", help="some of live,all_at_once,restart"
    )
    parser.add_argument(
        "--double",
        action="store_true",
        help="live once more with twice the state: does it wait longer?",
    )
    parser.add_argument("--spark", action="store_true", help="nodes as Spark tasks")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    found = measure(args)
    if args.json:
        print(to_line(found))
    else:
        show(found)
    runs = (*found["modes"].values(), found["control"])
    return OK if all(mode["exact"] for mode in runs) else INEXACT


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Do the runs.

    Raises:
        InputError: for arguments that cannot be.
    """
    from meander_lab.bench.live import MODES, compare
    from meander_lab.bench.load import LiveSetting

    modes = tuple(args.modes.split(","))
    if not set(modes) <= set(MODES):
        raise InputError(f"--modes are some of {','.join(MODES)}, not {args.modes!r}")
    sizes: dict[str, Any] = {
        name: value if (value := getattr(args, name)) is not None else default
        for name, default in (QUICK if args.quick else FULL).items()
    }
    setting = LiveSetting(
        tasks=args.tasks, pause_ms=args.pause_ms, rate=args.rate, load=args.load, **sizes
    )  # fmt: skip
    with deploying(setting, spark=args.spark) as deploy:
        return {**compare(setting, deploy, modes, say, double=args.double), "spark": args.spark}


@contextmanager
def deploying(setting: LiveSetting, *, spark: bool) -> Iterator[Deploy]:
    """Give what starts the nodes: processes of this machine, or tasks of a Spark session."""
    if not spark:
        from meander.runtime.driver.launch import WarmLauncher
        from meander.runtime.driver.local import deploy_local

        def here(
            operator: WordCount, nodes: int, folder: str | None, every_s: float
        ) -> ElasticOperator:
            return deploy_local(
                operator, tasks=setting.tasks, nodes=nodes, launcher=launcher, checkpoint=folder,
                checkpoint_s=every_s,
            )  # fmt: skip

        with WarmLauncher() as launcher:
            yield here
        return
    import meander
    from meander.spark.cluster.session import local

    most = max(setting.nodes, setting.to)
    session = local(nodes=most)

    def there(
        operator: WordCount, nodes: int, folder: str | None, every_s: float
    ) -> ElasticOperator:
        return meander.deploy(
            session, operator, setting.tasks, nodes, nodes_max=most, checkpoint=folder,
            checkpoint_s=every_s,
        )  # fmt: skip

    try:
        yield there
    finally:
        session.stop()


def show(found: dict[str, Any]) -> None:
    """Print the modes side by side, and the ratios."""
    from rich.console import Console
    from rich.table import Table

    from meander.show.picture import amount

    setting = found["setting"]
    title = (
        f"{setting['nodes']} → {setting['to']} nodes, {amount(found['control']['state_bytes'])} of "
        f"state, {found['rate_rows_s']:,.0f} rows a second, processors "
        f"{100 * found['control']['busy_before']:.0f} % busy; latencies in ms"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    heads = ("mode", "before, p50 / p99", "during", "worst", "p99 of moved", "p99 after",
             "seconds", "bytes", "exact")  # fmt: skip
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right")
    for name, mode in {"control": found["control"], **found["modes"]}.items():
        spans = [
            f"{mode[f'p50_{s}_ms']:.0f} / {mode[f'p99_{s}_ms']:.0f}" for s in ("before", "during")
        ]
        table.add_row(
            name.replace("_", " "), *spans, f"{mode['max_during_ms']:.0f}",
            f"{mode['moved']['p99_ms']:.0f}", f"{mode['p99_after_ms']:.0f}",
            f"{mode['duration_s']:.2f}", amount(mode["bytes_moved"]),
            "yes" if mode["exact"] else "NO",
        )  # fmt: skip
    console = Console(highlight=False)
    console.print(table)
    for line in remarks(found):
        console.print(line, soft_wrap=True)


def remarks(found: dict[str, Any]) -> Iterator[str]:
    """Say the ratios, and what the reader must know."""
    for key, text in {
        "p99_during_over_before": "p99 of live, during over before",
        "max_live_over_control": "worst latency, live over control",
        "max_restart_over_live": "worst latency, restart over live",
        "max_all_at_once_over_live": "worst latency, all at once over live",
        "max_double_over_live": "worst latency, twice the state over once",
    }.items():
        if found.get(key) is not None:
            yield f"{text}: {found[key]:.1f}×"
    if "live" in found["modes"]:
        share = found["pause_within_budget_share"]
        budget = found["setting"]["pause_ms"]
        told = f"{100 * share:.1f} % of {found['waiting_rows']:,} waiting rows"
        if not found["waiting_rows"]:
            told = "no row had to wait for a state"
        yield f"within {budget:g} ms above the control's median: {told}"
        yield f"pause predicted with a mean error of {found['pause_prediction_error_ms']:.1f} ms"
        if large := found["modes"]["live"]["too_large"]:
            yield f"named beforehand as too large for the budget, unless copied ahead: tasks {large}"
    for name, mode in found["modes"].items():
        if not mode["within_window"]:
            yield f"{name.replace('_', ' ')} took longer than the window: use more --seconds"
    if "restart" in found["modes"]:
        phases = found["modes"]["restart"]["phases"]
        yield "restart: " + ", ".join(f"{k[:-2]} {v:.2f} s" for k, v in phases.items())
