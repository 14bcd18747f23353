"""Measures the cells of experiments into their tables: one at a time wherever a time is measured.

A cell that is in the table, measured with the same parameters, data, seed and code, is skipped: a run
that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from meander.errors import MeanderError
from meander.show.provenance import code, commit, machine
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters, parameters
from meander_lab.experiments.registry import Experiment
from meander_lab.experiments.tables import Cell, ResultTable, Row, cell_key

Say = Callable[[str], None]

UNSEEN = (
    "budget_s",
    "side_by_side",
    "repeats",
    "restart_windows",
    "paper_tasks_max",
    "mtm_tasks_max",
    "ahead_tasks_max",
    "spans",
)
"""Parameters that say which cells there are, or how they are run, and change nothing in a cell."""


class RunClock:
    """Estimates what is left: budgets of the parameters, corrected by what cells really took."""

    def __init__(self, expected_s: float) -> None:
        self.left_s = expected_s
        self.done_s = self.took_s = 1.0

    def past(self, expected_s: float, took_s: float | None) -> None:
        """Note a cell that was measured, or (None) one that needed not be."""
        self.left_s -= expected_s
        if took_s is not None:
            self.done_s += expected_s
            self.took_s += took_s

    def __str__(self) -> str:
        left = max(0.0, self.left_s) * self.took_s / self.done_s
        return f"about {left / 60:.0f} min to go" if left > 90 else f"about {left:.0f} s to go"


def run(
    experiments: Sequence[Experiment],
    ground: ExperimentGround,
    folder: Path,
    say: Say,
    *,
    keep: bool = False,
    stop_s: float = float("inf"),
    changes: Mapping[str, Any] | None = None,
) -> list[str]:
    """Measure whatever is missing.

    Args:
        experiments: which.
        ground: the data; its scale is the scale of all.
        folder: where the tables are.
        say: hears how far it is.
        keep: take cells of other code as they are.
        stop_s: seconds after which no further cell is begun; the next run goes on from there.
        changes: parameters that are other than the file has them; other cells stay as they are then.

    Returns:
        What went wrong, cell by cell; empty if all is well.
    """
    end_s = time.perf_counter() + stop_s
    changes = dict(changes or {})
    todo = [(e, Parameters(parameters(e.name, ground.scale) | changes)) for e in experiments]
    clock, trouble = RunClock(sum(wanted.get("budget_s", 10.0) for _, wanted in todo)), list[str]()
    for found, wanted in todo:
        cells = list(found.load().cells(wanted))
        table = ResultTable(folder, found.name)
        if not changes:
            table.keep({cell_key(cell) for cell in cells})
        known = _known(table, found, wanted, ground, keep=keep)
        share = wanted.get("budget_s", 10.0) / max(1, len(cells))
        missing = [cell for cell in cells if cell_key(cell) not in known]
        for _ in range(len(cells) - len(missing)):
            clock.past(share, None)
        for number, done in enumerate(_measured(found, missing, wanted, ground, end_s), 1):
            label = f"{found.name} {number}/{len(missing)} {_told(done.cell)}"
            clock.past(share, done.took_s / _workers(wanted))
            if done.trouble:
                trouble.append(f"{label}: {done.trouble}")
            else:
                table.put([_signed(row, done, found, wanted, ground) for row in done.rows])
            say(f"{label}: {done.trouble or f'{done.took_s:.1f} s'}; {clock}")
    return trouble


class Done(NamedTuple):
    """A cell that was measured, or could not be."""

    cell: Cell
    rows: list[Row]
    trouble: str
    took_s: float


def measure(found: Experiment, cell: Cell, wanted: Parameters, ground: ExperimentGround) -> Done:
    """Measure one cell."""
    began = time.perf_counter()
    try:
        rows, trouble = found.load().measure(cell, wanted, ground), ""
    except MeanderError as error:
        rows, trouble = [], str(error)
    return Done(cell, rows, trouble, time.perf_counter() - began)


def _workers(wanted: Parameters) -> int:
    """How many cells are measured at a time: more than one only where no time matters."""
    return (os.cpu_count() or 1) if wanted.get("side_by_side") else 1


def _measured(
    found: Experiment,
    cells: Sequence[Cell],
    wanted: Parameters,
    ground: ExperimentGround,
    end_s: float,
) -> Iterator[Done]:
    """Measure cells one after the other, or side by side in processes of their own."""
    if time.perf_counter() >= end_s:
        return
    workers = min(_workers(wanted), len(cells))
    if workers <= 1:
        for cell in cells:
            if time.perf_counter() >= end_s:
                return
            yield measure(found, cell, wanted, ground)
        return
    ground.prepare()
    where = (ground.scale, ground.path, ground.folder, ground.seed)
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_settle, initargs=where
    )
    try:
        left = iter(cells)
        asked = {pool.submit(_measure_there, found, c, wanted) for c in islice(left, workers)}
        while asked:
            done, asked = wait(asked, return_when=FIRST_COMPLETED)
            room = len(done) if time.perf_counter() < end_s else 0
            asked |= {pool.submit(_measure_there, found, c, wanted) for c in islice(left, room)}
            for one in done:
                yield one.result()
    finally:
        pool.shutdown(cancel_futures=True)


_here: list[ExperimentGround] = []
"""In a process that measures: its ground."""


def _settle(scale: str, data: Path | None, folder: Path, seed: int) -> None:
    _here[:] = [ExperimentGround(scale, data, folder, seed)]


def _measure_there(found: Experiment, cell: Cell, wanted: Parameters) -> Done:
    return measure(found, cell, wanted, _here[0])


def _told(cell: Cell) -> str:
    return ", ".join(f"{key} {value}" for key, value in cell.items())


def _known(
    table: ResultTable,
    found: Experiment,
    wanted: Parameters,
    ground: ExperimentGround,
    *,
    keep: bool,
) -> set[str]:
    """Find the cells that need not be measured again."""
    same = _identity(found, wanted, ground)
    return {
        row["cell"]
        for row in table.read()
        if row["identity"] == same and (keep or row["code"] == code())
    }


def _identity(found: Experiment, wanted: Parameters, ground: ExperimentGround) -> str:
    """Fingerprint what a cell depends on beside its own parameters and the code."""
    fixed = {k: v for k, v in wanted.items() if not isinstance(v, list) and k not in UNSEEN}
    parts = (found.name, fixed, dict(ground.wanted), ground.data, ground.seed)
    return sha256(repr(parts).encode()).hexdigest()[:12]


def _signed(
    row: Row, done: Done, found: Experiment, wanted: Parameters, ground: ExperimentGround
) -> Row:
    """Add where a row comes from."""
    origin: dict[str, Any] = {
        "cell": cell_key(done.cell), "identity": _identity(found, wanted, ground),
        "scale": ground.scale, "seed": ground.seed, "data": ground.data, "commit": commit(),
        "code": code(), "machine": machine(), "load": os.getloadavg()[0], "cell_s": done.took_s,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    return {**done.cell, **row, **origin}
