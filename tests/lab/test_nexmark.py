"""NexMark: events are functions of their numbers, and queries do not depend on how they are run."""

import pyarrow as pa
import pytest

from meander_lab.bench.nexmark import NexmarkSetting
from meander_lab.bench.nexmark_latency import latency
from meander_lab.bench.nexmark_ours import Fed, told
from meander_lab.nexmark.events import SCHEMAS, Nexmark
from meander_lab.nexmark.local import run_query, same
from meander_lab.nexmark.queries import COLUMNS, QUERIES

STREAM = Nexmark(rate=300)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_events_are_the_same_wherever_one_begins(kind: str) -> None:
    whole = pa.Table.from_batches([STREAM.batch(kind, 0, 5000)])
    parts = pa.Table.from_batches(list(STREAM.batches(kind, 0, 5000, 333)))
    assert parts.combine_chunks().equals(whole.combine_chunks())
    assert whole.schema.equals(SCHEMAS[kind])
    share = {"person": 1, "auction": 3, "bid": 46}[kind]
    assert whole.num_rows == 5000 // 50 * share


def test_bids_are_for_auctions_that_are_about_and_some_are_hot() -> None:
    bids = STREAM.batch("bid", 50_000, 60_000)["auction"]
    counts = bids.value_counts().field("counts").to_pylist()
    assert max(counts) > 10 * sorted(counts)[len(counts) // 2]
    last = STREAM.batch("auction", 59_000, 60_000)["id"].to_pylist()[-1]
    assert max(bids.to_pylist()) <= last + 10


@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_does_not_depend_on_parts_tasks_and_moves(name: str) -> None:
    plain = run_query(QUERIES[name](), STREAM, 8_000, 8_000, tasks=1)
    moved = run_query(QUERIES[name](), STREAM, 8_000, 611, tasks=5, move_every=2)
    assert plain.num_rows > 0
    assert plain.schema.names == list(COLUMNS[name])
    assert same(plain, moved)


LONG = ("q3", "q5", "q6", "q7")
"""In the long tier: q4, q8 and q11 have a join, windows, what is told again, and sessions."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in LONG else n
        for n in ("q4", "q8", "q11", *LONG)
    ],
)
def test_a_deployment_that_is_rescaled_answers_the_same(name: str) -> None:
    expected = run_query(QUERIES[name](), STREAM, 8_000, 1_000)
    assert same(told(QUERIES[name](), STREAM, 8_000, 8), expected)


def test_event_time_does_not_go_back_before_a_rescale_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all rows whose latency is told would be late, and thrown away."""
    times, feed = list[int](), Fed.feed

    def seen(fed: Fed, kind: str, batch: pa.RecordBatch, due_s: float | None = None) -> None:
        times.extend(batch["dateTime"].cast(pa.int64()).to_numpy()[[0, -1]].tolist())
        feed(fed, kind, batch, due_s)

    monkeypatch.setattr(Fed, "feed", seen)
    setting = NexmarkSetting(tasks=4, nodes=1, to=2, seconds=1.0, paced_rate=20_000)
    found = latency(QUERIES["q11"](), setting)
    assert times == sorted(times)
    assert times[-1] - times[0] >= 1_900_000  # the filling, and what was paced
    assert (found["rate_events_s"], found["max_during_ms"] > 0) == (20_000.0, True)
