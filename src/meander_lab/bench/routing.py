"""Rows a second that are routed by intervals, and by a map from tasks to nodes; both compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meander.cli.timing import median_s


def measure(m: int, n: int, stream: int, budget_s: float) -> dict[str, float]:
    """Route one stream in four ways; gives rows a second of each."""
    from meander.planning.kernels.routing import by_bounds, by_map, hash_by_bounds, hash_by_map

    rng = np.random.default_rng([m, n])
    bounds = np.arange(n) * m // n
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff([*bounds, m]))
    hashes = rng.integers(0, 2**64, stream, dtype=np.uint64)
    tasks = ((hashes >> np.uint64(32)).astype(np.int64) * m) >> 32
    first_hash = -((-bounds << 32) // m)  # the smallest upper half that belongs to the interval
    hash_bounds, bounds = (first_hash - 2**31).astype(np.int32), bounds.astype(np.int32)
    out, other = np.empty((2, stream), dtype=np.int32)
    result: dict[str, float] = {"m": m, "n": n, "stream_rows": stream}
    ways: dict[str, Callable[[], object]] = {
        "map": lambda: by_map(tasks, owner, out),
        "intervals": lambda: by_bounds(tasks, bounds, other),
        "hash_map": lambda: hash_by_map(hashes, m, owner, out),
        "hash_intervals": lambda: hash_by_bounds(hashes, hash_bounds, other),
    }
    for name, call in ways.items():
        call()  # compile
        result[f"{name}_rows_s"] = stream / median_s(call, budget_s)
        if "intervals" in name and not np.array_equal(out, other):
            raise AssertionError("the two ways of routing disagree")
    result["ratio"] = result["intervals_rows_s"] / result["map_rows_s"]
    result["hash_ratio"] = result["hash_intervals_rows_s"] / result["hash_map_rows_s"]
    result["map_bytes"], result["intervals_bytes"] = owner.nbytes, bounds.nbytes
    return result
