"""What commands share that speak with a deployment from outside its program."""

from __future__ import annotations

import argparse
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from meander.cli.answers import to_line
from meander.cli.main import OK
from meander.errors import MigrationError

if TYPE_CHECKING:
    from meander.runtime.clients.driver_client import DriverClient

LOOK_S = 0.2


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


def add_asking(parser: argparse.ArgumentParser) -> None:
    """Add what commands take that have something moved."""
    parser.add_argument("--why", default="", help="for the history of rescales")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for its end")


def follow(desk: DriverClient, number: int, args: argparse.Namespace) -> int:
    """Wait for the end of a migration, if that is wanted, and print how it went.

    Raises:
        MigrationError: if it did not come to the end that was wanted.
    """
    if args.no_wait:
        print(to_line({"migration": number}) if args.json else f"migration {number} has begun")
        return OK
    told = wait_for(desk, number)
    print(to_line(told) if args.json else ending(told))
    return OK


def wait_for(desk: Any, number: int) -> dict[str, Any]:
    """Wait for the end of a migration, under whatever number it is carried on.

    Raises:
        MigrationError: if it did not come to the end that was wanted.
    """
    while True:
        told = desk.ask("migration", {"number": number})
        if told["error"] is not None:
            raise MigrationError(told["error"])
        if told["over"]:
            break
        time.sleep(LOOK_S)
    if told["stage"] == "superseded":
        raise MigrationError(f"another rescale has taken the place of migration {number}")
    if told["stage"] != "completed":
        raise MigrationError(f"migration {number} was {told['stage']}")
    facts: dict[str, Any] = told["facts"]
    return facts


def ending(told: dict[str, Any]) -> str:
    """Say how it went."""
    predicted = max((r["predicted_s"] for r in told["rounds"]), default=0.0)
    return (
        f"done: {moved(told)}, {1000 * predicted:.0f} ms predicted, {told['seconds']:.2f} s in all"
    )


def moved(told: dict[str, Any]) -> str:
    """Say what a migration has moved, and how long rows waited for it."""
    rounds = told["rounds"]
    measured = max((r["measured_s"] for r in rounds), default=0.0)
    return (
        f"{counted(told['moved'], 'task')} moved in {counted(len(rounds), 'round')}, "
        f"longest wait {1000 * measured:.0f} ms"
    )


def counted(count: int, thing: str) -> str:
    """Count things.

    >>> counted(1, "round"), counted(1200, "task")
    ('1 round', '1,200 tasks')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Container[str]) -> None:
    """Print columns side by side, each as wide as it must be: what is read here is typed elsewhere.

    Args:
        head: names of the columns.
        rows: their texts.
        left: the columns that begin together; others end together.

    >>> print_table(["node", "tasks"], [["n1", "16"], ["n12", "9"]], ["node"])
    node  tasks
    n1       16
    n12       9
    """
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            text.ljust(width) if name in left else text.rjust(width)
            for name, text, width in zip(head, line, widths, strict=True)
        )
        print("  ".join(cells).rstrip())
