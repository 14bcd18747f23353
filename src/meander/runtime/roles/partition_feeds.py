"""A process that reads a source: each of its partitions through a feeder of its own.

    partitions() ──every 2 s──► those of this share that are new ──► a thread each, or one for all:
        feeder `name/partition` ─► which offset is durable? ─► read after it ─► feed … close

Whoever feeds under a name takes the place of whoever did before. So partitions are shared anew by
starting other processes with other shares: each goes on from what is durable, and no row counts twice.
A feeder whose place was taken tries again after a while: if that was right, its process has ended by
then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from meander.errors import FeederError, InputError
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.messages import Ending
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.process.source import SourceShare
from meander.runtime.process.spec import ProcessSpec, Reason

log = logging.getLogger(__name__)

DISCOVER_S = 2.0
"""How often it is looked for new partitions."""
AWAY_S = 1.0
"""Until the next look, if nobody could tell what partitions there are."""
TAKEN_S = 5.0
"""After which a feeder whose place was taken tries to have it back."""
END_S_MAX = 5.0
"""How long threads have to hear that all is over."""

Deployed = Operator[Any] | Topology


class PartitionFeeds:
    """The partitions of one share of a source."""

    def __init__(
        self,
        share: SourceShare,
        spec: ProcessSpec,
        load: Callable[[], Deployed],
        close: Callable[[Deployed], None],
        options: Mapping[str, Any],
    ) -> None:
        """Prepare.

        Args:
            share: what is read here.
            spec: of this process; its name without what follows a `#` is the source's.
            load: makes the operator whose rows are fed; a feeder has one of its own.
            close: undoes that.
            options: of the feeders.
        """
        self.rows = 0
        """Fed by those that have ended."""
        self._share, self._spec = share, spec
        self._load, self._close, self._options = load, close, options
        self._known: set[str] = set()
        """Partitions that were found."""
        self._threads: list[threading.Thread] = []
        self._open: set[tuple[str, ...]] = set()
        """Groups of partitions that are not at their end."""
        self._failure: BaseException | None = None
        self._stopping = False
        self._finishing = False
        """Whether no more is to be read: what was read is fed, and that is the end."""
        self._wake = threading.Event()
        """Set when a partition is done, in one way or the other."""

    def run(self, gone: Callable[[], bool]) -> tuple[Reason, str]:
        """Feed until all partitions are at their end; raises why one cannot be fed."""
        look_at = 0.0
        try:
            while self._failure is None:
                if gone():
                    return Reason.DRIVER_LOST, "whoever launched this feeder is gone"
                looks = time.monotonic() >= look_at or not self._open
                if looks and not self._finishing:
                    found = self._look(first=not look_at)
                    if found is None:  # whoever has them is away: it comes back
                        time.sleep(AWAY_S)
                        continue
                    self._begin(found)
                    look_at = time.monotonic() + DISCOVER_S
                if not self._open and self._failure is None:
                    return Reason.FINISHED, f"fed {self.rows} rows"
                self._wake.wait(DISCOVER_S)
                self._wake.clear()
        finally:
            self._stopping = True
            end = time.monotonic() + END_S_MAX
            for thread in self._threads:
                thread.join(max(0.0, end - time.monotonic()))
        raise self._failure

    def finish(self) -> None:
        """Read no more; end when all that was read is durable."""
        self._finishing = True
        self._wake.set()

    def _look(self, *, first: bool) -> list[str] | None:
        """Name the partitions of this share; None: nobody can tell yet. Later on, none is new then."""
        try:
            return self._share.mine()
        except (InputError, ConnectionError) as error:
            if first and not isinstance(error, ConnectionError):
                raise
            log.warning("%s: no look at its partitions: %s", self._spec.name, error)
            return None if first else []

    def _begin(self, partitions: list[str]) -> None:
        """Have those fed that are new: together where the source can, or on a thread each."""
        new = [partition for partition in partitions if partition not in self._known]
        self._known.update(new)
        for group in self._share.groups(new) if new else ():
            thread = threading.Thread(
                target=self._run, args=(group,), name=f"feeds {', '.join(group)}", daemon=True
            )
            self._threads.append(thread)
            self._open.add(group)
            thread.start()

    def _run(self, group: tuple[str, ...]) -> None:
        """Feed partitions to their end."""
        try:
            while not self._feed(group):
                log.info("%s: one of %s was taken over", self._spec.name, ", ".join(group))
                end = time.monotonic() + TAKEN_S
                while time.monotonic() < end and not self._stopping:
                    time.sleep(0.1)
                if self._stopping:  # whoever feeds now would be fenced by one that ends
                    return
        except BaseException as error:  # the process ends by the first, whatever it is
            self._failure = self._failure or error
        finally:
            self._open.discard(group)
            self._wake.set()

    def _feed(self, group: tuple[str, ...]) -> bool:
        """Feed partitions; False: another process does so now, with one of them at least."""
        with ExitStack() as stack:
            feeders = {name: stack.enter_context(self._feeder(name)) for name in group}
            try:
                after = {name: feeder.wait_ready() for name, feeder in feeders.items()}
                for name, found in self._share.read(after, feeders[group[0]].schema):
                    if self._stopping:
                        return True
                    if self._finishing:
                        break  # this one was not fed: it is the next one's
                    if found is not None:
                        feeders[name].feed(found.batch, offset=found.offset, due_s=found.due_s)
                        continue
                    for feeder in feeders.values():
                        feeder.check()
                for feeder in feeders.values():
                    feeder.close()
                    self.rows += feeder.rows
            except FeederError:
                if any(feeder.ending is Ending.REPLACED for feeder in feeders.values()):
                    return False
                raise
        return True

    @contextmanager
    def _feeder(self, partition: str) -> Iterator[FeederClient]:
        """Make the feeder of a partition; what it has not fed is the next one's when it is left."""
        source = self._spec.name.partition("#")[0]
        spec = replace(self._spec, name=f"{source}/{partition}" if partition else source)
        operator = self._load()
        try:
            feeder = FeederClient.from_spec(spec, operator, **self._options)
            feeder.when_told(self.finish)
            try:
                yield feeder
            finally:
                feeder.abandon()
        finally:
            self._close(operator)
