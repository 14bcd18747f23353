"""A task as bytes and back: whole, as a record with changes, and as a copy in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from meander.operators import Context, WordCount
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.copying import CopyMaker
from meander.runtime.process.dumping import Dumper, dump_rows, load_rows
from meander.runtime.process.keeping import OutputKeeper
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.recording import Recorder
from meander.runtime.process.streams import read_batches, read_streams, write_batches, write_streams
from meander.runtime.process.timing import Timing
from meander.runtime.wire.rows import Mark, Rows

WORDS = WordCount()
TIMING = Timing(WORDS, 1, OutputKeeper(WORDS), lambda: 0)
DUMPER, RECORDER = Dumper(WORDS, 1, TIMING), Recorder(WORDS, 1, TIMING)


def empty(task: int = 0) -> AppState:
    return AppState(task, WORDS.create(Context(task, 1)), Outputs())


COPIES = CopyMaker(RECORDER, empty)


def feed(app: AppState, *words: str) -> None:
    batch = pa.record_batch({"word": list(words)}, schema=WORDS.schema)
    WORDS.process(app.state, batch, Context(app.task, 1))
    app.outputs.add(pa.record_batch({"n": list(range(len(words)))}))


def counts(app: AppState) -> dict[str, int]:
    rows = app.state.result()
    return dict(zip(rows["word"].to_pylist(), rows["count"].to_pylist(), strict=True))


def test_a_dump_has_state_and_outputs() -> None:
    app = empty()
    feed(app, "a", "b", "a")
    found = DUMPER.load(0, DUMPER.dump(app))
    assert counts(found) == {"a": 2, "b": 1}
    assert [(n, b.num_rows) for n, b in found.outputs.after(0)] == [(1, 3)]


def test_a_record_of_changes_builds_on_the_one_before() -> None:
    """1. a snapshot  2. more rows  3. the changes alone  4. both, one after the other, are the task."""
    app = empty()
    feed(app, "a", "b")
    first = b"".join(RECORDER.record(app, None)())
    mark = RECORDER.seal(app)
    feed(app, "a", "c")
    second = b"".join(RECORDER.record(app, mark)())
    found = RECORDER.revise(0, None, first)
    assert (counts(found), found.outputs.durable) == ({"a": 1, "b": 1}, 1)
    found = RECORDER.revise(0, found, second)
    assert (counts(found), found.outputs.durable) == ({"a": 2, "b": 1, "c": 1}, 2)


def test_a_copy_is_whole_with_its_rest_and_outputs_are_as_durable_as_they_were() -> None:
    app, copy = empty(), None
    feed(app, "a", "b")
    ahead = COPIES.ahead(app, None)
    assert ahead is not None
    mark, take = ahead
    while (piece := take(2**20)) is not None:
        copy = COPIES.catch_up(0, copy, piece)
    feed(app, "a", "c")
    found = COPIES.complete(0, copy, COPIES.rest(app, mark))
    assert counts(found) == {"a": 2, "b": 1, "c": 1}
    assert (found.outputs.last, found.outputs.durable) == (2, 0)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (DUMPER.dump, lambda blob: DUMPER.load(0, blob)),
        (
            lambda app: b"".join(RECORDER.record(app, None)()),
            lambda blob: RECORDER.revise(0, None, blob),
        ),
        (lambda app: COPIES.rest(app, Sealed(0, 0)), lambda blob: COPIES.complete(0, None, blob)),
    ],
    ids=["dump", "record", "rest"],
)
def test_bytes_that_are_cut_short_are_refused(
    write: Callable[[AppState], bytes], read: Callable[[bytes], Any]
) -> None:
    app = empty()
    feed(app, "a", "b")
    blob = write(app)
    for length in (len(blob) - 1, len(blob) // 2, 6):
        with pytest.raises(ValueError):  # noqa: PT011 - what is wrong depends on the place of the cut
            read(blob[:length])


def test_rows_keep_their_marks() -> None:
    batch = pa.record_batch({"word": ["a", "b", "c", "d"]})
    found = load_rows(dump_rows(Rows(batch, 1, 2, (Mark(5, 2, 70),))))
    assert found.table()["word"].to_pylist() == ["b", "c"]
    assert tuple(found.marks) == (Mark(5, 2, 70),)


def test_streams_change_their_schema_and_check_what_they_read() -> None:
    one, two = pa.record_batch({"a": [1]}), pa.record_batch({"b": ["x"]})
    assert read_streams(write_streams([one, one, two])) == [one, one, two]
    assert read_batches(write_batches([one, one])) == [one, one]
    assert (write_batches([]), read_batches(b"")) == (b"", [])
    with pytest.raises(ValueError, match="Arrow cannot read it"):
        read_batches(b"no stream at all")
