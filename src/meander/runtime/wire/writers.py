"""Who writes what waits for peers: one thread for all of them, and more only while peers hold it up.

    put ─► a link's queue ─► ready links ─► the leader: a message of each in turn ─► streams
                                              └ held up by one for STUCK_S: another leads from then on

A write waits while its peer reads slowly or is stopped (Flight's flow control). Whoever is held up so
keeps that link until nothing waits for it, and ends then. So there are as many threads as peers that do
not read, and one: however many peers there are, and none holds up another. After `close` whoever has
nothing to write ends.

Whoever has several messages says so (`hold`, `release`): a leader woken by the first would only wait
for the interpreter until the last is there.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Final, Protocol

STUCK_S: Final = 0.01
"""A write that takes longer is held up by its peer: the others shall not wait for it."""
LOOK_S: Final = 0.05
"""How often it is looked for that, while links wait and nobody adds to them."""
QUIET_LOOKS: Final = 4
"""After so many that found nothing to do, it is looked no more until links wait again."""


class Writable(Protocol):
    """Something that has messages to be written."""

    def write(self) -> bool:
        """Write the oldest message; tell whether more wait."""


class Writers:
    """The threads of one process that write to its peers."""

    def __init__(self, name: str) -> None:
        """Begin without a thread; `name` is that of those to come."""
        self._name = name
        self._lock = threading.Lock()
        self._ready: deque[Writable] = deque()
        """Links with something to write, each once; none that a thread is writing to."""
        self._leader = 0
        """The number of the thread that takes them, or of the last that did."""
        self._led = False
        """Whether there is one."""
        self._closed = False
        self._holder = 0
        """The thread that says when it has added all; 0: there is none."""
        self._asleep = False
        """Whether it waits for `_woken`."""
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._since = 0.0
        """When it began to write the message that it is at; 0: it is at none."""
        self._watched = False
        """Whether somebody looks after it."""
        self._alarm: queue.SimpleQueue[None] | None = None
        """Wakes whoever does that; None: it has never been needed."""

    @property
    def started(self) -> int:
        """How many threads there were so far."""
        return self._leader

    def add(self, link: Writable) -> None:
        """Have the messages of a link written. It is this pool's until its `write` gives False."""
        with self._lock:
            self._ready.append(link)
            if self._holder != threading.get_ident():
                self._begin()

    def hold(self) -> None:
        """Begin to add several links, on this thread: they are written when it has added all."""
        self._holder = threading.get_ident()

    def release(self) -> None:
        """Have written what was added."""
        self._holder = 0
        if self._ready:
            with self._lock:
                self._begin()

    def _begin(self) -> None:
        """See to it that somebody writes what is ready; under the lock."""
        if not self._ready:
            return
        if self._asleep:
            self._asleep = False
            self._woken.put(None)
        elif not self._led or self._stuck():
            self._succeed()
        elif not self._watched:
            self._watch()

    def close(self) -> None:
        """Let threads end that have nothing to write; a link that is added later is still written."""
        with self._lock:
            self._closed = True
            if self._asleep:
                self._asleep = False
                self._woken.put(None)
            if self._alarm is not None:
                self._alarm.put(None)

    def _stuck(self) -> bool:
        return self._since > 0.0 and time.monotonic() - self._since > STUCK_S

    def _succeed(self) -> None:
        """Let another thread lead; under the lock."""
        self._leader += 1
        self._led, self._since = True, 0.0
        self._start(self._lead, self._leader)

    def _start(self, target: object, *args: object) -> None:
        threading.Thread(target=target, args=args, name=self._name, daemon=True).start()  # type: ignore[arg-type]

    def _lead(self, number: int) -> None:
        """Write a message of each ready link in turn, as long as nobody else leads."""
        link: Writable | None = None
        while True:
            with self._lock:
                if self._leader != number:
                    break
                if link is not None:
                    self._ready.append(link)
                link = self._ready.popleft() if self._ready else None
                if link is None and self._closed:
                    self._led, self._since = False, 0.0
                    break
                self._asleep = link is None
                self._since = 0.0 if link is None else time.monotonic()
            if link is None:
                self._woken.get()
            elif not link.write():
                link = None
        while link is not None and link.write():  # it has held us up, and is ours
            pass

    # ------------------------------------------------------------------ looking after the leader

    def _watch(self) -> None:
        """Have it looked for a leader that is held up while links wait; under the lock."""
        self._watched = True
        if self._alarm is None:
            self._alarm = queue.SimpleQueue()
            self._start(self._look, self._alarm)
        else:
            self._alarm.put(None)

    def _look(self, alarm: queue.SimpleQueue[None]) -> None:
        quiet = 0
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                quiet = 0 if self._ready else quiet + 1
                if self._ready and self._stuck():
                    self._succeed()
                self._watched = quiet < QUIET_LOOKS
                if self._closed and not self._ready:
                    self._alarm, self._watched = None, False
                    return
            if quiet >= QUIET_LOOKS:
                alarm.get()
                quiet = 0
