"""Memory that is made ready is there, and holds what it held."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from meander.runtime.process.memory import Pages

MIB = 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_pages_are_handed_out_before_they_are_touched() -> None:
    pages, array, small = Pages(), np.empty(64 * MIB, np.uint8), np.arange(10)
    array[5 * MIB] = 7
    before, until = resident_bytes(), time.monotonic() + 20
    pages.lay_out([small, array[3:]])
    while resident_bytes() < before + 48 * MIB and time.monotonic() < until:
        time.sleep(0.01)
    assert array[5 * MIB] == 7
    assert small.sum() == 45
    if resident_bytes() < before + 48 * MIB:
        pytest.skip("this system does not know how")
