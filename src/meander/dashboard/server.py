"""The server of the page: a thread with an event loop of its own, on 127.0.0.1.

| asked for | answered |
| --- | --- |
| `GET /`, `/static/…` | the page, its scripts and its style |
| `GET /events` | sections as they change (server-sent events) |
| `GET /metrics` | figures for Prometheus |
| `POST /preview` | what a rescale would do |
| `POST /rescale` | the same, done, if that is allowed |
| `GET /state` | the state of a key, if that is allowed |
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from meander.dashboard import metrics
from meander.dashboard.doors import Doors
from meander.dashboard.feed import ENDED, Feed, Looker
from meander.dashboard.rescales import describe
from meander.dashboard.states import state_of
from meander.errors import InputError, MeanderError
from meander.runtime.driver.log_lines import written
from meander.runtime.driver.options import Dashboard

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
STATIC: Final = Path(__file__).with_name("static")
LOOK_S: Final = 0.1
"""How soon a watcher hears of a change."""
ALIVE_S: Final = 10.0
"""Between two signs of life on a stream that has no news."""
WATCHERS_MAX: Final = 32
BODY_BYTES_MAX: Final = 10_000
START_S_MAX: Final = 10.0
LAST_WORD_S: Final = 0.3
"""How long watchers may take to hear that it is over."""


class DashboardServer:
    """The page of one deployment, served."""

    def __init__(
        self, feed: Feed, options: Dashboard, run: str, op: ElasticOperator | None
    ) -> None:
        """Listen; `start` serves.

        Args:
            feed: what the page shows.
            options: where, and what it may do.
            run: the deployment's name.
            op: what previews, rescales and states are asked of; None: there is only something to see.

        Raises:
            InputError: if the port is taken.
        """
        self.feed, self._options, self._op = feed, options, op
        self.token = options.token or secrets.token_urlsafe(24)
        self._watchers = 0
        self._closing = False
        self._looker: Looker | None = None
        self._socket = _listen(options.port)
        self.port: int = self._socket.getsockname()[1]
        routes = [
            Route("/", self._page),
            Route("/events", self._events),
            Route("/metrics", self._metrics),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/rescale", self._rescale, methods=["POST"]),
            Route("/state", self._state),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        errors: dict[Any, Any] = {MeanderError: _explain, HTTPException: _refuse}
        app = Starlette(routes=routes, exception_handlers=errors)
        self.doors = Doors(app, token=self.token, run=run)
        self.doors.port = self.port
        config = uvicorn.Config(
            self.doors, log_level="warning", access_log=False, lifespan="off", server_header=False,
            http="h11", ws="none", loop="asyncio", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="dashboard server", daemon=True
        )

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/"

    @property
    def link(self) -> str:
        """Its first link, with the token."""
        return f"{self.address}?token={quote(self.token, safe='')}"

    def start(self, looker: Looker | None = None) -> None:
        """Serve, and look."""
        self._looker = looker
        self._thread.start()
        end = time.monotonic() + START_S_MAX
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        if looker is not None:
            looker.start()

    def stop(self) -> None:
        """Tell watchers that it is over, and serve no longer. Can be called twice."""
        if self._closing:
            return
        if self._looker is not None:
            self._looker.stop()
        if self._watchers:
            time.sleep(LAST_WORD_S)
        self._closing = True
        self._server.should_exit = True
        self._thread.join(timeout=5)
        self._socket.close()

    # ------------------------------------------------------------------ what is seen

    async def _page(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def _events(self, _: Request) -> Response:
        if self._watchers >= WATCHERS_MAX:
            raise HTTPException(503, "too many pages are open")
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        self._watchers += 1
        try:
            options, seen, spoke = self._options, 0, time.monotonic()
            may = {"rescale": options.rescale, "state": options.state}
            yield event("may", json.dumps(may if self._op else {}))
            while not self._closing:
                version, now = self.feed.version, time.monotonic()
                for name, text in self.feed.after(seen):
                    yield event(name, text)
                    spoke = now
                seen = version
                if ENDED in self.feed.parts:
                    return
                if now - spoke > ALIVE_S:
                    spoke = now
                    yield ": alive\n\n"
                await asyncio.sleep(LOOK_S)
        finally:
            self._watchers -= 1

    async def _metrics(self, request: Request) -> Response:
        body, kind = metrics.exposition(self.feed.snapshot, request.headers.get("accept", ""))
        return Response(body, media_type=kind)

    # ------------------------------------------------------------------ what is asked

    async def _preview(self, request: Request) -> Response:
        wanted = await _wish(request)
        return JSONResponse(await run_in_threadpool(preview, self._needed(), wanted))

    async def _rescale(self, request: Request) -> Response:
        if not self._options.rescale:
            raise HTTPException(
                403, "this page may not rescale: deploy with Dashboard(rescale=True)"
            )
        wanted, op = await _wish(request), self._needed()
        why = str(wanted.pop("why", ""))[:200]
        handle = await run_in_threadpool(lambda: op.rescale(**wanted, by="the dashboard", why=why))
        return JSONResponse({"migration": handle.number})

    async def _state(self, request: Request) -> Response:
        if not self._options.state:
            raise HTTPException(403, "this page shows no state: deploy with Dashboard(state=True)")
        told = dict(request.query_params)
        return JSONResponse(await run_in_threadpool(state_of, self._needed(), told))

    def _needed(self) -> ElasticOperator:
        if self._op is None:
            raise HTTPException(404, "there is nobody to ask")
        return self._op


def open_dashboard(op: ElasticOperator) -> DashboardServer:
    """Open the page of a deployment, and say where it is.

    Raises:
        InputError: if its port is taken.
    """
    wanted = op.driver.deployment.dashboard
    options = wanted if isinstance(wanted, Dashboard) else Dashboard()
    feed = Feed()
    server = DashboardServer(feed, options, op.driver.run, op)
    server.start(Looker(op, feed))
    if written():
        log.info("dashboard: %s", server.link)
    else:
        sys.stderr.write(f"dashboard: {server.link}\n")
    return server


def event(name: str, text: str) -> str:
    """Write one server-sent event; JSON has no line breaks.

    >>> event("now", "{}").splitlines()
    ['event: now', 'data: {}', '']
    """
    return f"event: {name}\ndata: {text}\n\n"


def preview(op: ElasticOperator, wanted: dict[str, Any]) -> dict[str, Any]:
    """Tell what a rescale would do, and what others would move for it."""
    wanted.pop("why", None)
    found = op.plan(**wanted)
    return {
        **describe(found.plan),
        "rounds": found.rounds,
        "pause_s": found.pause_s,
        "duration_s": found.duration_s,
        "too_large": len(found.too_large),
        "conflict": found.conflict,
    }


async def _wish(request: Request) -> dict[str, Any]:
    """Read what somebody wants: nodes, and perhaps a pause, a time, a reason."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413, "that is too much")
    readers: dict[str, Callable[[Any], Any]] = {
        "nodes": int, "pause_ms": _number, "within_s": _number, "why": str,
    }  # fmt: skip
    try:
        told = json.loads(body)
        return {name: readers[name](value) for name, value in told.items() if value is not None}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise HTTPException(400, "say how many nodes, and perhaps a pause in ms") from None


def _number(value: Any) -> float:
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def _listen(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
    except OSError as error:
        found.close()
        raise InputError(f"no page can be served on port {port}: {error.strerror}") from None
    found.listen()
    return found


async def _explain(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
