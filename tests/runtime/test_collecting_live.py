"""`on_error="collect"` on processes: every row is counted or set aside, and neither twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from runtime_kit import pid_of, until
from topology_operators import LetterCount, Letters

import meander
from meander.errors import InputError
from meander.operators import Aggregate, Context, Edge, KeyedAggregate, WordCount, collecting
from meander.runtime.driver.launch import WarmLauncher

GOOD = [f"w{i % 97}" for i in range(3000)]


class Picky(Letters):
    """Counts a word before it finds that it cannot take it."""

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        super().process(state, batch, context)
        for word in batch["word"].to_pylist():
            if word.startswith("bad"):
                raise ValueError(f"{word} is bad")


def with_bad(words: list[str], every: int) -> pa.RecordBatch:
    """Put bad words among the others."""
    found = [
        w for i, word in enumerate(words) for w in ([word, f"bad{i}"] if not i % every else [word])
    ]
    return pa.record_batch({"word": found})


def bad(numbers: range) -> Counter[str]:
    return Counter(f'{{"word": "bad{i}"}}' for i in numbers)


def set_aside(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["error_row"] for row in rows if row["error"] is not None)


def test_every_row_is_counted_or_set_aside_once(launcher: WarmLauncher, tmp_path: Path) -> None:
    """1. good and bad rows  2. more nodes  3. a node is killed  4. fewer nodes"""
    told: list[dict[str, Any]] = []
    with meander.deploy_local(
        Picky(), tasks=8, nodes=2, launcher=launcher, on_error="collect",
        checkpoint=tmp_path, checkpoint_s=0.2,
    ) as op:  # fmt: skip
        with op.feeder("f") as feeder:
            feeder.feed(with_bad(GOOD[:1000], 50))
            op.rescale(4, pause_ms=100).wait()
            told += op.outputs().to_pylist()
            feeder.feed(with_bad(GOOD[1000:2000], 50))
            os.kill(pid_of(op, "n1"), signal.SIGKILL)
            feeder.feed(with_bad(GOOD[2000:], 50))
            op.rescale(2).wait()
            feeder.flush()

        def all_told() -> bool:
            told.extend(op.outputs().to_pylist())
            return len(told) >= len(GOOD) + 60

        until(all_told)
        state = {row["word"]: row["n"] for row in op.state().to_pylist()}
    assert state == Counter(GOOD)
    expected = bad(range(0, 1000, 50))
    assert set_aside(told) == Counter(dict.fromkeys(expected, 3))
    assert sum(row["error"] is None for row in told) == len(GOOD)


def test_rows_set_aside_do_not_go_down_the_stream(launcher: WarmLauncher) -> None:
    topology = meander.Topology(
        {"letters": Picky(), "count": LetterCount()}, [("letters", "count")], tasks=4
    )
    with meander.deploy_local(topology, nodes=2, launcher=launcher, on_error="collect") as op:
        with op.feeder("f") as feeder:
            feeder.feed(with_bad(GOOD[:300], 30))
        op.drain()
        found = op.outputs("letters").to_pylist()
        assert set_aside(found) == bad(range(0, 300, 30))
        assert all(row["error"] for row in found), "what it emits is for the other alone"
        rows = {row["letter"]: row["rows"] for row in op.state_table(of="count").to_pylist()}
        assert rows == {"w": 300}


def test_an_edge_leads_them_elsewhere(launcher: WarmLauncher) -> None:
    failures = KeyedAggregate(
        pa.schema({"error": pa.string()}), ["error"], {"rows": Aggregate("count")}
    )
    topology = meander.Topology(
        {"letters": collecting(Picky()), "count": LetterCount(), "bad": failures},
        [("letters", "count"), Edge("letters", "bad", "errors")],
        tasks=4,
    )
    with meander.deploy_local(topology, nodes=2, launcher=launcher) as op:
        with op.feeder("f") as feeder:
            feeder.feed(with_bad(GOOD[:300], 30))
        op.drain()
        rows = op.state_table(of="bad").to_pylist()
        assert {row["error"]: row["rows"] for row in rows} == {
            f"ValueError: bad{i} is bad": 1 for i in range(0, 300, 30)
        }


def test_what_is_no_way_to_treat_errors_is_refused() -> None:
    with pytest.raises(InputError, match="on_error is 'raise' or 'collect'"):
        meander.deploy_local(WordCount(), on_error="ignore")
