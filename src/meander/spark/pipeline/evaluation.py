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
from meander.model import Ints, Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.evaluate import (
    ByForecast,
    ByName,
    Replay,
    ReplayStep,
    bootstrap,
    gap_closed,
    least_mean,
    replay,
    replay_clairvoyant,
    replay_rings,
)
from meander.planning.ahead.forecast import Forecast, Method, digest, make_forecast
from meander.planning.ahead.foresight import Foresight
from meander.planning.ahead.horizon import Ahead
from meander.planning.ahead.mtm import KINDS, Mtm, label_trace, mtm_from_trace
from meander.planning.ahead.observed import ByAhead, Record
from meander.planning.ahead.policy import tried
from meander.runtime.store.forecast_file import read_forecast, write_forecast

if TYPE_CHECKING:
    from meander.spark.pipeline.profile import Profile
    from meander.spark.pipeline.slots import Moments
    from meander.spark.pipeline.trace import Trace

DAY_S = 24 * 3600
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
    roll_s: int | None
    """Length of a test span; None: all that is left is one."""
    learn_s: int | None
    """How long before a test span `ahead` begins to learn; None: with the trace."""
    migrations_max: int | None
    method: Method
    forecasts: Path | None
    """Where forecasts are kept."""
    rings: int
    hindsight_rounds: int
    seed: int


class Weights:
    """A profile's work and state, ready to be asked what was known at a moment."""

    def __init__(self, profile: Profile) -> None:
        loads = list(profile.workloads())
        self.tasks, self.slots = profile.tasks, profile.slots
        self.work = np.stack([load.work for load in loads])
        self.size = np.stack([load.size for load in loads])
        self.sums = np.concatenate([np.zeros((1, self.tasks), np.int64), np.cumsum(self.work, 0)])
        self.slot_s = int(profile.facts["slot_s"])

    def ended(self, moments: Moments) -> Ints:
        """How many slots had ended at each moment: later ones are not known yet."""
        ends = self.slots + np.timedelta64(self.slot_s, "s")
        return np.asarray(np.searchsorted(ends, moments, side="right"), dtype=np.int64)

    def over(self, ended: int, window: int) -> Workload:
        """Give the work of the last `window` slots (0: of all) and the state after them."""
        ended = min(max(ended, 1), len(self.size))
        start = max(ended - window, 0) if window else 0
        return Workload(self.sums[ended] - self.sums[start], self.size[ended - 1])


class TestSpan:
    """A part of a trace with the weights of its slots; all before it is for training."""

    def __init__(
        self, trace: Trace, weights: Weights, wish: EvaluationOptions, split: int, stop: int
    ) -> None:
        self.trace, self.weights, self.window, self.split = trace, weights, wish.window, split
        self.tasks = weights.tasks
        self.shift = _shift(trace, weights)
        self.ended = weights.ended(trace.slots + self.shift)
        stop = min(stop, int(np.searchsorted(self.ended, len(weights.slots), side="right")))
        if self.ended[split] == 0:
            raise InputError("the profile begins after the training span ends: it has no weights")
        every = self.migrations(split, stop)
        self.steps = every[: wish.migrations_max]
        """None, if n stays."""
        self.stop = stop if len(self.steps) == len(every) else every[len(self.steps)].at
        """The first slot that is not of it: with fewer migrations than there are, that of the next."""

    def known(self, k: int) -> Workload:
        """Give the weights known at slot k of the trace: the slots before it, none after."""
        return self.weights.over(
            int(self.ended[self.split if self.window == 0 else k]), self.window
        )

    def migrations(self, start: int, stop: int) -> list[ReplayStep]:
        """List the migrations of some slots."""
        nodes, slots, hours = self.trace.nodes, self.trace.slots, self.trace.hours()
        return [
            ReplayStep(int(nodes[k]), self.known(k), hours[k], str(slots[k]), k)
            for k in range(max(start, 1), stop)
            if nodes[k] != nodes[k - 1]
        ]

    def first(self, k: int) -> tuple[Workload, int]:
        """Give weights and nodes just before slot k."""
        return self.known(k), int(self.trace.nodes[k - 1])

    def mtm(self, kind: str, stop: int, alpha: float, slot_hours: int) -> Mtm:
        """Count the transitions before slot `stop`."""
        nodes = self.trace.nodes[:stop].tolist()
        hours = self.trace.hours()[:stop]
        return mtm_from_trace(nodes, kind, hours=hours, alpha=alpha, slot_hours=slot_hours)

    def ahead(self, seed: int, learn_s: int | None = None) -> ByAhead:
        """Give the policy `ahead`, which knows the trace, or so much of it before the span."""
        slots, slot_s = (
            self.trace.slots.astype("datetime64[s]").astype(np.int64),
            slot_of(self.trace),
        )
        since_monday = (slots[0] + 3 * DAY_S) % (7 * DAY_S)  # 1970 began on a Thursday
        since = 0 if learn_s is None else max(self.split - learn_s // slot_s, 0)
        policy = Ahead(
            day_slots=DAY_S // slot_s, days_before=int(since_monday // slot_s) + since,
            window=self.window, piece_slots=self.weights.slot_s / slot_s, seed=seed,
        )  # fmt: skip
        record = Record(self.trace.nodes, self.trace.need(), self.weights.work, self.ended)
        return ByAhead(policy, record, since)


def slot_of(trace: Trace) -> int:
    """Give the seconds of a slot, for who compares days.

    Raises:
        InputError: where a day is no whole number of slots, or there is one slot.
    """
    if len(trace.slots) < 2:
        raise InputError("the policy ahead needs a trace of more than one slot")
    slot_s = int((trace.slots[1] - trace.slots[0]).astype(np.int64))
    if DAY_S % slot_s:
        raise InputError(
            f"the policy ahead compares days, and slots of {slot_s} s do not divide one: make the "
            "trace with slots that do, such as 15m or 1h"
        )
    return slot_s


def _shift(trace: Trace, weights: Weights) -> np.timedelta64:
    """Whole weeks by which weights are taken later, where the profile is not of the trace's time."""
    if weights.slots[0] <= trace.slots[-1] and weights.slots[-1] >= trace.slots[0]:
        return np.timedelta64(0, "s")
    week = 7 * 24 * 3600
    apart = int((weights.slots[0] - trace.slots[0]).astype(np.int64))
    return np.timedelta64(-(-apart // week) * week, "s")


def cut(trace: Trace, weights: Weights, wish: EvaluationOptions) -> list[tuple[int, int]]:
    """Cut the trace into test spans, one after the other; everything before a span trains for it.

    Raises:
        InputError: where the first would not begin inside the trace.
    """
    slots = trace.slots + _shift(trace, weights)
    low, high = (int(np.searchsorted(slots, weights.slots[i])) for i in (0, -1))
    begin = (
        low + 2 * (high - low) // 3 if wish.train_until is None else _at(trace, wish.train_until)
    )
    if not 1 < begin < len(slots):
        end = wish.train_until or "two thirds of what the profile has weights for"
        raise InputError(f"the training span must end inside the trace, not at {end}")
    stop = min(len(slots) if wish.test_until is None else _at(trace, wish.test_until), high + 1)
    if wish.roll_s is None:
        return [(begin, stop)]
    length = np.timedelta64(wish.roll_s, "s")
    count = max(-(-int((slots[stop - 1] - slots[begin]).astype(np.int64)) // wish.roll_s), 1)
    edges = np.searchsorted(slots, slots[begin] + np.arange(count) * length)
    return list(pairwise([*edges.tolist(), stop]))


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
                np.random.default_rng(wish.seed), rounds=wish.hindsight_rounds,
            )  # fmt: skip
        elif name.startswith("mtm"):
            done = self._mtm(name)
        elif name == "ahead":
            policy = span.ahead(wish.seed, wish.learn_s)
            done = replay(policy, span.steps, wish.tau, self.clock, first)
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
        contender = ByForecast(found, self.wish.refresh)
        return replay(contender, self.span.steps, self.wish.tau, self.clock, first)

    def forecast(self, kind: str, stop: int, effort: Effort | None) -> Forecast:
        """Make a forecast from what is known at slot `stop`, or take the one that was kept."""
        began, wish = self.clock(), self.wish
        mtm, load = self.span.mtm(kind, stop, wish.alpha, wish.slot_hours), self.span.known(stop)
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
        begin = max(int(np.searchsorted(self.span.ended, 1)), 1)
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

    def rows(self) -> list[dict[str, Any]]:
        """Put every policy into one row, beside `ssm` and the path in hindsight.

        `below_ssm` is a share of what `ssm` moves, with its paired 95 % interval (None where
        migrations are too few for one). The last row, `bound`, is what no policy can go below; it is
        there if the path in hindsight is.
        """
        ssm, best = self.replays["ssm"], self.replays.get("oms")
        base, found = float(ssm.cost.mean()), list[dict[str, Any]]()
        for name, done in self.replays.items():
            saved = bootstrap(ssm.cost - done.cost, np.random.default_rng(self.wish.seed))
            saved = saved.over(max(base, 1e-15))
            found.append({
                "policy": name, "cost": float(done.cost.mean()), "below_ssm": saved.mean,
                "low": saved.low, "high": saved.high,
                "gap_share": None if best is None else gap_closed(ssm, done, best),
                "plan_ms": float(np.median(done.plan_s) * 1e3) if done.plan_s.any() else None,
            })  # fmt: skip
        if best is not None:
            first = self.span.first(self.span.split)
            least = least_mean(self.span.steps, self.wish.tau, first)
            found.append({
                "policy": "bound", "cost": least, "below_ssm": 1 - least / max(base, 1e-15),
                "low": None, "high": None, "gap_share": None, "plan_ms": None,
            })  # fmt: skip
        return found
