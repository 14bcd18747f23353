"""The forecast: projected migration costs in one file, and the planner that looks ahead with them.

`make_forecast` takes a workload, an MTM, τ and γ and gives a `Forecast`, by all feasible partitions
(`exact`), by candidates that it grows (`candidates`), or by whichever fits (`auto`). `mtm_plan` uses
it for today's problem:

  1. `ssm` plans the step as if there were no future.
  2. Boundary prices, fitted to the projected costs, make the same dynamic program look ahead. It
     obeys today's caps, whatever weights the forecast was made with.
  3. The partitions of the forecast that meet today's caps are searched for the least cost plus
     projected cost.
  4. Each distinct answer is scored by the *one-step look-ahead* of the model: what the step costs
     today, plus γ times the expectation, over the labels that may come next, of the best that the
     model knows from there. The least score wins, `ssm` on a tie. So the plan is never worse than
     `ssm` by this measure, and `Plan.note` says who won and by how much.

With γ = 0 there is no future: the plan is that of `ssm`. A node number that the forecast does not
know, or nodes that hold several runs, are planned by `ssm` too, and the note says so.

The file is a NumPy archive without pickled objects: arrays, and one JSON text with where it all
came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from meander import __version__
from meander.errors import InputError, TooLargeError
from meander.model import Ints, Plan, Problem, Workload, exact_tau
from meander.planning.cvi import Effort, Round, fine_grained, grow
from meander.planning.feasible import cap_of, memory_of
from meander.planning.kernels.prices import nearest
from meander.planning.match import assign, run_bounds
from meander.planning.mtm import Label, Mtm
from meander.planning.partitions import STATES_MAX, Ends, Family
from meander.planning.pmc import (
    Choices,
    Floats,
    Frontier,
    Improve,
    Model,
    Watcher,
    check_gamma,
    improve,
    look_ahead,
    shares_of,
    solve,
)
from meander.planning.prices import fit_prices
from meander.planning.ssm import ssm, ssm_partition

FORMAT = "meander.forecast/1"
POLICY = "mtm"
Method = Literal["exact", "candidates", "auto"]
SCALED_BELOW = 2**20
"""Totals of bytes below this are too coarse for prices in whole bytes."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Projected migration costs, ready for `mtm_plan`."""

    workload: Workload
    """What the partitions were weighed with."""
    tau: Fraction
    method: str
    """`exact` or `candidates`."""
    model: Model
    value: Floats
    """V, label after label, as shares of all state."""
    theta: Floats
    """`[label, boundary]`: the prices fitted to V."""
    error: float
    """Certified distance of V to the fixed point over these partitions."""
    source: Mapping[str, Any]
    """Free provenance: which files, which span, which commit."""

    @property
    def mtm(self) -> Mtm:
        """The transition matrix."""
        return self.model.mtm

    @property
    def tasks(self) -> int:
        """m."""
        return self.workload.tasks

    @cached_property
    def frontier(self) -> Frontier:
        """V, prepared for look-ahead."""
        return Frontier.of(self.model, self.value)

    @cached_property
    def order(self) -> Ints:
        """Each label's partitions by ascending V."""
        return self.model.order(self.value)

    def values_of(self, label: int) -> tuple[Ends, Floats, Ints]:
        """Give one label's partitions, their V and their order."""
        a, b = self.model.value_from[label], self.model.value_from[label + 1]
        part = self.model.family.sets[self.model.set_of[label]]
        return part.ends, self.value[a:b], self.order[a:b]

    def header(self) -> dict[str, Any]:
        """Say what this is and where it came from."""
        return {
            "format": FORMAT,
            "meander": __version__,
            "tasks": self.tasks,
            "tau": str(self.tau),
            "gamma": self.model.gamma,
            "method": self.method,
            "partitions": {str(s.nodes): len(s) for s in self.model.family.sets},
            "taus": {str(s.nodes): str(s.tau) for s in self.model.family.sets},
            "error": self.error,
            "workload_sha256": digest(self.workload),
            "mtm": self.mtm.to_json(),
            "source": dict(self.source),
        }

    def to_bytes(self) -> bytes:
        """Write the file."""
        arrays = {f"ends_{s.nodes}": s.ends for s in self.model.family.sets}
        out = BytesIO()
        np.savez_compressed(
            out, allow_pickle=False, header=np.array(json.dumps(self.header(), ensure_ascii=False)),
            work=self.workload.work, size=self.workload.size, value=self.value, theta=self.theta,
            **arrays,
        )  # fmt: skip
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Forecast:
        """Read a file that `to_bytes` wrote.

        Raises:
            InputError: if it is none, or its parts do not fit together.
        """
        try:
            with np.load(BytesIO(data), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(str(arrays["header"]))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise InputError(f"not a forecast file: {error}") from None
        if header.get("format") != FORMAT:
            raise InputError(f"not a {FORMAT} file, but {header.get('format')!r}: make it again")
        load = Workload(arrays["work"], arrays["size"])
        if digest(load) != header["workload_sha256"]:
            raise InputError("the forecast file is damaged: its workload has another digest")
        mtm, tau = Mtm.from_json(header["mtm"]), exact_tau(header["tau"])
        family = Family.of(load, tau, {n: arrays[f"ends_{n}"] for n in mtm.nodes})
        model = Model.of(load, mtm, header["gamma"], family)
        if len(arrays["value"]) != model.value_from[-1]:
            raise InputError("the forecast file is damaged: partitions and values do not match")
        return cls(load, tau, header["method"], model, arrays["value"], arrays["theta"],
                   header["error"], header["source"])  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write to a file, whole or not at all."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_bytes(self.to_bytes())
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> Forecast:
        """Read from a file.

        Raises:
            InputError: if there is none, or it is no forecast.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read the forecast {path}: {error.strerror}") from None
        return cls.from_bytes(data)


def digest(workload: Workload) -> str:
    """Fingerprint work and sizes."""
    return sha256(workload.work.tobytes() + workload.size.tobytes()).hexdigest()


def make_forecast(
    workload: Workload,
    mtm: Mtm,
    tau: Fraction | float | str,
    gamma: float,
    rng: np.random.Generator,
    *,
    method: Method = "auto",
    states_max: int = STATES_MAX,
    effort: Effort | None = None,
    tol: float = 1e-6,
    sweep: Improve = improve,
    start: tuple[Floats, Choices] | None = None,
    on_sweep: Watcher | None = None,
    on_round: Callable[[Round], None] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Forecast:
    """Project migration costs.

    Args:
        workload: weights of the tasks.
        mtm: what n tends to do.
        tau: the imbalance to allow; where it is infeasible for an n, the smallest feasible one.
        gamma: the discount factor, 0 <= γ < 1.
        rng: where candidates get their randomness from.
        method: `exact`, `candidates`, or `auto`: exact up to `states_max` partitions.
        states_max: most partitions that `exact` takes.
        effort: how much to spend on candidates.
        tol: certified error of the exact values, as a share of all state.
        sweep: who improves rows; a cluster may.
        start: a checkpoint of an exact run.
        on_sweep: told of every exact sweep.
        on_round: told of every round of candidates.
        source: provenance to keep in the file.

    Raises:
        InputError: for γ = 1, or another bad parameter.
        TooLargeError: for `exact` beyond `states_max`.
    """
    if method not in ("exact", "candidates", "auto"):
        raise InputError(f"method must be exact, candidates or auto, not {method!r}")
    tau, gamma, source = exact_tau(tau), check_gamma(gamma), source or {}
    if method != "candidates":
        try:
            family = Family.exact(workload, mtm.nodes, tau, states_max)
        except TooLargeError:
            if method == "exact":
                raise
        else:
            model = Model.of(workload, mtm, gamma, family)
            values = solve(model, tol=tol, sweep=sweep, start=start, watch=on_sweep)
            theta = _fit_all(model, values.value)
            return Forecast(
                workload, tau, "exact", model, values.value, theta, values.error, source
            )
    grown = grow(
        workload, mtm, gamma, tau, rng, effort=effort or effort_for(workload, mtm),
        sweep=sweep, watch=on_round,
    )  # fmt: skip
    return Forecast(workload, tau, "candidates", grown.model, grown.values.value, grown.theta,
                    grown.values.error, source)  # fmt: skip


def effort_for(workload: Workload, mtm: Mtm) -> Effort:
    """Scale the effort down for many labels or many tasks, so that it takes a minute or two."""
    load = len(mtm.labels) * len(mtm.nodes) * max(workload.tasks / 64, 1.0) / 81
    share = min(1.0, max(load, 1.0) ** -0.5)
    effort = Effort()
    return replace(
        effort,
        candidates=max(int(effort.candidates * share), 100),
        columns=max(int(effort.columns * share), 30),
        pairs=max(int(effort.pairs * share), 300),
        steps=max(int(effort.steps * share), 30),
    )


def _fit_all(model: Model, value: Floats) -> Floats:
    """Fit prices to exact values: at most a few thousand partitions, evenly taken, suffice."""
    theta = []
    for label, s in enumerate(model.set_of):
        part = model.family.sets[s]
        mine = value[model.value_from[label] : model.value_from[label + 1]]
        some = np.unique(np.linspace(0, len(part) - 1, min(len(part), 4000)).astype(np.int64))
        low = mine[some] - mine.min()
        weight = np.exp(-low / max(float(np.median(low)), 1e-12))  # good partitions count more
        theta.append(fit_prices(part.ends[some], mine[some], weight, 1.0).theta)
    return np.stack(theta)


def mtm_plan(
    problem: Problem,
    forecast: Forecast,
    label: Label | str | None = None,
    *,
    previous: Label | None = None,
    hour: int | None = None,
) -> Plan:
    """Plan one step with the future in mind; see the head of this file.

    Args:
        problem: today's weights, caps and assignment.
        forecast: made for the same number of tasks.
        label: of this migration; by default the MTM names it.
        previous: label of the migration before, for labels with a direction.
        hour: hour of the day, for labels with a slot.

    Raises:
        InfeasibleError: if no assignment meets today's caps.
        InputError: if the forecast was made for another number of tasks.
    """
    if forecast.tasks != problem.workload.tasks:
        raise InputError(
            f"the forecast is for {forecast.tasks} tasks, but the problem has "
            f"{problem.workload.tasks}: make a forecast for this operator"
        )
    base = ssm(problem)
    if forecast.model.gamma == 0:
        return _as_mtm(base, "gamma is 0, so only this step counts: planned by ssm")
    if problem.nodes not in forecast.mtm.nodes:
        return _as_mtm(base, f"the forecast knows no {problem.nodes} nodes: planned by ssm")
    if not problem.current.contiguous:
        return _as_mtm(base, "a node holds several runs: planned by ssm")
    if label is None:
        label = forecast.mtm.label(problem.nodes, previous, hour)
    label = Label.parse(label) if isinstance(label, str) else label
    if label.nodes != problem.nodes:
        raise InputError(f"label {label} is not one for {problem.nodes} nodes")
    at, remark = forecast.mtm.resolve(label)
    return _best(problem, base, forecast, at, remark)


def _as_mtm(base: Plan, note: str) -> Plan:
    return replace(base, policy=POLICY, note=note)


def _best(problem: Problem, base: Plan, forecast: Forecast, label: int, remark: str) -> Plan:
    """Score the answers and take the best."""
    model, load = forecast.model, problem.workload
    old = run_bounds(problem.current)[1:].astype(np.int32)
    wide = int(model.family.nodes.max())
    answers = {"ssm": _padded(run_bounds(base.target), wide)}
    answers["prices"] = _padded(_priced(problem, forecast, label), wide)
    ends, value, order = forecast.values_of(label)
    found = nearest(
        old, ends, value, order, model.gamma, shares_of(load), load.work_prefix,
        cap_of(problem), load.size_prefix, memory_of(problem), base.cost_share, np.inf,
    )  # fmt: skip
    if found >= 0:
        answers["forecast"] = _padded(np.append(ends[found], load.tasks), wide)
    rows = np.stack(list(answers.values()))
    sets = np.full(len(rows), model.set_of[label])
    ahead, _ = look_ahead(model, forecast.frontier, rows, sets)
    targets = [base.target, *(assign(problem, _cuts(row)) for row in rows[1:])]
    plans = [Plan(problem, target, POLICY) for target in targets]
    score = [p.cost_share + model.gamma * a for p, a in zip(plans, ahead[:, label], strict=True)]
    best = min(range(len(plans)), key=lambda i: (score[i] >= score[0] - 1e-9, score[i], i))
    return replace(plans[best], optimal=best == 0, bound=base.bound,
                   note=_note(list(answers), score, plans, best, remark))  # fmt: skip


def _note(
    names: list[str], score: list[float], plans: list[Plan], best: int, remark: str
) -> str:
    if best == 0:
        says = "ssm is best by look-ahead too"
    else:
        says = (
            f"{names[best]} won: moves {plans[best].cost_share:.2%} now where ssm moves "
            f"{plans[0].cost_share:.2%}, and saves {score[0] - score[best]:.2%} of all state "
            "by look-ahead"
        )
    return f"{says}; {remark}" if remark else says


def _priced(problem: Problem, forecast: Forecast, label: int) -> Ints:
    """Solve the step with boundary prices, under today's caps."""
    load = problem.workload
    if load.total_size < SCALED_BELOW and problem.memory_cap is None:
        load = fine_grained(load)
    prices = np.rint(forecast.theta[label] * forecast.model.gamma * load.total_size)
    cuts = ssm_partition(
        load, run_bounds(problem.current), problem.nodes, cap_of(problem), problem.memory_cap,
        prices.astype(np.int64),
    )  # fmt: skip
    assert cuts is not None, "ssm has just found a plan within the same caps"
    return cuts


def _padded(cuts: npt.NDArray[Any], wide: int) -> Ends:
    row = np.full(wide, cuts[-1], dtype=np.int32)
    inner = np.unique(cuts[cuts > 0])
    row[: len(inner)] = inner
    return row


def _cuts(row: Ends) -> Ints:
    return np.concatenate([[0], np.unique(row)]).astype(np.int64)
