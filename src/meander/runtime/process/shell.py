"""Who takes a process's turns (`process`): whoever brings it something, and a thread for the rest.

    a stream's reader ──bring──► inbox, and a turn on that very thread, unless somebody is at one
    all others ──► inbox ──► the shell's own thread; it also looks at the clock when that is due

A hand-over from thread to thread costs more than most turns. But no thread is kept for long: after a
few turns the shell's own goes on. What the master sends is always for that: its stream must be read
while a turn takes long, or the lease would be lost. So are pieces of states: the next is read while one
is taken in. And a program's main thread never takes a turn,
because an interrupt (Ctrl-C) would break it off midway.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from contextlib import suppress
from math import inf
from typing import Any, Final

from meander.protocol.messages import MASTER, Envelope
from meander.runtime.process.process import LONG, Process
from meander.runtime.wire.transport import Transport
from meander.runtime.wire.writers import Writers

TURNS_MAX: Final = 4
"""Whoever brings something takes no more turns than that: it has a stream to read."""


class Shell:
    """Drives a process."""

    def __init__(self, process: Process) -> None:
        """Prepare; `start` begins."""
        self.process = process
        self.ended = threading.Event()
        self._turning = threading.Lock()
        """Held by whoever is at a turn; and until it begins."""
        self._turning.acquire()
        self._at = 0
        """The thread that is; 0: nobody is."""
        self._wakes_at = inf
        """When the shell's thread looks by itself; infinity: it is not known, or it is awake."""
        self._roused = False
        self._rousing: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._writers: Writers
        """Of what a turn posts."""
        self._thread = threading.Thread(target=self._run, name=process.machine.me, daemon=True)

    def start(self, transport: Transport) -> None:
        """Begin."""
        process, self._writers = self.process, transport.writers
        process.inbox.came = self._rouse
        process.open(transport)
        if transport.board is not None:
            transport.board.subscribe(process.machine.me, process.read_board)
        self._turning.release()
        self._thread.start()

    def stop(self, reason: str, patience_s: float = 5.0) -> None:
        """End the machine, whatever it does."""
        self.process.stop(reason)
        if threading.get_ident() != self._at and self._thread.is_alive():
            self.ended.wait(patience_s)
        self.process.close_store()

    def where(self) -> str:
        """Show which lines whoever is at a turn is at."""
        frame = sys._current_frames().get(self._at or self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    # ------------------------------------------------------------------ on any thread

    def bring(self, event: Any) -> None:
        """Hand in an event that came on a stream; take the turn for it, if nobody is at one."""
        if type(event) is Envelope and (event.sender == MASTER or type(event.body) in LONG):
            self.process.give(event)
        elif self.process.inbox.waiting or not self._turning.acquire(blocking=False):
            self.process.inbox.put(event, tell=False)
            self._help()
        else:  # nothing is before it, and nobody at a turn: it need not wait for one
            try:
                self._turn(event)
            finally:
                self._turning.release()
            self._go_on()

    def nudge(self) -> None:
        """Have a turn now, on this thread if it may take one."""
        if threading.current_thread() is threading.main_thread():
            self.process.nudge()
        else:
            self.bring(None)

    def _go_on(self) -> None:
        """See to what has come in the meantime."""
        if self.process.inbox.waiting:
            self._help()
        else:
            self._leave_rest()

    def _help(self) -> None:
        """Take turns for what waits, unless somebody is at one: that one sees to it."""
        process = self.process
        for _ in range(TURNS_MAX):
            if not self._turning.acquire(blocking=False):
                return
            try:
                self._turn()
            finally:
                self._turning.release()
            if not process.inbox.waiting:  # looked at after the release: nothing is overlooked
                break
        self._leave_rest()

    def _leave_rest(self) -> None:
        """Leave what is still to be done to the shell's thread."""
        process = self.process
        if process.inbox.waiting or process.tick_at < self._wakes_at:
            self._rouse()

    def _rouse(self) -> None:
        """Have the shell's thread look."""
        if not self._roused:
            self._roused = True
            self._rousing.put(None)

    # ------------------------------------------------------------------ turns

    def _run(self) -> None:
        process = self.process
        while not self.ended.is_set():
            self._wakes_at = inf  # before it is looked: whoever takes a turn meanwhile rouses us
            wait_s = 0.0 if process.inbox.waiting else process.tick_in_s()
            if wait_s > 0:
                self._wakes_at = process.tick_at
                with suppress(queue.Empty):
                    self._rousing.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
                self._roused = False
                continue
            with self._turning:
                if process.inbox.waiting or process.tick_in_s() <= 0:
                    self._turn()

    def _turn(self, event: Any = None) -> None:
        """Take a turn, with an event that did not wait; end by whatever it raises, or if it says so."""
        process = self.process
        if self.ended.is_set():
            return
        self._at = threading.get_ident()
        self._writers.hold()
        try:
            process.turn(event)
        except BaseException as error:
            process.fail(error)
        finally:
            self._writers.release()
            self._at = 0
            if process.reason is not None:
                process.close()
                self.ended.set()
                self._rouse()
