"""Operators moved together, against one after the other: what `meander bench topology` measures.

Three operators on the same nodes count NexMark's bids by auction, bidder and price. The same stream
flows at the same rate through two deployments in turn, and both go down to fewer nodes and back:

    together        as deployments do it: one plan, one migration with rounds of all operators
    one by one      each operator by itself: the first decides who leaves, and the others follow; nodes
                    leave when the last operator has

Both within the same pause budget. Bytes that did move differ from run to run, as states and weights do;
so whoever plans together also says what one after the other would have moved just then.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from meander.model import Assignment, NodeId, Plan, Problem, Workload
from meander.operators import Aggregate, KeyedAggregate
from meander.operators.topology import Topology
from meander.planning import plan
from meander.run.flow import Step, flow
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor
from meander.sources.pacing import PacedPiece
from meander.wiring import Planners
from meander_lab.bench.load import UNSEEN_POLL_S, busy_share
from meander_lab.nexmark.events import BID, Nexmark

KEYS: Final = ("auction", "bidder", "price")
PIECE_S: Final = 0.05
"""One batch of the paced stream covers so much time."""
LEAD_S: Final = 0.3
MIGRATION_S_MAX: Final = 180.0
FED_AT_ONCE: Final = 50_000
OUTPUT_ROWS_MAX: Final = 1


@dataclass(frozen=True)
class TopologySetting:
    """What is compared."""

    nodes: int = 10
    fewer: int = 7
    tasks: int = 40
    """Of each operator."""
    events: int = 1_500_000
    """Fed before anything is measured: they make the state."""
    rate: int = 20_000
    """Events a second meanwhile."""
    rounds: int = 3
    pause_ms: float = 100.0


class OneByOne(Planners):
    """Plans one operator of a topology at a time: asked as often as there are operators."""

    def __init__(self, ends: tuple[int, ...]) -> None:
        super().__init__(ends[-1], ends=ends)
        self._ranges, self._turn = list(pairwise((0, *ends))), 0
        self._stay: tuple[NodeId, ...] = ()
        """Who stays: the first operator has decided it."""

    def plan(self, policy: str, problem: Problem, *, preview: bool = False) -> Plan:
        """Plan for the operator whose turn it is; the others stay where they are."""
        lb, ub = self._ranges[self._turn % len(self._ranges)]
        load, current = problem.workload, problem.current
        here = Assignment.from_owners(current.owners()[lb:ub], current.nodes, current.epoch)
        leaving = problem.leaving
        if self._turn % len(self._ranges):
            leaving = frozenset(current.nodes) - frozenset(self._stay)
        part = replace(problem, workload=Workload(load.work[lb:ub], load.size[lb:ub]), current=here,
                       leaving=leaving, hosts={})  # fmt: skip
        found = plan(part, policy, relax=True).target
        self._stay, self._turn = found.nodes, self._turn + 1
        last = self._turn % len(self._ranges) == 0
        nodes = list(dict.fromkeys([*found.nodes, *(() if last else current.nodes)]))
        place = {node: i for i, node in enumerate(nodes)}
        names = [current.nodes[i] for i in current.owners()]
        names[lb:ub] = [found.nodes[i] for i in found.owners()]
        owners = np.array([place[name] for name in names])
        return Plan(problem, Assignment.from_owners(owners, nodes, current.epoch.next()), policy)


class Together(Planners):
    """Plans all operators at once, and notes what it would have moved to plan one after the other."""

    def __init__(self, ends: tuple[int, ...]) -> None:
        super().__init__(ends[-1], ends=ends)
        self._operators = ends
        self.planned: list[tuple[int, int]] = []
        """Bytes of each plan: together, and one by one from the same moment."""

    def plan(self, policy: str, problem: Problem, *, preview: bool = False) -> Plan:
        """Plan for all operators."""
        whole = super().plan(policy, problem, preview=preview)
        if not preview:
            self.planned.append((whole.cost, self._apart(policy, problem)))
        return whole

    def _apart(self, policy: str, problem: Problem) -> int:
        planners, now, moved = OneByOne(self._operators), problem.current, 0
        for _ in self._operators:
            fresh = tuple(name for name in problem.new_nodes if name not in now.nodes)
            step = planners.plan(policy, replace(problem, current=now, new_nodes=fresh))
            moved, now = moved + step.cost, step.target
        return moved


def bench(setting: TopologySetting, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure both ways in turn, as often as there are rounds."""
    before = os.getloadavg()[0]
    found: dict[str, list[dict[str, Any]]] = {"together": [], "one_by_one": []}
    for turn in range(setting.rounds):
        for way, results in found.items():
            results.append(_run(setting, together=way == "together"))
            told = ", ".join(
                f"{name} {m['seconds']:.1f} s, {m['bytes'] / 1e6:.1f} MB, at most {m['max_ms']:.0f} ms"
                for name, m in results[-1].items()
            )
            say(f"round {turn + 1}, {way.replace('_', ' ')}: {told}")
    moves = {name: _compared(name, found) for name in found["together"][0]}
    return {
        "moves": moves,
        "planned_ratio": max(move["planned_ratio"] for move in moves.values()),
        "bytes_ratio": max(move["bytes_ratio"] for move in moves.values()),
        "duration_ratio": max(move["duration_ratio"] for move in moves.values()),
        "runs": found,
        "setting": {**vars(setting), "cores": os.cpu_count()},
        "load_average": [before, os.getloadavg()[0]],
    }


def _compared(name: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Compare one rescale: medians of ratios within a round."""

    def ratio(what: str) -> float:
        pairs = zip(found["together"], found["one_by_one"], strict=True)
        return float(statistics.median(a[name][what] / max(b[name][what], 1e-9) for a, b in pairs))

    def median(way: str, what: str) -> float:
        return float(statistics.median(run[name][what] for run in found[way]))

    planned = [(run[name]["planned_bytes"], run[name]["planned_one_by_one_bytes"])
               for run in found["together"]]  # fmt: skip
    return {
        "planned_ratio": max(whole / max(apart, 1) for whole, apart in planned),
        "bytes_ratio": ratio("bytes"),
        "duration_ratio": ratio("seconds"),
        **{
            f"{what}_{way}": median(way, what)
            for what in ("bytes", "seconds", "busy_before", "p99_ms", "max_ms")
            for way in found
        },
    }


def _topology(setting: TopologySetting) -> Topology:
    operators: dict[str, Any] = {
        f"by_{key}": KeyedAggregate(BID, [key], {"bids": Aggregate("count")}) for key in KEYS
    }
    for operator in operators.values():
        operator.trace_chunks_max = TRACE_CHUNKS_MAX
    return Topology(operators, tasks=setting.tasks)


@contextmanager
def _running(
    setting: TopologySetting,
) -> Iterator[tuple[ElasticOperator, list[FeederClient]]]:
    with ExitStack() as stack:
        topology = _topology(setting)
        op = stack.enter_context(
            deploy_local(topology, nodes=setting.nodes, output_rows_max=OUTPUT_ROWS_MAX)
        )
        names = topology.operators
        yield op, [stack.enter_context(op.feeder(name, to=name)) for name in names]


def _run(setting: TopologySetting, *, together: bool) -> dict[str, Any]:
    """Let the stream flow, and rescale down and up."""
    with _running(setting) as (op, feeders):
        stream = Nexmark(setting.rate)
        for at in range(0, setting.events, FED_AT_ONCE):
            _feed(feeders, stream, at, at + FED_AT_ONCE)
        for feeder in feeders:
            feeder.flush(timeout_s=MIGRATION_S_MAX)
        ends = op.driver.core.topology.ends
        planners = Together(ends) if together else OneByOne(ends)
        object.__setattr__(op.driver.deployment, "planners", planners)
        orders = 1 if together else len(ends)
        found = _moved(op, feeders, stream, setting, orders)
        if isinstance(planners, Together):
            for moved, (whole, apart) in zip(found.values(), planners.planned, strict=True):
                moved["planned_bytes"], moved["planned_one_by_one_bytes"] = whole, apart
        return found


def _feed(feeders: list[FeederClient], stream: Nexmark, first: int, last: int) -> None:
    batch = stream.batch("bid", first, last)
    for feeder in feeders:
        feeder.feed(batch)


def _moved(
    op: ElasticOperator,
    feeders: list[FeederClient],
    stream: Nexmark,
    setting: TopologySetting,
    orders: int,
) -> dict[str, Any]:
    piece, start, over = round(setting.rate * PIECE_S), time.time() + LEAD_S, False

    def pieces() -> Iterator[PacedPiece]:
        number = 0
        while not over:
            yield PacedPiece(number, setting.events + number * piece, number * PIECE_S)
            number += 1

    def feed(_: int, at: Any, due_s: float | None) -> None:
        batch = stream.batch("bid", at, at + piece)
        for feeder in feeders:
            feeder.feed(batch, due_s=due_s)

    def act(step: Step) -> tuple[float, float, int, int, float]:
        busy, began, moved, rounds = busy_share(), time.time(), 0, 0
        for _ in range(orders):
            report = op.rescale(step.nodes, pause_ms=setting.pause_ms).wait(MIGRATION_S_MAX)
            moved, rounds = moved + int(report.bytes_moved), rounds + len(report.rounds)
        nonlocal over
        over = step is script[-1]
        ended = time.time()
        busy_share()  # from here on it is looked how busy they are before the next
        return began, ended, moved, rounds, busy

    script = [Step(2.0, setting.fewer), Step(4.0, setting.nodes)]
    names = [f"{setting.nodes} → {setting.fewer}", f"{setting.fewer} → {setting.nodes}"]
    with Monitor(op.driver, UNSEEN_POLL_S) as monitor:
        busy_share()
        found = flow(pieces(), feed, script, act, start)
        for feeder in feeders:
            feeder.flush(timeout_s=MIGRATION_S_MAX)
    samples, result = monitor.samples(), dict[str, Any]()
    for name, (began, ended, size, rounds, busy) in zip(names, found, strict=True):
        during = samples.due(began, ended).summary()
        result[name] = {
            "seconds": ended - began, "bytes": size, "rounds": rounds, "busy_before": busy,
            "p99_ms": during["p99_ms"], "max_ms": during["max_ms"],
        }  # fmt: skip
    return result
