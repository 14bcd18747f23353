"""From volumes to nodes: how many nodes each slot needs, and so which migrations happen.

The paper's Section 6: nodes are proportional to the volume of a slot and normalised into
[min, max]; where two adjacent slots differ, there is a migration.

    ideal(v) = min + (max - min) * (v - low) / (high - low),   clipped into [min, max]
    nodes    = ideal rounded to the nearest whole number, halves up

`low` is the smallest volume. `high` is a high quantile and not the maximum, which the paper leaves
open: one outlier (18 times the usual volume, in the tweets we know) would press all other slots
into the lowest two numbers. Both can be given, so that a later trace can use an earlier one's scale.

Hysteresis h keeps n until the ideal is more than 1/2 + h away from it.

A *gap* is a stretch without data: slots that a series lacks, or an unlikely long run of zeros.
With `gaps="hold"` nothing is decided there; with `"zero"` a gap is a quiet time like any other.

NumPy only; `meander.spark.pipeline.volumes` counts the volumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from meander.errors import InputError
from meander.spark.pipeline.files import read_json
from meander.spark.pipeline.slots import Moments, iso, parse_moment

FORMAT = "meander.trace/1"
SCHEMA_KEY = b"meander.trace"
HIGH_QUANTILE = 0.999
UNREADABLE = OSError, KeyError, TypeError, AttributeError, ValueError, OverflowError
"""What reading makes of a file that is no trace."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class TraceMigration(NamedTuple):
    """From `before` nodes to `after` nodes, at the start of a slot."""

    slot: np.datetime64
    before: int
    after: int


class Gap(NamedTuple):
    """Slots without data: `slots` of them from `start` on."""

    start: np.datetime64
    slots: int
    missing: bool
    """True when the series has no rows there, False when it has only zeros."""


@dataclass(frozen=True)
class Scaling:
    """How volumes become nodes."""

    nodes_min: int = 8
    nodes_max: int = 16
    hysteresis: float = 0.0
    low: float | None = None
    """The volume that gets `nodes_min`; the smallest one when None."""
    high: float | None = None
    """The volume that gets `nodes_max`; the `high_quantile` of all when None."""
    high_quantile: float = HIGH_QUANTILE

    def __post_init__(self) -> None:
        if not 1 <= self.nodes_min <= self.nodes_max:
            raise InputError(
                f"nodes need 1 <= min <= max, not min {self.nodes_min} and max {self.nodes_max}"
            )
        if not 0 <= self.hysteresis < float("inf"):
            raise InputError(f"hysteresis must not be negative, but is {self.hysteresis}")
        if not 0 < self.high_quantile <= 1:
            raise InputError(f"high-quantile must be in (0, 1], but is {self.high_quantile}")
        for name, value in (("low", self.low), ("high", self.high)):
            if value is not None and not isfinite(value):
                raise InputError(f"{name} must be a volume, but is {value}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InputError(f"low must be below high, not {self.low} and {self.high}")


@dataclass(frozen=True, eq=False)
class Trace:
    """Volume and nodes of consecutive slots."""

    slots: Moments
    """Starts, ascending, without holes."""
    volume: Ints
    nodes: Ints
    gaps: tuple[Gap, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def migrations(self) -> tuple[TraceMigration, ...]:
        """Every change between adjacent slots, in order."""
        changed = np.flatnonzero(np.diff(self.nodes)) + 1
        return tuple(
            TraceMigration(self.slots[k], int(self.nodes[k - 1]), int(self.nodes[k]))
            for k in changed
        )

    def need(self) -> npt.NDArray[np.float64]:
        """Give the nodes of every slot before rounding; n where that is not how n was decided."""
        p = self.parameters
        if not {"min", "max", "low", "high"} <= p.keys():
            return self.nodes.astype(np.float64)
        ideal = _ideal(self.volume, p["low"], p["high"], Scaling(p["min"], p["max"]))
        return np.where(np.floor(ideal + 0.5) == self.nodes, ideal, self.nodes)

    def hours(self) -> list[int]:
        """Give the hour of the day (UTC) of every slot."""
        hours: list[int] = (self.slots.astype("datetime64[h]").astype(int) % 24).tolist()
        return hours

    def between(self, since: str | datetime, until: str | datetime) -> Trace:
        """Give the part of the trace whose slots start in `[since, until)`.

        Raises:
            InputError: when that is empty.
        """
        low, high = (_moment(since), _moment(until))
        keep = (self.slots >= low) & (self.slots < high)
        if not keep.any():
            raise InputError(
                f"the trace has no slot from {iso(low)} until {iso(high)}: it spans "
                f"{iso(self.slots[0])} to {iso(self.slots[-1])}"
            )
        gaps = tuple(gap for gap in self.gaps if low <= gap.start < high)
        return Trace(self.slots[keep], self.volume[keep], self.nodes[keep], gaps, self.parameters)

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain values, as documented in `docs/pipeline.md`."""
        return {
            "format": FORMAT,
            "parameters": dict(self.parameters),
            "slots": [iso(slot) for slot in self.slots],
            "volume": self.volume.tolist(),
            "nodes": self.nodes.tolist(),
            "migrations": [
                {"slot": iso(m.slot), "before": m.before, "after": m.after} for m in self.migrations
            ],
            "gaps": [
                {"start": iso(g.start), "slots": g.slots, "missing": g.missing} for g in self.gaps
            ],
        }


def _moment(value: str | datetime) -> np.datetime64:
    exact = parse_moment(value) if isinstance(value, str) else value
    return np.datetime64(iso(exact).rstrip("Z"), "s")


def make_trace(
    slots: Moments,
    volume: Ints,
    scaling: Scaling,
    *,
    missing: Flags | None = None,
    gap_slots: int = 12,
    gaps: str = "zero",
) -> Trace:
    """Turn volumes into a trace.

    Args:
        slots: starts of consecutive slots.
        volume: events of each slot; 0 where missing.
        scaling: how volumes become nodes.
        missing: slots that the data does not cover.
        gap_slots: a run of this many zeros is a gap.
        gaps: `hold` keeps the number of nodes in a gap; `zero` takes it for a quiet time.

    >>> hours = np.arange(5).astype("datetime64[h]").astype("datetime64[s]")
    >>> make_trace(hours, np.array([0, 50, 100, 100, 10]), Scaling(8, 16)).nodes.tolist()
    [8, 12, 16, 16, 9]
    """
    if gaps not in ("hold", "zero"):
        raise InputError(f"gaps must be hold or zero, not {gaps!r}")
    if len(volume) == 0:
        raise InputError("no slots: the source holds no rows")
    missing = np.zeros(len(volume), dtype=np.bool_) if missing is None else missing
    found = find_gaps(slots, volume, missing, gap_slots)
    unknown = missing.copy()
    for gap in found:
        begin = int(np.searchsorted(slots, gap.start))
        unknown[begin : begin + gap.slots] = True
    decided = ~unknown if gaps == "hold" else np.ones(len(volume), dtype=np.bool_)
    if not decided.any():
        raise InputError("the trace is one single gap: every slot is empty; say --gaps zero")
    low, high = _scale(volume[decided], scaling)
    nodes = _follow(_ideal(volume, low, high, scaling), decided, scaling.hysteresis)
    parameters = {
        "min": scaling.nodes_min, "max": scaling.nodes_max, "low": low, "high": high,
        "hysteresis": scaling.hysteresis, "gaps": gaps, "gap_slots": gap_slots,
        "slot_s": int((slots[1] - slots[0]).astype(int)) if len(slots) > 1 else None,
    }  # fmt: skip
    return Trace(slots, volume, nodes, found, parameters)


def _scale(volume: Ints, scaling: Scaling) -> tuple[float, float]:
    low = float(volume.min()) if scaling.low is None else scaling.low
    if scaling.high is not None:
        return low, scaling.high
    return low, float(np.quantile(volume, scaling.high_quantile, method="inverted_cdf"))


def _ideal(volume: Ints, low: float, high: float, scaling: Scaling) -> npt.NDArray[np.float64]:
    """Give the unrounded number of nodes; the minimum everywhere when all volumes are equal."""
    span = scaling.nodes_max - scaling.nodes_min
    share = (volume - low) / (high - low) if high > low else np.zeros(len(volume))
    return np.asarray(scaling.nodes_min + span * np.clip(share, 0.0, 1.0), dtype=np.float64)


def _follow(ideal: npt.NDArray[np.float64], decided: Flags, hysteresis: float) -> Ints:
    """Round each ideal; keep the last number where nothing is decided or the change is small."""
    rounded = np.floor(ideal + 0.5).astype(np.int64)
    nodes = rounded.copy()
    current = int(rounded[np.argmax(decided)])
    for k in range(len(nodes)):
        if decided[k] and abs(ideal[k] - current) > 0.5 + hysteresis:
            current = int(rounded[k])
        elif decided[k] and hysteresis == 0:
            current = int(rounded[k])  # an exact half: rounding decides
        nodes[k] = current
    return nodes


def find_gaps(slots: Moments, volume: Ints, missing: Flags, gap_slots: int) -> tuple[Gap, ...]:
    """Find runs of missing slots, and runs of at least `gap_slots` empty ones."""
    empty = missing | (volume == 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], empty, [False]]).astype(np.int8)))
    found = []
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        absent = missing[begin:end]
        if end - begin >= gap_slots:
            found.append(Gap(slots[begin], end - begin, bool(absent.all())))
        elif absent.any():
            found += [Gap(slots[begin + a], b - a, True) for a, b in _runs(absent)]
    return tuple(found)


def _runs(flags: Flags) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write by extension: `.json` everything, `.parquet` table and parameters, `.csv` the table.

    Raises:
        InputError: for another extension, or a place that cannot be written.
    """
    path, suffix = Path(path), Path(path).suffix.lower()
    if suffix not in (".json", ".parquet", ".csv"):
        raise InputError(f"{path}: a trace is written as .parquet, .csv or .json")
    everything = trace.to_json()
    slots = pa.array(trace.slots.astype("datetime64[ms]")).cast(pa.timestamp("ms", "UTC"))
    table = pa.table({"slot": slots, "volume": trace.volume, "nodes": trace.nodes})
    try:
        if suffix == ".json":
            path.write_text(json.dumps(everything) + "\n", encoding="utf-8")
        elif suffix == ".csv":
            pacsv.write_csv(table, path)
        else:
            facts = {key: everything[key] for key in ("format", "parameters", "gaps")}
            pq.write_table(
                table.replace_schema_metadata({SCHEMA_KEY: json.dumps(facts).encode()}), path
            )
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from None


def read_trace(path: str | Path) -> Trace:
    """Read what `write_trace` wrote.

    Raises:
        InputError: when it is no trace.
    """
    path, suffix = Path(path), Path(path).suffix.lower()
    try:
        if suffix == ".json":
            facts = read_json(str(path), FORMAT)
            slots = np.array([text.rstrip("Z") for text in facts["slots"]], dtype="datetime64[s]")
            return _checked(path, slots, facts["volume"], facts["nodes"], facts)
        table = pacsv.read_csv(path) if suffix == ".csv" else pq.read_table(path)
        slots = table["slot"].cast(pa.timestamp("ms", "UTC")).to_numpy().astype("datetime64[s]")
        facts = json.loads((table.schema.metadata or {}).get(SCHEMA_KEY, b"{}"))
        volume, nodes = table["volume"].to_pylist(), table["nodes"].to_pylist()
        return _checked(path, slots, volume, nodes, facts)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (*UNREADABLE, pa.ArrowException) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{path} is no trace (slot, volume, nodes): {why}") from None


def _check_steps(path: Path, slots: Moments) -> None:
    """Refuse holes: whoever counts slots would take one time of day for another."""
    steps = np.diff(slots)
    odd = np.flatnonzero(steps != steps.min()) if len(steps) else steps
    if len(odd):
        k = int(odd[0])
        raise InputError(
            f"{path}: slots must all be as long, {steps.min().astype(int)} s, but {iso(slots[k])} is "
            f"followed by {iso(slots[k + 1])}: fill the hole, with volume 0 and the nodes before it"
        )


def _checked(
    path: Path, slots: Moments, volume: Any, nodes: Any, facts: Mapping[str, Any]
) -> Trace:
    if len(slots) == 0 or np.isnat(slots).any() or any(a >= b for a, b in pairwise(slots)):
        raise InputError(f"{path}: slots must be there and ascend")
    _check_steps(path, slots)
    gaps = tuple(
        Gap(np.datetime64(gap["start"].rstrip("Z"), "s"), gap["slots"], gap["missing"])
        for gap in facts.get("gaps", ())
    )
    whole = _whole(path, "volume", volume, slots)
    counts = _whole(path, "nodes", nodes, slots)
    if counts.min() < 1:
        raise InputError(
            f"{path}: at {iso(slots[counts.argmin()])} there are no nodes: give 1 or more"
        )
    return Trace(slots, whole, counts, gaps, _parameters(path, facts.get("parameters", {})))


def _whole(path: Path, name: str, values: Any, slots: Moments) -> Ints:
    """Check one column: a whole number for every slot."""
    if not isinstance(values, list) or len(values) != len(slots):
        raise InputError(f"{path}: {name} must be a list with one number for each slot")
    for slot, value in zip(slots, values, strict=True):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or value != value // 1 or abs(value) >= 2**63:
            raise InputError(f"{path}: {name} at {iso(slot)} is {value!r}, not a whole number")
    return np.array([int(value) for value in values], dtype=np.int64)


def _parameters(path: Path, found: Any) -> dict[str, Any]:
    """Check how volumes became nodes, as far as it is told."""
    for name in ("min", "max", "low", "high"):
        value = found.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise InputError(f"{path}: parameter {name} is {value!r}, not a number")
    if {"min", "max"} <= found.keys():
        Scaling(found["min"], found["max"])
    return dict(found)
