"""What the page shows, without a page: pure functions of snapshots."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dashboard_kit import ended, made_up, moving, soon

from meander.dashboard import feed as feeding
from meander.dashboard import notebook, snapshot
from meander.dashboard.course import Course
from meander.dashboard.feed import ENDED, TROUBLE, Feed, Looker
from meander.dashboard.notebook import draw
from meander.dashboard.rescales import RescaleHistory, describe, verdict
from meander.dashboard.sections import nodes, sections, tasks
from meander.dashboard.snapshot import Snapshot, Told
from meander.model import Assignment, Problem, Workload
from meander.planning import plan
from meander.runtime.driver.elastic import ElasticOperator

SKEWED = Problem(Workload([5] * 16 + [40] * 8, [1000] * 24),
                 Assignment.from_intervals([(0, 12), (12, 24)]), 3, "0.3")  # fmt: skip


def test_a_snapshot_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeders that came while it was looked at ended what looked at it."""
    monkeypatch.setattr(snapshot, "deployed", lambda _: None)
    live: dict[str, Any] = {"words": {"chunks": 1}}
    core = SimpleNamespace(feeding=live, news={})
    driver = SimpleNamespace(
        core=core, events=[], ask=lambda _: None, lost_tasks=set(), failure=None,
        totals=SimpleNamespace(total=dict, by_node=dict),
    )  # fmt: skip
    op: Any = SimpleNamespace(driver=driver, decisions=list)
    now = snapshot.take(op)
    live["others"] = {"chunks": 2}
    assert list(now.feeding) == ["words"]


def test_curves_go_on_when_the_calendar_is_set_back() -> None:
    """No point came for as long as it was set back, and every snapshot of that time was kept."""
    course, hour = Course(), 3600.0
    for second in range(20):
        course.take(made_up(at_s=2 * hour + second, rows=100 * second))
    assert len(course.points) == 19
    course.base()
    for second in range(10):
        course.take(made_up(at_s=hour + second, rows=2000 + 100 * second))
    assert len(course._window) < 5
    times = course.base()["at_s"] + course.tail()["at_s"]
    assert times == [hour + second for second in range(1, 10)]
    assert [point.rows_s for point in course.points] == [100.0] * 9


def test_rates_are_differences_and_latencies_are_those_of_late() -> None:
    course = Course()
    for second in range(6):
        course.take(made_up(at_s=1000.0 + second, rows=2000 * second))
    point = course.now()
    assert point is not None
    assert point.rows_s == pytest.approx(2000)
    assert sum(course.node_rows_s.values()) == pytest.approx(2000)
    assert point.p50_ms == pytest.approx(2.5, rel=0.04)
    for second in range(6, 12):
        course.take(made_up(at_s=1000.0 + second, rows=10_000))
    last = course.now()
    assert last is not None
    assert (last.rows_s, last.p50_ms) == (0, None)
    assert course.base()["at_s"] + course.tail()["at_s"] == [1001.0 + i for i in range(11)]


def test_new_points_are_sent_by_themselves_and_all_of_them_now_and_then() -> None:
    course, bases = Course(), list[object]()
    for second in range(200):
        course.take(made_up(at_s=1000.0 + second, rows=second))
        base = course.base()
        bases += [] if bases and bases[-1] is base else [base]
        shown = base["at_s"] + course.tail()["at_s"]
        assert shown == [point.at_s for point in course.points]
    assert len(bases) <= 6


def test_nodes_are_told_with_their_loads_and_the_most_that_one_may_have() -> None:
    now = made_up(nodes=4, tasks=8, work=(1, 1, 1, 1, 1, 1, 9, 9), sizes=(2,) * 8)
    found = nodes(now, Course())
    loads = {row[0]: row[4] for row in found["rows"]}
    assert loads == {"n1": 2, "n2": 2, "n3": 2, "n4": 18}
    assert found["cap"] == pytest.approx(1.2 * 24 / 4)
    assert tasks(now)["heaviest"] == [6, 9, "n4"]


def test_a_thousand_nodes_and_65536_tasks_make_a_small_page() -> None:
    feed = Feed()
    feed.take(made_up(nodes=1000, tasks=65_536, hosts=40))
    sizes = {name: len(part.text) for name, part in feed.parts.items()}
    assert sum(sizes.values()) < 250_000
    before = feed.version
    feed.take(replace(made_up(nodes=1000, tasks=65_536, hosts=40), at_s=feed.snapshot.at_s))  # type: ignore[union-attr]
    assert [name for name, _ in feed.after(before)] == []


def test_what_there_is_nothing_of_is_said_too() -> None:
    feed = Feed()
    feed.take(made_up())
    assert (feed.parts["checkpoints"].text, feed.parts["migration"].text) == ("null", "null")


def test_a_plan_says_why_and_what_others_would_have_moved() -> None:
    found = describe(plan(SKEWED))
    assert (found["from"], found["to"], found["moves"]) == (2, 3, len(plan(SKEWED).moves))
    assert [name for name, _ in found["rivals"]] == [
        "Storm",
        "Flink's ranges",
        "consistent hashing",
    ]
    assert all(
        cost >= found["bytes"] for name, cost in found["rivals"] if name != "consistent hashing"
    )
    assert "n2 had more than that before: some tasks there must move." in found["why"]
    assert any("proven" in text for text in found["why"])
    assert sum(found["gave"].values()) == sum(found["got"].values()) == found["moves"]


def test_a_plan_says_what_a_task_that_is_too_heavy_does_to_it() -> None:
    """1. one task has most of the work  2. the limit is another one, and why  3. a node stays idle."""
    heavy = Problem(
        Workload([90, 1, 1, 1], [1, 1, 1, 1]), Assignment.from_intervals([(0, 4)]), 4, "0.2"
    )
    said = describe(plan(heavy, relax=True))["why"]
    assert said[1].startswith("No plan stays within 1.2 times the mean, so ")
    assert "task 0 alone weighs 0.97 of the work" in said[1]
    assert "tau" not in " ".join(said)
    assert said[-1].startswith("2 of the nodes get no task: the limit holds without")


def test_the_history_tells_who_asked_and_whether_the_promise_was_kept() -> None:
    history, now = RescaleHistory(), moving(made_up())
    history.note(1, plan(SKEWED))
    asked = {1: {"by": "the program", "why": "a test", "pause_ms": 100.0}}
    history.take(now, asked)
    (row,) = history.shown()
    assert (row["by"], row["why"], row["stage"]) == ("the program", "a test", "moving")
    assert len(row["rounds"]) == 2
    history.take(ended(now), asked)
    (row,) = history.shown()
    assert (row["promise"], row["from"], row["to"]) == ("kept", 4, 6)
    assert row["said"] == "rows waited at most 50 ms, 60 ms were predicted, 100 ms allowed"
    history = RescaleHistory()
    history.take(ended(now, measured_s=0.3), asked)
    assert history.shown()[0]["promise"] == "missed"
    assert history.shown()[0]["plan"] is None


def test_a_promise_that_nobody_asked_for_is_not_called_kept() -> None:
    assert verdict(None, 0.1, 5.0, "completed")[0] == "no limit"
    assert verdict(0.1, 0.1, 0.0, "rolled back")[0] == "rolled back"


def test_the_history_has_an_end() -> None:
    history = RescaleHistory()
    told = tuple(Told(float(i), "rescaling", {"migration": i, "nodes": 2}) for i in range(1, 300))
    for _ in range(2):
        history.take(replace(made_up(), told=told), {})
    assert [row["number"] for row in history.shown()] == list(range(299, 199, -1))


def test_a_migration_is_told_task_by_task() -> None:
    found = sections(moving(made_up()), Course(), RescaleHistory())["migration"]
    assert found["round"]["moving"][0][:3] == [10, "n1", "n1"]
    assert (found["moved"], found["budget_ms"], len(found["rounds"])) == (9, 100.0, 2)
    assert found["left"] == sum(
        1 for t in range(64) if f"n{t * 6 // 64 + 1}" != f"n{t * 4 // 64 + 1}" or t in (10, 11)
    )


def test_losses_are_told_in_words() -> None:
    told = (
        Told(1.0, "lost", {"node": "n3", "incarnation": 2, "tasks": 16}),
        Told(2.0, "rescaling", {"migration": 1, "nodes": 2}),
        Told(3.0, "store fails", {"who": "n1", "why": "no room"}),
    )
    found = sections(made_up(told=told), Course(), RescaleHistory())["events"]
    assert [what for _, what, _ in found] == ["store fails", "lost"]
    assert found[1][2].startswith("n3 with 16 tasks")


def test_looks_that_fail_are_told_once_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1. a good look  2. three that fail  3. a good one again: the page says so in between."""
    driver = SimpleNamespace(core=SimpleNamespace(plan_heard=[]), stopping=False, failure=None)
    found: list[object] = [made_up(rows=1), *[KeyError("n9")] * 3, made_up(rows=2)]
    feed, troubles = Feed(), list[str]()

    def look(_: object) -> Snapshot:
        troubles.append(feed.parts[TROUBLE].text if TROUBLE in feed.parts else "")
        if not found:
            driver.stopping = True
            raise RuntimeError("the master has ended")
        now = found.pop(0)
        if isinstance(now, Exception):
            raise now
        assert isinstance(now, Snapshot)
        return now

    monkeypatch.setattr(feeding, "measured", lambda _: None)
    monkeypatch.setattr(feeding, "take", look)
    monkeypatch.setattr(feeding, "LOOK_S", 0.0)
    monkeypatch.setattr(feeding, "SHARE", 1.0)
    monkeypatch.setattr(Looker, "_asked", lambda _: {})
    looker = Looker(cast(ElasticOperator, SimpleNamespace(driver=driver)), feed)
    looker.start()
    looker.join()
    trouble = json.dumps("KeyError: 'n9'")
    assert troubles == ["", "null", trouble, trouble, trouble, "null"]
    assert [record.message for record in caplog.records] == [
        "the dashboard shows what was: a look failed"
    ]
    assert feed.snapshot is not None
    assert feed.snapshot.totals["rows"] == 2
    assert "it was stopped" in feed.parts[ENDED].text


def test_everything_that_is_sent_is_json() -> None:
    found = sections(ended(moving(made_up(checkpointing=True))), Course(), RescaleHistory())
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(found, default=str))


def test_a_notebook_shows_a_small_picture_and_escapes_names() -> None:
    now = made_up(nodes=2, tasks=4, owners=("<b>", "<b>", "n2", "n2"))
    drawn = draw(moving(made_up()), "http://127.0.0.1:1/")
    assert "moving: 4 → 6 nodes, 9 tasks moved" in drawn
    assert "token" not in drawn
    assert "<b>:" not in draw(now)
    assert "&lt;b&gt;: tasks 0 to 1" in draw(now)
    assert "and 988 more" in draw(made_up(nodes=1000, tasks=2000))


def test_a_notebook_draws_the_operator_anew_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. shown  2. drawn anew  3. another is shown: the first stops  4. the end."""

    class Shown:
        def __init__(self) -> None:
            self.drawn: list[str] = []

        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.drawn.append(data["text/html"])

    rows = itertools.count(1000, 1000)
    driver = SimpleNamespace(stopping=False, failure=None)
    op = cast(ElasticOperator, SimpleNamespace(driver=driver, dashboard=None))
    monkeypatch.setattr(notebook, "take", lambda _: made_up(rows=next(rows)))
    monkeypatch.setattr(notebook, "DRAW_S", 0.01)
    first, second = Shown(), Shown()
    one = notebook.LiveView(op, lambda data: (first.update(data, raw=True), first)[1])
    soon(lambda: len(first.drawn) >= 3)
    assert "1,000 rows" in first.drawn[0]
    assert "3,000 rows" in first.drawn[2]
    two = notebook.LiveView(op, lambda data: (second.update(data, raw=True), second)[1])
    one.join()
    driver.stopping = True
    two.join()
    assert second.drawn[-1].startswith("<div>namespace(")


def test_without_a_notebook_there_is_no_live_view() -> None:
    driver = SimpleNamespace(stopping=False, failure=None)
    with pytest.raises(NotImplementedError):
        notebook.display(cast(ElasticOperator, SimpleNamespace(driver=driver, dashboard=None)))
