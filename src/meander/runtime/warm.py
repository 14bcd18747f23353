"""Everything that is slow the first time, done before a process registers.

Safe to run before a fork: it imports and compiles, and starts neither gRPC nor threads.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import cache
from typing import Any


@cache
def warm_up() -> None:
    """Load Arrow (with pandas, which its first array looks for) and the operators' kernels."""
    import pyarrow as pa
    import pyarrow.flight

    with suppress(ImportError):
        import pandas  # noqa: F401

    from meander.operators import Aggregate, Context, FrequentPatterns, KeyedAggregate, split

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
    pattern: Any = FrequentPatterns(threshold=0)
    here = Context(0, 1)
    state = pattern.create(here)
    fed = {"pattern": ["a b"], "count": [1], "supers": [0]}
    pattern.process(state, pa.record_batch(fed, schema=pattern.schema), here)
    state.result()


def settle_heap() -> None:
    """Let the garbage collector leave alone what is here now: imports and kernels live for ever.

    A full collection looks at every one of some 160,000 objects, which takes 50 ms, and all rows of
    the process wait meanwhile. For processes of our own, not for a user's.
    """
    gc.collect()
    gc.freeze()
