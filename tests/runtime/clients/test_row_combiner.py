"""Rows of the same key in one, on their way: when that is done, and that nobody is led astray by it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import meander
from meander.model import Epoch
from meander.operators import WordCount, hash_columns
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import Bye, Envelope, Stage, Staged
from meander.runtime.clients.combining import LOSSES_MAX, CombineLimits, KeyedRows, RowCombiner
from meander.runtime.clients.offers import offer_of
from meander.runtime.clients.pieces import groups_of
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.app_state import AppState
from meander.runtime.wire.codec import decode, encode
from meander.runtime.wire.rows import Mark, Rows, by_kind

TASKS = 8
WORDS = pa.schema({"word": pa.string()})
ALWAYS = CombineLimits(1, 0)


def words(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"word": list(texts)}, schema=WORDS)


def keyed(*texts: str) -> KeyedRows:
    batch = words(*texts)
    return KeyedRows(batch, [len(texts)], hash_columns(batch))


ALIKE, APART = keyed(*"aabb"), keyed(*"abcd")


def combined(combiner: RowCombiner, rows: KeyedRows) -> bool:
    return combiner.combine(rows).batch.num_columns == 2


def test_it_is_tried_now_and_then_and_goes_on_while_it_pays() -> None:
    combiner = RowCombiner(WordCount(), CombineLimits(rows_min=4, try_every=3))
    assert not combined(combiner, APART)
    assert [combined(combiner, ALIKE) for _ in range(6)] == [False] * 3 + [True] * 3
    assert [combined(combiner, APART) for _ in range(LOSSES_MAX + 1)] == (
        [True] * (LOSSES_MAX - 1) + [False] * 2
    )
    assert combiner.combined == 4 * (3 + LOSSES_MAX - 1)


def test_some_that_do_not_pay_among_others_do_not_end_it() -> None:
    combiner = RowCombiner(WordCount(), ALWAYS)
    assert all(combined(combiner, rows) for rows in [ALIKE, APART, APART, APART] * 5)


def test_few_rows_are_left_as_they_are() -> None:
    combiner = RowCombiner(WordCount(), CombineLimits(rows_min=5, try_every=0))
    assert not combined(combiner, ALIKE)
    assert not combined(RowCombiner(None, ALWAYS), ALIKE)


def test_rows_of_two_source_batches_stay_apart() -> None:
    gathered = [(4, 0, words(*"aaab")), (5, 0, words(*"aa")), (9, 0, words(*"bb"))]
    offer = offer_of(gathered, ("word",), 1, None, RowCombiner(WordCount(), ALWAYS))
    ((_, rows, first, last, _),) = offer.groups
    assert (first, last, list(rows.marks)) == (4, 9, [Mark(4, 2, 0), Mark(5, 1, 0), Mark(9, 1, 0)])
    assert rows.after(4).table().to_pydict() == {"word": ["a", "b"], "#rows": [2, 2]}
    assert rows.after(5).table().to_pydict() == {"word": ["b"], "#rows": [2]}


def test_tallies_of_a_micro_batch_are_those_of_its_rows_combined_or_not() -> None:
    batch = words(*(Random(i).choice("abcdefgh") for i in range(200)))
    plain = groups_of(batch, ("word",), TASKS)
    few = groups_of(batch, ("word",), TASKS, None, RowCombiner(WordCount(), ALWAYS))
    assert [(task, tally) for task, _, tally, _ in plain] == [(t, tally) for t, _, tally, _ in few]
    assert sum(rows.count for _, rows, _, _ in few) == 8


def mixed(batches: int = 12) -> list[tuple[RowCombiner | None, pa.RecordBatch]]:
    random = Random(7)
    return [
        (
            RowCombiner(WordCount(), ALWAYS) if random.random() < 0.5 else None,
            words(*(random.choice("aabcdefgh") for _ in range(random.randint(8, 30)))),
        )
        for _ in range(batches)
    ]


def test_a_task_takes_both_kinds_in_one_turn_and_after_waiting() -> None:
    adapter, apps = OperatorAdapter(WordCount(), TASKS), dict[int, AppState]()
    wanted: Counter[str] = Counter()
    for offset, (combiner, batch) in enumerate(mixed()):
        wanted.update(batch["word"].to_pylist())
        for task, rows, *_ in offer_of(
            [(offset, 0, batch)], ("word",), TASKS, None, combiner
        ).groups:
            app = apps.setdefault(task, adapter.empty(task))
            waited = adapter.load_rows(adapter.dump_rows(rows)) if offset % 3 else rows
            assert not list(adapter.apply(task, app, "f", waited, offset - 1))
    adapter.settle()
    found: Counter[str] = Counter()
    for app in apps.values():
        found.update({r["word"]: r["count"] for r in adapter.show(app).to_pylist()})
    assert found == wanted
    assert adapter.work.rows == adapter.work.latency.count == wanted.total()
    assert 0 < adapter.work.combined < adapter.work.rows


def test_a_message_is_cut_where_it_has_rows_of_both_kinds() -> None:
    operator = WordCount()
    raw, few = words("a", "a"), operator.combine(words("b", "b", "b"))
    parts = [Rows(raw, 0, 1), Rows(few, 0, 1), Rows(raw, 1, 1)]
    marked = [Rows(part.batch, part.start, 1, (Mark(3, 1, 0),)) for part in parts]
    chunks = Chunks(tuple(Chunk("f", 1, i, 1, 3, 3, rows) for i, rows in enumerate(marked)), True)
    staged = Stage(tuple(Staged("q", 1, 0, 5, i, r, 1) for i, r in enumerate(parts)), "query/1")
    for body, items in ((chunks, chunks.chunks), (staged, staged.items)):
        cut = by_kind(Envelope("n1", 3, "n2", 0, Epoch(1, 7), body))
        found = [decode(*encode(part), operator.schemas).body for part in cut]
        told = [getattr(part, "rerouted", getattr(part, "reply_to", None)) for part in found]
        assert told == ([True, True] if body is chunks else ["query/1", "query/1"])
        again = [getattr(part, "chunks", getattr(part, "items", ())) for part in found]
        assert [[item.task for item in part] for part in again] == [[0, 2], [1]]
        for item in (item for part in again for item in part):
            assert item.rows.table() == items[item.task].rows.table()
    for body in (Bye(1), Chunks(()), Chunks(chunks.chunks[:1])):
        envelope = Envelope("n1", 3, "n2", 0, Epoch(1, 7), body)
        assert by_kind(envelope) == [envelope]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_key_that_is_half_of_a_stream_is_counted(share: float, launcher: WarmLauncher) -> None:
    random, wanted = Random(1), Counter[str]()
    with meander.deploy_local(WordCount(), nodes=2, tasks=16, launcher=launcher) as op:
        with op.feeder("f") as feeder:
            for _ in range(10):
                texts = [
                    "hot" if random.random() < share else f"w{random.random()}" for _ in range(2000)
                ]
                wanted.update(texts)
                feeder.feed(words(*texts))
        found = {row["word"]: row["count"] for row in op.state().to_pylist()}
        metrics = op.metrics()
    assert found == wanted
    assert metrics["rows"] == metrics["latency"]["count"] == 20_000
    assert (metrics["combined_rows"] > 10_000) is (share == 1.0)  # no node is behind


def test_while_no_node_is_behind_only_what_leaves_nearly_nothing_is_combined() -> None:
    combiner = RowCombiner(WordCount(), CombineLimits(rows_min=1, try_every=0))
    half, nothing = keyed("a", "b", "a", "b"), keyed(*20 * ["a"])

    def combines(rows: KeyedRows, behind: bool) -> bool:
        return combiner.combine(rows, behind=behind).batch.num_columns == 2

    assert [combines(half, behind) for behind in (False, True)] == [False, True]
    found = [combines(half, False) for _ in range(LOSSES_MAX)]
    assert found == [True] * (LOSSES_MAX - 1) + [False]
    assert combines(nothing, False)
