"""Memory that is used again, and memory that is new.

A stream fills the same few buffers over and over.

By default freed memory soon goes back to the system, which hands it out again page by page, zeroed:
up to a fifth of a feeder's time. So the processes that Meander starts keep what they have freed for the
next message. They read these settings when they begin; what the user has set stays.

A state that arrives fills memory that nobody has used before. The system hands that out when it is
first touched, page by page, and has to clear it: on a virtual machine at a gigabyte a second, which is
more than half of the time that it takes to copy a state. `Pages` has it done beside.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

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


POPULATE_WRITE: Final = 23
"""Of madvise (Linux 5.14): hand out pages as if they were written to, and leave what is in them."""
LEAST_BYTES: Final = 2**20
"""Smaller arrays are left alone."""
STEP_BYTES: Final = 4 * 2**20
"""So much at a time: whoever wants other memory meanwhile waits for it."""


class Pages:
    """Has the system hand out memory that was reserved, before whoever has reserved it comes to it.

    On a thread of its own, at the first arrays. Where the system does not know how, nothing happens.
    """

    def __init__(self) -> None:
        self._arrays: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._madvise: Any = ctypes.CDLL(None).madvise if sys.platform == "linux" else None
        self._thread: threading.Thread | None = None

    def lay_out(self, arrays: Sequence[Any]) -> None:
        """Begin with these NumPy arrays; others may read and write them meanwhile."""
        large = [array for array in arrays if array.nbytes >= LEAST_BYTES]
        if self._madvise is None or not large:
            return
        for array in large:
            self._arrays.put(array)  # it is kept until it is done
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            array = self._arrays.get()
            address, page = array.ctypes.data, mmap.PAGESIZE
            end = (address + array.nbytes) // page * page
            for at in range(-(-address // page) * page, end, STEP_BYTES):
                size = ctypes.c_size_t(min(STEP_BYTES, end - at))
                if self._madvise(ctypes.c_void_p(at), size, POPULATE_WRITE):
                    break
            del array
