"""What a process of queries knows of what it has written and commits.

Only its machine's turns change the book; other threads look at single entries. So it needs no lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

from meander.errors import QueryError, ReplayError, RowsLostError
from meander.model import TaskId
from meander.protocol.messages import Abandon, Event, News, Tell, Write

AttemptKey: TypeAlias = tuple[str, int, int]
"""(query, batch, attempt)"""


class CommitState:
    """A batch that is being committed, or was: whoever waits for its end keeps it."""

    __slots__ = ("batch", "error", "over")

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.over = False
        self.error: Exception | None = None
        """Why it was not committed."""


class QueryBook:
    """Of all queries that one process serves."""

    def __init__(self) -> None:
        self._open: defaultdict[AttemptKey, set[int]] = defaultdict(set)
        """Pieces that are not yet laid by."""
        self._commits: dict[str, CommitState] = {}
        """Query → the batch that is being committed."""
        self._outdated: dict[str, tuple[int, TaskId, int]] = {}
        """Query → a batch that was refused, a task, and the later batch that this has."""

    # ------------------------------------------------------------------ on any thread

    def open(self, query: str, batch: int, attempt: int) -> int:
        """Count the pieces of an attempt that are not yet laid by."""
        return len(self._open.get((query, batch, attempt), ()))

    def outdated(self, query: str, batch: int) -> tuple[int, TaskId, int] | None:
        """Give the batch, a task and the later batch that this has, if the batch was refused."""
        found = self._outdated.get(query)
        return found if found is not None and found[0] == batch else None

    # ------------------------------------------------------------------ in the machine's turns

    def commit(self, query: str, batch: int, seal: Callable[[], None]) -> CommitState:
        """Have a batch sealed, unless it is, and enter it; give what tells of its end.

        Both in one turn: what is entered was sealed, whether or not the caller has the patience to
        hear so, and will end.

        Raises:
            QueryError: if another batch of the query is being committed.
            ProtocolError: if it cannot be sealed. Then nothing is entered.
        """
        found = self._commits.get(query)
        if found is None:
            seal()
            self._commits[query] = found = CommitState(batch)
        elif found.batch != batch:
            raise QueryError(
                f"batch {found.batch} of {query} is still being committed; wait for it"
            )
        return found

    def see(self, event: Event) -> None:
        """Note what the machine is about to be told."""
        if type(event) is Write:
            self._open[event.query, event.batch, event.attempt].add(event.partition)
        elif type(event) is Abandon:
            for piece, attempt, _ in event.attempts:
                self._laid(event.query, event.batch, piece, attempt)

    def hear(self, tell: Tell) -> None:
        """Take what the machine tells."""
        facts = tell.facts
        query, batch = facts.get("query", ""), facts.get("batch", -1)
        if tell.what is News.OUTDATED:
            self._outdated[query] = batch, facts["task"], facts["last"]
            self._laid(query, batch, facts["partition"], facts["attempt"])
        elif tell.what is News.WRITTEN:
            self._laid(query, batch, facts["partition"], facts["attempt"])
        elif tell.what is News.COMMITTED:
            self._end(query, batch)
        elif tell.what is News.FAILED:
            self._end(query, batch, RowsLostError(batch, facts["task"]))
        elif tell.what is News.DIFFERS:
            told = facts["task"], facts["had"], facts["rows"]
            self._end(query, batch, ReplayError(query, batch, *told))

    def _end(self, query: str, batch: int, error: Exception | None = None) -> None:
        """Strike out a batch that is committed, or was not; what was never entered concerns nobody."""
        found = self._commits.get(query)
        if found is not None and found.batch == batch:
            del self._commits[query]
            found.error, found.over = error, True

    def _laid(self, query: str, batch: int, piece: int, attempt: int) -> None:
        """Strike out a piece."""
        key = query, batch, attempt
        pieces = self._open.get(key)
        if pieces is not None:
            pieces.discard(piece)
            if not pieces:
                del self._open[key]
