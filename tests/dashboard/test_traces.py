"""Traces of a rescale: one span for it, for every round and for every task, with the times they had."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from dashboard_kit import soon
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import meander
from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver.launch import WarmLauncher


def traced(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def of(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("meander."): value for name, value in (span.attributes or {}).items()}


def test_a_rescale_is_a_trace_of_rounds_and_moves(launcher: WarmLauncher) -> None:
    """1. a rescale in rounds of two tasks  2. its spans are its report  3. each lies in its parent."""
    exporter = InMemorySpanExporter()
    with meander.deploy_local(WordCount(), 8, 1, launcher=launcher) as op:
        op.trace_rescales(traced(exporter))
        with op.feeder() as feeder:
            feeder.feed([{"word": f"w{i}"} for i in range(500)])
        report = op.rescale(2, pause_ms=500, tasks_max=2, why="a test").wait(120)
        soon(lambda: any(s.name == "rescale" for s in exporter.get_finished_spans()), 60)
        owners = op.driver.owners()
    spans = exporter.get_finished_spans()
    (root,) = [span for span in spans if span.name == "rescale"]
    rounds = [span for span in spans if span.name == "round"]
    moves = [span for span in spans if span.name == "move"]
    told = of(root)
    assert (told["by"], told["why"], told["end"]) == ("the program", "a test", "completed")
    assert (told["moved"], told["nodes"], told["pause_budget_s"]) == (report.moved, 2, 0.5)
    assert [of(span)["epoch"] for span in rounds] == [r["epoch"] for r in report.rounds]
    assert Counter(of(span)["tasks"] for span in rounds) == Counter(
        r["tasks"] for r in report.rounds
    )
    assert len(moves) == report.moved
    assert all(owners[of(span)["task"]] == of(span)["node"] for span in moves)
    parents = {span.context.span_id: span for span in (root, *rounds) if span.context}
    for span in (*rounds, *moves):
        assert span.parent is not None
        outer = parents[span.parent.span_id]
        assert outer.name == ("rescale" if span.name == "round" else "round")
        assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time  # type: ignore[operator]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from meander.runtime.driver.extras import trace_rescales

    monkeypatch.delitem(sys.modules, "meander.dashboard.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InputError, match=r"meander\[otel\]"):
        trace_rescales(None, None)
