"""How long outputs are kept: until somebody has fetched them, or there are too many (`outputs`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from meander.errors import StateError
from meander.operators.base import Operator
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.outputs import ROWS_MAX


class Bell:
    """Tells whoever waits that there is more."""

    def __init__(self) -> None:
        self.count = 0
        """Rises with it."""
        self.changed = threading.Condition()
        """Notified then."""

    def ring(self) -> None:
        """Say so."""
        with self.changed:
            self.count += 1
            self.changed.notify_all()


class OutputNews(NamedTuple):
    """Tells of new outputs of a node. Nobody is woken for what he may not see."""

    kept: Bell
    """Of all."""
    shown: Bell
    """Of those that are shown: with checkpoints, when they are durable."""

    @classmethod
    def none(cls) -> OutputNews:
        """Make one that has nothing to tell yet."""
        return cls(Bell(), Bell())


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
        self.news = news or OutputNews.none()
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
        if not self.gated:
            app.outputs.retain(self.rows_max, app.outputs.last - 1)
        if shown:
            self.news.kept.ring()
            if not self.gated:
                self.news.shown.ring()

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Show outputs that are durable now; of those shown before, let go what is too much."""
        app.outputs.retain(self.rows_max, app.outputs.durable)
        if mark.outputs != app.outputs.durable:
            app.outputs.durable = mark.outputs
            self.news.shown.ring()
