"""Arguments of the commands that read events with Spark, and the values they stand for."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from meander.cli.arguments import spark_master
from meander.errors import InputError
from meander.spark.pipeline.slots import parse_length, parse_moment

if TYPE_CHECKING:
    from meander.spark.cluster.session import Session
    from meander.spark.pipeline.events import Census, EventSource


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the input and how its time stamps are read."""
    parser.add_argument("input", nargs="+", metavar="INPUT", help="Parquet, CSV or JSON lines")
    group = parser.add_argument_group("input")
    group.add_argument(
        "--format", default="", metavar="F", help="parquet, csv or json (default: by extension)"
    )
    group.add_argument("--ts", default="ts", metavar="COLUMN", help="the time stamps (default: ts)")
    group.add_argument("--ts-unit", default="", metavar="U", help="for numbers: s, ms or us")
    group.add_argument("--since", type=moment, metavar="T", help="only rows from T on (UTC)")
    group.add_argument("--until", type=moment, metavar="T", help="only rows before T")
    group.add_argument("--slot", type=length, default=3600, metavar="LENGTH", help="default: 1h")
    group.add_argument("--strict", action="store_true", help="a single bad row is an error")


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add where Spark runs."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", type=spark_master, metavar="URL", help="where to run (default: local[*])"
    )
    group.add_argument("--spark-ui", action="store_true", help="serve Spark's web page meanwhile")


def session_of(args: argparse.Namespace) -> Session:
    """Start the session, or give the running one."""
    from meander.spark.cluster.session import local

    return local(args.master, ui=args.spark_ui)


def source_of(args: argparse.Namespace) -> EventSource:
    """Make a source of the arguments."""
    from meander.spark.pipeline.events import EventSource

    return EventSource(
        tuple(args.input), args.format, args.ts, args.ts_unit, args.since, args.until
    )


def bad_rows(census: Census) -> str:
    """Say how many rows were of no use and why; empty when none."""
    said = census.complaint()
    return f"{said} of {census.rows}: they are in no slot" if said else ""


def length(text: str) -> int:
    """Read a length of time such as 1h, in seconds."""
    try:
        return parse_length(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment(text: str) -> datetime:
    """Read a moment; without a zone it is UTC."""
    try:
        return parse_moment(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
