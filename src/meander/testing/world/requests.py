"""Requests outside the protocol between simulated processes: asked once, answered once, or not at all.

What is asked and answered crosses as bytes (JSON, Arrow IPC). Whoever asks hears what it does in
production: `OperatorGoneError` where nobody answers, `OperatorRefusedError` for a refusal. A request
whose asker has given up may still be carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from meander.errors import OperatorGoneError, OperatorRefusedError, UnanswerableError
from meander.protocol.messages import PeerId
from meander.runtime.process.script import Ask, FetchRows
from meander.testing.world.scripts import Done

if TYPE_CHECKING:
    from meander.testing.world.posts import SimPost
    from meander.testing.world.wires import Wires

END_S: Final = 0.01
"""Who is connected to a process sees about so long after it that it was killed."""
CUT_S: Final = 0.2
"""How often something is sent again that does not get through."""
BROKEN_SHARE: Final = 0.5
"""How often its connection is then found broken; else it goes on."""
AWAKE_S: Final = 0.05
"""How often a request looks whether a process that was paused goes on."""


class SimRequest:
    """A request under way."""

    def __init__(self, asker: SimPost, step: Ask | FetchRows, done: Done) -> None:
        self.asker, self.step = asker, step
        self.what = step.what if isinstance(step, Ask) else str(step.fields.get("kind"))
        self.fields = json.dumps(dict(step.fields)).encode()
        self.target: SimPost | None = None
        """Who works at it."""
        self.over = False
        self._done = done

    def finish(self, answer: Any, error: BaseException | None) -> None:
        """Tell the asker, if it is still there and has not been told yet."""
        if not self.over:
            self.over = True
            if not self.asker.gone:
                self._done(answer, error)

    def gone(self, _: object = None) -> None:
        """Tell that nobody answers."""
        self.finish(None, OperatorGoneError(self.step.address))


class Requests:
    """All that are under way in one world."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._served: dict[SimPost, dict[int, SimRequest]] = {}
        """What processes are working at."""
        self._unheard: list[SimRequest] = []
        """What was asked of processes on hosts that are lost."""
        self._count = 0

    def ask(self, post: SimPost, step: Ask | FetchRows, done: Done) -> None:
        """Send a request."""
        request, wires = SimRequest(post, step, done), self._wires
        wires.counts["requests"] += 1
        wires.timeline.after(step.timeout_s, request.gone)
        target = wires.at(step.address)
        to = post.peer if target is None else target.peer
        wires.timeline.after(wires.network.trip_s(post.peer, to), self._arrive, request)

    def ended(self, post: SimPost, *, told: bool) -> None:
        """A process is gone; who had asked it hears that, if its host is still there."""
        for request in self._served.pop(post, {}).values():
            if told:
                self._wires.timeline.after(END_S, request.gone)
            else:
                self._unheard.append(request)

    def found(self) -> None:
        """Hosts that were lost are back: they know nothing of connections, and break them."""
        unheard, self._unheard = self._unheard, []
        for request in unheard:
            self._wires.timeline.after(CUT_S, request.gone)

    def _arrive(self, request: SimRequest) -> None:
        wires, address = self._wires, request.step.address
        target = wires.at(address)
        if wires.hidden(address):
            self._unheard.append(request)  # its time runs out, unless the host comes back
        elif target is None:
            wires.timeline.after(wires.network.delay_s, request.gone)
        elif target.paused:
            wires.timeline.after(AWAKE_S, self._arrive, request)
        else:
            way = request.asker.peer, target.peer
            self._pass(request, way, lambda: self._serve(request, target))

    def _serve(self, request: SimRequest, target: SimPost) -> None:
        """Carry out a request, unless its connection breaks on the way."""
        if self._breaks():
            self._wires.timeline.after(END_S, request.gone)
            return
        self._count += 1
        number, request.target = self._count, target
        self._served.setdefault(target, {})[number] = request

        def answered(answer: Any, error: BaseException | None) -> None:
            self._served.get(target, {}).pop(number, None)
            if not target.gone:
                self._answer(request, target, answer, error)

        serve = target.requests.get(request.what)
        if serve is None:
            refusal = flight.FlightServerError(f"{target.peer} knows no {request.what!r}")
            answered(None, refusal)
        else:
            target.begin(serve(json.loads(request.fields)), answered)

    def _answer(
        self, request: SimRequest, target: SimPost, answer: Any, error: BaseException | None
    ) -> None:
        """Send an answer back."""
        wires, address = self._wires, request.step.address
        if error is not None:
            answer, error = None, as_heard(address, error)
        else:
            answer = crossed(answer)
        way = target.peer, request.asker.peer

        def send() -> None:
            heard = (None, OperatorGoneError(address)) if self._breaks() else (answer, error)
            wires.timeline.after(wires.network.trip_s(*way), lambda _: request.finish(*heard))

        self._pass(request, way, send)

    def _pass(
        self, request: SimRequest, way: tuple[PeerId, PeerId], then: Callable[[], None]
    ) -> None:
        """Go on when there is a way; after a while without one the connection may be found broken."""
        if self._wires.network.reaches(*way):
            then()
        elif not request.over:
            self._wires.timeline.after(CUT_S, lambda _: self._go_on(request, way, then))

    def _go_on(
        self, request: SimRequest, way: tuple[PeerId, PeerId], then: Callable[[], None]
    ) -> None:
        if self._wires.network.reaches(*way) and self._wires.random.random() < BROKEN_SHARE:
            request.gone()
        else:
            self._pass(request, way, then)

    def _breaks(self) -> bool:
        """Whether a connection breaks: what is lost of it is a whole request, or a whole answer."""
        wires = self._wires
        return bool(wires.network.loss) and wires.random.random() < wires.network.loss


def as_heard(address: str, error: BaseException) -> Exception:
    """Give what an asker hears of an error that an answer ended by, as `DriverClient` has it."""
    if isinstance(error, flight.FlightServerError):
        return OperatorRefusedError(f"the operator at {address}: {error}")
    if isinstance(error, pa.ArrowException) and not isinstance(error, flight.FlightError):
        return UnanswerableError(f"the operator at {address}", str(error))
    return OperatorGoneError(address)


def crossed(answer: Any) -> Any:
    """Give an answer as it is on the other side: read from the bytes that it was written as."""
    if not isinstance(answer, pa.Table):
        return json.loads(json.dumps(answer))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    table.validate(full=True)
    return table
