"""Rescales as OpenTelemetry traces: the extra `meander[otel]`.

    rescale ─┬─ round ─┬─ move   one task: until it serves at its new owner
             │         └─ move
             └─ round …          until its last task is installed

Nothing is asked of anybody: installs and news are heard as the master takes them, and only put down.
When a migration is over its spans are made, with the times they had, on a thread of its own. A round
ends with its last install, and its report says how long it took; a task's span is as long as its
transfer, or as rows waited for it. Where they go is the provider's business (an SDK, its exporters).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode, Tracer, TracerProvider

from meander.model import NodeId
from meander.protocol.messages import Install, Installed, News
from meander.runtime.driver.rescales import ENDS
from meander.version import __version__

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

TASKS_MAX: Final = 10_000
"""Moves of one migration that get a span each; a round says how many there were in all."""


class Move(NamedTuple):
    """A task that was installed."""

    at_ns: int
    node: NodeId
    install: Install


@dataclass
class Course:
    """One migration so far, in nanoseconds since 1970."""

    began_ns: int
    kept: int = 0
    moves: dict[str, list[Move]] = field(default_factory=lambda: defaultdict(list))
    """By the epoch of their round."""
    ended_ns: dict[str, int] = field(default_factory=dict)
    """When the last task of each round was installed."""


class RescaleTraces:
    """Hears of the migrations of one deployment, and makes their spans."""

    def __init__(self, op: ElasticOperator, tracer: Tracer) -> None:
        """Listen from now on."""
        self._op, self._tracer = op, tracer
        self._courses: dict[int, Course] = {}
        self._latest: Course | None = None
        core = op.driver.core
        core.install_heard.append(self._installed)
        core.news_heard.append(self._told)

    # ------------------------------------------------------------------ on the master's thread

    def _installed(self, node: NodeId, body: Installed) -> None:
        course, now = self._latest, time.time_ns()
        if course is None:
            return
        for item in body.items:
            epoch = str(item.tenure)
            course.ended_ns[epoch] = now
            if course.kept < TASKS_MAX:
                course.kept += 1
                course.moves[epoch].append(Move(now, node, item))

    def _told(self, what: str, facts: Mapping[str, Any]) -> None:
        now = time.time_ns()
        if what == News.RESCALING:
            self._latest = self._courses[int(facts["migration"])] = Course(now)
        elif what in ENDS and (course := self._courses.pop(int(facts["migration"]), None)):
            if course is self._latest:
                self._latest = None
            make = threading.Thread(target=self.make, args=(course, what, facts, now), name="trace")
            make.start()

    # ------------------------------------------------------------------ on a thread of its own

    def make(self, course: Course, what: str, facts: Mapping[str, Any], now_ns: int) -> None:
        """Make the spans of a migration that is over."""
        driver, number = self._op.driver, int(facts["migration"])
        asked = driver.rescales.of(number)
        about: dict[str, Any] = {
            "migration": number, "run": driver.run, "operator": driver.operator.name,
            "nodes": facts["nodes"], "moved": facts["moved"],
            "second_moves": facts["second_moves"], "end": str(what),
            "by": "the master" if asked is None else asked.by,
            "why": "" if asked is None else asked.why,
        }  # fmt: skip
        if asked is not None and asked.command is not None and asked.command.pause_ms is not None:
            about["pause_budget_s"] = asked.command.pause_ms / 1000
        span = self._tracer.start_span("rescale", start_time=course.began_ns, attributes=_of(about))
        if what != News.COMPLETED:
            span.set_status(Status(StatusCode.ERROR, str(what)))
        inside = trace.set_span_in_context(span)
        for report in facts["rounds"]:
            self._round(inside, course, report, now_ns)
        span.end(now_ns)

    def _round(self, inside: Any, course: Course, report: Mapping[str, Any], now_ns: int) -> None:
        epoch = report["epoch"]
        end_ns = course.ended_ns.get(epoch, now_ns)
        begin_ns = max(course.began_ns, end_ns - _ns(report["duration_s"]))
        span = self._tracer.start_span("round", inside, start_time=begin_ns, attributes=_of(report))
        within = trace.set_span_in_context(span)
        for at_ns, node, item in course.moves.get(epoch, ()):
            took_ns = _ns(max(item.transfer_s, item.pause_s if item.waited else 0.0))
            facts = {
                "task": item.task, "node": node, "bytes": item.size, "waited": item.waited,
                "pause_s": item.pause_s if item.waited else 0.0, "transfer_s": item.transfer_s,
            }  # fmt: skip
            start_ns = max(begin_ns, at_ns - took_ns)
            move = self._tracer.start_span(
                "move", within, start_time=start_ns, attributes=_of(facts)
            )
            move.end(at_ns)
        span.end(end_ns)


def _of(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"meander.{name}": value for name, value in facts.items()}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def trace_rescales(op: ElasticOperator, provider: TracerProvider | None = None) -> None:
    """Trace the rescales of a deployment from now on; without a provider, with the global one."""
    RescaleTraces(op, trace.get_tracer("meander", __version__, provider))
