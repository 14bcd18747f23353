"""What sources and feeders hand to each other."""

from __future__ import annotations

from typing import Any, NamedTuple


class SourceBatch(NamedTuple):
    """What a feeder's source gives."""

    offset: int
    """Ascends; the same batch has the same offset whenever the source is read."""
    batch: Any
    due_s: float | None = None
    """When its rows are due, in seconds since 1970; None: now."""
