"""Frequent patterns on real processes: rescaled while loops cross tasks that move."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest

from meander.errors import NotQuietError
from meander.operators import FrequentPatterns, PatternRules, frequent_patterns, generate
from meander.operators.patterns.stages import TEXTS
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.loop_drain import look, on_its_way

RULES = PatternRules(size_max=3)
WORDS = [f"w{i}" for i in range(12)]


class Stream:
    """Texts that come and leave, and what is in the window."""

    def __init__(self, seed: int, length: int) -> None:
        self.random, self.length = random.Random(seed), length
        self.window: deque[str] = deque()

    def texts(self, texts: int) -> pa.RecordBatch:
        """Have some texts come and as many leave."""
        came = [" ".join(self.random.sample(WORDS, 4)) for _ in range(texts)]
        self.window += came
        left = [self.window.popleft() for _ in range(max(0, len(self.window) - self.length))]
        counts = [1] * len(came) + [-1] * len(left)
        return pa.record_batch([came + left, counts], schema=TEXTS)

    def changes(self, texts: int) -> pa.RecordBatch:
        """Do that, and make the patterns here."""
        batch = self.texts(texts)
        signs = batch["count"].to_numpy()
        parts = [(batch.filter(pa.array(signs == sign))["text"], sign) for sign in (1, -1)]
        return pa.concat_batches(generate(t, RULES).changes(sign) for t, sign in parts)

    def maximal(self, threshold: int) -> dict[str, int]:
        """Find them by brute force."""
        counts = Counter(
            " ".join(p)
            for text in self.window
            for k in range(1, RULES.size_max + 1)
            for p in combinations(sorted(text.split()), k)
        )
        sets = {p: set(p.split()) for p, n in counts.items() if n > threshold}
        return {
            p: counts[p] for p, s in sets.items() if not any(s < other for other in sets.values())
        }


def reported(op: ElasticOperator) -> dict[str, int]:
    rows = op.state().to_pylist()
    assert len({row["pattern"] for row in rows}) == len(rows)
    return {row["pattern"]: row["count"] for row in rows if row["reported"]}


def test_reports_are_right_after_rescales_up_and_down(launcher: WarmLauncher) -> None:
    """1. patterns cross the threshold up and down all the time, so the loop is never empty
    2. one node, then three, then two, meanwhile  3. flush, drain: exactly the maximal ones."""
    threshold, stream = 12, Stream(seed=5, length=150)
    operator = FrequentPatterns(threshold)
    operator.trace_chunks_max = 10_000
    with deploy_local(operator, tasks=16, nodes=1, launcher=launcher) as op:
        told: list[dict[str, object]] = []
        with op.feeder("window", linger_ms=1.0) as feeder:
            for nodes in (1, 3, 2):
                handle = op.rescale(nodes, pause_ms=50)
                for fed in range(1000):
                    feeder.feed(stream.changes(15))
                    time.sleep(0.005)
                    if fed > 20 and handle.ended.is_set():
                        break
                assert handle.wait(60).moved or nodes == 1
                told += op.outputs().to_pylist()
            feeder.flush()
            op.drain()
        expected = stream.maximal(threshold)
        assert reported(op) == expected
        told += op.outputs().to_pylist()
        latest = {row["pattern"]: row["reported"] for row in told}
        assert {p for p, shown in latest.items() if shown} == set(expected)
        found = op.driver.reader().run(look(op.driver.nodes(), op.driver.tasks))
        assert found is not None
        assert on_its_way(found) == 0
        assert sum(put for put, *_ in found.values()) > 100
        assert op.metrics()["latency"]["count"] > 0


@pytest.mark.parametrize("checkpoints", [False, True])
def test_the_topology_of_the_paper_reports_the_same(
    launcher: WarmLauncher, tmp_path: Path, checkpoints: bool
) -> None:
    """1. texts come and leave at generators  2. one node, then three, then two, meanwhile  3. drained:
    the reporter knows exactly the maximal ones, and has told them."""
    threshold, stream = 12, Stream(seed=7, length=150)
    topology = frequent_patterns(threshold, RULES, tasks={"generate": 4, "detect": 8, "report": 4})
    place = {"checkpoint": str(tmp_path), "checkpoint_s": 0.05} if checkpoints else {}
    with (
        deploy_local(topology, nodes=1, launcher=launcher, **place) as op,
        op.feeder("window", linger_ms=1.0) as feeder,
    ):
        told = list[dict[str, object]]()
        for nodes in (1, 3, 2):
            handle = op.rescale(nodes, pause_ms=50)
            for fed in range(1000):
                feeder.feed(stream.texts(15))
                time.sleep(0.005)
                if fed > 20 and handle.ended.is_set():
                    break
            assert handle.wait(60).moved or nodes == 1
            told += op.outputs().to_pylist()
        feeder.flush(durable=checkpoints)
        op.drain()
        expected = stream.maximal(threshold)
        detected = {r["pattern"] for r in op.state(of="detect").to_pylist() if r["reported"]}
        assert detected == set(expected)
        assert {row["pattern"] for row in op.state(of="report").to_pylist()} == set(expected)
        told += op.outputs().to_pylist()
        latest = {row["pattern"]: row["reported"] for row in told}
        assert {p for p, shown in latest.items() if shown} == set(expected)


def test_a_window_that_empties_leaves_nothing_behind(launcher: WarmLauncher) -> None:
    stream = Stream(seed=6, length=100)
    with (
        deploy_local(FrequentPatterns(3), tasks=4, nodes=2, launcher=launcher) as op,
        op.feeder("window") as feeder,
    ):
        for _ in range(10):
            feeder.feed(stream.changes(20))
        feeder.flush()  # or all of it comes and goes in one call, and nothing is reported
        stream.length = 0
        feeder.feed(stream.changes(0))
        feeder.flush()
        op.drain()
        assert op.state().num_rows == 0
        assert {size for _, _, size in op.metrics()["tasks"].values()} != {0}  # the outputs
        op.outputs()
        op.outputs()
        assert {size for _, _, size in op.metrics()["tasks"].values()} == {0}


def test_a_loop_that_is_not_empty_is_told(launcher: WarmLauncher) -> None:
    with deploy_local(FrequentPatterns(3), tasks=4, nodes=1, launcher=launcher) as op:
        op.drain(1.0)
        op.driver.tasks = 5  # one that nobody has
        with pytest.raises(NotQuietError, match="on the move"):
            op.drain(0.1)
        op.driver.tasks = 4
