"""What tasks feed to their own operator: sorted into chunks for the tasks that get it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.protocol.state import Emission
from meander.runtime.process.user_code import ask
from meander.runtime.wire.rows import Rows


def spread(
    operator: Operator[Any], tasks: int, contexts: Iterable[Context]
) -> Iterator[tuple[TaskId, Emission]]:
    """Sort what tasks feed by the task that does and the one it is for: one sort for all."""
    fed = [(context.task, batch) for context in contexts for batch in context.fed]
    rows = _feed(operator, fed) if fed else None
    if rows is None or not rows.num_rows:
        return
    feeding = np.repeat([task for task, _ in fed], [batch.num_rows for _, batch in fed])
    hashes = hash_columns([rows.column(key) for key in operator.keys])
    targets = tasks_of(hashes, tasks)
    order = np.lexsort((targets, feeding))
    rows, feeding, targets = rows.take(pa.array(order)), feeding[order], targets[order]
    cuts = np.flatnonzero((np.diff(feeding) != 0) | (np.diff(targets) != 0)) + 1
    row_bytes = rows.nbytes / max(1, rows.num_rows)
    for lb, ub in pairwise([0, *cuts.tolist(), rows.num_rows]):
        part = Rows(rows, lb, ub - lb)
        size = int(row_bytes * (ub - lb))
        yield int(feeding[lb]), Emission(int(targets[lb]), part, size)


def _feed(operator: Operator[Any], fed: list[tuple[TaskId, Any]]) -> Any:
    """Bring what the operator feeds to its own schema."""

    def bring() -> Any:
        return pa.concat_batches([batch.select(operator.schema.names) for _, batch in fed])

    return ask(operator, fed[0][0], "feed", bring)
