"""Answers what a machine asks of the durable store: whatever goes wrong becomes an answer too."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from meander.protocol.messages import Discard, Load, Loaded, Store, Stored, Sweep
from meander.runtime.clock import Clock
from meander.runtime.store.complaint import Complaint
from meander.runtime.store.steps import Steps

log = logging.getLogger(__name__)

WHY_CHARS_MAX = 300
"""What is told of an error."""

StoreAction: TypeAlias = Store | Load | Discard | Sweep
Complaints: TypeAlias = dict[type, Complaint]


class DurableStore(Protocol):
    """What the protocol needs of a store. Steps may raise OSError: then nothing counts as done."""

    def writing(self, action: Store) -> Steps[Stored]:
        """Write under a key, whole or not at all."""

    def reading(self, key: str) -> Steps[bytes | None]:
        """Give what is under a key; ValueError: it cannot be used."""

    def discarding(self, keys: Sequence[str]) -> Steps[None]:
        """Forget keys."""

    def sweeping(self, action: Sweep) -> Steps[None]:
        """Forget all keys under a prefix but some."""


def complaints(clock: Clock) -> Complaints:
    """Make what `answer` complains with, for one store as one process sees it."""
    kinds: dict[type, str] = {Store: "write", Load: "read", Discard: "delete", Sweep: "sweep"}
    return {kind: Complaint(f"the durable store cannot {w}", clock) for kind, w in kinds.items()}


def answer(
    store: DurableStore, action: StoreAction, complaints: Complaints
) -> Steps[Stored | Loaded | None]:
    """Carry out an action. Every write and every load is answered: whoever asked need not ask twice."""
    complaint = complaints[type(action)]
    try:
        found = yield from _done(store, action)
    except Exception as error:
        why = _told(error)
        complaint.say(why)
        return _failed(action, why)
    complaint.over()
    return found


def _done(store: DurableStore, action: StoreAction) -> Steps[Stored | Loaded | None]:
    if isinstance(action, Store):
        return (yield from store.writing(action))
    if isinstance(action, Load):
        try:
            return Loaded(action.key, (yield from store.reading(action.key)))
        except ValueError as error:
            return Loaded(action.key, None, str(error))
    if isinstance(action, Sweep):
        yield from store.sweeping(action)
    else:
        yield from store.discarding(action.keys)
    return None


def _told(error: Exception) -> str:
    """Describe an error in text that can travel; one that no store should raise, with its kind."""
    log.debug("the durable store failed", exc_info=error)
    why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return why[:WHY_CHARS_MAX].encode(errors="replace").decode()


def _failed(action: StoreAction, why: str) -> Stored | Loaded | None:
    if isinstance(action, Store):
        return Stored(action.key, done=False, fault=why)
    return Loaded(action.key, None, why, again=True) if isinstance(action, Load) else None
