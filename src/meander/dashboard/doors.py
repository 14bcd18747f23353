"""Who may come in: a token in the first link, a cookie from then on; loopback only.

    GET /?token=T ──► 303 to /, with a cookie (HttpOnly, SameSite=Strict) ──► every other request
    Authorization: Bearer T       for scrapers, which keep no cookies

Cookies know no ports: the cookie's name bears the run, so that two deployments do not sign each other
out. `Host` must be this address, so that no name that somebody points at 127.0.0.1 gets in. Whatever
changes something must come from the page itself: its `Origin`, and a header that no form can send.
Everything is answered with headers that let the browser load from here only, and show it in no frame.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_HEADER: Final = "x-meander"
"""The page sends it with what changes something."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
REFUSED: Final = (
    "This page is for whoever deployed. Open the link that was printed there: it holds a token.\n"
)


class Doors:
    """ASGI middleware: asks who is there, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, token: str, run: str) -> None:
        self._app, self._token = app, token
        self.cookie = f"meander-{run}"
        self.port = 0
        """Known once somebody listens."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [h for h in message["headers"] if h[0].decode().lower() not in HEADERS]
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        answer = self._refuse(HTTPConnection(scope))
        await (answer or self._app)(scope, receive, guarded)

    def _refuse(self, request: HTTPConnection) -> Response | None:
        """Answer whoever may not come in, or brings the token for the first time; None: come in."""
        scope = request.scope
        if request.headers.get("host", "") not in self._hosts():
            return PlainTextResponse("this is not its address\n", 421)
        told = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if told and scope["path"] == "/" and self._is(told):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self.cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not self._is(self._shown(request)) and not self._is(bearer):
            return PlainTextResponse(REFUSED, 401)
        if scope["method"] not in ("GET", "HEAD") and not self._own(request):
            return PlainTextResponse("only the page itself may do that\n", 403)
        return None

    def _hosts(self) -> tuple[str, ...]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def _own(self, request: HTTPConnection) -> bool:
        origin = request.headers.get("origin", "")
        return origin in [f"http://{host}" for host in self._hosts()] and (
            OWN_HEADER in request.headers
        )

    def _shown(self, request: HTTPConnection) -> str:
        cookie = SimpleCookie()
        try:
            cookie.load(request.headers.get("cookie", ""))
        except CookieError:
            return ""
        found = cookie.get(self.cookie)
        return "" if found is None else found.value

    def _is(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())
