"""The examples' operators in processes that are rescaled, against plain loops over the same rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import running_join  # noqa: E402
import sessions  # noqa: E402
import top_k  # noqa: E402


def emitted(op: ElasticOperator, have: dict[int, int]) -> list[dict[str, Any]]:
    found = op.driver.reader().outputs(op.driver.nodes(), have)
    return [row for table in found for row in table.to_pylist()]


def test_sessions(launcher: WarmLauncher) -> None:
    rows = sessions.clicks(users=5, minutes=10)
    batch = pa.record_batch(list(zip(*rows, strict=True)), schema=sessions.Sessions.schema)
    with (
        deploy_local(sessions.Sessions(), tasks=16, nodes=2, launcher=launcher) as op,
        op.feeder("clicks") as feeder,
    ):
        feeder.feed(batch.slice(0, 20))
        handle = op.rescale(3)
        feeder.feed(batch.slice(20))
        feeder.flush()
        handle.wait(60)
        found = emitted(op, {})
    over = max(at for _, at in rows).timestamp() - 5 - sessions.GAP_S
    starts = [(user, at) for user, at in rows if at.second == 0 and at.timestamp() + 20 <= over]
    assert sorted((row["user"], row["first"]) for row in found) == sorted(starts)
    assert {row["clicks"] for row in found} == {3}


def test_top_k(launcher: WarmLauncher) -> None:
    batches = list(top_k.sales(6, rows=300))
    with deploy_local(top_k.TopK(2), tasks=16, nodes=3, launcher=launcher) as op:
        have: dict[int, int] = {}
        with op.feeder("sales") as feeder:
            for batch in batches[:3]:
                feeder.feed(batch)
            handle = op.rescale(2)
            for batch in batches[3:]:
                feeder.feed(batch)
            handle.wait(60)
        found = {row["shop"]: row["items"] for row in emitted(op, have)}
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    for shop in {shop for shop, _, _ in rows}:
        best = sorted(((p, i) for s, i, p in rows if s == shop), reverse=True)[:2]
        assert found[shop] == [item for _, item in best]


def test_running_join(launcher: WarmLauncher) -> None:
    orders = 200
    sides = {
        side: running_join.halves(side, orders, n) for side, n in (("order", 7), ("payment", 5))
    }
    with deploy_local(running_join.OrdersAndPayments(), tasks=16, nodes=2, launcher=launcher) as op:
        with op.feeder("orders") as ordered, op.feeder("payments") as paid:
            handle = None
            for start in range(0, orders, 40):
                ordered.feed(sides["order"].slice(start, 40))
                paid.feed(sides["payment"].slice(start, 40))
                handle = handle or op.rescale(3)
            assert handle is not None
            handle.wait(60)
        found = emitted(op, {})
    ordered_, paid_ = ({n for n in range(orders) if n % k} for k in (7, 5))
    assert sorted(r["order"] for r in found if r["what"] == "matched") == sorted(ordered_ & paid_)
    assert all(r["ordered"] == r["paid"] == r["order"] for r in found if r["what"] == "matched")
    lonely = {row["order"] for row in found if row["what"] == "unmatched"}
    assert lonely <= ordered_ ^ paid_
    assert {n for n in ordered_ ^ paid_ if n < orders - 80} <= lonely
