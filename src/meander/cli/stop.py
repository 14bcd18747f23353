"""`meander stop`: end a deployment that runs."""

from __future__ import annotations

import argparse
import time

from meander.cli.main import OK, say
from meander.cli.outside import add_deployment, ask
from meander.errors import DeployError

STOP_S_MAX = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `meander stop`."""
    add_deployment(parser)
    parser.epilog = (
        "Feeders that are still open are cut off; what is durable stays. The program that deployed "
        "goes on, and is told so when it next uses its operator."
    )


def run(args: argparse.Namespace) -> int:
    """Ask, and wait until it is off the list.

    Raises:
        DeployError: if that takes too long.
    """
    from meander.runtime.driver.runs import find, listed

    found = find(args.deployment)
    ask(found.address, "end")
    end = time.monotonic() + STOP_S_MAX
    while any(it.run == found.run for it in listed()):
        if time.monotonic() > end:
            raise DeployError(f"{found.address} has not stopped within {STOP_S_MAX:.0f} s")
        time.sleep(0.1)
    say(f"{found.operator} at {found.address} has stopped")
    return OK
