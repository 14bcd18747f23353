"""A copy that was made while the state changed, and the rest, are the state."""

import pyarrow as pa
import pytest

from meander.operators import Input, StreamJoin, WordCount
from meander.operators.base import Operator
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.rows import Mark, Rows


class Seen(Operator):
    """Words in the order in which they came; a version is how many there were."""

    schema = pa.schema({"word": pa.string()})
    keys = ("word",)

    def create(self, context):
        return []

    def process(self, state, batch, context):
        state.extend(batch["word"].to_pylist())

    def dump(self, state):
        return [pa.record_batch({"word": pa.array(state, pa.string())})]

    def load(self, batches, context):
        return [word for batch in batches for word in batch["word"].to_pylist()]

    def size(self, state):
        return len(state)

    def seal(self, state):
        return len(state)

    def changes(self, state, since):
        return self.dump(state[since:])

    def apply_changes(self, state, batches, context):
        return state + self.load(batches, context)


class Forgetful(Seen):
    def seal(self, state):
        return None


def feed(adapter, app, words, offset):
    batch = pa.record_batch({"word": words})
    rows = Rows(batch, 0, len(words), (Mark(offset, len(words), 0),))
    list(adapter.apply(app.task, app, "f", rows, -1))


def ahead(adapter, app, since, size):
    """Give the mark, and the pieces of a size as they are asked for."""
    mark, take = adapter.ahead(app, since)
    return mark, iter(lambda: take(size), None)


def shown(adapter, app):
    return sorted(map(str, adapter.show(app).to_pylist()))


@pytest.mark.parametrize("operator", [WordCount(emit_updates=True), Seen()])
@pytest.mark.parametrize("size", [1, 40, 10**6])
def test_pieces_and_the_rest_are_the_state(operator, size):
    """1. a copy is begun  2. rows come between its pieces  3. it catches up  4. the task is frozen."""
    adapter = OperatorAdapter(operator, 1)
    app, copy = adapter.empty(0), None
    feed(adapter, app, [f"w{i}" for i in range(50)], 0)
    mark, pieces = ahead(adapter, app, None, size)
    for turn, piece in enumerate(pieces):
        feed(adapter, app, [f"w{turn}", f"late{turn}"], 1 + turn)
        copy = adapter.catch_up(0, copy, piece)
    mark, pieces = ahead(adapter, app, mark, size)
    for piece in pieces:
        copy = adapter.catch_up(0, copy, piece)
    feed(adapter, app, ["w1", "last"], 99)
    found = adapter.complete(0, copy, adapter.rest(app, mark))
    assert shown(adapter, found) == shown(adapter, app)
    batches = [(number, batch.to_pylist()) for number, batch in app.outputs.after(0)]
    assert [(n, b.to_pylist()) for n, b in found.outputs.after(0)] == batches


def test_a_state_of_many_rows_is_cut_and_one_without_rows_has_no_pieces():
    adapter = OperatorAdapter(WordCount(), 1)
    app = adapter.empty(0)
    mark, pieces = ahead(adapter, app, None, 100)
    assert list(pieces) == []
    found = adapter.complete(0, None, adapter.rest(app, mark))
    assert shown(adapter, found) == []
    feed(adapter, app, [f"w{i}" for i in range(1000)], 0)
    assert len(list(ahead(adapter, app, None, 1000)[1])) > 10


def test_pieces_tell_the_state_as_it_was_when_they_were_asked_for():
    adapter = OperatorAdapter(WordCount(), 1)
    app = adapter.empty(0)
    feed(adapter, app, ["a"], 0)
    _, pieces = ahead(adapter, app, None, 100)
    feed(adapter, app, ["a", "b"], 1)
    (piece,) = pieces
    assert shown(adapter, adapter.catch_up(0, None, piece)) == ["{'word': 'a', 'count': 1}"]


def test_an_operator_without_versions_cannot_be_copied_ahead():
    adapter = OperatorAdapter(Forgetful(), 1)
    assert adapter.ahead(adapter.empty(0), None) is None


def test_a_piece_of_another_operator_is_refused():
    mine, other = OperatorAdapter(WordCount(), 1), OperatorAdapter(Seen(), 1)
    app = other.empty(0)
    feed(other, app, ["a"], 0)
    (piece,) = ahead(other, app, None, 100)[1]
    for wrong in (piece, b"no", piece[:-9]):
        with pytest.raises(ValueError, match=r"operator Seen|Arrow cannot read"):
            mine.catch_up(0, None, wrong)


def test_outputs_that_are_not_durable_are_still_not_durable_after_a_copy_ahead():
    """1. three outputs  2. a record holds the first  3. a copy and the rest move the task."""
    adapter = OperatorAdapter(WordCount(emit_updates=True), 1)
    app = adapter.empty(0)
    feed(adapter, app, ["a"], 0)
    adapter.settle()
    adapter.accepted(app, adapter.seal(app))
    mark, (piece,) = ahead(adapter, app, None, 1000)
    copy = adapter.catch_up(0, None, piece)
    for offset in (1, 2):
        feed(adapter, app, ["a"], offset)
        adapter.settle()
    found = adapter.complete(0, copy, adapter.rest(app, mark))
    assert (found.outputs.durable, found.outputs.last) == (1, 3)


class Emptied(Seen):
    """Words until one that empties it; a change is the whole."""

    def process(self, state, batch, context):
        super().process(state, batch, context)
        if "all gone" in state:
            state.clear()

    def changes(self, state, since):
        return self.dump(state)

    def apply_changes(self, state, batches, context):
        return self.load(batches, context)


def test_a_change_without_rows_is_a_change():
    """That a state is empty now must be said to its copy."""
    adapter = OperatorAdapter(Emptied(), 1)
    app = adapter.empty(0)
    feed(adapter, app, ["a", "b"], 0)
    mark, (piece,) = ahead(adapter, app, None, 1000)
    copy = adapter.catch_up(0, None, piece)
    feed(adapter, app, ["all gone"], 1)
    mark, pieces = ahead(adapter, app, mark, 1000)
    for piece in pieces:
        copy = adapter.catch_up(0, copy, piece)
    assert shown(adapter, copy) == []


@pytest.mark.parametrize("records", [10, 70])
def test_a_copy_that_travels_through_many_records_hears_which_rows_have_met_others(records):
    """A left join tells a row that has met another of it alone, if its copy was not told of that."""
    second, time = 10**6, pa.timestamp("us")
    shows, clicks = (pa.schema({"ad": pa.int64(), name: time}) for name in ("shown", "clicked"))
    join = StreamJoin(
        Input(shows, ("ad",), "shown"),
        Input(clicks, ("ad",), "clicked"),
        names=("shows", "clicks"),
        how="left",
        between_s=(0.0, 60.0),
    )
    old, new = OperatorAdapter(join, 1), OperatorAdapter(join, 1)

    def give(adapter, app, name, ad, at_s):
        schema = join.inputs[name].schema
        batch = join.of_input(name, pa.record_batch([[ad], [at_s * second]], schema=schema))
        marks = Mark(at_s, 1, 0), Mark(at_s, 0, (at_s - 1) * second)
        list(adapter.apply(0, app, name, Rows(batch, 0, 1, marks), -1))
        adapter.settle()

    app, copy = old.empty(0), None
    give(old, app, "shows", 1, 100)
    give(old, app, "clicks", 9, 100)
    mark, pieces = ahead(old, app, None, 1 << 20)
    for piece in pieces:
        copy = new.catch_up(0, copy, piece)
    old.seal(app)
    give(old, app, "clicks", 1, 110)
    for _ in range(records - 1):
        old.seal(app)
    old.freeze(app)
    copy = new.complete(0, copy, old.rest(app, mark))
    for name in ("shows", "clicks"):
        give(new, copy, name, 2, 999)
    told = [row for _, batch in copy.outputs.after(0) for row in batch.to_pylist()]
    assert [row["clicked"] is None for row in told if row["ad"] == 1] == [False]
