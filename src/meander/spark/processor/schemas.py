"""Schemas as users give them: Spark's types, DDL text, or Arrow's."""

from __future__ import annotations

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


def session_timezone() -> str:
    """Give the time zone of the session; UTC if there is none."""
    session = SparkSession.getActiveSession()
    return session.conf.get("spark.sql.session.timeZone") or "UTC" if session is not None else "UTC"
