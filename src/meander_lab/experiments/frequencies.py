"""How rare patterns are, and how many of their rows go no further than a counter.

The paper: frequent patterns are less sensitive to the distribution of the data, "since most patterns
have low frequency, and are filtered early". A row of the Detector is a pattern that comes once more. It
counts it, and if the pattern is not frequent with it (no more than `threshold` times in the window)
that is all: nothing is fed back and nothing is reported. Such a row is *filtered*; a pattern that
never became frequent in the test is *rare*. The threshold is the user's, and the paper does not say
its own, so there are several: from 1, the least that makes sense (frequent is what comes twice), up.

Words are counted by the same rule, to compare with: word count itself filters nothing.
"""

from __future__ import annotations

import numpy as np

from meander.operators.hashing import Hashes
from meander.planning.kernels.types import Bools
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.tables import Cell, Row
from meander_lab.experiments.texts import Longs


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"span": span, "application": application, "window_s": window}
        for span in range(wanted.spans)
        for application in wanted.applications
        for window in wanted.windows_s
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Slide the window over the test; it is full when the test begins."""
    ground = ground.at_span(cell["span"])
    begin, end = ground.test_us
    window = ground.window_us(cell["window_s"])
    units = ground.units(cell["application"]).between(begin - window, end)
    order = np.lexsort((units.us, units.hashes))
    us, hashes = units.us[order], units.hashes[order]
    tested = us >= begin
    _, key = np.unique(hashes[tested], return_inverse=True)
    keys, rows = int(key.max(initial=-1)) + 1, len(key)
    found = []
    for threshold in wanted.thresholds:
        seen = frequent(us, hashes, window, threshold)[tested]
        ever = np.bincount(key, seen, keys) > 0
        found.append({
            "threshold": threshold, "keys": keys, "key_rows": rows,
            "rare_pct": 100 * float(np.mean(~ever)), "filtered_pct": 100 * float(np.mean(~seen)),
        })  # fmt: skip
    return found


def frequent(us: Longs, hashes: Hashes, window_us: int, threshold: int) -> Bools:
    """Tell for each row whether its key is frequent with it: the window ends at the row.

    Args:
        us: when rows come, ascending for every key.
        hashes: their keys, those of one key together.
        window_us: how long the window is.
        threshold: a key is frequent if it comes more often; at least 1.

    >>> key = np.array([7, 7, 7, 9], dtype=np.uint64)
    >>> frequent(np.array([0, 4, 9, 9]), key, 5, 1).tolist()
    [False, True, False, False]
    """
    found = np.zeros(len(us), dtype=bool)
    near = us[threshold:] - us[:-threshold] < window_us
    found[threshold:] = near & (hashes[threshold:] == hashes[:-threshold])
    return found
