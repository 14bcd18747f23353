"""Time in slots: lengths such as `1h`, moments in UTC, and their printed forms. No Spark here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from meander.errors import InputError

UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Moments = npt.NDArray[np.datetime64]
"""Starts of slots, `datetime64[s]`, in UTC."""


def parse_length(text: str) -> int:
    """Read a length of time as whole seconds.

    >>> parse_length("1h"), parse_length("90s"), parse_length("5m"), parse_length("2d")
    (3600, 90, 300, 172800)
    """
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", text)
    if not found or found.group(2) not in UNITS_S or int(found.group(1)) == 0:
        raise InputError(f"{text!r} is no length of time: write 90s, 5m, 1h or 1d")
    return int(found.group(1)) * UNITS_S[found.group(2)]


def length_text(seconds: int) -> str:
    """Write a length of time in its largest whole unit.

    >>> length_text(3600), length_text(90), length_text(172800)
    ('1h', '90s', '2d')
    """
    unit = next(u for u in ("d", "h", "m", "s") if seconds % UNITS_S[u] == 0)
    return f"{seconds // UNITS_S[unit]}{unit}"


def parse_moment(text: str) -> datetime:
    """Read an ISO 8601 moment; without a zone it is UTC.

    >>> parse_moment("2020-03-01").isoformat()
    '2020-03-01T00:00:00+00:00'
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"{text!r} is no moment: write 2020-03-01 or 2020-03-01T12:00") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def iso(moment: datetime | np.datetime64) -> str:
    """Write a moment to the second, in UTC.

    >>> iso(EPOCH)
    '1970-01-01T00:00:00Z'
    """
    if isinstance(moment, np.datetime64):
        return f"{moment.astype('datetime64[s]')}Z"
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def microseconds(moment: datetime) -> int:
    """Give a moment as microseconds since 1970, exactly."""
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def slot_starts(first: int, count: int, slot_s: int) -> Moments:
    """Give the starts of `count` slots from index `first` on.

    >>> slot_starts(1, 2, 3600)
    array(['1970-01-01T01:00:00', '1970-01-01T02:00:00'],
          dtype='datetime64[s]')
    """
    seconds = (first + np.arange(count, dtype=np.int64)) * slot_s
    return seconds.astype("datetime64[s]")
