"""What commands share that speak with a deployment from outside its program."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meander.errors import MigrationError

if TYPE_CHECKING:
    from meander.runtime.clients.driver_client import DriverClient

LOOK_S = 0.2
ENDS = ("completed", "rolled back")


def add_deployment(parser: argparse.ArgumentParser) -> None:
    """Add what names a deployment, and how answers are printed."""
    parser.add_argument(
        "deployment", nargs="?", metavar="ADDRESS",
        help="its address, its operator's name or the beginning of its run, as `meander ls` has "
        "them; not needed where only one runs",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def client(name: str | None) -> DriverClient:
    """Dial a deployment of this user; its credentials are in a file that nobody else can read.

    Raises:
        InputError: if there is none, or several.
    """
    from meander.runtime.clients.driver_client import DriverClient
    from meander.runtime.driver.runs import find
    from meander.runtime.wire.credentials import Credentials

    found = find(name)
    return DriverClient(found.address, Credentials.parse(found.credentials))


def ask(name: str | None, what: str, fields: Mapping[str, Any] | None = None) -> Any:
    """Ask a deployment once."""
    desk = client(name)
    try:
        return desk.ask(what, fields)
    finally:
        desk.close()


def wait_for(desk: Any, number: int) -> dict[str, Any]:
    """Wait for the end of a migration, or for another that has taken its place.

    Raises:
        MigrationError: if it did not come to the end that was wanted.
    """
    while True:
        told = desk.ask("status")
        migration: dict[str, Any] | None = told["migration"]
        if told["failure"]:
            raise MigrationError(told["failure"])
        if migration is None or migration["migration"] > number:
            raise MigrationError(f"another rescale has taken the place of migration {number}")
        if migration["stage"] in ENDS:
            if migration["stage"] != "completed":
                raise MigrationError(f"migration {number} was {migration['stage']}")
            return migration
        time.sleep(LOOK_S)


def ending(told: dict[str, Any]) -> str:
    """Say how it went."""
    rounds = told["rounds"]
    measured = max((r["measured_s"] for r in rounds), default=0.0)
    predicted = max((r["predicted_s"] for r in rounds), default=0.0)
    return (
        f"done: {told['moved']} tasks in {len(rounds)} rounds, {told['seconds']:.2f} s; longest wait "
        f"{1000 * measured:.0f} ms, {1000 * predicted:.0f} ms predicted"
    )
