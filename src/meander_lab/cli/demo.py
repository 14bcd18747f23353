"""`meander demo --hosts N`: the demo on a Spark cluster across hosts, one of which is vacated."""

from __future__ import annotations

import argparse
import os

from meander.cli import demo
from meander.errors import InputError
from meander_lab.hosts.hosts import Hosts
from meander_lab.hosts.inside import here, run_inside

HOSTS_MAX = 9
CORES = 8
"""Slots of each Worker."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander demo`."""
    demo.add_arguments(parser)
    parser.add_argument(
        "--hosts", type=int, metavar="N",
        help="on a Spark Standalone cluster across N hosts (3 to 9), which are network namespaces of "
        "this machine; the last one is vacated in the end; needs root",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the demo, on hosts if that is wanted."""
    if args.hosts is None:
        return demo.run(args)
    if args.plan or not 3 <= args.hosts <= HOSTS_MAX:
        raise InputError(f"--hosts is from 3 to {HOSTS_MAX}, and not with --plan")
    hosts = here()
    return run_inside(["demo", *args.argv], args.hosts) if hosts is None else on(hosts, args)


def on(hosts: Hosts, args: argparse.Namespace) -> int:
    """Start a cluster across hosts, the first of which this process is on, and run the demo there."""
    from meander.spark.cluster.session import local
    from meander_lab.servers.standalone import across

    first = hosts[1].address
    os.environ["SPARK_LOCAL_IP"] = first  # of the driver's JVM
    with across(hosts, CORES) as cluster:
        spark = local(cluster.master, extra=cluster.session)
        try:
            return demo.stream(args.output, {"host": first}, vacate=hosts[len(hosts)].address)
        finally:
            spark.stop()
