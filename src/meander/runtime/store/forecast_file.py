"""Forecasts as files."""

from __future__ import annotations

from pathlib import Path

from meander.errors import InputError
from meander.planning.ahead.forecast import Forecast


def write_forecast(forecast: Forecast, path: str | Path) -> None:
    """Write a forecast to a file, whole or not at all.

    Raises:
        InputError: where none can be written.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(forecast.to_bytes())
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write the forecast {path}: {error.strerror}") from None


def read_forecast(path: str | Path) -> Forecast:
    """Read a forecast from a file.

    Raises:
        InputError: if there is none, or it is no forecast.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the forecast {path}: {error.strerror}") from None
    return Forecast.from_bytes(data)
