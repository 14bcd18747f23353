"""What a processor gets in `init`: Spark's handle and state variables, on a task's state.

One handle serves all tasks of a node: before each call of the processor it is told which state, key and
moment it is in. `DeclaringHandle` stands in its place on the driver, before anything is deployed: there
`init` only declares, and what cannot be done is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final, cast

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType

from meander.errors import InputError
from meander.operators.timers import Key, Timers
from meander.spark.processor.state import ProcessorState, Variable, alive
from meander.spark.processor.values import Values

Schema = StructType | str


class Moment:
    """Where the processor is: a task's state, a key, a time."""

    __slots__ = ("key", "now_ms", "state", "timers")

    def __init__(self, state: ProcessorState, key: Key, now_ms: int, timers: Timers | None) -> None:
        self.state, self.key, self.now_ms = state, key, now_ms
        self.timers = timers
        """Of the mode's kind of time; None: it has none."""


class Handle(StatefulProcessorHandle):
    """The handle on a node."""

    def __init__(
        self, variables: tuple[Variable, ...], deleted: frozenset[str] = frozenset()
    ) -> None:
        self._variables = {v.name: (i, v) for i, v in enumerate(variables)}
        self._deleted = deleted
        self.moment: Moment | None = None

    @property
    def here(self) -> Moment:
        """The moment; state and timers can only be used while a key is in hand."""
        if self.moment is None:
            raise InputError("there is no key in hand: use state and timers in the handle… methods")
        return self.moment

    def _declared(self, name: str) -> tuple[int, Variable]:
        if name not in self._variables:
            raise InputError(f"init declares {name!r} here, and did not when it was deployed")
        return self._variables[name]

    def getValueState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
    ) -> ValueState:
        """Give a variable that holds one value."""
        if self._is_gone(stateName):
            return cast(ValueState, GoneVariable(stateName, "value"))
        return ValueVariable(self, *self._declared(stateName))

    def getListState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
    ) -> ListState:
        """Give a variable that holds a list."""
        if self._is_gone(stateName):
            return cast(ListState, GoneVariable(stateName, "value"))  # as Spark says it
        return ListVariable(self, *self._declared(stateName))

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        """Give a variable that holds a map."""
        if self._is_gone(stateName):
            return cast(MapState, GoneVariable(stateName, "map"))
        return MapVariable(self, *self._declared(stateName))

    def _is_gone(self, name: str) -> bool:
        """Whether `init` declares a variable, and deletes it then."""
        return name in self._deleted and name not in self._variables

    def deleteIfExists(self, stateName: str) -> None:
        """Nothing to do: a state is loaded without it, and whoever holds it has a `GoneVariable`."""

    def _timers(self) -> Timers:
        timers = self.here.timers
        if timers is None:
            raise InputError('timers need time_mode="ProcessingTime" or time_mode="EventTime"')
        return timers

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Set a timer for the key in hand."""
        self._timers().set(self.here.key, int(expiryTimestampMs) * 1000)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Cancel a timer of the key in hand."""
        self._timers().cancel(self.here.key, int(expiryTimestampMs) * 1000)

    def listTimers(self) -> Iterator[int]:
        """List the timers of the key in hand, soonest first."""
        return iter([at_us // 1000 for at_us in self._timers().of(self.here.key)])


class GoneVariable:
    """A variable that `init` has declared and deleted: whatever is done with it raises, as in Spark."""

    SAYS: Final = {
        "exists": "checking {} state exists",
        "get": "getting {} state",
        "update": "updating {} state",
        "put": "updating {} state",
        "appendValue": "updating {} state",
        "appendList": "updating {} state",
        "clear": "clearing {} state",
        "getValue": "getting value",
        "containsKey": "checking if map state contains key",
        "updateValue": "updating map state value",
        "removeKey": "removing key from map state",
        "iterator": "getting map state iterator",
        "keys": "getting map state keys",
        "values": "getting map state values",
    }

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method not in self.SAYS:
            raise AttributeError(method)

        def refuse(*_: Any) -> Any:
            what = self.SAYS[method].format(self._kind)
            raise PySparkRuntimeError(f"Error {what}: state {self._name} doesn't exist")

        return refuse


class StateVariable:
    """One variable of the key in hand: what value, list and map share."""

    def __init__(self, handle: Handle, index: int, variable: Variable) -> None:
        self._handle, self._index, self._variable = handle, index, variable
        self._lasts = variable.ttl_ms is None
        """Whether it has no time to live."""

    def _content(self) -> Any:
        here = self._handle.here
        entry = here.state.entries.get(here.key)
        if entry is None:
            return None
        content = entry[self._index]
        return content if self._lasts else alive(content, here.now_ms)

    def _write(self, content: Any) -> None:
        """Put the content of the variable; None or nothing: it is gone."""
        here = self._handle.here
        state, key = here.state, here.key
        entry = state.entries.get(key)
        if entry is None:
            if not content:
                return
            entry = state.entries[key] = [None] * len(state.layout.variables)
        entry[self._index] = content or None
        state.touch(key)
        if not any(part is not None for part in entry):
            state.remove(key)

    def _shown(self, value: Any) -> Any:
        return deepcopy(value) if self._variable.nested else value

    def _fit(self, value: Any) -> tuple[Values, int]:
        """Check a value; give it with the time that it lives until."""
        variable = self._variable
        return self._checked(variable.fit, value), variable.expires(self._handle.here.now_ms)

    def _checked(self, fit: Callable[[Any], Values], value: Any) -> Values:
        try:
            return fit(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"state {self._variable.name!r}: {error}") from None

    def exists(self) -> bool:
        """Tell whether there is anything."""
        return self._content() is not None

    def clear(self) -> None:
        """Remove it."""
        self._write(None)


class ValueVariable(StateVariable, ValueState):
    """A value."""

    def get(self) -> Values | None:
        """Give the value, or None."""
        content = self._content()
        return None if content is None else self._shown(content[0])

    def update(self, newValue: Values) -> None:
        """Put a value."""
        self._write(self._fit(newValue))


class ListVariable(StateVariable, ListState):
    """A list."""

    def get(self) -> Iterator[Values]:
        """Give the values in their order."""
        return iter([self._shown(value) for value, _ in self._content() or ()])

    def put(self, newState: list[Values]) -> None:
        """Put other values in their place."""
        self._write([self._fit(value) for value in self._some(newState)])

    def appendValue(self, newState: Values) -> None:
        """Add a value."""
        self.appendList([newState])

    def appendList(self, newState: list[Values]) -> None:
        """Add values."""
        added = [self._fit(value) for value in self._some(newState)]
        content = self._content()
        if content is not None:
            content.extend(added)  # a dump has copies
        self._write(content or added)

    def _some(self, values: list[Values]) -> list[Values]:
        if not values:
            raise ValueError(f"state {self._variable.name!r}: an empty list; use clear()")
        return values


class MapVariable(StateVariable, MapState):
    """A map."""

    def _key(self, key: Values) -> Values:
        return self._checked(self._variable.fit_key, key)

    def getValue(self, key: Values) -> Values | None:
        """Give the value under a key, or None; as a Row, as Spark does."""
        pair = (self._content() or {}).get(self._key(key))
        if pair is None:
            return None
        return self._variable.row(self._shown(pair[0]))

    def containsKey(self, key: Values) -> bool:
        """Tell whether there is a value under a key."""
        return self._key(key) in (self._content() or ())

    def updateValue(self, key: Values, value: Values) -> None:
        """Put a value under a key."""
        found = self._content() or {}
        found[self._key(key)] = self._fit(value)
        self._write(found)

    def removeKey(self, key: Values) -> None:
        """Remove what is under a key."""
        found = self._content() or {}
        if found.pop(self._key(key), None) is not None:
            self._write(found)

    def iterator(self) -> Iterator[tuple[Values, Values]]:
        """Give all pairs."""
        found = self._content() or {}
        return iter([(key, self._shown(value)) for key, (value, _) in found.items()])

    def keys(self) -> Iterator[Values]:
        """Give the keys."""
        return iter([key for key, _ in self.iterator()])

    def values(self) -> Iterator[Values]:
        """Give the values."""
        return iter([value for _, value in self.iterator()])


class DeclaringHandle(StatefulProcessorHandle):
    """The handle on the driver: it hears what `init` declares.

    Args:
        parse: reads a schema that is written as text.
        ttl: whether the mode has a time that values can outlive.
    """

    def __init__(self, parse: Callable[[str], StructType], *, ttl: bool) -> None:
        self._parse, self._ttl = parse, ttl
        self.variables: dict[str, Variable] = {}
        self.deleted: set[str] = set()

    def _declare(
        self, kind: str, name: str, schema: Schema, keys: Schema | None, ttl_ms: int | None
    ) -> None:
        if not name or name in self.variables or "@" in name:
            raise InputError(f"state variables need names of their own without @, not {name!r}")
        if ttl_ms is not None and not self._ttl:
            raise InputError(
                f'state {name!r} has a time to live, which needs time_mode="ProcessingTime"'
            )
        if ttl_ms is not None and ttl_ms <= 0:
            raise InputError(f"state {name!r}: its time to live is {ttl_ms} ms; it must be more")
        key = None if keys is None else self._read(keys)
        self.variables[name] = Variable(name, kind, self._read(schema), key, ttl_ms)

    def _read(self, schema: Schema) -> StructType:
        return self._parse(schema) if isinstance(schema, str) else schema

    def getValueState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """Hear of a value."""
        self._declare("value", stateName, schema, None, ttlDurationMs)

    def getListState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """Hear of a list."""
        self._declare("list", stateName, schema, None, ttlDurationMs)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """Hear of a map."""
        self._declare("map", stateName, valueSchema, userKeySchema, ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        """Hear of a variable that an earlier version had, or that was declared and is not after all."""
        self.variables.pop(stateName, None)
        self.deleted.add(stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Refuse: there is no key yet."""
        raise InputError("init cannot register timers: there is no key yet")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Refuse: there is no key yet."""
        raise InputError("init cannot delete timers: there is no key yet")

    def listTimers(self) -> Iterator[int]:
        """Refuse: there is no key yet."""
        raise InputError("init cannot list timers: there is no key yet")
