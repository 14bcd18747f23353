"""The time, as a process sees it: a parameter of everything that looks at it.

Production reads the system's clocks; a simulated process has one of its own, which may run at another
speed, or jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class Clock(NamedTuple):
    """Two clocks: one that never goes back, and the calendar's."""

    monotonic: Callable[[], float]
    """Seconds from some moment on; for deadlines and leases."""
    wall_us: Callable[[], int]
    """Microseconds since 1970; for event times and what people read."""


REAL: Final = Clock(time.monotonic, lambda: time.time_ns() // 1000)
"""The system's."""
