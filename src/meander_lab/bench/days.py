"""Nodes that leave and operators that are replaced, under load: what `meander bench vacate` measures.

One deployment, one stream; a node is vacated, and the next, so many times, and then all nodes are
replaced by such with a new version of the operator, so many times:

    fill the state │ warm up │ vacate … rest │ vacate … rest │ upgrade … rest │ every count compared

Rows come open-loop, and belong to the vacate within which they were due. The state of one node is
`state_mb / nodes`: with two nodes half of it leaves each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from meander.operators import WordCount
from meander.run.flow import Feeding, FlowRescale, Site, Step
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Samples
from meander.runtime.process.warm import settle_heap, warm_up
from meander.sources.pacing import evenly
from meander_lab.bench.live import LEAD_S, PIECE_S, Deploy
from meander_lab.bench.load import LiveSetting, OpenLoad, exact, fill

WARM_S = 3.0
REST_S = 1.0
"""Between two."""
DONE_S_MAX = 120.0
POLL_S = 5.0
"""How often chunks are fetched: nodes leave again and again, and hand over only their last ones."""


def vacate(
    setting: LiveSetting,
    deploy: Deploy,
    times: int,
    upgrades: int,
    within_s: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Vacate so many times, then upgrade so many times, while rows flow."""
    assert setting.rate is not None
    warm_up()
    settle_heap()
    operator = _counter()
    with Site(lambda nodes: deploy(operator, nodes, None, 1.0), setting.nodes) as site:
        say(f"{setting.keys:,} keys on {setting.nodes} nodes …")
        fill(site, setting)
        size, load = site.state_bytes(), OpenLoad(setting, max(1, round(setting.rate * PIECE_S)))
        with site.watched(POLL_S):
            start, spans = time.time() + LEAD_S, list[dict[str, Any]]()
            pieces = evenly(load, setting.rate, 3600.0)
            feed = partial(_feed, site, load)
            with Feeding(pieces, feed, start) as feeding:
                time.sleep(LEAD_S + WARM_S)
                for number in range(times + upgrades):
                    step = _step(site, setting, within_s, upgrade=number >= times)
                    spans.append(_carry_out(site, step))
                    feeding.check()
                    say(f"{spans[-1]['what']}: {spans[-1]['seconds']:.2f} s")
                    time.sleep(REST_S)
                feeding.stop()
            site.flush(timeout_s=DONE_S_MAX)
        right = exact(setting, site.op.state_table(timeout_s=DONE_S_MAX), [load])
    return {"exact": right, "state_bytes": size, **_summed(spans, site.samples(), start)}


def _counter() -> WordCount:
    operator = WordCount()
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    return operator


def _feed(site: Site, load: OpenLoad, k: int, _: Any, due_s: float | None) -> None:
    load.feed(site, k, due_s)


def _step(site: Site, setting: LiveSetting, within_s: float, *, upgrade: bool) -> Step:
    nodes = site.op.driver.nodes()
    if upgrade:
        return Step(0.0, len(nodes), pause_ms=setting.pause_ms, operator=_counter())
    return Step(0.0, len(nodes), pause_ms=setting.pause_ms, within_s=within_s, vacate=min(nodes))


def _carry_out(site: Site, step: Step) -> dict[str, Any]:
    began = time.time()
    moving = FlowRescale(site.op, step)
    report = moving.end(DONE_S_MAX)
    return {
        "what": "upgrade" if step.operator is not None else "vacate",
        "began_s": began, "seconds": time.time() - began, "bytes_moved": report.bytes_moved,
        "rounds": len(report.rounds), "pause_ms": 1000 * report.pause_s,
        "details": [_round(found) for found in report.rounds],
    }  # fmt: skip


def _round(found: Mapping[str, Any]) -> dict[str, Any]:
    """Tell of a round how large it was, what was expected, and what it took; in milliseconds."""
    times = ("predicted_s", "measured_s", "copy_s", "duration_s")
    return {"tasks": found["tasks"]} | {
        name.replace("_s", "_ms"): round(1000 * found[name], 1) for name in times
    }


def _worst_at_s(found: Samples, began_s: float) -> float | None:
    """Tell when the row was due that took the longest, in seconds after the beginning."""
    if not len(found):
        return None
    return float(found.due_us[found.latency_us.argmax()] / 1e6 - began_s)


def _summed(spans: list[dict[str, Any]], samples: Samples, start_s: float) -> dict[str, Any]:
    """Give the latencies of each, and of the time before."""
    quiet = samples.due(start_s + 1.0, start_s + WARM_S).summary()
    for span in spans:
        found = samples.due(span["began_s"], span["began_s"] + span["seconds"])
        waited = found.where(found.waited).summary()
        span |= {"latency": found.summary(), "waited_max_ms": waited["max_ms"],
                 "waited_rows": waited["rows"],
                 "worst_at_s": _worst_at_s(found, span["began_s"]),
                 "waited_at_s": _worst_at_s(found.where(found.waited), span["began_s"])}  # fmt: skip
        span["began_s"] -= start_s
    facts: dict[str, Any] = {"quiet": quiet, "runs": spans}
    for what in ("vacate", "upgrade"):
        some = [span for span in spans if span["what"] == what]
        facts[f"{what}_s_max"] = max((s["seconds"] for s in some), default=None)
        facts[f"{what}_waited_ms_max"] = max((s["waited_max_ms"] for s in some), default=None)
        worst = [s["latency"]["max_ms"] for s in some]
        facts[f"{what}_latency_ms_max"] = max(worst, default=None)
    return facts
