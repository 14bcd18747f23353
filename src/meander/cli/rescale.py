"""`meander rescale`: another number of nodes for a deployment that runs; `--plan`: only a preview."""

from __future__ import annotations

import argparse
from typing import Any

from meander.cli.answers import to_line
from meander.cli.arguments import positive
from meander.cli.main import OK
from meander.cli.outside import add_asking, add_deployment, client, counted, follow

PAUSE_MS = 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander rescale`."""
    add_deployment(parser)
    add_wish(parser, required=True)
    parser.add_argument("--policy", help="another planner, from now on")
    parser.add_argument("--plan", action="store_true", help="only tell what it would do")
    add_asking(parser)


def add_wish(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """Add what is wanted of a rescale."""
    parser.add_argument("--nodes", type=positive, required=required, help="how many there shall be")
    parser.add_argument("--pause-ms", type=float, metavar="MS",
                        help="longest wait for a moving state (default: 100)")  # fmt: skip
    parser.add_argument("--within-s", type=float, metavar="S", help="how long it may take")


def wish_of(args: argparse.Namespace) -> dict[str, Any]:
    """Make a wish of the arguments."""
    if args.pause_ms is None and args.within_s is None:
        args.pause_ms = PAUSE_MS
    names = ("nodes", "pause_ms", "within_s", "policy")
    return {name: getattr(args, name) for name in names}


def run(args: argparse.Namespace) -> int:
    """Ask, and wait for the end."""
    wanted = wish_of(args)
    desk = client(args.deployment)
    try:
        planned = desk.ask("plan", wanted)
        if args.plan or not args.json:
            print(to_line(planned) if args.json else preview(planned))
        if args.plan:
            return OK
        number = desk.ask("rescale", {**wanted, "why": args.why})["migration"]
        return follow(desk, number, args)
    finally:
        desk.close()


def preview(told: dict[str, Any]) -> str:
    """Say what a rescale would do."""
    from meander.show.picture import amount

    said = (
        f"to {counted(told['nodes'], 'node')}: {told['moves']} of {told['tasks']} tasks move, "
        f"{amount(told['bytes'])} bytes of {amount(told['state_bytes'])}, in "
        f"{counted(told['rounds'], 'round')}; "
        f"rows wait {1000 * told['pause_s']:.0f} ms at most, all takes about "
        f"{told['duration_s']:.1f} s"
    )
    return f"{said}\n{told['conflict']}" if told["conflict"] else said
