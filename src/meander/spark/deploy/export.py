"""`op.export`: the state of an operator, and how far it is, for whoever goes on without it.

    state/         Parquet: a row per key, which `deploy(…, initial_state=…)` takes, and any Spark job
    export.json    the operator, its keys and columns; how far queries and feeders were

What a task has taken in of a query is known by the query's batches; the offsets of its sources are in
the logs of its checkpoint (`query_logs`). How far feeders are is exact, or the export is refused
(`runtime.driver.reached`). Nobody may write meanwhile: the state is read task by task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.driver.reached import Reached
from meander.runtime.store.filesystem import open_files
from meander.spark.deploy.query_logs import read_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "export.json"
PLACE = ("task", "node", "as_of")


def export(
    state: DataFrame,
    about: dict[str, Any],
    path: str,
    query: str | None,
    reached: Reached,
    check: Callable[[], None],
) -> dict[str, Any]:
    """Write a state that was read whole, and what is known of it; give the latter.

    Args:
        state: with `task`, `node` and `as_of`.
        about: the operator.
        path: the folder.
        query: the checkpoint of the query that fed it; None: there is none.
        reached: how far queries and feeders are.
        check: raises if they went on meanwhile.

    Raises:
        InputError: if something is there already, or the query was stopped within a batch.
        CheckpointError: if `query` is no checkpoint of a query.
    """
    files, place = open_files(path), state.columns[-len(PLACE) :]
    files.prepare()
    if files.read(FILE) is not None:
        raise InputError(f"there is an export in {path} already: give another folder")
    logs = None if query is None else read_logs(query)
    queries, feeders, _ = reached
    if logs is not None and queries.get(logs.query, 0) > logs.batch:
        raise InputError(
            f"the query was stopped when batch {queries[logs.query]} was applied and not yet in its "
            "logs: start it again, stop it when it is idle, and export then"
        )
    state.drop(*place).write.mode("overwrite").parquet(f"{path.rstrip('/')}/state")
    check()
    told = {} if logs is None else logs.json()
    found = {**about, **told, "queries": queries, "feeders": feeders}
    files.publish(FILE, json.dumps(found, indent=2).encode())  # last: all is there
    return found
