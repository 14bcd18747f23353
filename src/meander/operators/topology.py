"""A topology: operators by name, and the streams between them. A value; nothing runs here.

The tasks of a topology are one list, cut into ranges, one for each operator in the order in which they
are named. Everybody who deals with tasks as such (tables, moves, records) knows nothing of operators;
whoever has to do with rows looks up the range.

**Components.** Operators on a common loop are of one component. Between components there is no
loop: back-pressure and watermarks follow their streams (`docs/topologies.md`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import InputError
from meander.model import TASKS_MAX, TaskId
from meander.operators.base import Operator, check_operator

TASKS: Final = 64
"""Of an operator, if nobody says how many."""
OPERATORS_MAX: Final = 256


class Edge(NamedTuple):
    """A stream from one operator to another, or back to itself: each row goes to its key's task."""

    source: str
    target: str
    output: str = ""
    """Which of the source's outputs: what it emits with this `to`."""
    input: str = ""
    """Which of the target's inputs, if these have names."""


class OperatorTasks(NamedTuple):
    """An operator, and which tasks are its own: `first … first + tasks - 1`."""

    name: str
    operator: Operator[Any]
    first: TaskId
    tasks: int
    input: str = ""
    """For those who send to it: which of its inputs, if these have names."""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows for the input to the operator's schema."""
        if self.input:
            return self.operator.of_input(self.input, batch)
        schema = self.operator.schema
        if batch.schema.equals(schema):
            return batch
        found = [batch.column(field.name) for field in schema]
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(found, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @property
    def wanted(self) -> pa.Schema:
        """The columns that rows for the input need."""
        return self.operator.inputs[self.input].schema if self.input else self.operator.schema

    @property
    def end(self) -> TaskId:
        """The first task behind them."""
        return self.first + self.tasks


@dataclass(frozen=True)
class Topology:
    """Operators that run together, and the streams between them.

    >>> from meander.operators import WordCount
    >>> both = Topology({"words": WordCount(), "letters": WordCount()}, tasks={"letters": 8})
    >>> both.tasks_in_all, both.part("letters").first, both.inputs
    (72, 64, ('words', 'letters'))

    Attributes:
        operators: by name.
        edges: pairs (from, to), or an `Edge`; a named input is `operator.input`.
        tasks: how many each operator has: a number for all, or by name (others have 64).
        inputs: those that feeders may send to; None: those that no other operator feeds.
        outputs: those whose emitted rows are kept for readers; None: those that feed no other.
        groups: operators that have nodes of their own, by the name of the group; each is in one. None:
            all share all nodes.
        together: keep task i of all operators on one node; they have equally many. A stream between
            operators with the same keys then stays on its node.
    """

    operators: Mapping[str, Operator[Any]]
    edges: Sequence[tuple[str, str] | Edge] = ()
    tasks: int | Mapping[str, int] = TASKS
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    groups: Mapping[str, Sequence[str]] | None = None
    together: bool = False
    parts: tuple[OperatorTasks, ...] = field(init=False, repr=False, compare=False)
    """Every operator with its tasks, in their order."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "operators", dict(self.operators))
        if not 0 < len(self.operators) <= OPERATORS_MAX:
            raise InputError(f"a topology has 1 to {OPERATORS_MAX} operators")
        for name, operator in self.operators.items():
            _check_name(name)
            check_operator(operator)
        put(self, "edges", tuple(self._edge(Edge(*edge)) for edge in self.edges))
        counts = [self._count(name) for name in self.operators]
        firsts = accumulate(counts, initial=0)
        found = zip(self.operators.items(), firsts, counts, strict=False)
        put(self, "parts", tuple(OperatorTasks(*pair, first, n) for pair, first, n in found))
        if self.tasks_in_all > TASKS_MAX:
            raise InputError(f"a topology has at most {TASKS_MAX} tasks, not {self.tasks_in_all}")
        fed = {_input_name(e.target, e.input) for e in self._edges if e.source != e.target}
        feeding = {e.source for e in self._edges if e.source != e.target and not e.output}
        inputs, outputs = self.inputs, self.outputs
        inputs = [n for n in self._input_names() if n not in fed] if inputs is None else inputs
        outputs = [n for n in self.operators if n not in feeding] if outputs is None else outputs
        put(self, "inputs", tuple(inputs))
        put(self, "outputs", tuple(outputs))
        self._check()
        self._check_groups()

    @classmethod
    def of(cls, operator: Operator[Any] | Topology, tasks: int) -> Topology:
        """Give a topology of one operator with so many tasks; one that is a topology stays as it is."""
        if isinstance(operator, Topology):
            return operator
        check_operator(operator)
        return cls({operator.name: operator}, tasks=tasks)

    # ------------------------------------------------------------------ checks

    def _count(self, name: str) -> int:
        tasks = self.tasks if isinstance(self.tasks, int) else self.tasks.get(name, TASKS)
        if isinstance(tasks, bool) or not isinstance(tasks, int) or not 0 < tasks <= TASKS_MAX:
            raise InputError(f"tasks of {name} is a whole number from 1 to {TASKS_MAX}")
        return tasks

    def _edge(self, edge: Edge) -> Edge:
        """Read `operator.input`."""
        name, dot, entry = edge.target.rpartition(".")
        known = edge.target in self.operators or not dot
        return edge if known else edge._replace(target=name, input=entry)

    def _input_names(self) -> list[str]:
        found = self.operators.items()
        return [_input_name(name, entry) for name, op in found for entry in op.inputs or ("",)]

    @property
    def _edges(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if isinstance(edge, Edge))

    def _check(self) -> None:
        told = dict.fromkeys([] if isinstance(self.tasks, int) else self.tasks, "tasks")
        told |= dict.fromkeys(self.outputs or (), "outputs")
        told |= {name: "edges" for edge in self._edges for name in edge[:2]}
        for name, where in told.items():
            if name not in self.operators:
                known = ", ".join(self.operators)
                raise InputError(f"{where} names {name!r}, and the operators are {known}")
        if len(set(self._edges)) < len(self._edges):
            raise InputError("an edge is named twice")
        for name in self.inputs or ():
            if name not in self._input_names():
                known = ", ".join(self._input_names())
                raise InputError(f"there is no input {name!r}: operators have {known}")
        if not self.inputs:
            raise InputError("no operator takes rows from outside: name one in inputs")
        for edge in self._edges:
            self._check_edge(edge)

    def _check_groups(self) -> None:
        if self.together and (self.groups is not None or len({p.tasks for p in self.parts}) > 1):
            raise InputError("operators that are together have equally many tasks, and no groups")
        if self.groups is None:
            return
        for group in self.groups:
            if not group or not group.replace("-", "_").isidentifier():
                raise InputError(
                    f"a group's name is made of letters, digits, - and _, not {group!r}"
                )
        named = [name for some in self.groups.values() for name in some]
        if sorted(named) != sorted(self.operators) or not all(self.groups.values()):
            known = ", ".join(self.operators)
            raise InputError(f"groups name every operator once ({known}), not {', '.join(named)}")

    def _check_edge(self, edge: Edge) -> None:
        """Refuse a stream whose rows do not fit, or that has no event time where one is needed."""
        source, target = self.operators[edge.source], self.operators[edge.target]
        if _input_name(edge.target, edge.input) not in self._input_names():
            known = ", ".join(target.inputs) or "none with a name"
            raise InputError(f"{edge.target} has no input {edge.input!r}: there are {known}")
        if source.output_schema is not None and not edge.output:
            self._check_columns(edge, source.output_schema)
        apart = self.component(edge.source) != self.component(edge.target)
        if apart and target.event_time is not None and source.event_time is None:
            raise InputError(
                f"{edge.target} has an event time, and {edge.source}, which feeds it, has none: nobody "
                "could tell how far that is; give it an event_time"
            )

    def _check_columns(self, edge: Edge, emitted: pa.Schema) -> None:
        for column in self.end_of(edge).wanted:
            found = emitted.field(column.name).type if column.name in emitted.names else None
            try:
                if found is not None:
                    pa.array([], found).cast(column.type)
                    continue
            except pa.ArrowException:
                pass  # it cannot be cast
            raise InputError(
                f"{edge.target} needs the column {column.name!r} of type {column.type}, and "
                f"{edge.source} emits {found or 'nothing'} of that name"
            )

    # ------------------------------------------------------------------ looking up

    @cached_property
    def name(self) -> str:
        """What it is called in errors, metrics and stored state."""
        return "+".join(self.operators)

    @property
    def single(self) -> bool:
        """Whether it is one operator with no stream but its own `feed`."""
        return len(self.parts) == 1 and not self.edges

    @property
    def tasks_in_all(self) -> int:
        """m, the number of all tasks."""
        return self.parts[-1].end

    @property
    def names_and_tasks(self) -> list[tuple[str, int]]:
        """Its operators, in their order, and how many tasks each has."""
        return [(part.name, part.tasks) for part in self.parts]

    @property
    def ends(self) -> tuple[int, ...]:
        """Behind the last task of each operator."""
        return tuple(part.end for part in self.parts)

    @property
    def group_numbers(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the operators in each group; empty: they share all nodes."""
        places = {name: at for at, name in enumerate(self.operators)}
        groups = self.groups or {}
        return {group: tuple(places[name] for name in some) for group, some in groups.items()}

    def part(self, name: str | None = None) -> OperatorTasks:
        """Give an operator and its tasks by its name; None: the only one."""
        chosen = _chosen("operator", name, tuple(self.operators))
        return next(part for part in self.parts if part.name == chosen)

    def part_of(self, task: TaskId) -> OperatorTasks:
        """Give the operator that has a task."""
        return self.parts[bisect_right(self.ends, task)]

    def input(self, name: str | None = None) -> OperatorTasks:
        """Give an input by its name; None: the only one.

        An operator with named inputs also takes rows of its joint schema, under its own name.
        """
        names = tuple(self.inputs or ())
        found = {named: self._entry(named) for named in names}
        owners = {part.name for part in found.values()}
        if name in owners or (name is None and len(owners) == 1 < len(names)):
            return self.part(name or owners.pop())
        return found[_chosen("input", name, names)]

    def _entry(self, name: str) -> OperatorTasks:
        if name in self.operators:
            return self.part(name)
        operator, _, entry = name.rpartition(".")
        return self.part(operator)._replace(input=entry)

    def end_of(self, edge: Edge) -> OperatorTasks:
        """Give what an edge leads to."""
        return self.part(edge.target)._replace(input=edge.input)

    def output(self, name: str | None = None) -> OperatorTasks:
        """Give an output by its name; None: the only one.

        Of an operator that sets rows aside and is no output, those are what can be read.
        """
        names = tuple(self.outputs or ())
        if name is not None:
            aside = (n for n, operator in self.operators.items() if operator.collects)
            names = tuple(dict.fromkeys((*names, *aside)))
        return self.part(_chosen("output", name, names))

    def edges_from(self, name: str) -> list[Edge]:
        """List the streams that an operator sends into."""
        return [edge for edge in self._edges if edge.source == name]

    @cached_property
    def components(self) -> tuple[int, ...]:
        """For each operator the number of its component."""
        reach = {name: self._reach(name) for name in self.operators}
        first = dict[frozenset[str], int]()
        for name in self.operators:
            first.setdefault(_loop(name, reach), len(first))
        return tuple(first[_loop(name, reach)] for name in self.operators)

    def component(self, name: str) -> int:
        """Give the number of an operator's component."""
        return self.components[list(self.operators).index(name)]

    def _reach(self, name: str) -> set[str]:
        """List the operators that something from here can come to, this one with them."""
        found, open_ = {name}, [name]
        while open_:
            at = open_.pop()
            more = {edge.target for edge in self.edges_from(at)} - found
            found |= more
            open_ += more
        return found

    def tells(self, edge: Edge) -> bool:
        """Whether watermarks go along a stream: it leads to another component, with an event time."""
        apart = self.component(edge.source) != self.component(edge.target)
        return apart and self.operators[edge.target].event_time is not None

    def upstream(self, name: str) -> tuple[int, int]:
        """Count whose watermarks an operator waits for: tasks of others, and feeders at least."""
        sources = {e.source for e in self._edges if e.target == name and self.tells(e)}
        operator = self.operators[name]
        if not sources:
            return 0, operator.feeders_min
        entries = {_input_name(name, entry) for entry in operator.inputs or ("",)}
        outside = len(entries & set(self.inputs or ()))
        return sum(self.part(source).tasks for source in sources), outside

    # ------------------------------------------------------------------ as a whole

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The schemas of rows that may be sent to its tasks."""
        return tuple(schema for part in self.parts for schema in part.operator.schemas)

    @property
    def state_version(self) -> int:
        """The newest of its operators' states."""
        return max(operator.state_version for operator in self.operators.values())

    @property
    def late_rows(self) -> int:
        """What its operators left out because it came behind the watermark."""
        return sum(operator.late_rows for operator in self.operators.values())

    def open(self) -> None:
        """Have every operator prepare its scratch in this process."""
        for operator in self.operators.values():
            operator.open()

    def close(self) -> None:
        """Have every operator undo that."""
        for operator in self.operators.values():
            operator.close()


def check_deployable(operator: Operator[Any] | Topology) -> None:
    """Refuse what can be deployed as neither an operator nor a topology; errors as they have them."""
    if not isinstance(operator, Topology):  # a topology was checked when it was made
        check_operator(operator)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > 100:
        raise InputError(f"an operator's name is a text of up to 100 characters, not {name!r:.120}")


def _input_name(operator: str, entry: str) -> str:
    return f"{operator}.{entry}" if entry else operator


def _chosen(what: str, name: str | None, names: tuple[str, ...]) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        told = f"say which {what}" if name is None else f"there is no {what} {name!r}"
        raise InputError(f"{told}: there are {', '.join(names) or 'none'}")
    return str(name)


def _loop(name: str, reach: Mapping[str, set[str]]) -> frozenset[str]:
    """Name all operators on a common loop with this one."""
    return frozenset(other for other in reach[name] if name in reach[other])
