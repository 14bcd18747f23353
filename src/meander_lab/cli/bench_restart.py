"""`meander bench restart`: the application is killed, and started again on its checkpoint."""

from __future__ import annotations

import argparse
import math

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import INEXACT, OK, say
from meander.errors import InputError
from meander_lab.hosts.inside import here, run_inside

HOSTS_MAX = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander bench restart`."""
    parser.add_argument(
        "--hosts", type=int, metavar="N",
        help="on a Spark Standalone cluster across N hosts (2 to 9), which are network namespaces of "
        "this machine; needs root (default: processes of this machine, without Spark)",
    )  # fmt: skip
    parser.add_argument(
        "--state-mib", type=float, default=1024.0, metavar="MIB",
        help="size of the state (default: 1024)",
    )  # fmt: skip
    parser.add_argument("--nodes", type=positive, default=6, help="(default: 6)")
    parser.add_argument("--tasks", type=positive, default=64, help="partitions (default: 64)")
    parser.add_argument("--times", type=positive, default=3, help="deaths (default: 3)")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from meander_lab.bench.driver_restart import PHASES, RestartWish, restart

    if not (math.isfinite(args.state_mib) and args.state_mib > 0):
        raise InputError(f"--state-mib is a positive number, not {args.state_mib}")
    if args.nodes > args.tasks:
        raise InputError(f"--nodes is at most --tasks, not {args.nodes} of {args.tasks}")
    if args.hosts is not None:
        if not 2 <= args.hosts <= HOSTS_MAX:
            raise InputError(f"--hosts is from 2 to {HOSTS_MAX}, not {args.hosts}")
        if here() is None:
            return run_inside(["bench", "restart", *args.argv], args.hosts)
    wish = RestartWish(args.state_mib, args.nodes, args.tasks, args.times)
    if args.quick:
        wish = wish._replace(state_mb=4.0, nodes=2, times=1, stream_s=1.0)
    found = restart(wish, here() if args.hosts is not None else None, say)
    if args.json:
        print(to_line(found))
        return OK if found["exact"] else INEXACT
    for one in found["runs"]:
        spans = ", ".join(f"{name[:-2].replace('_', ' ')} {one[name]:.1f}" for name in PHASES)
        print(f"back after {one['seconds']:.1f} s: {spans}")
    print(f"{found['state_bytes'] / 2**20:.0f} MiB of state; exact: {found['exact']}")
    return OK if found["exact"] else INEXACT
