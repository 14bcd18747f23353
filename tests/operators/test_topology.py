"""Topologies as values: what they say of themselves, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.operators import Aggregate, Edge, Input, KeyedAggregate, TableJoin, Topology, WordCount
from meander.testing.world.trials.cascades import Passing

WORDS = WordCount()


def three(*edges: tuple[str, ...], **more: object) -> Topology:
    """Make one of three operators."""
    made = {name: WordCount() for name in "abc"}
    return Topology(made, [Edge(*edge) for edge in edges], **more)  # type: ignore[arg-type]


def test_tasks_are_one_list_in_the_order_of_operators() -> None:
    found = three(tasks={"a": 3, "b": 5, "c": 1})
    assert [(part.first, part.end) for part in found.parts] == [(0, 3), (3, 8), (8, 9)]
    assert [found.part_of(task).name for task in range(9)] == [*"aaa", *"bbbbb", "c"]
    assert found.ends == (3, 8, 9)


def test_inputs_and_outputs_are_the_ends_unless_named() -> None:
    found = three(("a", "b"), ("b", "c"), ("b", "b", "again"))
    assert (found.inputs, found.outputs) == (("a",), ("c",))
    assert found.input().name == "a"
    named = three(("a", "b"), inputs=["a", "b"], outputs=["a", "c"])
    assert named.input("b").first == 64
    with pytest.raises(InputError, match="say which input: there are a, b"):
        named.input()
    with pytest.raises(InputError, match="there is no output 'b'"):
        named.output("b")


def test_operators_on_a_common_loop_are_one_component() -> None:
    assert three(("a", "b"), ("b", "c")).components == (0, 1, 2)
    back = three(("a", "b"), ("b", "a", "back"), ("b", "c"), inputs=["a"])
    assert back.components == (0, 0, 1)
    assert three(("a", "a", "again"), ("a", "b")).components == (0, 1, 2)
    ring = three(("a", "b"), ("b", "c"), ("c", "a"), inputs=["a"])
    assert ring.components == (0, 0, 0)


def test_an_operator_with_named_inputs_takes_rows_by_name_or_brought_together() -> None:
    left = Input(pa.schema({"id": pa.int64(), "x": pa.int64()}), ("id",))
    right = Input(pa.schema({"of": pa.int64(), "y": pa.int64()}), ("of",))
    join = TableJoin(left, right)
    first, second = join.inputs
    alone = Topology.of(join, 4)
    assert alone.input().input == ""
    assert alone.input(f"{join.name}.{second}").input == second
    words = Topology({"w": WordCount(), "j": join}, [Edge("w", f"j.{first}", "ids")])
    assert words.inputs == ("w", f"j.{second}")
    assert (
        words.input(f"j.{second}")
        .rows(pa.record_batch({"of": [1], "y": [2]}, schema=right.schema))
        .schema.equals(join.schema)
    )


def test_one_operator_is_a_topology_of_one() -> None:
    found = Topology.of(WORDS, 7)
    assert found.single
    assert found.input().operator is WORDS
    assert Topology.of(found, 3) is found


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="edges names 'x'"):
        three(("a", "x"))
    with pytest.raises(InputError, match="twice"):
        three(("a", "b"), ("a", "b"))
    with pytest.raises(InputError, match="takes rows from outside"):
        three(("a", "b"), ("b", "c"), ("c", "a"))
    with pytest.raises(InputError, match="1 to"):
        Topology({})
    with pytest.raises(InputError, match="tasks of a"):
        three(tasks=0)
    with pytest.raises(InputError, match="no input 'left'"):
        Topology({"a": WordCount(), "b": WordCount()}, [("a", "b.left")])
    with pytest.raises(InputError, match="every operator once"):
        Topology({"a": WordCount(), "b": WordCount()}, groups={"x": ["a"], "y": ["a"]})
    with pytest.raises(InputError, match="a group's name"):
        Topology({"a": WordCount()}, groups={"x.y": ["a"]})
    with pytest.raises(InputError, match="equally many tasks"):
        Topology({"a": WordCount(), "b": WordCount()}, tasks={"a": 3}, together=True)


def test_columns_must_fit_where_they_are_known() -> None:
    rows = pa.schema({"word": pa.string(), "price": pa.int32()})
    narrow = KeyedAggregate(rows, ["word"], {"sum": Aggregate("sum", "price")})
    with pytest.raises(InputError, match="needs the column 'price' of type int32"):
        Topology({"a": WordCount(emit_updates=True), "b": narrow}, [("a", "b")])


def test_event_time_needs_event_time_before_it() -> None:
    with pytest.raises(InputError, match="give it an event_time"):
        Topology({"a": WordCount(), "b": Passing(1)}, [Edge("a", "b", "side")])
    behind = Topology({"a": Passing(1), "b": Passing(1)}, [("a", "b")], tasks=4)
    assert behind.upstream("b") == (4, 0)
    assert behind.upstream("a") == (0, 1)
