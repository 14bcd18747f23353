"""The inner loop of `meander.planning.exact.rounds`: which of the waiting moves enter this round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from meander.model import Ints

Flags = npt.NDArray[np.bool_]


@njit(cache=True)
def sweep(
    order: Ints, size: Ints, work: Ints, source: Ints, target: Ints, uplink: Ints, downlink: Ints,
    chosen: Flags, used: Ints, room: Ints, load: Ints, ceiling: float, sent: Ints, received: Ints,
    tasks_max: int, bytes_max: int, link_max: int, heed_load: bool,
) -> bool:  # fmt: skip
    """Walk the waiting moves in their order and admit each that fits; True if one is oversized.

    `used` holds (tasks, bytes) of the round so far. `room`, `load`, `sent` and `received` belong to
    nodes or links and are updated. `room` only shrinks: what leaves in this round makes room in the
    next one. An oversized move is admitted alone, into an empty round.
    """
    for i in order:
        if used[0] >= tasks_max or used[1] >= bytes_max:
            return False
        a, b, bytes_ = source[i], target[i], size[i]
        if chosen[i] or (bytes_ > 0 and bytes_ > room[b]):
            continue
        if heed_load and load[b] + work[i] > ceiling:
            continue
        if bytes_ > bytes_max or bytes_ > link_max:
            if used[0] > 0:
                continue
            chosen[i] = True
            return True
        if used[1] + bytes_ > bytes_max:
            continue
        if sent[uplink[i]] + bytes_ > link_max or received[downlink[i]] + bytes_ > link_max:
            continue
        sent[uplink[i]] += bytes_
        received[downlink[i]] += bytes_
        chosen[i] = True
        used[0] += 1
        used[1] += bytes_
        room[b] -= bytes_
        load[a] -= work[i]
        load[b] += work[i]
    return False
