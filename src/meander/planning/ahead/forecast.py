"""The forecast: projected migration costs in one file.

`make_forecast` takes a workload, an MTM, τ and γ, and gives a `Forecast` by all feasible partitions
(`exact`, pmc.py), by candidates that it grows (`candidates`, cvi.py), or by whichever fits
(`auto`). `meander.planning.ahead.policy.mtm_plan` plans with it.

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

from meander.errors import InputError, TooLargeError
from meander.model import Ints, Workload, exact_tau
from meander.planning.ahead.cvi import CandidateRound, Effort, carry, grow
from meander.planning.ahead.mdp import Model, check_gamma
from meander.planning.ahead.mtm import Mtm
from meander.planning.ahead.pmc import (
    Choices,
    Frontier,
    Improve,
    Watcher,
    improve,
    look_ahead,
    solve,
)
from meander.planning.ahead.prices import fit_prices
from meander.planning.ahead.space import Space
from meander.planning.exact.partitions import STATES_MAX, Ends, Family, PartitionSet
from meander.planning.kernels.types import Floats
from meander.version import __version__

FORMAT = "meander.forecast/1"
CARRIED_MAX = 1200
"""Most partitions per n that `refreshed` carries over."""
Method = Literal["exact", "candidates", "auto"]


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
    trial: tuple[float, float, float] | None = None
    """Mean cost of trial migrations by `ssm` and with this forecast, and the standard error of
    their difference; see `ahead.tried`."""

    @property
    def trusted(self) -> bool:
        """Whether it did better than `ssm` in its trial by more than luck, or had none."""
        if self.trial is None:
            return True
        by_ssm, by_us, error = self.trial
        return by_ssm - by_us > 2 * error

    @property
    def mtm(self) -> Mtm:
        """The transition matrix."""
        return self.model.mtm

    @property
    def tasks(self) -> int:
        """The number of tasks, m."""
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
            "trial": self.trial and list(self.trial),
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
                   header["error"], header["source"],
                   tuple(header["trial"]) if header.get("trial") else None)  # fmt: skip

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
    seed: int = 0,
    *,
    method: Method = "auto",
    states_max: int = STATES_MAX,
    effort: Effort | None = None,
    tol: float = 1e-6,
    sweep: Improve = improve,
    start: tuple[Floats, Choices] | None = None,
    start_pool: tuple[int, Mapping[int, Ends]] | None = None,
    on_sweep: Watcher | None = None,
    on_round: Callable[[CandidateRound, Mapping[int, Ends]], None] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Forecast:
    """Project migration costs.

    Args:
        workload: weights of the tasks.
        mtm: what n tends to do.
        tau: the imbalance to allow; where it is infeasible for an n, the smallest feasible one.
        gamma: the discount factor, 0 <= γ < 1.
        seed: of the candidates.
        method: `exact`, `candidates`, or `auto`: exact up to `states_max` partitions.
        states_max: most partitions that `exact` takes.
        effort: how much to spend on candidates.
        tol: certified error of the exact values, as a share of all state.
        sweep: who improves rows; a cluster may.
        start: a checkpoint of an exact run: what `on_sweep` was last told.
        start_pool: a checkpoint of candidates: what `on_round` was last told.
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
        workload, mtm, gamma, tau, seed, effort=effort or effort_for(workload, mtm),
        sweep=sweep, watch=on_round, start=start_pool,
    )  # fmt: skip
    return Forecast(workload, tau, "candidates", grown.model, grown.values.value, grown.theta,
                    grown.values.error, source)  # fmt: skip


def refreshed(
    forecast: Forecast, workload: Workload, *, seed: int = 0, sweep: Improve = improve
) -> Forecast:
    """Carry a forecast over to new weights.

    It keeps the partitions that are still feasible, replaces the others by the nearest feasible
    ones, adds a few, and computes new values and prices. That takes seconds where a new forecast
    takes a minute, so it can follow weights that drift from day to day. An exact forecast becomes
    one over candidates: its most valuable partitions.

    Raises:
        InputError: for another number of tasks.
    """
    if workload.tasks != forecast.tasks:
        raise InputError(
            f"the forecast is for {forecast.tasks} tasks, not {workload.tasks}: make a new one"
        )
    mtm, gamma = forecast.mtm, forecast.model.gamma
    space = Space(workload, mtm, gamma, forecast.tau)
    kept = {s.nodes: _cheapest(forecast, i) for i, s in enumerate(_sets(forecast))}
    pool = carry(space, kept, forecast.theta, seed)
    model = Model.of(workload, mtm, gamma, Family.of(workload, forecast.tau, pool))
    values = solve(model, tol=Effort().tol, sweep=sweep, start=(_guess(forecast, model), None))
    return Forecast(workload, forecast.tau, "candidates", model, values.value,
                    _fit_all(model, values.value), values.error, forecast.source,
                    forecast.trial)  # fmt: skip


def _guess(forecast: Forecast, model: Model) -> Floats:
    """Value the new partitions by the old forecast: iterations begin close to their end."""
    rows, sets = model.family.ends, model.family.set_of_row
    ahead, _ = look_ahead(forecast.model, forecast.frontier, rows, sets)
    members = model.family.members
    return np.concatenate([
        ahead[members[s] : members[s + 1], label] for label, s in enumerate(model.set_of)
    ])  # fmt: skip


def _sets(forecast: Forecast) -> tuple[PartitionSet, ...]:
    return forecast.model.family.sets


def _cheapest(forecast: Forecast, s: int) -> Ends:
    """The partitions of a set, or the best by value over its labels where they are many."""
    part = _sets(forecast)[s]
    if len(part) <= CARRIED_MAX:
        return part.ends
    labels = np.flatnonzero(forecast.model.set_of == s)
    values = [forecast.values_of(int(label))[1] for label in labels]
    return part.ends[np.argsort(np.min(values, axis=0), kind="stable")[:CARRIED_MAX]]


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
