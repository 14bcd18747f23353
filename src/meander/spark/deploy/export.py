"""`op.export`: the state of an operator, and how far it is, for whoever goes on without it.

    state/         Parquet: a row per key, which `deploy(…, initial_state=…)` takes, and any Spark job
    export.json    the operator, its keys and columns; how far queries and feeders were

What a task has taken in of a query is known by the query's batches; the offsets of its sources are in
the logs of its checkpoint (`query_logs`). Nobody may write meanwhile: the state is read task by task.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.store.filesystem import open_files
from meander.spark.deploy.query_logs import read_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "export.json"
PLACE = ("task", "node", "as_of")


def export(state: DataFrame, about: dict[str, Any], path: str, query: str | None) -> dict[str, Any]:
    """Write a state that was read whole, and what is known of it; give the latter.

    Raises:
        InputError: if something is there already, or the query was stopped within a batch.
        CheckpointError: if `query` is no checkpoint of a query.
    """
    files, place = open_files(path), state.columns[-len(PLACE) :]
    files.prepare()
    if files.read(FILE) is not None:
        raise InputError(f"there is an export in {path} already: give another folder")
    logs = None if query is None else read_logs(query)
    moments = [json.loads(row[0]) for row in state.select(place[-1]).distinct().collect()]
    queries, feeders = _last(moments, "queries"), _last(moments, "feeders")
    if logs is not None and queries.get(logs.query, 0) > logs.batch:
        raise InputError(
            f"the query was stopped when batch {queries[logs.query]} was applied and not yet in its "
            "logs: start it again, stop it when it is idle, and export then"
        )
    state.drop(*place).write.mode("overwrite").parquet(f"{path.rstrip('/')}/state")
    told = {} if logs is None else logs.json()
    found = {**about, **told, "queries": queries, "feeders": feeders}
    files.publish(FILE, json.dumps(found, indent=2).encode())  # last: all is there
    return found


def _last(moments: list[dict[str, Any]], which: str) -> dict[str, int]:
    """Tell how far each query or feeder was, by the task that has most of it.

    >>> _last([{"queries": {"q": 3}}, {"queries": {"q": 4}}, {}], "queries")
    {'q': 4}
    """
    found: dict[str, int] = {}
    for moment in moments:
        for name, at in moment.get(which, {}).items():
            found[name] = max(at, found.get(name, at))
    return found
