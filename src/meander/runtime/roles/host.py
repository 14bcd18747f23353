"""The host of a launched process: its thread, its socket, and who looks after them until it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from meander.protocol.messages import Notice
from meander.runtime.clients.driver_client import renewed
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import Reason
from meander.runtime.roles.assembly import Parts
from meander.runtime.roles.oversight import LOOK_S, ended
from meander.runtime.wire.publisher import board
from meander.runtime.wire.renewal import keep_fresh
from meander.runtime.wire.transport import Transport

NOTICE_S: Final = 30.0
"""How long a process is left, as a rule, between SIGTERM and SIGKILL."""


class ProcessHost:
    """A process with its thread and its socket."""

    def __init__(self, parts: Parts, host: str) -> None:
        """Listen and begin; `host` is the address to listen on."""
        spec, self.process, self._oversight, schemas = parts
        self.shell = Shell(self.process)
        self._oversight.where = self.shell.where
        self.transport = Transport(
            self.shell.bring,
            run=spec.run,
            peer=spec.name,
            credentials=spec.credentials,
            incarnation=spec.incarnation if spec.kind == "node" else 0,
            host=host,
            schemas=schemas,
            full=self.process.full,
            board=board(spec.zookeeper, spec.run, spec.credentials.token),
        )
        self.noticed = False
        """Whether this process is to be taken away; set by a signal."""
        self.transport.actions["stop"] = self._stop
        self.shell.start(self.transport)
        keep_fresh(self.transport, lambda: renewed(spec.master, self.transport.credentials))

    def _stop(self, _: Mapping[str, Any]) -> str:
        threading.Thread(target=self.shell.stop, args=("stopped",), daemon=True).start()
        return "stopping"

    def serve(self, gone: Callable[[], bool]) -> tuple[Reason, str]:
        """Wait for the end, and tell it; `gone` says that whoever launched us is no more."""
        try:
            while not self.shell.ended.wait(LOOK_S):
                if self.noticed:
                    self.process.give(Notice(NOTICE_S))
                    self.noticed = False
                ending = self._oversight.look(self.transport)
                if ending is None and gone():
                    ending = Reason.DRIVER_LOST, "whoever launched this process is gone"
                if ending is not None:
                    return ending
            return ended(self.process)
        finally:
            self.shell.stop("closing", 1.0)
            self.transport.close()
