"""What a run reports: plain values for JSON. The pictures are drawn from them (`show.html_report`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from meander.runtime.driver.monitor import Samples

BIN_S = 0.25
"""One point of the curves; longer where there would be too many."""
BINS_MAX = 400
BESIDE_S = 10.0
"""How much before and after a rescale is summed up."""
WARM_S = 1.0
"""The first second of a stream is not compared with."""


def of_samples(samples: Samples, start_s: float, rescales: list[dict[str, Any]]) -> dict[str, Any]:
    """Give curves over time, and each rescale with the latencies before, during and after it."""
    done = [facts for facts in rescales if facts]
    for i, facts in enumerate(done):
        before = done[i - 1]["ended_s"] if i else WARM_S
        after = done[i + 1]["began_s"] if i + 1 < len(done) else float("inf")
        began, ended = facts["began_s"], facts["ended_s"]
        during = _due(samples, start_s, began, ended)
        facts["latency"] = {
            "before": _due(samples, start_s, max(before, began - BESIDE_S), began).summary(),
            "during": during.summary(),
            "during_moved": during.of_tasks(facts["tasks"]).summary(),
            "during_waited": during.where(during.waited).summary(),
            "after": _due(samples, start_s, ended, min(after, ended + BESIDE_S)).summary(),
        }
    return {"latency": samples.summary(), "curves": curves(samples, start_s), "rescales": done}


def _due(samples: Samples, start_s: float, from_s: float, until_s: float) -> Samples:
    return samples.due(start_s + from_s, start_s + until_s)


def curves(samples: Samples, start_s: float) -> dict[str, list[float]]:
    """Give p50, p99 and the largest latency by due time, and rows applied a second."""
    names = ("at_s", "p50_ms", "p99_ms", "max_ms", "rows_s")
    found: dict[str, list[float]] = {name: [] for name in names}
    if not len(samples):
        return found
    due_s = samples.due_us / 1e6 - start_s
    applied_s = due_s + samples.latency_us / 1e6
    bin_s = max(BIN_S, float(applied_s.max()) / BINS_MAX)
    due = np.floor(due_s / bin_s).astype(int)
    applied = np.floor(applied_s / bin_s).astype(int)
    first, last = int(max(0, due.min())), int(max(0, due.max(), applied.max()))
    rows = np.bincount(np.clip(applied, 0, None), samples.rows, minlength=last + 1)
    for k in range(first, last + 1):
        summary = samples.where(due == k).summary()
        found["at_s"].append((k + 0.5) * bin_s)
        for name in ("p50_ms", "p99_ms", "max_ms"):
            found[name].append(summary[name])
        found["rows_s"].append(float(rows[k]) / bin_s)
    return found
