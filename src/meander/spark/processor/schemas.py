"""Schemas as users give them: Spark's types, DDL text, or Arrow's."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from meander.errors import InputError


def parse(text: str) -> StructType:
    """Read a schema from DDL text; that takes a session.

    Raises:
        InputError: for text that is none, or if there is no session.
    """
    if SparkSession.getActiveSession() is None:
        raise InputError(f"{text!r} is read by Spark: start a session, or give a StructType")
    try:
        found = StructType.fromDDL(text)
    except Exception as error:  # pyspark raises several kinds
        raise InputError(f"{text!r} is no schema: {error}") from None
    if not isinstance(found, StructType):
        raise InputError(f"{text!r} is one type: name its field, as in 'value int'")
    return found


def arrow_schema(given: StructType | str | pa.Schema, what: str) -> pa.Schema:
    """Give the Arrow schema of whatever a schema is written in.

    Raises:
        InputError: for anything else, or types that Arrow has not.
    """
    if isinstance(given, pa.Schema):
        return given
    schema = parse(given) if isinstance(given, str) else given
    if not isinstance(schema, StructType):
        raise InputError(f"{what} is a StructType, DDL text or an Arrow schema, not {given!r:.60}")
    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except Exception as error:
        raise InputError(f"{what}: Arrow cannot hold {schema.simpleString()}: {error}") from None
    return pa.schema([pa.field(f.name, f.type) for f in found])


class FrameRules(NamedTuple):
    """How Spark's settings have frames made, of rows and into rows."""

    rows_max: int = 10_000
    """Rows in a frame; 0: any number."""
    bytes_max: int = 0
    """Bytes in a frame, by the mean row of its batch; 0: any number."""
    whole_as_decimal: bool = False
    """Whether whole numbers may be yielded where the output has a decimal."""


def frame_rules() -> FrameRules:
    """Give what the session says; Spark's defaults if there is none."""
    session = SparkSession.getActiveSession()
    if session is None:
        return FrameRules()
    rows_max, bytes_max = (
        _number(session.conf.get(f"spark.sql.execution.arrow.{name}", None) or plain)
        for name, plain in (("maxRecordsPerBatch", "10000"), ("maxBytesPerBatch", "0"))
    )
    whole = session.conf.get(
        "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled", None
    )
    return FrameRules(max(0, rows_max), max(0, bytes_max), str(whole).lower() == "true")


SIZE: Final = re.compile(r"(-?[0-9]+)(|b|([kmgtp])(|i|b|ib))", re.ASCII)


def _number(text: str) -> int:
    """Read a number as Spark's settings have it.

    >>> _number("-1"), _number("64MB"), _number("2k"), _number("4MiB"), _number("7b")
    (-1, 67108864, 2048, 4194304, 7)

    Raises:
        InputError: for anything else.
    """
    found = SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise InputError(f"{text!r} is no size as Spark's settings have it: 50b, 100k, 250m, 4MiB")
    return int(found[1]) << 10 * " kmgtp".index(found[3] or " ")


def session_timezone() -> str:
    """Give the time zone of the session; UTC if there is none."""
    session = SparkSession.getActiveSession()
    return session.conf.get("spark.sql.session.timeZone") or "UTC" if session is not None else "UTC"
