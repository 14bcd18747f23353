"""The host of a machine: its shell, its socket, and what watches over them until the process ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from meander.errors import EndedError, OperatorError
from meander.protocol.client import Client
from meander.protocol.messages import MASTER, Chunks, Ending, Envelope, Event, PeerLost
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.store.durable import StoreWorker
from meander.runtime.wire.publisher import board
from meander.runtime.wire.transport import Transport

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MASTER_GONE_S = 2.0
"""How long after the master's connection to us has ended we wait for it to come back."""
HANGS_S = 300.0
"""An operator that has not come back from one turn for so long does not come back any more."""
REASONS: Final[Mapping[Ending, Reason]] = {
    Ending.DISMISSED: Reason.DRAINED,
    Ending.FINISHED: Reason.FINISHED,
    Ending.STOPPED: Reason.STOPPED,
    Ending.REPLACED: Reason.REPLACED,
    Ending.DRIVER_SILENT: Reason.DRIVER_LOST,
    Ending.CHECKPOINT_UNUSABLE: Reason.CHECKPOINT_FAILED,
}


class ProcessHost:
    """A machine with its shell, its socket and what watches over them."""

    def __init__(
        self,
        spec: ProcessSpec,
        machine: Client,
        host: str,
        schema: pa.Schema | None = None,
        adapter: OperatorAdapter | None = None,
    ) -> None:
        self.spec, self.machine, self.host = spec, machine, host
        self.transport: Transport | None = None
        self.shell: Shell | None = None
        self._schema, self._adapter = schema, adapter
        self._master_lost_at: float | None = None
        self._began = time.monotonic()
        self._warned = False
        """Whether it was said of the turn under way that it takes long."""

    def open(self, store: StoreWorker) -> None:
        """Listen and begin."""
        adapter, spec = self._adapter, self.spec
        self.shell = Shell(
            self.machine,
            store=store,
            settle=None if adapter is None else adapter.settle,
            before=self._see,
            master_address=spec.master,
        )
        self.transport = Transport(
            self.shell.give,
            run=spec.run,
            peer=spec.name,
            credentials=spec.credentials,
            incarnation=spec.incarnation if spec.kind == "node" else 0,
            host=self.host,
            schema=self._schema,
            full=self.shell.full,
            board=board(spec.zookeeper, spec.run, spec.credentials.token),
        )
        self.transport.actions["stop"] = self._stop
        self.shell.start(self.transport)

    def _see(self, event: Event) -> None:
        """Note what the machine's surroundings are interested in."""
        if type(event) is Envelope:
            body = event.body
            if self._adapter is not None and isinstance(body, Chunks):
                self._adapter.arriving(body.chunks[0].rows.batch if body.chunks else None)
            elif event.sender == MASTER:
                self._master_lost_at = None
        elif type(event) is PeerLost and event.peer == MASTER:
            self._master_lost_at = time.monotonic()

    def _stop(self, _: Mapping[str, Any]) -> str:
        assert self.shell is not None
        threading.Thread(target=self.shell.stop, args=("stopped",), daemon=True).start()
        return "stopping"

    def serve(
        self, gone: Callable[[], bool], idle: Callable[[], bool] = lambda: False
    ) -> tuple[Reason, str]:
        """Wait for the end, and tell it."""
        shell, transport = self.shell, self.transport
        assert shell is not None
        assert transport is not None
        try:
            while not shell.ended.wait(0.1):
                self._watch(shell)
                ending = self._ending(gone, idle)
                if ending is not None:
                    return ending
            return self._ended(shell)
        finally:
            shell.stop("closing", 1.0)
            transport.close()

    def _watch(self, shell: Shell) -> None:
        """Keep the lease of a node whose operator takes long; end one whose operator hangs."""
        adapter, busy_s = self._adapter, shell.busy_s()
        if adapter is None or busy_s < self.spec.settings.beat_s:
            self._warned = False
            return
        shell.keep_lease()
        name = adapter.operator.name
        if busy_s > self.spec.settings.lease_s and not self._warned:
            self._warned = True
            log.warning("%s: %s takes more than %.0f s for one turn", self.spec.name, name, busy_s)
        if busy_s > HANGS_S:
            why = f"{name} hangs: it has not come back from one turn for {busy_s:.0f} s"
            assert self.transport is not None
            where = shell.where()
            self.transport.post(self.spec.master, self.machine.farewell(why, where))
            raise EndedError(Reason.OPERATOR_FAILED.value, why, where)

    def _ending(
        self, gone: Callable[[], bool], idle: Callable[[], bool]
    ) -> tuple[Reason, str] | None:
        assert self.transport is not None
        refusal = self.transport.refusals.get(self.spec.master)
        now = time.monotonic()
        if refusal is not None:
            return Reason.REFUSED, refusal
        if gone():
            return Reason.DRIVER_LOST, "whoever launched this process is gone"
        if self._master_lost_at is not None and now - self._master_lost_at > MASTER_GONE_S:
            return Reason.DRIVER_LOST, "the driver's connection ended and did not come back"
        silent = self.machine.table is None and now - self._began > self.spec.settings.launch_s_max
        if silent:
            return Reason.DRIVER_LOST, f"no answer from the master at {self.spec.master}"
        return (Reason.IDLE, "no node needs this state server") if idle() else None

    @staticmethod
    def _ended(shell: Shell) -> tuple[Reason, str]:
        detail = shell.reason or ""
        if isinstance(shell.error, OperatorError):
            raise EndedError(Reason.OPERATOR_FAILED.value, str(shell.error), shell.trace)
        if shell.error is not None:
            raise EndedError(Reason.CRASHED.value, detail, shell.trace)
        assert shell.ending is not None
        return REASONS[shell.ending], detail
