"""Memory that is used again: a stream fills the same few buffers over and over.

By default freed memory soon goes back to the system, which hands it out again page by page, zeroed:
up to a fifth of a feeder's time. So the processes that Meander starts keep what they have freed for the
next message. They read these settings when they begin; what the user has set stays.
"""

from __future__ import annotations

import os
from typing import Final

ARROW: Final = {"MIMALLOC_PURGE_DELAY": "-1"}
"""Arrow's buffers: never given back. Read when Arrow is loaded."""
KEEP: Final = {
    **ARROW,
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),
}
"""And those of gRPC and NumPy: those of less than 32 MiB, until 256 MiB are free."""


def keep_arrow() -> None:
    """Have this process keep Arrow's buffers, if Arrow is not loaded yet."""
    for name, value in ARROW.items():
        os.environ.setdefault(name, value)
