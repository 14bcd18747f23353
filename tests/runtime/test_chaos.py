"""Nodes and state servers are killed at random while the deployment is rescaled: no count is wrong."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from runtime_kit import Stream, counted

from meander.operators import WordCount
from meander.runtime.driver.launch import LocalLauncher
from meander.runtime.driver.local import deploy_local

SECONDS = 12.0


def kill_one(launcher: LocalLauncher, choice: random.Random) -> None:
    """Kill a node, or now and then a state server."""
    servers = choice.random() < 0.25
    found = [
        pid for (name, _), pid in launcher.pids.items() if name.startswith("server") == servers
    ]
    if found:
        with suppress(ProcessLookupError):
            os.kill(choice.choice(found), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counts_are_exact_whatever_is_killed(seed: int, tmp_path: Path) -> None:
    choice, launcher, stop = random.Random(seed), LocalLauncher(), threading.Event()
    streams = [Stream(10 * seed + k) for k in range(3)]
    failures: list[Exception] = []
    with deploy_local(
        WordCount(), tasks=24, nodes=3, checkpoint=str(tmp_path), checkpoint_s=0.3,
        launcher=launcher,
    ) as op:  # fmt: skip

        def feed(stream: Stream, gather_rows: int) -> None:
            try:
                with op.feeder(f"f{id(stream)}", gather_rows=gather_rows) as feeder:
                    while not stop.is_set():
                        feeder.feed(stream.batch())
                        time.sleep(0.004)
            except Exception as error:
                failures.append(error)

        threads = [
            threading.Thread(target=feed, args=(stream, choice.choice((200, 1000, 4000))))
            for stream in streams
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(choice.uniform(0.2, 1.2))
            if choice.random() < 0.4:
                op.rescale(choice.randint(1, 6), tasks_max=choice.choice((None, 1, 3)))
            else:
                kill_one(launcher, choice)
        stop.set()
        for thread in threads:
            thread.join(120.0)
        assert not failures
        assert not any(thread.is_alive() for thread in threads)
        assert counted(op) == sum((stream.counts for stream in streams), Counter())
        assert op.driver.lost_tasks == set()
