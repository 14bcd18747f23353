"""The page in a real browser."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dashboard_kit import SHOTS, ended, made_up, moving, served, simulated, soon

import meander
from meander.autoscale.decisions import Action, Decision
from meander.autoscale.options import Autoscale
from meander.dashboard import server as served_by
from meander.dashboard.feed import ENDED, LOOK_S, TROUBLE, Feed
from meander.dashboard.server import LOOK_S as HEAR_S
from meander.dashboard.snapshot import NEWS_MAX, Snapshot, Told
from meander.operators import WordCount
from meander.planning import plan
from meander.planning.instances import instance
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.options import Dashboard

SCRIPT = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"
WORDS = [f"word{i % 997}" for i in range(20_000)]

pytestmark = pytest.mark.xdist_group("browser")


def text(page: Any, selector: str) -> str:
    """Give what an element shows now; it may be drawn anew at any moment."""
    return str(
        page.execute_script("return document.querySelector(arguments[0]).innerText", selector)
    )


def shows(page: Any, selector: str, wanted: str, seconds: float = 60.0) -> str:
    """Wait until an element says something; it may be drawn anew meanwhile."""

    def look() -> str:
        found = page.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('\\n')",
            selector,
        )
        return str(found) if wanted in found else ""

    return soon(look, seconds)


def press(page: Any, selector: str) -> None:
    """Press a button, wherever it has scrolled to."""
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


@pytest.fixture(scope="module")
def op(
    tmp_path_factory: pytest.TempPathFactory, launcher: WarmLauncher
) -> Iterator[ElasticOperator]:
    """A deployment with rows in it, and a page that may do everything."""
    allowed = Dashboard(rescale=True, state=True)
    where = tmp_path_factory.mktemp("checkpoint")
    with meander.deploy_local(
        WordCount(), 32, 2, launcher=launcher, dashboard=allowed, checkpoint=where, checkpoint_s=0.5
    ) as found:
        with found.feeder() as feeder:
            feeder.feed(pa.record_batch({"word": [*WORDS, SCRIPT]}))
        yield found


# --------------------------------------------------------------------------- a real deployment


def test_numbers_on_the_page_are_those_of_the_metrics(op: ElasticOperator, page: Any) -> None:
    page.get(op.dashboard)
    assert "token" not in page.current_url
    found = op.metrics()
    shows(page, "#rows-total", f"{found['rows']:,}")
    shows(page, "#operator", "WordCount")
    assert found["rows"] == len(WORDS) + 1
    assert text(page, "#node-count") == str(len(found["nodes"]))
    state = sum(size for _, _, size in found["tasks"].values())
    assert text(page, "#state-bytes") == f"{state / 1000:.1f} kB"
    files = op.metrics()["checkpoint"]["files"]
    shows(page, "#durable-body", f"files{files}")


def test_a_rescale_is_seen_while_it_happens(op: ElasticOperator, page: Any) -> None:
    """1. a rescale in rounds of one task  2. the page says so meanwhile  3. and whether it was kept."""
    assert LOOK_S + HEAR_S < 1, "an event is on the page within a second"
    page.get(op.dashboard)
    shows(page, "#stage", "steady")
    handle = op.rescale(4, pause_ms=500, tasks_max=1, why="a test looks on")
    shows(page, "#rescales-body summary", "the program: a test looks on")
    seen = shows(page, "#migration-stage", "")
    report = handle.wait(60)
    assert seen in ("launching", "moving", "draining", "completed") or "copying" in seen
    shows(page, "#migration-stage", "completed")
    shows(page, "#rescales-body summary", f"{report.moved} tasks")
    said = shows(page, "#rescales-body .promise", "Rows waited at most")
    assert f"{1000 * report.pause_s:.0f} ms" in said
    shows(page, "#rescales-body summary", "promise kept" if report.pause_s <= 0.5 else "missed")
    shows(page, "#rescales-body .compare", "Storm")
    assert len(page.find_elements("css selector", "#node-table tbody tr")) == 4


def test_a_preview_and_a_rescale_by_the_button(op: ElasticOperator, page: Any) -> None:
    page.get(op.dashboard)
    shows(page, "#stage", "steady")
    nodes = page.find_element("id", "whatif-nodes")
    nodes.clear()
    nodes.send_keys("3")
    press(page, "#whatif-form button[type=submit]")
    said = shows(page, "#preview-said", "→ 3 nodes")
    # How many depends on the load of this very moment: what is planned is tested without a browser.
    assert re.search(
        r"[24] → 3 nodes: \d+ of 32 tasks would move, .* in \d+ rounds?\. Rows would wait", said
    )
    page.find_element("id", "whatif-reason").send_keys("fewer will do")
    press(page, "#whatif-do")
    shows(page, "#whatif-do", "Rescale to 3 now?")
    press(page, "#whatif-do")
    shows(page, "#rescales-body summary", "the dashboard: fewer will do")
    shows(page, "#node-count", "3", 60)
    soon(lambda: len(op.driver.nodes()) == 3, 60)
    shows(page, "#stage", "steady", 60)


def test_a_key_that_is_a_script_does_no_harm(op: ElasticOperator, page: Any) -> None:
    page.get(op.dashboard)
    shows(page, "#operator", "WordCount")
    shows(page, "#state-form label", "word")
    page.find_element("css selector", "#state-form input").send_keys(SCRIPT)
    press(page, "#state-form button")
    shows(page, "#state-body td", SCRIPT)
    assert page.execute_script("return window.hurt") is None
    assert page.execute_script("return document.querySelectorAll('#state-body img').length") == 0
    field = page.find_element("css selector", "#state-form input")
    field.clear()
    field.send_keys("nobody ever said so")
    press(page, "#state-form button")
    shows(page, "#state-body", "There is no state under this key")


def test_without_the_token_there_is_no_page(op: ElasticOperator, page: Any) -> None:
    assert op.dashboard is not None
    page.get(op.dashboard.partition("?")[0])
    assert "it holds a token" in text(page, "body")
    assert not page.find_elements("id", "nodes")


# --------------------------------------------------------------------------- made-up deployments


def test_the_page_tells_what_is_wrong(page: Any) -> None:
    feed, skewed = Feed(), (1, 1, 1, 1, 1, 1, 9, 9)
    feed.take(made_up(nodes=4, tasks=8, work=skewed, rows=0, at_s=1000))
    with served(feed) as server:
        page.get(server.link)
        shows(page, "#durable-body", "There are no checkpoints")
        shows(page, "#migration-body", "Nothing has moved yet")
        shows(page, "#health", "One node has more work than a node may have: n4 (2.50 ×, busy")
        assert text(page, "#node-table tbody tr:first-child td:first-child") == "n4"
        shows(page, "#health.good", "no node is overloaded")  # nobody has anything to do
        feed.take(made_up(nodes=4, tasks=8, work=skewed, rows=760_000, at_s=1002))
        shows(page, "#health.warn", "Overloaded: n1 (busy 95 % of its time), n2")
        shows(
            page, "#health.warn", "One node has more work than a node may have: n4 (2.50 ×, busy 95"
        )
        feed.take(replace(made_up(), failure="the disk is full", lost_tasks=(1, 2)))
        shows(page, "#health", "cannot go on: the disk is full")
        shows(page, "#health", "states of 2 tasks are lost")
        feed.put({TROUBLE: "KeyError: n9"})
        shows(page, "#health", "not of now: the last look failed (KeyError: n9)")
        feed.put({ENDED: {"why": "it was stopped"}})
        shows(page, "#health", "The deployment has ended: it was stopped")
        shows(page, "#live", "ended")


def test_the_autoscaler_is_shown_with_what_it_did_and_what_it_only_said(page: Any) -> None:
    feed, now = Feed(), made_up()
    feed.take(now)
    with served(feed) as server:
        page.get(server.link)
        shows(page, "#operator", "WordCount")
        assert not page.find_element("id", "decisions").is_displayed()
        options = Autoscale((2, 6))
        on = replace(now, deployed=replace(now.deployed, autoscale=str(options)))
        feed.take(on)
        shows(page, "#decisions-body", "It is on: 2 to 6 nodes")
        shows(page, "#decisions-body", "It has not decided anything yet")
        up = Decision(5e8, Action.UP, 2, 4, ("more is coming",), {"waiting_rows": 1234.5678})
        said = replace(up, action=Action.DOWN, nodes_after=1, carried_out=False)
        feed.take(replace(on, decisions=(up.to_json(), said.to_json())))
        shows(page, "#decisions-body tbody tr:first-child", "down (only said)2 → 1")
        shows(page, "#decisions-body tbody tr:last-child", "up2 → 4more is comingwaiting_rows 1235")


def test_keys_go_to_sections_and_runs_and_change_the_theme(page: Any) -> None:
    feed = Feed()
    feed.take(moving(made_up()))
    with served(feed) as server:
        page.get(server.link)
        shows(page, "#migration-stage", "moving")
        body = page.find_element("css selector", "body")
        body.send_keys("4")
        soon(lambda: page.execute_script("return scrollY") > 300)
        body.send_keys("t")
        body.send_keys("t")
        assert page.execute_script("return document.documentElement.dataset.theme") == "dark"
        dark = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert dark == "rgb(13, 17, 23)"
        body.send_keys("/")
        page.switch_to.active_element.send_keys("n3")
        soon(lambda: len(page.find_elements("css selector", "#node-table tbody tr")) == 1)
        ribbon = page.find_element("id", "ribbon")
        ribbon.send_keys("\ue014")  # arrow right
        shows(page, "#ribbon-said", "n1 on 10.0.0.1: tasks 0 to 15")
        body.send_keys("t")


def test_a_thousand_nodes_and_65536_tasks_are_drawn(page: Any) -> None:
    """They come from the simulator: its master, in the midst of a rescale to ten nodes more."""
    feed = Feed()
    feed.take(simulated(1000, 65_536, 1010))
    with served(feed) as server:
        page.get(server.link)
        shows(page, "#nodes-shown", "50 of 1,010 shown")
        shows(page, "#migration-stage", "moving")
        shows(page, "#migration-body .moving", "→")
        shows(page, "#tasks-said", "64 to a bar")
        colors = page.execute_script(
            "const c = document.getElementById('ribbon'), d = c.getContext('2d')"
            ".getImageData(0, 3, c.width, 1).data, found = new Set();"
            "for (let i = 0; i < d.length; i += 4) found.add(`${d[i]},${d[i+1]},${d[i+2]}`);"
            "return found.size"
        )
        assert colors > 50
        frame_ms = page.execute_async_script(
            "const done = arguments[0], began = performance.now();"
            "window.dispatchEvent(new Event('resize'));"
            "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)))"
        )
        assert frame_ms < 2000


def weigh(page: Any) -> tuple[float, float, float]:
    """Give what the page holds after its garbage is gone: bytes, nodes of its documents, listeners."""
    page.execute_cdp_cmd("Performance.enable", {})
    for _ in range(3):
        page.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    told = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    found = {item["name"]: item["value"] for item in told}
    return found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"]


EVERY = 100
"""Looks from one rescale to the next: fifty seconds."""


def hours(looks: int) -> Iterator[Snapshot]:
    """Make up a deployment that is looked at twice a second, and rescaled again and again."""
    begin, told = time.time(), tuple[Told, ...]()
    for at in range(looks):
        number, since = divmod(at, EVERY)
        now = made_up(nodes=8, tasks=256, at_s=begin + at * LOOK_S, rows=900 * at,
                      checkpointing=True, saved_s=at % 3)  # fmt: skip
        now = moving(now, number=number + 1)
        if since >= 20:
            now = ended(now)
        if since in (0, 20):
            told = (*told, now.told[-1])[-NEWS_MAX:]
        yield replace(now, told=told)


@pytest.mark.parametrize(
    "looks", [400, pytest.param(14_400, marks=pytest.mark.slow)], ids=["minutes", "two hours"]
)
def test_a_page_that_stays_open_does_not_grow(
    page: Any, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours are 14,400 looks; they reach the page as fast as it draws.

    1. curves and history are as long as they get  2. the page is weighed  3. hours pass  4. and again.
    """
    monkeypatch.setattr(served_by, "LOOK_S", 0.005)
    feed, found = Feed(), plan(instance(256, 8, 6, "0.2"))
    feed.history.rows = deque(maxlen=5)
    moments = hours(1500 + looks)

    def pass_by(count: int, pause_s: float = 0.0) -> None:
        for now in islice(moments, count):
            if now.look.migration is not None and now.look.migration.active:
                feed.history.note(now.look.migration.number, found)
            feed.take(now)
            time.sleep(pause_s)

    def drawn() -> int:
        return int(page.execute_script("return Number(document.body.dataset.drawn)"))

    pass_by(1400)
    with served(feed) as server:
        page.get(server.link)
        shows(page, "#migration-stage", "completed")
        pass_by(EVERY, 0.016)
        (before, nodes, listeners), began = weigh(page), drawn()
        pass_by(looks, 0.016)
        after, nodes_after, listeners_after = weigh(page)
        assert drawn() - began > looks / 4
    assert nodes_after < 1.1 * nodes
    assert listeners_after < 1.1 * listeners
    assert after < 1.1 * before + 500_000


@pytest.fixture
def narrow(page: Any) -> Iterator[Any]:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
    )
    yield page
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def rich_feed(seconds: int = 90) -> Feed:
    """Make up a deployment with something to see everywhere."""
    feed = Feed()
    problem = instance(64, 4, 6, "0.2")
    begin = time.time() - seconds
    for second in range(seconds):
        now = made_up(
            nodes=4, tasks=64, hosts=2, at_s=begin + second,
            rows=int(42_000 * second + 6000 * (second % 7)), checkpointing=True, saved_s=0.8,
        )  # fmt: skip
        kept = {
            "chunks": 300 + 40 * (second % 9),
            "bytes": 400_000,
            "full": 0.03 + 0.01 * (second % 5),
        }
        now = replace(now, feeding={"words": kept})
        if second == 60:
            feed.history.note(1, plan(problem))
        if second >= 60:
            now = moving(now)
        if second >= 64:
            now = ended(now)
        feed.take(now, {1: {"by": "the program", "why": "the evening peak", "pause_ms": 100.0}})
    return feed


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a page with something to see everywhere; a real one, where its picture is for the docs."""
    if not SHOTS:
        with served(rich_feed(), rescale=True, state=True) as server:
            yield server.link
        return
    over, allowed = threading.Event(), Dashboard(rescale=True, state=True)
    with (
        contextlib.chdir(tmp_path_factory.mktemp("shots")),
        meander.deploy_local(WordCount(), 64, 4, dashboard=allowed, checkpoint="words") as op,
    ):
        feeding = threading.Thread(target=feed_words, args=(op, over))
        feeding.start()
        over.wait(40)
        op.rescale(6, pause_ms=100, why="the evening peak").wait()
        over.wait(25)
        assert op.dashboard is not None
        yield op.dashboard
        over.set()
        feeding.join()


def feed_words(op: ElasticOperator, over: threading.Event) -> None:
    """Feed until it is over: some words are much more frequent than others."""
    chance = random.Random(7)
    known = range(20_000)
    weights = [1 / (rank + 20) for rank in known]
    with op.feeder("words") as feeder:
        while not over.wait(0.1):
            words = chance.choices(known, weights, k=500)
            feeder.feed(pa.record_batch({"word": [f"word{word}" for word in words]}))


def test_it_is_readable_on_a_phone(link: str, narrow: Any, shot: Callable[..., Path]) -> None:
    narrow.get(link)
    shows(narrow, "#migration-stage", "completed")
    wide = narrow.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 390
    assert shot("dashboard-phone", "body").stat().st_size > 10_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_for_the_docs(link: str, page: Any, shot: Callable[..., Path], theme: str) -> None:
    page.get(link)
    page.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    shows(page, "#migration-stage", "completed")
    assert shot(f"dashboard-{theme}").stat().st_size > 10_000
