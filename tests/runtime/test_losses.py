"""Connections that break under a live deployment without checkpoints: nothing may be lost."""

from __future__ import annotations

import os
import signal

from runtime_kit import Stream, counted, cut, pid_of, until

from meander.operators import WordCount
from meander.runtime.driver.driver import Driver
from meander.runtime.process.spec import ProcessExit


def test_broken_connections_to_the_master_cost_no_state() -> None:
    """1. rows  2. every connection to the master breaks, three times  3. rows, a rescale, rows."""
    stream = Stream(5)
    with Driver(WordCount(), tasks=8, nodes=2) as driver:
        feeder = driver.feeder("f")
        nodes = set(driver.nodes())
        for _ in range(3):
            for batch in stream.batches(5):
                feeder.feed(batch)
            feeder.flush()
            until(
                lambda: cut(driver.address) > 0
            )  # they dial again when they have something to say
        for batch in stream.batches(5):
            feeder.feed(batch)
        driver.rescale(3).wait(60.0)
        feeder.flush()
        assert [what for _, what, _ in driver.events if "lost" in what] == []
        assert nodes <= set(driver.nodes())
        assert counted(driver) == stream.counts


def test_a_node_that_was_killed_is_lost_at_once_without_a_word_from_its_launcher() -> None:
    """Its kernel closes its port: whoever looks finds nobody."""
    with Driver(WordCount(), tasks=8, nodes=2) as driver:
        held: list[ProcessExit] = []
        driver.launcher._ended = held.append  # type: ignore[attr-defined]
        os.kill(pid_of(driver, "n1"), signal.SIGKILL)
        until(lambda: any(what == "lost" for _, what, _ in driver.events), 10.0)
        driver.launcher._ended = driver._process_ended  # type: ignore[attr-defined]
        for ended in held:
            driver._process_ended(ended)
