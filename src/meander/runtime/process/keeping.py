"""How long outputs are kept: until somebody has fetched them, or there are too many (`outputs`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from meander.errors import StateError
from meander.operators.base import Operator
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.outputs import ROWS_MAX


class OutputNews:
    """Tells those who wait for outputs of a node that there are more."""

    def __init__(self) -> None:
        self.kept = 0
        """Rises whenever there is more."""
        self.shown = 0
        """Rises whenever more of it is shown: with checkpoints, when it is durable."""
        self.changed = threading.Condition()
        """Notified when one of them has risen."""

    def came(self, *, kept: int = 0, shown: int = 0) -> None:
        """Say that there is more."""
        with self.changed:
            self.kept += kept
            self.shown += shown
            self.changed.notify_all()


class OutputKeeper:
    """Takes what tasks emit."""

    def __init__(
        self,
        operator: Operator[Any],
        *,
        gated: bool = False,
        rows_max: int = ROWS_MAX,
        keeps: bool = True,
        keeps_aside: bool = True,
        news: OutputNews | None = None,
    ) -> None:
        self.operator = operator
        self.gated = gated
        """Whether outputs are shown only when a record that holds them is durable."""
        self.rows_max = rows_max
        """Rows of outputs that a task keeps for whoever reads them."""
        self.keeps = keeps
        """Whether anybody may read them: else what is emitted is for other operators alone."""
        self.keeps_aside = keeps_aside
        """Whether anybody may read what is set aside."""
        self.news = news or OutputNews()
        """Hears of everything that is taken; None: nobody else's."""

    def keep(self, app: AppState, emitted: Sequence[Any], aside: Sequence[Any] = ()) -> None:
        """Take what a task has emitted or set aside.

        The oldest go if they could be read and are too much.
        """
        for batch in emitted:
            if type(batch) is not pa.RecordBatch:
                why = f"it gave a {type(batch).__name__}, not a record batch"
                raise self.operator.failure_in("emit", app.task, StateError(why))
        shown = (*(emitted if self.keeps else ()), *(aside if self.keeps_aside else ()))
        for batch in shown:
            app.outputs.add(batch)
        if shown:
            self.news.came(kept=1, shown=0 if self.gated else 1)
        if not self.gated:
            app.outputs.retain(self.rows_max, app.outputs.last - 1)

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Show outputs that are durable now; of those shown before, let go what is too much."""
        app.outputs.retain(self.rows_max, app.outputs.durable)
        if mark.outputs != app.outputs.durable:
            app.outputs.durable = mark.outputs
            self.news.came(shown=1)
