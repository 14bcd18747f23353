"""What all machines share: one door, the checks at the door, and a story for every error.

`take(event, now)` is the only way in. It first checks everything that can be wrong with the event;
a refusal raises a `ProtocolError` and has changed nothing. Then it calls `_on_<event>` (for an
envelope: of the message inside). Clocks are the caller's: `now` is seconds on this process's own
clock, which need not agree with anybody else's.

Whoever has several events takes them one after the other and then has the machine `conclude`: what they
have led to in common is done once. `handle` does both for one event.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, ClassVar, Final

from meander.errors import BrokenRuleError, MalformedMessage, ProtocolError, StaleMessage
from meander.model import Epoch
from meander.protocol.messages import (
    Action,
    Envelope,
    Event,
    Hello,
    Message,
    PeerId,
)
from meander.protocol.settings import Settings
from meander.protocol.shape import Test, bad_field, shape
from meander.protocol.turn import Turn

STORY_EVENTS = 24
"""How many of the last events an error tells."""


def snake(name: str) -> str:
    """Turn a message's name into a handler's.

    >>> snake("StageHeld")
    'stage_held'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Machine:
    """Base of all machines."""

    accepts: ClassVar[tuple[type, ...]] = ()
    """The events and messages this machine has handlers for; all else is malformed."""

    def __init__(self, me: PeerId, incarnation: int, settings: Settings) -> None:
        self.me = me
        self.settings = settings
        self.turn = self._make_turn(incarnation)
        self._story: deque[tuple[float, Event]] = deque(maxlen=STORY_EVENTS)
        self._seen: dict[PeerId, int] = {}
        """The highest incarnation heard from each peer: lower ones are stale."""
        self._handlers: dict[type, Callable[[Any], None]] = {}
        self._mail: dict[type, Callable[[Envelope, Any], None]] = {}
        self._checks: dict[type, Callable[[Any], str | None]] = {}
        for kind in self.accepts:
            name = snake(kind.__name__)
            table = self._mail if kind in _MESSAGES else self._handlers
            table[kind] = getattr(self, f"_on_{name}")
            check = getattr(self, f"_check_{name}", None)
            if check is not None:
                self._checks[kind] = check

    def _make_turn(self, incarnation: int) -> Turn:
        return Turn(self.me, incarnation, self.settings)

    @property
    def incarnation(self) -> int:
        """As the master counts the processes that bear this id; 0: not yet told."""
        return self.turn.incarnation

    @property
    def epoch(self) -> Epoch:
        """The newest epoch known here."""
        return self.turn.epoch

    @property
    def ended(self) -> bool:
        """True after an `Exit`: nothing is handled any more."""
        return self.turn.ended

    # ------------------------------------------------------------------ the door

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event that no other follows; give what is to be done.

        Raises:
            ProtocolError: the event was refused and nothing has changed.
            BrokenRuleError: the machine has a bug, and may be half-changed.
        """
        actions = self.take(event, now)
        return actions + self.conclude(now)

    def conclude(self, now: float) -> list[Action]:
        """Hear that no event follows before what the last ones have led to leaves; give the rest of it.

        Raises:
            BrokenRuleError: the machine has a bug, and may be half-changed.
        """
        return []

    def take(self, event: Event, now: float) -> list[Action]:
        """Take one event; give what is to be done whatever follows it.

        Raises:
            ProtocolError: the event was refused and nothing has changed.
            BrokenRuleError: the machine has a bug, and may be half-changed.
        """
        turn = self.turn
        if turn.ended:
            return []
        turn.begin(now)
        if type(event) is Envelope:
            body = event.body
            on = self._mail.get(type(body))
            self._check_envelope(event, known=on is not None)
            self._story.append((now, event))
            if event.incarnation:
                self._seen[event.sender] = event.incarnation
            assert on is not None
            try:
                on(event, body)
            except (ProtocolError, BrokenRuleError) as error:
                raise self._told(error, event) from error
        else:
            handler = self._handlers.get(type(event))
            if handler is None:
                raise self._malformed(f"{self.me} takes no {type(event).__name__}")
            self._check_body(event)
            self._story.append((now, event))
            try:
                handler(event)
            except (ProtocolError, BrokenRuleError) as error:
                raise self._told(error, event) from error
        return turn.actions

    def _check_envelope(self, env: Envelope, *, known: bool) -> None:
        if not known:
            raise self._malformed(f"{self.me} takes no {type(env.body).__name__}")
        if not _IS_HEAD(env[:5]):
            raise self._malformed(f"envelope from {env.sender!r} is not well formed")
        generation, number = env.epoch
        if env.incarnation < 0 or env.to_incarnation < 0 or generation < 0 or number < 0:
            raise self._malformed(f"envelope from {env.sender!r} is not well formed")
        turn = self.turn
        if env.epoch.generation != turn.epoch.generation and turn.epoch.generation:
            self._check_generation(env)
        if env.to != self.me or (env.to_incarnation and env.to_incarnation != turn.incarnation):
            raise self._stale(
                f"addressed to {env.to} incarnation {env.to_incarnation}, "
                f"this is {self.me} incarnation {self.incarnation}"
            )
        if env.incarnation == 0 and type(env.body) is not Hello:
            raise self._malformed(f"{env.sender} has no incarnation yet")
        if env.incarnation and env.incarnation < self._seen.get(env.sender, 0):
            raise self._stale(f"{env.sender} incarnation {env.incarnation} has been replaced")
        self._check_body(env.body)

    def _check_generation(self, env: Envelope) -> None:
        """Refuse whoever belongs to another driver's life than this process."""
        raise self._stale(
            f"{env.sender} is of generation {env.epoch.generation}, "
            f"{self.me} of {self.epoch.generation}"
        )

    def _check_body(self, body: Any) -> None:
        if not _SHAPES[type(body)](body):
            raise self._malformed(f"{type(body).__name__}: {bad_field(body)}")
        check = self._checks.get(type(body))
        fault = None if check is None else check(body)
        if fault is not None:
            raise self._malformed(f"{type(body).__name__}: {fault}")

    def may_act(self, now: float) -> bool:
        """Whether what was decided may still be carried out at this moment."""
        return True

    def due_at(self) -> float:
        """Tell when it wants to look at the clock again (`Tick`) at the latest; perhaps that is over.

        Asked after every event, so it must be cheap. Whatever is not sure is due now.
        """
        return -inf

    @property
    def goes_on(self) -> bool:
        """Whether it is at something that a `Tick` may go on with at once, where nobody waits."""
        return False

    # ------------------------------------------------------------------ errors with a story

    def story(self) -> tuple[str, ...]:
        """Tell the last events, oldest first."""
        return _tell(self.me, self._story)

    def _teller(self) -> Callable[[], tuple[str, ...]]:
        """Keep the last events, to be told later if somebody asks."""
        return partial(_tell, self.me, tuple(self._story))

    def _malformed(self, text: str) -> MalformedMessage:
        return MalformedMessage(text, self._teller())

    def _stale(self, text: str) -> StaleMessage:
        return StaleMessage(text, self._teller())

    def _told(
        self, error: ProtocolError | BrokenRuleError, event: Event
    ) -> ProtocolError | BrokenRuleError:
        """Add to an error who met it, on which event, and what led there."""
        body = event.body if isinstance(event, Envelope) else event
        what = f"{self.me} at {self.epoch}, on {type(body).__name__}: {error.args[0]}"
        if isinstance(error, BrokenRuleError):
            return BrokenRuleError("\n  ".join([what, *self.story()]))
        return type(error)(what, self._teller())


def _tell(me: PeerId, events: Iterable[tuple[float, Event]]) -> tuple[str, ...]:
    return tuple(f"{now:9.3f} {me}: {_brief(event)}" for now, event in events)


def _brief(event: Event) -> str:
    text = (
        f"{event.sender}/{event.incarnation} at {event.epoch}: {event.body}"
        if isinstance(event, Envelope)
        else str(event)
    )
    return text if len(text) <= 200 else text[:197] + "..."


_MESSAGES: Final[frozenset[type]] = frozenset(Message.__args__)
_SHAPES: Final[Mapping[type, Test]] = {
    kind: getattr(kind, "is_sound", None) or shape(kind)
    for kind in (*Message.__args__, *Event.__args__)
    if kind is not Envelope
}
"""Columns have a test of their own."""
_IS_HEAD: Final = shape(tuple[str, int, str, int, Epoch])
