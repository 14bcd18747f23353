"""One thread writes to all peers; one that is held up keeps nobody else waiting."""

from __future__ import annotations

import threading
import time

from runtime_kit import until

from meander.runtime.wire.writers import Writers


class Way:
    """A link with so many messages; notes who wrote them, and may hold its writer up."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.threads: list[int] = []
        self.hold: threading.Event | None = None
        self.held = threading.Event()

    def write(self) -> bool:
        if self.hold is not None:
            self.held.set()
            assert self.hold.wait(30.0)
        self.threads.append(threading.get_ident())
        self.left -= 1
        return self.left > 0


def test_one_thread_writes_to_all_as_long_as_nobody_holds_it_up() -> None:
    writers, ways = Writers("w"), [Way(3) for _ in range(50)]
    for way in ways:
        writers.add(way)
    until(lambda: not any(way.left for way in ways))
    assert {thread for way in ways for thread in way.threads} == {ways[0].threads[0]}
    assert writers.started == 1
    again = Way(1)
    writers.add(again)
    until(lambda: not again.left)
    assert again.threads == [ways[0].threads[0]]


def test_what_is_added_together_is_written_when_all_is_there() -> None:
    writers, first, others = Writers("w"), Way(1), [Way(1) for _ in range(3)]
    writers.add(first)
    until(lambda: not first.left)
    writers.hold()
    for way in others[:2]:
        writers.add(way)
    time.sleep(0.05)
    assert all(way.left for way in others[:2])
    aside = threading.Thread(target=writers.add, args=(others[2],))
    aside.start()  # nobody else has said that it holds anything back
    until(lambda: not others[2].left)
    writers.release()
    until(lambda: not any(way.left for way in others))
    assert {way.threads[0] for way in others} == set(first.threads)
    writers.release()  # there is nothing
    assert writers.started == 1


def test_peers_that_do_not_read_hold_up_no_other() -> None:
    """1. three peers stop reading, with more waiting for them and for others  2. the others get all
    3. they read again: their writers bring it to an end, and one thread is left."""
    writers, stopped, others = Writers("w"), [Way(4) for _ in range(3)], [Way(4) for _ in range(5)]
    release = threading.Event()
    for way in stopped:
        way.hold = release
        writers.add(way)
    for way in others:
        writers.add(way)
    until(lambda: not any(way.left for way in others))
    assert all(way.held.is_set() and way.left == 4 for way in stopped)
    assert writers.started == 4
    release.set()
    until(lambda: not any(way.left for way in stopped))
    assert all(len(set(way.threads)) == 1 for way in stopped)
    last = Way(1)
    writers.add(last)
    until(lambda: not last.left)
    assert last.threads[0] not in {way.threads[0] for way in stopped}
