"""All policies on all traces, and what is claimed of the result.

A row is one trace under one policy: seconds beyond the promised latency, node-seconds, rescales, bytes
moved. The two figures that count are never made one: a policy *beats* another on a trace if it is
better in one of them and worse in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from meander_lab.autoscale.clairvoyant import optimum
from meander_lab.autoscale.policies import Base, Ours, policies
from meander_lab.autoscale.queueing import Ground, Play
from meander_lab.autoscale.traces import Trace

OURS: Final = "ours"
FORECAST: Final = "ours, forecast"
FLINK: Final = "ds2, flink"
MEAN: Final = "static mean"
BOUND: Final = "clairvoyant"
BARE: Final = "clairvoyant, no headroom"
ABLATION: Final = "hpa, live"
"""No rival that there is: another's rule with our rescales."""
LITTLE: Final = 0.01
"""A forecast is no worse if it takes at most this share of node-seconds more, and violates no more."""


@dataclass(frozen=True)
class Row:
    """One trace under one policy."""

    trace: str
    policy: str
    violation_s: int
    node_s: float
    rescales: int
    bytes: int
    over_s: int
    """Seconds in which the busiest node was busier than the utilisation that is asked for."""
    seconds: int
    """Of the trace."""
    seasonal: bool


def compare(
    ground: Ground,
    traces: Iterable[Trace],
    say: Callable[[str], None] = lambda _: None,
    make: Callable[[Ground, Trace], Sequence[Base]] = policies,
) -> list[Row]:
    """Let every policy go through every trace."""
    rows = []
    for trace in traces:
        say(f"{trace.name}: {trace.seconds} s")
        about = trace.seconds, trace.season is not None
        for policy in make(ground, trace):
            found = Play(ground, trace, policy).run()
            rows.append(
                Row(trace.name, policy.name, found.violation_s, found.node_s, found.rescales,
                    found.bytes, found.over_s, *about)
            )  # fmt: skip
        for name, utilisation in ((BOUND, ground.utilisation), (BARE, 1.0)):
            node_s, changes = optimum(ground, trace, utilisation)
            rows.append(Row(trace.name, name, 0, node_s, changes, 0, 0, *about))
    return rows


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Give the rows in what JSON has."""
    return [asdict(row) for row in rows]


# --------------------------------------------------------------------------- claims


def beats(one: Row, other: Row) -> bool:
    """Whether a row is better in one figure and worse in neither."""
    worse = one.violation_s > other.violation_s or one.node_s > other.node_s
    better = one.violation_s < other.violation_s or one.node_s < other.node_s
    return better and not worse


def claims(rows: Sequence[Row]) -> dict[str, Any]:
    """Work out what is claimed: figures, and whether each claim holds."""
    by = {(row.trace, row.policy): row for row in rows}
    names = list(dict.fromkeys(row.trace for row in rows))
    rivals = [
        p for p in dict.fromkeys(row.policy for row in rows)
        if p not in (OURS, FORECAST, BOUND, BARE)
    ]  # fmt: skip
    total = {p: _sums([r for r in rows if r.policy == p]) for p in {r.policy for r in rows}}
    seconds = sum(by[name, OURS].seconds for name in names)

    def share_beaten(policy: str) -> dict[str, float]:
        return {
            rival: sum(beats(by[n, policy], by[n, rival]) for n in names) / len(names)
            for rival in rivals
        }

    found: dict[str, Any] = {
        "violation_share": total[OURS][0] / seconds,
        "clairvoyant_ratio": total[OURS][1] / total[BOUND][1],
        "no_headroom_ratio": total[OURS][1] / total[BARE][1],
        "beaten_share": share_beaten(OURS),
        "clairvoyant_beats_share": share_beaten(BOUND),
        "beaten_by": [
            [n, rival] for n in names for rival in rivals if beats(by[n, rival], by[n, OURS])
        ],
    }
    holds = {
        "within 1.15 of the clairvoyant": found["clairvoyant_ratio"] <= 1.15,
        "at most 1 % of the seconds violated": found["violation_share"] <= 0.01,
    }
    if FLINK in rivals:
        found["flink_violation_share"] = total[OURS][0] / max(1, total[FLINK][0])
        found["flink_node_share"] = total[OURS][1] / total[FLINK][1]
        holds["a tenth of Flink's violations, for no more nodes"] = (
            found["flink_violation_share"] <= 0.1 and found["flink_node_share"] <= 1
        )
    for rival in rivals:
        if rival not in (MEAN, ABLATION):
            share = found["beaten_share"][rival]
            holds[f"beats {rival} on 80 % of the traces"] = share >= 0.8
    if (names[0], FORECAST) in by:
        found |= _forecast(by, names)
        holds["a forecast is never worse"] = not found["forecast_worse"]
        holds["and better wherever there is a season"] = not found["forecast_no_better"]
    return {**found, "holds": holds}


def _sums(rows: Sequence[Row]) -> tuple[int, float]:
    return sum(row.violation_s for row in rows), sum(row.node_s for row in rows)


def _forecast(by: dict[tuple[str, str], Row], names: Sequence[str]) -> dict[str, list[str]]:
    worse, no_better = [], []
    for name in names:
        plain, ahead = by[name, OURS], by[name, FORECAST]
        if ahead.violation_s > plain.violation_s or ahead.node_s > (1 + LITTLE) * plain.node_s:
            worse.append(name)
        better = ahead.violation_s < plain.violation_s or ahead.node_s < plain.node_s
        if plain.seasonal and not better:
            no_better.append(name)
    return {"forecast_worse": worse, "forecast_no_better": no_better}


# --------------------------------------------------------------------------- loads that do not change


def steady(
    ground: Ground, seeds: Iterable[int], noise: float = 0.2, seconds: int = 3600
) -> dict[str, Any]:
    """Let constant loads with noise come, at any level; count rescales, of which there should be none.

    It begins with as many nodes as the level needs, were it not for the noise. Every other load has
    noise of a normal kind, the rest even noise of the same deviation. It *swings* where nodes come that
    were let go before.
    """
    loads, restless, swinging, rescales = 0, list[int](), list[int](), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        level = float(rng.uniform(0.05, 1.0)) * ground.peak_rows_s
        wide = noise * 3**0.5
        drawn = (
            rng.normal(1, noise, seconds) if seed % 2 else rng.uniform(1 - wide, 1 + wide, seconds)
        )
        policy = _Level(ground, level)
        found = Play(ground, Trace("constant", np.maximum(0.0, level * drawn)), policy).run()
        loads, rescales = loads + 1, rescales + found.rescales
        restless += [seed] if found.rescales else []
        steps = np.diff(found.nodes)
        swinging += [seed] if (steps[np.argmax(steps < 0) :] > 0).any() and steps.min() < 0 else []
    return {"loads": loads, "seconds": seconds, "noise": noise, "rescales": rescales,
            "restless_seeds": restless, "swinging_seeds": swinging}  # fmt: skip


class _Level(Ours):
    """Ours, that begins with what the level itself needs."""

    def __init__(self, ground: Ground, level: float) -> None:
        super().__init__(ground)
        self._level = level

    def first(self, load: float) -> int:
        """Begin so."""
        return super().first(self._level)


def answered_s(ground: Ground, times: float = 3.0) -> float:
    """Tell how many seconds after a step of the load more nodes are ordered."""
    from meander.autoscale.decisions import Action

    rng = np.random.default_rng(3)
    loads = np.full(240, ground.peak_rows_s / times / 1.5) * rng.normal(1.0, 0.05, 240)
    loads[120:] *= times
    policy, at = Ours(ground), list[float]()
    inner = policy.autoscaler.observe

    def observe(seen: Any) -> Any:
        found = inner(seen)
        at.extend(d.when for d in found if d.action is Action.UP and d.when > 120)
        return found

    policy.autoscaler.observe = observe  # type: ignore[method-assign]
    Play(ground, Trace("step", loads), policy).run()
    return at[0] - 120 if at else float("inf")
