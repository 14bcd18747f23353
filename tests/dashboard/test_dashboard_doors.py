"""Who may come in, and what every answer says."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest
from dashboard_kit import TOKEN, made_up, request, served

from meander.dashboard.doors import HEADERS
from meander.dashboard.feed import Feed
from meander.dashboard.server import DashboardServer
from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.driver import extras
from meander.runtime.driver.options import Dashboard, Deployment

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_what_is_not_installed_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name, name="uvicorn")

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(InputError, match=r"needs uvicorn: pip install 'meander\[dashboard\]'"):
        Deployment(WordCount(), 8, 2, dashboard=True)


@pytest.fixture(scope="module")
def server() -> Iterator[DashboardServer]:
    feed = Feed()
    feed.take(made_up())
    with served(feed) as found:
        yield found


@pytest.mark.parametrize(
    "path", ["/", "/events", "/metrics", "/static/main.js", "/state", "/nothing"]
)
@pytest.mark.parametrize("shown", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "meander-run1=x"},
                                   {"Cookie": "\x7f;=,"}])  # fmt: skip
def test_without_the_token_there_is_nothing(
    server: DashboardServer, path: str, shown: dict[str, str]
) -> None:
    status, headers, text = request(server, path, **shown)
    assert status == 401
    assert "WordCount" not in text
    assert headers.items() >= HEADERS.items()


def test_a_link_is_good_for_a_cookie_that_scripts_and_strangers_do_not_see(
    server: DashboardServer,
) -> None:
    status, headers, _ = request(server, f"/?token={TOKEN.replace(' ', '%20')}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    shown = cookie.partition(";")[0]
    assert request(server, "/", Cookie=shown)[0] == 200
    assert request(server, "/static/main.js", Cookie=shown)[0] == 200
    assert request(server, f"/?token={TOKEN[:-1]}".replace(" ", "%20"))[0] == 401


@pytest.mark.parametrize(
    "token", ["Zm9v+mFy/abcdefg==&#12", string.punctuation, " of a file 0123456\n"]
)
def test_a_token_of_ones_own_opens_by_link_cookie_and_header(token: str) -> None:
    """In the link `+`, `&` and `#` meant something else; the end of a file's line was part of it."""
    feed = Feed()
    feed.take(made_up())
    found = DashboardServer(feed, Dashboard(token=token), "run1", None)
    found.start()
    try:
        link = found.link.removeprefix(found.address.rstrip("/"))
        status, headers, _ = request(found, link)
        assert (status, headers["location"]) == (303, "/")
        assert request(found, "/", Cookie=headers["set-cookie"].partition("; ")[0])[0] == 200
        assert request(found, "/", Authorization=f"Bearer {token.strip()}")[0] == 200
        assert request(found, "/", Authorization=f"Bearer {token[:-4]}")[0] == 401
    finally:
        found.stop()


@pytest.mark.parametrize(
    "token", ["ein Pässwort, das lang ist", "two lines\nof one token", "\0" * 20]
)
def test_a_token_that_no_header_takes_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="printable ASCII"):
        Dashboard(token=token)


def test_another_name_for_this_address_is_refused(server: DashboardServer) -> None:
    status, _, _ = request(server, "/metrics", Host=f"evil.example:{server.port}", **BEARER)
    assert status == 421
    assert request(server, "/metrics", Host=f"localhost:{server.port}", **BEARER)[0] == 200


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example", "x_meander": "1"},
                                     {"Origin": "OWN"}])  # fmt: skip
def test_only_the_page_itself_can_ask_for_something(
    server: DashboardServer, headers: dict[str, str]
) -> None:
    own = {k: v.replace("OWN", f"http://127.0.0.1:{server.port}") for k, v in headers.items()}
    for path in ("/preview", "/rescale"):
        assert request(server, path, "POST", {"nodes": 2}, **own, **BEARER)[0] == 403


def test_what_is_not_allowed_is_refused_and_says_how_to_allow_it(server: DashboardServer) -> None:
    own = {"Origin": f"http://127.0.0.1:{server.port}", "x_meander": "1", **BEARER}
    status, _, text = request(server, "/rescale", "POST", {"nodes": 2}, **own)
    assert (status, "rescale=True" in text) == (403, True)
    status, _, text = request(server, "/state?word=x", **BEARER)
    assert (status, "state=True" in text) == (403, True)
    for wrong in ({"nodes": "many"}, {"node": 3}, [], {"nodes": 2, "pause_ms": "nan"}):
        assert request(server, "/preview", "POST", wrong, **own)[0] == 400
    assert request(server, "/preview", "POST", {"why": "x" * 20_000}, **own)[0] == 413


def test_files_beside_the_page_are_not_served(server: DashboardServer) -> None:
    for path in ("/static/../doors.py", "/static/%2e%2e/doors.py", "/static/..%2fdoors.py"):
        assert request(server, path, **BEARER)[0] == 404


def test_a_port_that_is_taken_and_a_token_that_can_be_guessed_are_refused(
    server: DashboardServer,
) -> None:
    with pytest.raises(InputError, match="no page can be served"):
        DashboardServer(Feed(), Dashboard(port=server.port), "run2", None)
    with pytest.raises(InputError, match="at least 16 characters"):
        Dashboard(token="short")
    with pytest.raises(InputError, match="port is a number"):
        Dashboard(port=70_000)
    assert TOKEN not in repr(Dashboard(token=TOKEN))
