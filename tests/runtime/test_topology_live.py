"""Topologies on processes: what comes out is what a plain program computes, also across rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from topology_operators import LetterCount, Letters

import meander
from meander.errors import InputError
from meander.operators import Context

WORDS = [f"{chr(97 + i * 7 % 26)}{i % 53}" for i in range(3000)]


def totals(words: list[str]) -> dict[str, tuple[int, int]]:
    """Count what both operators do, one word after another."""
    seen, found = Counter[str](), dict[str, tuple[int, int]]()
    for word in words:
        seen[word] += 1
        rows, total = found.get(word[0], (0, 0))
        found[word[0]] = rows + 1, total + seen[word]
    return found


def counted(running: meander.ElasticOperator) -> dict[str, tuple[int, int]]:
    """Read what the second operator has."""
    rows = running.state_table(of="count").to_pylist()
    return {row["letter"]: (row["rows"], row["total"]) for row in rows}


def places(running: meander.ElasticOperator) -> dict[str, set[str]]:
    """Tell which nodes have tasks of each operator."""
    owners, topology = running.driver.owners(), running.driver.core.topology
    return {part.name: set(owners[part.first : part.end]) for part in topology.parts}


def test_operators_with_nodes_of_their_own_are_rescaled_apart_and_together() -> None:
    topology = meander.Topology(
        {"letters": Letters(), "count": LetterCount()},
        edges=[("letters", "count")],
        tasks={"letters": 6, "count": 5},
        groups={"front": ["letters"], "back": ["count"]},
    )
    with meander.deploy_local(topology, nodes={"front": 2, "back": 1}) as running:
        before = places(running)
        assert before == {"letters": {"front.n1", "front.n2"}, "count": {"back.n1"}}
        with running.feeder("f") as feeder:
            feeder.feed(pa.table({"word": WORDS[:1500]}))
            plan = running.plan({"back": 3})
            assert (plan.plan.optimal, plan.plan.problem.nodes) == (True, 5)
            running.rescale({"back": 3}, pause_ms=100).wait()
            after = places(running)
            assert (after["letters"], len(after["count"])) == (before["letters"], 3)
            feeder.feed(pa.table({"word": WORDS[1500:]}))
            handle = running.rescale(2)
            feeder.flush()
            handle.wait()
        running.drain()
        found = places(running)
        assert [len(nodes) for nodes in found.values()] == [1, 1]
        assert not found["letters"] & found["count"]
        assert counted(running) == totals(WORDS)
        for wrong, why in (
            ({"side": 1}, "no group"),
            ({"back": 9}, "from 1 to 5"),
            (1, "a node each"),
        ):
            with pytest.raises(InputError, match=why):
                running.rescale(wrong)


@pytest.mark.slow
def test_operators_that_are_together_stay_so() -> None:
    topology = meander.Topology(
        {"letters": Letters(), "count": LetterCount()}, [("letters", "count")], 6, together=True
    )
    with meander.deploy_local(topology, nodes=2) as running, running.feeder("f") as feeder:
        for nodes in (4, 3):
            feeder.feed(pa.table({"word": WORDS[:1000]}))
            running.rescale(nodes, pause_ms=100).wait()
            owners = running.driver.owners()
            assert owners[:6] == owners[6:]
        feeder.flush()
        running.drain()
        assert counted(running) == totals(WORDS[:1000] * 2)


class LetterCount2(LetterCount):
    """Keeps the sum under another name."""

    name, state_version = "LetterCount", 2

    def dump(self, state: dict[str, Any]) -> list[pa.RecordBatch]:
        return [batch.rename_columns(["letter", "rows", "sum"]) for batch in super().dump(state)]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, Any]:
        names = ["letter", "rows", "total"]
        return super().load([batch.rename_columns(names) for batch in batches], context)

    def migrate(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        return [batch.rename_columns(["letter", "rows", "sum"]) for batch in batches]


def test_a_topology_is_upgraded_while_rows_flow() -> None:
    def made(count: LetterCount, tasks: int = 5) -> meander.Topology:
        operators = {"letters": Letters(), "count": count}
        return meander.Topology(operators, [("letters", "count")], {"letters": 6, "count": tasks})

    with meander.deploy_local(made(LetterCount()), nodes=2) as running:
        with pytest.raises(InputError, match="names_and_tasks is"):
            running.upgrade(made(LetterCount2(), 4))
        with pytest.raises(InputError, match="a single operator"):
            running.upgrade(Letters())
        with running.feeder("f") as feeder:
            feeder.feed(pa.table({"word": WORDS[:1500]}))
            handle = running.upgrade(made(LetterCount2()))
            feeder.feed(pa.table({"word": WORDS[1500:]}))
            handle.wait()
            feeder.flush()
        running.drain()
        rows = running.state_table(of="count").to_pylist()
        assert {row["letter"]: (row["rows"], row["sum"]) for row in rows} == totals(WORDS)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_two_operators_take_every_row_once_across_rescales(
    checkpoint: bool, tmp_path, launcher
) -> None:
    topology = meander.Topology(
        {"letters": Letters(), "count": LetterCount()},
        edges=[("letters", "count")],
        tasks={"letters": 6, "count": 5},
    )
    folder = {"checkpoint": tmp_path / "store", "checkpoint_s": 0.1} if checkpoint else {}
    with meander.deploy_local(topology, nodes=2, launcher=launcher, **folder) as running:
        handle = None
        with running.feeder("f") as feeder:
            for at in range(0, len(WORDS), 100):
                feeder.feed(pa.table({"word": WORDS[at : at + 100]}))
                if at == 1000:
                    handle = running.rescale(4, pause_ms=100)
            feeder.flush()
            handle.wait()
            running.drain()
            assert counted(running) == totals(WORDS)
            report = running.rescale(1).wait()
            assert report.moved > 0
        running.drain()
        found = counted(running)
        assert found == totals(WORDS)
        out = running.outputs()
        last = {row["letter"]: row["rows"] for row in out.to_pylist()}
        assert last == {letter: rows for letter, (rows, _) in found.items()}
        with pytest.raises(InputError, match="say which operator"):
            running.state_table()
