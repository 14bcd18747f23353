"""What `meander evaluate` does: cut a trace into training and test, and replay policies on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meander.errors import InputError
from meander.model import Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.evaluate import (
    ByForecast,
    ByName,
    Replay,
    ReplayStep,
    gap_closed,
    replay,
    replay_clairvoyant,
    replay_rings,
)
from meander.planning.ahead.forecast import Forecast, Method, digest, make_forecast
from meander.planning.ahead.foresight import Foresight
from meander.planning.ahead.mtm import KINDS, Mtm, label_trace, mtm_from_trace
from meander.planning.ahead.policy import tried
from meander.runtime.store.forecast_file import read_forecast, write_forecast

if TYPE_CHECKING:
    from meander.spark.pipeline.profile import Profile
    from meander.spark.pipeline.trace import Trace

LIGHT = Effort(candidates=300, rounds=3, columns=100, pairs=500, chains=24, steps=60)
"""For choosing the label: the order of the labels needs fewer candidates than the forecast."""


@dataclass(frozen=True)
class EvaluationOptions:
    """What is replayed, and how."""

    tau: str
    gamma: float
    alpha: float
    slot_hours: int
    train_until: str | None
    test_until: str | None
    window: int
    """Weights are means over so many slots before a migration; 0: fixed weights."""
    refresh: int
    migrations_max: int | None
    method: Method
    forecasts: Path | None
    """Where forecasts are kept."""
    rings: int
    hindsight_rounds: int
    seed: int


class TestSpan:
    """A trace with the weights of its slots, cut into training and test."""

    def __init__(self, trace: Trace, profile: Profile, wish: EvaluationOptions) -> None:
        self.trace, self.window, self.tasks = trace, wish.window, profile.tasks
        loads = list(profile.workloads())
        self.work = np.cumsum([np.zeros(self.tasks, np.int64), *(x.work for x in loads)], axis=0)
        self.size = np.stack([x.size for x in loads])
        self.profile_slots = profile.slots
        self.split = self._split(wish.train_until)
        last = len(trace.slots) if wish.test_until is None else _at(trace, wish.test_until)
        last = min(last, int(np.searchsorted(trace.slots, profile.slots[-1], side="right")))
        self.steps = self.migrations(self.split, last)[: wish.migrations_max]
        if not self.steps:
            raise InputError("the test span has no migration within the profile: take a longer one")

    def _split(self, moment: str | None) -> int:
        slots = self.trace.slots
        low, high = (int(np.searchsorted(slots, self.profile_slots[i])) for i in (0, -1))
        at = low + 2 * (high - low) // 3 if moment is None else _at(self.trace, moment)
        if not 1 < at < len(slots):
            raise InputError(f"the training span must end inside the trace, not at {moment}")
        if slots[at] < self.profile_slots[0]:
            raise InputError("the profile begins after the training span ends: it has no weights")
        return at

    def weights(self, k: int) -> Workload:
        """Give the weights known at slot k of the trace: the slots before it, none after."""
        if self.window == 0:
            k = self.split
        end = int(np.searchsorted(self.profile_slots, self.trace.slots[k]))
        end = min(max(end, 1), len(self.size))
        start = max(end - self.window, 0) if self.window else 0
        return Workload(self.work[end] - self.work[start], self.size[end - 1])

    def migrations(self, start: int, stop: int) -> list[ReplayStep]:
        """List the migrations of some slots."""
        nodes, slots = self.trace.nodes, self.trace.slots
        return [
            ReplayStep(int(nodes[k]), self.weights(k), self.hours(k, k + 1)[0], str(slots[k]))
            for k in range(max(start, 1), stop)
            if nodes[k] != nodes[k - 1]
        ]

    def hours(self, start: int, stop: int) -> list[int]:
        """Give the hours of the day of some slots."""
        return self.trace.hours()[start:stop]

    def first(self, k: int) -> tuple[Workload, int]:
        """Give weights and nodes just before slot k."""
        return self.weights(k), int(self.trace.nodes[k - 1])

    def mtm(self, kind: str, stop: int, alpha: float, slot_hours: int) -> Mtm:
        """Count the transitions before slot `stop`."""
        nodes = self.trace.nodes[:stop].tolist()
        return mtm_from_trace(
            nodes, kind, hours=self.hours(0, stop), alpha=alpha, slot_hours=slot_hours
        )


def _at(trace: Trace, moment: str) -> int:
    from meander.spark.pipeline.slots import iso, parse_moment

    when = np.datetime64(iso(parse_moment(moment)).rstrip("Z"), "s")
    return int(np.searchsorted(trace.slots, when))


class Evaluation:
    """Replays policies, one after the other, and keeps what they did."""

    def __init__(
        self, span: TestSpan, wish: EvaluationOptions, tell: Callable[[str], None]
    ) -> None:
        self.span, self.wish, self._tell = span, wish, tell
        self.replays: dict[str, Replay] = {}
        self.pools: dict[int, Any] = {}
        self.seconds: dict[str, float] = {}
        self.notes: list[str] = []
        self.chosen: str | None = None
        self.clock = time.perf_counter
        self.last_seconds = 0.0

    def replay(self, name: str) -> None:
        """Replay one policy."""
        span, wish = self.span, self.wish
        first = span.first(span.split)
        if name == "consistent-hash":
            done = replay_rings(span.steps, wish.tau, self.clock, first, range(wish.rings))
        elif name == "oms":
            done = replay_clairvoyant(
                span.steps, wish.tau, first, list(self.replays.values()),
                np.random.default_rng(wish.seed), rounds=wish.hindsight_rounds, pools=self.pools,
            )  # fmt: skip
        elif name.startswith("mtm"):
            done = self._mtm(name)
        elif name == "foresight":
            knows = Foresight([s.nodes for s in span.steps], np.random.default_rng(wish.seed))
            done = replay(knows, span.steps, wish.tau, self.clock, first)
        else:
            done = replay(ByName(name), span.steps, wish.tau, self.clock, first)
        self.replays[name] = done
        self._tell(f"{name}: {done.cost.mean():.3%} of all state a migration")

    def _mtm(self, name: str) -> Replay:
        kind = name.partition(":")[2] or self.choose()
        first = self.span.first(self.span.split)
        if f"mtm:{kind}" in self.replays:
            return self.replays[f"mtm:{kind}"]
        if kind == "ssm":
            return self.replays["ssm"]
        found = self.forecast(kind, self.span.split, None)
        self.seconds[kind] = self.last_seconds
        self._note_unknown(found.mtm)
        if found.trial is not None:
            by_ssm, by_us, _ = found.trial
            says = "trusted" if found.trusted else "not trusted, so ssm plans"
            self.notes.append(f"{name}: trial {by_us:.3%} against ssm {by_ssm:.3%}: {says}")
        for part in found.model.family.sets:
            rows = [self.pools[part.nodes]] if part.nodes in self.pools else []
            self.pools[part.nodes] = np.unique(np.concatenate([*rows, part.ends]), axis=0)
        contender = ByForecast(found, self.wish.refresh)
        return replay(contender, self.span.steps, self.wish.tau, self.clock, first)

    def forecast(self, kind: str, stop: int, effort: Effort | None) -> Forecast:
        """Make a forecast from what is known at slot `stop`, or take the one that was kept."""
        began, wish = self.clock(), self.wish
        mtm, load = self.span.mtm(kind, stop, wish.alpha, wish.slot_hours), self.span.weights(stop)
        method: Method = "candidates" if effort else wish.method
        wanted = {"method": method, "seed": wish.seed, "light": effort is not None}
        path = None
        if wish.forecasts:
            wish.forecasts.mkdir(parents=True, exist_ok=True)
            name = f"{kind}-{load.tasks}-{wish.tau}-{wish.gamma}-{stop}".replace("/", "_")
            path = wish.forecasts / f"{name}{'-light' if effort else ''}.forecast"
            if path.exists():
                kept = read_forecast(path)
                same = kept.source == wanted and kept.mtm.to_json() == mtm.to_json()
                if same and digest(kept.workload) == digest(load):
                    self.last_seconds = 0.0
                    return kept if kept.trial else tried(kept, wish.seed)
        found = make_forecast(
            load, mtm, wish.tau, wish.gamma, wish.seed, method=method, effort=effort, source=wanted
        )
        found = tried(found, wish.seed)
        self.last_seconds = self.clock() - began
        if path:
            write_forecast(found, path)
        return found

    def choose(self) -> str:
        """Choose the label on the training span alone: train on its first part, test on the last.

        If no label is better than ssm there, ssm it is.
        """
        if self.chosen is not None:
            return self.chosen
        stop = self.span.split
        begin = max(int(np.searchsorted(self.span.trace.slots, self.span.profile_slots[0])), 1)
        middle = begin + 2 * (stop - begin) // 3
        steps, first = self.span.migrations(middle, stop), self.span.first(middle)
        means = {"ssm": replay(ByName("ssm"), steps, self.wish.tau, self.clock, first).cost.mean()}
        for kind in KINDS:
            found = replace(self.forecast(kind, middle, LIGHT), trial=None)  # this is its trial
            done = replay(ByForecast(found), steps, self.wish.tau, self.clock, first)
            means[kind] = done.cost.mean()
        self.chosen = min(means, key=lambda kind: means[kind])
        told = ", ".join(f"{kind} {mean:.3%}" for kind, mean in means.items())
        self.notes.append(f"held out of the training span: {told}; chosen: {self.chosen}")
        self._tell(self.notes[-1])
        return self.chosen

    def _note_unknown(self, mtm: Mtm) -> None:
        """Say how much of the test the training span has never seen."""
        span = self.span
        nodes = [int(span.trace.nodes[span.split - 1]), *(step.nodes for step in span.steps)]
        hours = [0, *(step.hour or 0 for step in span.steps)]
        test = label_trace(nodes, mtm.kind, hours=hours, slot_hours=mtm.slot_hours)
        index = {label: i for i, label in enumerate(mtm.labels)}
        lost = [b for b in test[1:] if b not in index]
        rare = sum(
            1 for a, b in pairwise(test[1:])
            if a in index and b in index and mtm.matrix[index[a], index[b]] == 0
        )  # fmt: skip
        if lost or rare:
            self.notes.append(
                f"mtm:{mtm.kind}: of {len(test) - 1} test migrations {rare} make a transition that "
                f"the training span lacks, {len(lost)} have a label that it lacks"
            )

    def gaps(self) -> dict[str, float | None]:
        """Give the share of the gap from ssm to oms that each forecast closes."""
        if "ssm" not in self.replays or "oms" not in self.replays:
            return {}
        ssm, best = self.replays["ssm"], self.replays["oms"]
        return {
            name: gap_closed(ssm, done, best)
            for name, done in self.replays.items()
            if name.startswith(("mtm", "foresight"))
        }
