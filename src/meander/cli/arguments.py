"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re

from meander.errors import InputError
from meander.planning.exact.rounds import PauseBudget, RoundLimits

MASTERS = r"local$|local\[|local-cluster\[|spark://|yarn$|k8s://"
"""How addresses of Spark masters begin."""
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Add the input file and the form of the answer."""
    parser.add_argument("file", metavar="FILE", help="a problem as JSON; - is standard input")
    parser.add_argument("--json", action="store_true", help="answer in JSON, one line per problem")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a round."""
    group = parser.add_argument_group("rounds", "what may move at once (default: everything)")
    group.add_argument("--rounds-tasks", type=positive, metavar="K", help="at most K tasks")
    group.add_argument("--rounds-bytes", type=positive, metavar="B", help="at most B bytes")
    group.add_argument(
        "--rounds-pause-ms", type=float, metavar="MS", help="no longer than MS (needs --bandwidth)"
    )
    group.add_argument(
        "--bandwidth", type=rate, metavar="B/S", help="bytes a second, as 100M or 1e9"
    )
    group.add_argument(
        "--overhead-ms", type=float, default=0.0, metavar="MS",
        help="what a round costs apart from its transfers (default: 0)",
    )  # fmt: skip


def limits_of(args: argparse.Namespace) -> RoundLimits:
    """Make limits of the arguments."""
    if (args.rounds_pause_ms is None) != (args.bandwidth is None):
        raise InputError("--rounds-pause-ms and --bandwidth belong together: give both or none")
    pause = None
    if args.rounds_pause_ms is not None:
        pause = PauseBudget(args.rounds_pause_ms, args.bandwidth, args.overhead_ms)
    return RoundLimits(args.rounds_tasks, args.rounds_bytes, pause)


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 20 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def seed(text: str) -> int:
    """Read a seed: a whole number, 0 or more."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def spark_master(text: str) -> str:
    """Read the address of a Spark master."""
    if not re.match(MASTERS, text):
        raise argparse.ArgumentTypeError(
            f"Spark knows no master {text!r}: local[N,4], spark://HOST:PORT, yarn or k8s://…"
        )
    return text


def folder(text: str) -> str:
    """Read the name of a folder that is there, and may be written to."""
    if not os.path.isdir(text) or not os.access(text, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder that can be written to")
    return text


def rate(text: str) -> float:
    """Read a number that may end in k, M, G or T.

    >>> rate("100M")
    100000000.0
    """
    unit = UNITS.get(text[-1:].lower(), 1)
    try:
        return float(text[:-1] if unit > 1 else text) * unit
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes a second") from None
