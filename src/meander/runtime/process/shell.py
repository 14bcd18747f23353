"""The thread of a process: it waits for something to happen, and takes a turn (`process`)."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from typing import Any

from meander.runtime.process.process import Process
from meander.runtime.wire.transport import Transport


class Shell:
    """Drives a process."""

    def __init__(self, process: Process) -> None:
        """Prepare; `start` begins."""
        self.process = process
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=process.machine.me, daemon=True)

    def start(self, transport: Transport) -> None:
        """Begin."""
        process = self.process
        process.open(transport)
        if transport.board is not None:
            transport.board.subscribe(process.machine.me, process.read_board)
        self._thread.start()

    def stop(self, reason: str, patience_s: float = 5.0) -> None:
        """End the machine, whatever it does."""
        self.process.stop(reason)
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(patience_s)
        self.process.close_store()

    def where(self) -> str:
        """Show which lines the machine's thread is at."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.process.fail(error)
        finally:
            self.process.close()
            self.ended.set()

    def _loop(self) -> None:
        process = self.process
        while process.reason is None:
            event: Any = None
            wait_s = process.tick_in_s()
            if wait_s > 0:
                try:
                    event = process.inbox.get(timeout=wait_s)
                except queue.Empty:
                    continue
            process.turn(event)
