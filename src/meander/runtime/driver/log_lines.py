"""Logs as lines of JSON, each with the run, the epoch and the migration that it belongs to."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

LOGGER = "meander"


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver | None = None
        """Whose lines these are; None: nothing is deployed yet."""

    def format(self, record: logging.LogRecord) -> str:
        """Write it."""
        told: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._where(),
        }
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)

    def _where(self) -> dict[str, Any]:
        """Tell where the deployment stands; two reads of the master's books, which need no lock."""
        if self.driver is None:
            return {"run": None, "epoch": None, "migration": None}
        master = self.driver.master
        migration = master.conductor.migration
        return {
            "run": self.driver.run,
            "epoch": str(master.epoch),
            "migration": None if migration is None else migration.number,
        }


def written() -> bool:
    """Tell whether lines of JSON are written: then nothing else should stand between them."""
    return any(isinstance(h.formatter, JsonLines) for h in logging.getLogger(LOGGER).handlers)


@contextmanager
def json_lines(stream: TextIO) -> Iterator[JsonLines]:
    """Write everything that Meander logs in this process as lines of JSON, until the block ends."""
    lines, logger = JsonLines(), logging.getLogger(LOGGER)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
