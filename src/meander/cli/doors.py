"""The arguments of commands that deploy: where to listen, and with which protection."""

from __future__ import annotations

import argparse
from typing import Any

from meander.errors import InputError


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


def doors_of(args: argparse.Namespace) -> dict[str, Any]:
    """Give what `deploy` takes.

    Raises:
        InputError: for both at once.
    """
    if args.tls and args.insecure:
        raise InputError("--tls and --insecure contradict each other: leave one out")
    return {"host": args.host, "tls": args.tls or None, "insecure": args.insecure}
