"""The arguments of commands that deploy: where to listen, and with which protection."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from meander.errors import InputError

if TYPE_CHECKING:
    from meander.runtime.driver.options import Dashboard


def add_doors(parser: argparse.ArgumentParser) -> None:
    """Add `--host`, `--tls` and `--insecure`."""
    doors = parser.add_argument_group("who can connect")
    doors.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS",
        help="where the master listens (default: 127.0.0.1, this machine only)",
    )  # fmt: skip
    doors.add_argument(
        "--tls", action="store_true",
        help="encrypt, with certificates on both sides; always so beyond this machine",
    )  # fmt: skip
    doors.add_argument(
        "--insecure", action="store_true",
        help="no encryption beyond this machine: whoever can read the network reads everything, "
        "the token too, and can then send rows, read states and stop nodes",
    )  # fmt: skip


def add_dashboard(parser: argparse.ArgumentParser) -> None:
    """Add `--dashboard`."""
    parser.add_argument(
        "--dashboard", nargs="?", type=int, const=0, metavar="PORT",
        help="a page to watch it, on this machine only; its address is printed "
        "(needs meander[dashboard])",
    )  # fmt: skip


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add `--log`."""
    parser.add_argument(
        "--log", choices=("text", "json"), default="text",
        help="json: a line of JSON on standard error for everything that happens, with run, epoch "
        "and migration, instead of the picture",
    )  # fmt: skip


def dashboard_of(args: argparse.Namespace) -> Dashboard | bool:
    """Give what `deploy` takes.

    Raises:
        InputError: for what is no port.
    """
    from meander.runtime.driver.options import Dashboard

    return False if args.dashboard is None else Dashboard(port=args.dashboard)


def doors_of(args: argparse.Namespace) -> dict[str, Any]:
    """Give what `deploy` takes.

    Raises:
        InputError: for both at once.
    """
    if args.tls and args.insecure:
        raise InputError("--tls and --insecure contradict each other: leave one out")
    return {"host": args.host, "tls": args.tls or None, "insecure": args.insecure}
