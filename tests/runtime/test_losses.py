"""Connections that break under a live deployment without checkpoints: nothing may be lost."""

from __future__ import annotations

import os
import signal

from runtime_kit import Stream, counted, cut, doomed, pid_of, until

from meander.operators import WordCount
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.spec import ProcessExit


def test_broken_connections_to_the_master_cost_no_state() -> None:
    """1. rows  2. every connection to the master breaks, three times  3. rows, a rescale, rows."""
    stream = Stream(5)
    with deploy_local(WordCount(), tasks=8, nodes=2) as op:
        feeder = op.feeder("f")
        nodes = set(op.driver.nodes())
        for _ in range(3):
            for batch in stream.batches(5):
                feeder.feed(batch)
            feeder.flush()
            until(lambda: cut(op.address) > 0)  # they dial again when they have something to say
        for batch in stream.batches(5):
            feeder.feed(batch)
        op.rescale(3).wait(60.0)
        feeder.flush()
        assert [what for _, what, _ in op.driver.events if "lost" in what] == []
        assert nodes <= set(op.driver.nodes())
        assert counted(op) == stream.counts


def test_a_node_that_was_killed_is_lost_at_once_without_a_word_from_its_launcher() -> None:
    """Its kernel closes its port: whoever looks finds nobody."""
    with doomed(deploy_local(WordCount(), tasks=8, nodes=2)) as op:
        held: list[ProcessExit] = []
        op.driver.launcher._ended = held.append  # type: ignore[attr-defined]
        os.kill(pid_of(op, "n1"), signal.SIGKILL)
        until(lambda: any(what == "lost" for _, what, _ in op.driver.events), 10.0)
        op.driver.launcher._ended = op.driver.core.process_ended  # type: ignore[attr-defined]
        for ended in held:
            op.driver.core.process_ended(ended)
