"""Everything that is slow the first time, done before a process registers.

Safe to run before a fork: it imports and compiles, and starts neither gRPC nor threads.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from functools import cache
from typing import Any


@cache
def warm_up() -> None:
    """Load Arrow (with pandas, which its first array looks for) and all kernels."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.flight

    with suppress(ImportError):
        import pandas  # noqa: F401

    from meander.operators import Aggregate, Context, FrequentPatterns, KeyedAggregate, split
    from meander.protocol import kernels
    from meander.runtime.wire import kernels as wire

    kernels.warm()
    wire.warm()

    schema = pa.schema({"k": pa.string(), "i": pa.int64(), "f": pa.float64()})
    rows = pa.record_batch({"k": ["a", None], "i": [1, 2], "f": [0.5, 1.5]}, schema=schema)
    sums = {
        "n": Aggregate("count"),
        "ints": Aggregate("sum", "i"),
        "floats": Aggregate("sum", "f"),
    }
    for keys in (["k"], ["i", "k"]):
        operator: Any = KeyedAggregate(schema, keys, sums)
        for task, part in split(rows, keys, 4):
            here = Context(task, 4)
            state = operator.create(here)
            operator.process(state, part, here)
            operator.load(operator.dump(state), here)
            state.result()
    folded = {"n": sums["n"], "ints": sums["ints"]}
    counts: Any = KeyedAggregate(schema, ["k"], folded, emit_updates=True)
    state = counts.create(Context(0, 1))
    counts.process_combined(state, counts.combine(rows), Context(0, 1))
    copy, since = None, 0
    for _ in range(2):  # a record of all, and one of what has changed
        changes = [(batch, np.cumsum([0, *n])) for batch, n in counts.changes_of([state], [since])]
        (copy,) = counts.apply_changes_of([copy], changes, [Context(0, 1)])
        (since,) = counts.seals([state])
        counts.process(state, rows, Context(0, 1))
    pattern: Any = FrequentPatterns(threshold=0)
    here = Context(0, 1)
    state = pattern.create(here)
    fed = {"pattern": ["a b"], "count": [1], "supers": [0]}
    pattern.process(state, pa.record_batch(fed, schema=pattern.schema), here)
    state.result()


def calm_grpc() -> None:
    """Have gRPC read on the threads that wait for what comes: in our own processes, before it starts.

    Its event engine hands every message through two threads of a pool. Messages are small, and what
    one costs is mostly who must wake up for it. Whoever has chosen in the environment is not overruled.
    """
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")


def settle_heap() -> None:
    """Let the garbage collector leave alone what is here now: imports and kernels live for ever.

    A full collection looks at every one of some 160,000 objects, which takes 50 to 100 ms, and all rows
    of the process wait meanwhile. For processes of our own; a user's has a `Settled`.
    """
    gc.collect()
    gc.freeze()


@cache
def settle_worker() -> None:
    """Do that once in a Python worker of Spark: it collects after every task, however small."""
    settle_heap()


class Settled:
    """Keeps the heap of a user's process settled while deployments live in it.

    What is there when the first one begins is not looked at until the last one ends. Objects die as
    before when nobody refers to them; only cycles of old ones wait. A heap that its user has frozen
    before is left as it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: set[int] = set()
        self._ours = False

    def hold(self, holder: object) -> None:
        """Begin, for one more."""
        gc.collect()  # without the lock: a finaliser may end another deployment
        with self._lock:
            if not self._holders and gc.get_freeze_count() == 0:
                gc.freeze()
                self._ours = True
            self._holders.add(id(holder))

    def release(self, holder: object) -> None:
        """End, for one; twice is as once."""
        with self._lock:
            self._holders.discard(id(holder))
            if not self._holders and self._ours:
                self._ours = False
                gc.unfreeze()


HEAP = Settled()
"""Of this process."""
