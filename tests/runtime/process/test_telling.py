"""What tasks tell of their event time, and that a node forgets it with them."""

import gc

import pyarrow as pa

from meander.operators import Aggregate, Topology, WindowAggregate, tumbling
from meander.protocol.settings import Settings
from meander.runtime.process.app_state import AppState
from meander.runtime.process.topology_adapter import TopologyAdapter
from meander.runtime.wire.rows import Mark, Rows

S = 1_000_000
TIME = pa.timestamp("us")
TASKS = 4


def windows(time: str) -> WindowAggregate:
    schema = pa.schema({"k": pa.int64(), time: TIME})
    return WindowAggregate(schema, ["k"], {"n": Aggregate("count")}, tumbling(time, 10.0))


def test_a_task_that_has_left_leaves_nothing_behind() -> None:
    first, then = windows("at"), windows("window_end")
    topology = Topology({"first": first, "then": then}, edges=[("first", "then")], tasks=TASKS)
    adapter = TopologyAdapter(topology, Settings())
    apps = [adapter.empty(task) for task in range(TASKS)]
    told = 0
    for app in apps:
        rows = pa.record_batch([[1, 2], [100 * S, 101 * S]], schema=first.schema)
        marks = Mark(1, 2, 0), Mark(1, 0, 100 * S)
        list(adapter.apply(app.task, app, "f", Rows(rows, 0, 2, marks), -1))
        adapter.settle()
        assert adapter.owes(app)
        told += len(adapter.elapse(app.task, app, 0.0) or ())
        assert not adapter.owes(app)
    assert told == TASKS * TASKS
    states = [app.state for app in apps]
    for app in apps:
        adapter.freeze(app)
        adapter.dump(app)
    del app
    apps.clear()
    gc.collect()
    kept = [one for one in gc.get_objects() if type(one) is AppState]
    assert not [one.task for one in kept if any(one.state is state for state in states)]
