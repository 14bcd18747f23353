"""`meander vacate`: have nodes of a deployment leave, or all nodes on a host."""

from __future__ import annotations

import argparse

from meander.cli.outside import add_asking, add_deployment, client, follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander vacate`."""
    add_deployment(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", action="append", metavar="NAME",
                       help="who shall leave, as `meander status` has it; may be repeated")  # fmt: skip
    which.add_argument("--host", help="all nodes there; nothing is started there any more")
    parser.add_argument("--within-s", type=float, default=120.0, metavar="S",
                        help="how long it may take (default: 120)")  # fmt: skip
    parser.add_argument("--pause-ms", type=float, default=100.0, metavar="MS",
                        help="longest wait for a moving state (default: 100)")  # fmt: skip
    add_asking(parser)
    parser.epilog = "As many others take their place as there is room for; rows flow on."


def run(args: argparse.Namespace) -> int:
    """Ask, and wait for the end."""
    wanted = {"node": args.node, "host": args.host, "within_s": args.within_s,
              "pause_ms": args.pause_ms, "why": args.why}  # fmt: skip
    desk = client(args.deployment)
    try:
        return follow(desk, desk.ask("vacate", wanted)["migration"], args)
    finally:
        desk.close()
