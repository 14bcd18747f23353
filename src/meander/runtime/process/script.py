"""Code that waits, without a thread or a clock: a generator that yields what it waits for.

    def ends(node):                                  # a script
        told = yield Ask(node, "ends")               # a question to another process
        while not told:
            yield Sleep(0.05)
            told = yield Ask(node, "ends")
        return told

    run(ends(node), hands)                           # in a thread that may wait

Readers of outputs and states, writers and committers of micro-batches, sinks, and answers that take
several turns of a machine are scripts. A thread carries the steps out one by one with real sockets and
real sleeps (`run`); a simulator does so on its own time, and lets anything happen in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from meander.protocol.messages import Event
    from meander.runtime.process.process import Process

T = TypeVar("T")

CALL_S_MAX = 30.0
"""How long a `Call` or a `Command` waits for the machine, unless told."""
LOOK_S, LOOK_S_MAX = 0.002, 0.02
"""What is waited for is looked at after so long, then less often; and whenever something changes."""


class Call(NamedTuple):
    """Ask something of a machine of this process, between two events; gives what the function does.

    Raises TimeoutError if the machine does not get to it in time; it may do so later.
    """

    process: Process
    function: Callable[[Any], Any]
    timeout_s: float = CALL_S_MAX


class Command(NamedTuple):
    """Hand a machine of this process an event; raises ProtocolError if it refuses.

    Raises TimeoutError as a `Call` does.
    """

    process: Process
    event: Event
    timeout_s: float = CALL_S_MAX


class Ask(NamedTuple):
    """Ask another process for facts; gives its answer, as JSON has it."""

    address: str
    what: str
    fields: Mapping[str, Any]
    timeout_s: float


class FetchRows(NamedTuple):
    """Ask another process for rows; gives an Arrow table."""

    address: str
    fields: Mapping[str, Any]
    timeout_s: float


class Together(NamedTuple):
    """Ask several at once; gives their answers in order, None of whoever is gone or refuses."""

    steps: Sequence[Ask | FetchRows]


class Sleep(NamedTuple):
    """Do nothing for a while."""

    seconds: float


class Until(NamedTuple):
    """Wait until something holds, or a time is over; gives whether it holds."""

    true: Callable[[], bool]
    timeout_s: float
    told: bool = False
    """Whether who makes it hold says so: then there is no need to look meanwhile."""
    changed: threading.Condition | None = None
    """What is notified then; None: what whoever carries it out knows of."""


class Do(NamedTuple):
    """Do something that may wait or fail, and asks no process, such as a sink; gives its result."""

    work: Callable[[], Any]


class Found(NamedTuple):
    """Hand a part of the result to whoever wants it, and go on."""

    part: Any


Step: TypeAlias = Call | Command | Ask | FetchRows | Together | Sleep | Until | Do | Found
Script: TypeAlias = Generator[Step, Any, T]


def run(script: Script[T], carry_out: Callable[[Any], Any]) -> T:
    """Carry a script out to its end, step by step; what a step raises, the script hears.

    >>> def twice():
    ...     first = yield Sleep(1.0)
    ...     second = yield Sleep(2.0)
    ...     return first + second
    >>> run(twice(), lambda step: step.seconds)
    3.0
    """
    try:
        step = next(script)
        while True:
            step = _after(step, script, carry_out)
    except StopIteration as end:
        result: T = end.value
        return result


def iterate(script: Script[Any], carry_out: Callable[[Any], Any]) -> Iterator[Any]:
    """Carry a script out as `run` does, and give the parts that it finds, as they come.

    >>> def pages():
    ...     yield Found(1)
    ...     yield Sleep(1.0)
    ...     yield Found(2)
    >>> list(iterate(pages(), lambda step: None))
    [1, 2]
    """
    try:
        step = next(script)
        while True:
            if type(step) is Found:
                yield step.part
                step = script.send(None)
            else:
                step = _after(step, script, carry_out)
    except StopIteration:
        return


def _after(step: Step, script: Script[Any], carry_out: Callable[[Any], Any]) -> Step:
    """Carry a step out, and give the one that follows."""
    try:
        answer = carry_out(step)
    except BaseException as error:
        return script.throw(error)
    return script.send(answer)
