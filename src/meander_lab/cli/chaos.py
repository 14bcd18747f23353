"""`meander chaos`: real processes under load are killed, stopped and cut off; is every count right?"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK
from meander.errors import InputError
from meander_lab.hosts.inside import here, run_inside

if TYPE_CHECKING:
    from meander_lab.chaos.campaign import Campaign, ChaosGround, ChaosOptions, Say
    from meander_lab.chaos.havoc import HavocDisk
    from meander_lab.chaos.load import ChaosApp

BATCH_S = 0.05
ROWS = {"word-count": 500, "frequent-patterns": 15, "nexmark-q3": 1000, "nexmark-q8": 1000}
"""In a batch: words, texts, or events of all kinds."""
KAFKA_ROWS = 50
DISK_MB = 1024
HOSTS_MAX = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--app",
        default="word-count",
        help="word-count, frequent-patterns, nexmark-q3 or nexmark-q8",
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of chaos (default: 120)")
    parser.add_argument("--seed", type=int, default=7, help="what is done, in which order")
    parser.add_argument("--nodes", type=positive, default=5, help="at most (default: 5)")
    parser.add_argument("--feeders", type=positive, default=3, help="processes that feed")
    parser.add_argument(
        "--master",
        metavar="MASTER",
        help="on Spark: local[9,4], local-cluster[2,6,1024], spark://…, or `standalone` for a cluster "
        "of its own on this machine (default: without Spark)",
    )
    parser.add_argument(
        "--sink", action="store_true",
        help="on Spark: rows come through a Structured Streaming query (word-count)",
    )  # fmt: skip
    parser.add_argument(
        "--kafka", action="store_true",
        help="words come from a topic and every update goes to another, each once; the broker, the "
        "sources and the writers are killed, too (word-count, without Spark)",
    )  # fmt: skip
    parser.add_argument(
        "--hosts", type=int, metavar="N",
        help="on a Spark Standalone cluster across N hosts (2 to 9), which are network namespaces of "
        "this machine: cables are pulled, ways cut, hosts killed and brought back; needs root",
    )  # fmt: skip
    parser.add_argument(
        "--kills-per-minute", type=float, metavar="N",
        help="how many, in the long run, as far as the machine can (default: about 50; with hosts 12)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Carry it out; exit code 1 if a count is wrong."""
    from meander_lab.chaos.campaign import ChaosOptions
    from meander_lab.chaos.havoc import disk
    from meander_lab.chaos.load import Shape, app_of

    if not 1 <= args.seconds <= 86_400:
        raise InputError(f"--seconds must be from 1 to 86400, not {args.seconds}")
    if args.sink and args.app != "word-count":
        raise InputError("--sink feeds word-count: a window needs its rows in order")
    if args.kafka and (args.sink or args.master or args.hosts or args.app != "word-count"):
        raise InputError("--kafka is word-count without Spark: no --master, --sink, --hosts, --app")
    if args.app.startswith("nexmark") and (args.master or args.hosts):
        raise InputError(f"{args.app} runs without Spark: executors have nothing that measures")
    if args.kills_per_minute is not None and not 1 <= args.kills_per_minute <= 1000:
        raise InputError(f"--kills-per-minute is from 1 to 1000, not {args.kills_per_minute}")
    if args.hosts is not None:
        if not 2 <= args.hosts <= HOSTS_MAX:
            raise InputError(f"--hosts is from 2 to {HOSTS_MAX}, not {args.hosts}")
        if args.sink or args.master:
            raise InputError("--hosts has a cluster of its own: without --master and --sink")
        if here() is None:
            return run_inside(["chaos", *args.argv], args.hosts)
    rows = KAFKA_ROWS if args.kafka else ROWS.get(args.app, 1)
    shape = Shape(args.seed, args.feeders, int(args.seconds / BATCH_S), BATCH_S, rows)
    app = app_of(args.app, shape)
    began = time.monotonic()

    def say(text: str) -> None:
        if not args.json:
            print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    say(f"{args.app}, seed {args.seed}: starting …")
    clusters = ("local-cluster", "spark://", "standalone")
    executors = args.hosts is not None or (args.master or "").startswith(clusters)
    seats = args.sink or args.master is not None or args.hosts is not None
    wish = ChaosOptions(
        args.seconds, args.seed, args.nodes, executors, seats, args.kills_per_minute
    )
    with (
        tempfile.TemporaryDirectory(prefix="meander-chaos-") as folder,
        disk(Path(folder) / "disk", DISK_MB) as store,
        _campaign(args, app, store, wish, say) as campaign,
    ):
        found = campaign.run()
    report = {"app": args.app, **found}
    print(json.dumps(report) if args.json else _text(report))
    if not report["exact"]:
        print(f"seed {args.seed} failed: run it again with --seed {args.seed}", file=sys.stderr)
    return OK if report["exact"] else INEXACT


@contextmanager
def _campaign(
    args: argparse.Namespace, app: ChaosApp, store: HavocDisk, wish: ChaosOptions, say: Say
) -> Iterator[Campaign]:
    """Deploy where it is wished, and prepare what is done there."""
    from meander_lab.chaos.campaign import Campaign

    hosts = here() if args.hosts is not None else None
    if hosts is not None:
        from meander_lab.chaos.on_hosts import HostsCampaign, hosts_ground

        with hosts_ground(hosts, app, store, args.nodes) as across:
            yield HostsCampaign(across, app, store, wish, say)
        return
    if args.kafka:
        from meander_lab.chaos.on_kafka import KafkaApp, KafkaCampaign, kafka_ground

        words = KafkaApp(app.shape)
        with kafka_ground(words, store, min(3, args.nodes)) as between:
            yield KafkaCampaign(between, words, store, wish, say)
        return
    with _ground(args, app, store) as ground:
        yield Campaign(ground, app, store, wish, say)


def _ground(
    args: argparse.Namespace, app: ChaosApp, store: HavocDisk
) -> AbstractContextManager[ChaosGround]:
    if args.sink:
        from meander_lab.chaos.on_stream import stream_ground

        return stream_ground(args.master or "local[12,4]", app, store, args.nodes)
    if args.master:
        from meander_lab.chaos.on_spark import spark_ground

        return spark_ground(args.master, app, store, args.nodes)
    from meander_lab.chaos.local import local_ground

    return local_ground(app, store, min(3, args.nodes))


def _times(found: dict[str, Any]) -> str:
    return (
        f"half within {found['s_p50']} s, 99 of 100 within {found['s_p99']} s, all within "
        f"{found['s_max']} s"
    )


def _text(report: dict[str, Any]) -> str:
    """Say it in a few lines."""
    verdict = "every count is right" if report["exact"] else "WRONG"
    lines = [
        f"{verdict}: {report['rows']:,} rows, {report['lost']} lost, "
        f"{report['duplicated']} duplicated",
        f"{report['kills']} kills, {report['stops']} stops, {report['cuts']} cuts, "
        f"{report['disk_full']} times a full disk, {report['rescales']} rescales "
        f"in {report['seconds']} s",
        *(f"  {count:5d} {name}" for name, count in report["details"].items()),
    ]
    if "hosts" in report:
        lines.append(
            f"{report['hosts']} hosts: {report['host_kills']} killed, "
            f"{report['partitions']} partitions, {report['slow_links']} slow links"
        )
    if report["recovery_s_max"] is not None:
        lines.append(
            f"recovered {report['recoveries']} times: half of them within "
            f"{report['recovery_s_p50']} s, 99 of 100 within "
            f"{report['recovery_s_p99']} s, all within {report['recovery_s_max']} s"
        )
        alone, left = report["undisturbed"], report["executors_left"]
        lines.append(f"  {alone['recoveries']} of them while nobody stood still: {_times(alone)}")
        if left["recoveries"] < alone["recoveries"]:
            lines.append(f"  {left['recoveries']} with an executor to go to: {_times(left)}")
    if report["trouble"]:
        lines.append(report["trouble"])
    return "\n".join(lines)
