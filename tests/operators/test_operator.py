"""Operators as the runtime meets them: states made, moved, refused, and errors that say where."""

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import InputError, OperatorError, StateError
from meander.operators import (
    Aggregate,
    Context,
    KeyedAggregate,
    Operator,
    TaskStates,
    WordCount,
    split,
    tokenise,
)

M = 16


class Doubling(Operator[dict[str, int]]):
    """Counts words in a dict, feeds each new word back once in upper case, emits the total."""

    schema = pa.schema({"word": pa.string()})
    keys = ("word",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        for word in batch["word"].to_pylist():
            if word == "boom":
                raise KeyError(word)
            if word not in state and not word.isupper():
                context.feed(pa.record_batch({"word": [word.upper()]}))
            state[word] = state.get(word, 0) + 1
        context.emit(pa.record_batch({"total": [sum(state.values())]}))

    def dump(self, state: dict[str, int]) -> list[Any]:
        return [pa.record_batch({"word": list(state), "count": list(state.values())})]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        rows = [row for batch in batches for row in batch.to_pylist()]
        return {row["word"]: row["count"] for row in rows}

    def size(self, state: dict[str, int]) -> int:
        return 8 * len(state)


def words(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"word": list(texts)})


def apply(states: TaskStates[Any], batch: pa.RecordBatch) -> list[Context]:
    parts = split(batch, ["word"], M)
    return states.process(parts.tasks, parts.bounds, parts.batch, parts.hashes)


def full(operator: Operator[Any]) -> TaskStates[Any]:
    states = TaskStates(operator, M)
    for task in range(M):
        states.create(task)
    return states


def test_word_count_counts_the_words_of_texts() -> None:
    texts = pa.array(["To be, or not to be", "that is THE question", "to be"])
    states = full(WordCount())
    apply(states, pa.record_batch({"word": tokenise(texts).words}))
    counts = Counter()
    for task in states:
        result = states[task].result().to_pydict()
        counts.update(dict(zip(result["word"], result["count"], strict=True)))
    once = dict.fromkeys(["or", "not", "that", "is", "the", "question"], 1)
    assert counts == {"to": 3, "be": 3, **once}


def test_a_task_goes_on_elsewhere_as_if_it_had_stayed() -> None:
    for operator in (WordCount(), Doubling()):
        here, there, stays = full(operator), TaskStates(operator, M), full(operator)
        first, second = words(*"abcabd"), words(*"adeb")
        apply(here, first)
        apply(stays, first)
        for task in list(here):
            here.freeze(task)
            there.load(task, here.dump(task))
            assert there.size(task) == here.size(task)
            here.drop(task)
        assert len(here) == 0
        apply(there, second)
        apply(stays, second)
        for task in range(M):
            assert task in there
            assert there.dump(task) == stays.dump(task)
        assert there.sizes() == stays.sizes()


def test_outputs_and_loops_belong_to_the_task_that_made_them() -> None:
    states = full(Doubling())
    contexts = apply(states, words("a", "b", "a"))
    fed = sorted(word for c in contexts for b in c.fed for word in b["word"].to_pylist())
    assert fed == ["A", "B"]
    assert {c.task for c in contexts} == set(split(words("a", "b"), ["word"], M).tasks.tolist())
    assert all(len(c.emitted) == 1 for c in contexts)


def test_word_count_emits_the_present_counts_of_what_came_when_asked() -> None:
    states = full(WordCount(emit_updates=True))
    apply(states, words("a", "b"))
    contexts = apply(states, words("a", "c", "a"))
    rows = [row for c in contexts for b in c.emitted for row in b.to_pylist()]
    assert sorted(row["word"] for row in rows) == ["a", "c"]
    assert {"word": "a", "count": 3} in rows


def test_an_error_in_user_code_names_operator_task_and_rows_and_can_be_pickled() -> None:
    states = full(Doubling())
    batch = words("a", "boom", "b", "boom")
    parts = split(batch, ["word"], M)
    task = int(split(words("boom"), ["word"], M).tasks[0])
    group = parts.tasks.tolist().index(task)
    with pytest.raises(OperatorError, match="Doubling failed in task") as caught:
        apply(states, batch)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.operator, error.task) == ("Doubling", task)
    assert error.rows == (parts.bounds[group], parts.bounds[group + 1])
    assert "KeyError: 'boom'" in str(error)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_overflow_names_the_task_and_the_very_row() -> None:
    schema = pa.schema({"word": pa.string(), "n": pa.int64()})
    operator = KeyedAggregate(schema, ["word"], {"sum": Aggregate("sum", "n")})
    states = full(operator)
    batch = pa.record_batch({"word": ["a", "b", "b"], "n": [1, 2**62, 2**62]})
    parts = split(batch, ["word"], M)
    row = parts.batch["word"].to_pylist().index("b") + 1
    with pytest.raises(OperatorError, match="leaves 64 bits") as caught:
        apply(states, batch)
    assert caught.value.task == split(words("b"), ["word"], M).tasks[0]
    assert caught.value.rows == (row, row + 1)


def test_a_batch_of_another_schema_is_an_operator_error() -> None:
    states = full(WordCount())
    with pytest.raises(OperatorError, match="no column 'word'"):
        states.process(
            split(words("a"), ["word"], M).tasks,
            split(words("a"), ["word"], M).bounds,
            pa.record_batch({"other": ["a"]}),
        )


def test_state_of_another_operator_or_version_is_refused() -> None:
    class Newer(Doubling):
        state_version = 2

        @property
        def name(self) -> str:
            return "Doubling"

    old, task = full(Doubling()), int(split(words("a"), ["word"], M).tasks[0])
    apply(old, words("a"))
    with pytest.raises(StateError, match="writes state version 2; this is version 1"):
        TaskStates(Newer(), M).load(task, old.dump(task))
    with pytest.raises(StateError, match="state of operator Doubling, not of WordCount"):
        TaskStates(WordCount(), M).load(task, old.dump(task))
    with pytest.raises(StateError, match="state of operator \\?"):
        TaskStates(WordCount(), M).load(task, WordCount().dump(_counted("a")))


def _counted(*texts: str) -> Any:
    operator, context = WordCount(), Context(0, 1)
    table = operator.create(context)
    operator.process(table, words(*texts), context)
    return table


def test_changes_bring_an_older_copy_up_to_date() -> None:
    here, copy = full(WordCount()), full(WordCount())
    seen = dict.fromkeys(range(M), 0)
    for text in ("to be or not", "to be", "that is the question"):
        apply(here, words(*text.split(" ")))
        for task in range(M):
            version = here.seal(task)
            assert version is not None
            copy.apply_changes(task, here.changes(task, since=seen[task]))
            seen[task] = version
            assert copy[task].result() == here[task].result()
            assert here.changes(task, since=version) == []


def test_an_operator_without_versions_gives_its_whole_state_as_changes() -> None:
    here, copy = full(Doubling()), full(Doubling())
    apply(here, words(*"abc"))
    for task in range(M):
        assert here.seal(task) is None
        copy.apply_changes(task, here.changes(task, since=0))
        assert copy[task] == here[task]


def test_tasks_that_are_not_here_or_here_twice_are_refused() -> None:
    states = TaskStates(WordCount(), M)
    states.create(3)
    with pytest.raises(InputError, match="task 4 is not here"):
        states.size(4)
    with pytest.raises(InputError, match="task 3 is here already"):
        states.create(3)
    states.freeze(3)
    assert list(states) == [3]


def test_an_operator_must_say_its_schema_and_keys() -> None:
    class NoKeys(Doubling):
        keys = ()

    class WrongKeys(Doubling):
        keys = ("nothing",)

    class NoSchema(Doubling):
        @property
        def schema(self) -> Any:
            raise AttributeError

    for operator, why in ((NoKeys, "keys is empty"), (WrongKeys, "no key column 'nothing'")):
        with pytest.raises(InputError, match=why):
            TaskStates(operator(), M)
    with pytest.raises(InputError, match="attribute 'schema'"):
        TaskStates(NoSchema(), M)


def test_operators_can_be_shipped() -> None:
    copy = pickle.loads(pickle.dumps(WordCount(emit_updates=True)))
    assert copy.emit_updates
    assert copy.layout.state_schema == WordCount().layout.state_schema
