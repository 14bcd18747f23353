"""What a commit costs on a store, and whether two drivers can both have it: `meander bench store`.

A commit is what a micro-batch waits for: a file of records, then the manifest that names it, by the
very code of nodes and masters. It is timed step by step; a step is a request on an object store.

A race is for the next generation of one checkpoint: two drivers claim it at once while the last winner
goes on writing manifests. The winner reads what there is, and writes on in its turn. At the end nobody
may have been granted what another was, and whoever won must have read every manifest that counted for
drivers before it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from meander.errors import CheckpointError
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY
from meander.protocol.messages import Store, Stored
from meander.protocol.records import Ref
from meander.runtime.store.durable import FileStore
from meander.runtime.store.filesystem import Files
from meander.runtime.store.steps import Steps

CHANGES_A_WHOLE: Final = 32
"""So many changes follow a manifest that is whole, as a master has it."""
MANIFEST_BYTES: Final = 2_000
WAIT_S_MAX: Final = 60.0


# ---------------------------------------------------------------------- one driver


class _Timed:
    """Takes the steps of operations, and notes how long each operation took and in how many steps."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = {}
        self.steps: dict[str, list[int]] = {}

    def do(self, name: str, operation: Steps[Any]) -> Any:
        """Carry an operation out."""
        began, count, came = time.perf_counter(), 0, None
        try:
            while True:
                came = operation.send(came)()
                count += 1
        except StopIteration as end:
            self.ms.setdefault(name, []).append((time.perf_counter() - began) * 1e3)
            self.steps.setdefault(name, []).append(count)
            return end.value

    def told(self, name: str) -> dict[str, float]:
        """Give the figures of operations of one name."""
        ms = sorted(self.ms[name])
        return {
            "p50_ms": round(statistics.median(ms), 3),
            "p99_ms": round(ms[min(len(ms) - 1, int(0.99 * len(ms)))], 3),
            "steps": statistics.median(self.steps[name]),
        }


def commits(files: Files, count: int, record_bytes: int) -> dict[str, Any]:
    """Commit so often; give how long the parts took.

    Raises:
        CheckpointError: if the store refuses.
    """
    files.prepare()
    store, timed, data = FileStore(files), _Timed(), b"x" * record_bytes
    generation = store.generation() + 1
    _check(timed.do("claim", store.writing(Store(CLAIM_KEY, b"", fence=generation))))
    for number in range(count):
        key, change = f"log/{generation}/n1.1/{number}", number % (CHANGES_A_WHOLE + 1) > 0
        stored = timed.do("records", store.writing(Store(key, (lambda: (data,),))))
        manifest = Store(MANIFEST_KEY, b"m" * MANIFEST_BYTES, fence=generation, append=change)
        _check(timed.do("manifest", store.writing(manifest)))
        for name in ("ms", "steps"):
            of = getattr(timed, name)
            of.setdefault("commit", []).append(of["records"][-1] + of["manifest"][-1])
        timed.do("read", store.reading(str(Ref(key, *stored.extents[0]))))
    store.discard([f"log/{generation}/n1.1/{number}" for number in range(count)])
    return {name: timed.told(name) for name in ("commit", "records", "manifest", "read", "claim")}


def _check(stored: Stored) -> None:
    if not stored.done:
        raise CheckpointError(f"the store refused to write {stored.key!r}")


# ---------------------------------------------------------------------- two of them


class Race:
    """Drivers that follow one another on one checkpoint."""

    def __init__(self, open_again: Callable[[], Files], rounds: int) -> None:
        """Prepare; `open_again` opens the checkpoint as one more process does."""
        self._open, self._rounds = open_again, rounds
        self._lock, self._failed = threading.Lock(), list[BaseException]()
        self.granted = Counter[int]()
        """By generation."""
        self.counted: dict[int, int] = {}
        """By generation: the last manifest that was acknowledged."""
        self.began: dict[int, tuple[int, int]] = {}
        """By generation: what its driver went on from: generation and number of a manifest."""
        self.acknowledged = self.errors = 0

    def run(self) -> dict[str, int]:
        """Race all rounds; give what was seen."""
        self._open().prepare()
        last = FileStore(self._open())
        threads = list[threading.Thread]()
        for _ in range(self._rounds):
            generation, gate = last.generation() + 1, threading.Barrier(2)
            claimed = [threading.Event(), threading.Event()]
            threads = [thread for thread in threads if thread.is_alive()]
            for done in claimed:
                store = FileStore(self._open())
                args = (store, generation, gate, done)
                threads.append(threading.Thread(target=self._drive, args=args, daemon=True))
                threads[-1].start()
            for done in claimed:
                done.wait(WAIT_S_MAX)
            if self._failed:
                raise self._failed[0]
        while not last.write(Store(CLAIM_KEY, b"", fence=last.generation() + 1)).done:
            pass
        for thread in threads:
            thread.join(WAIT_S_MAX)
        final = last.generation() + 1
        self.began[final] = _numbers(last.read(MANIFEST_KEY))
        return self.told()

    def told(self) -> dict[str, int]:
        """Say what was seen, and what may not be."""
        lost = sum(
            self.began[new] < (old, number)
            for old, number in self.counted.items()
            for new in self.began
            if new > old
        )
        return {
            "rounds": self._rounds,
            "granted": len(self.granted),
            "granted_twice": sum(count > 1 for count in self.granted.values()),
            "manifests_acknowledged": self.acknowledged,
            "manifests_lost": lost,
            "errors": self.errors,
        }

    def _drive(
        self, store: FileStore, generation: int, gate: threading.Barrier, claimed: threading.Event
    ) -> None:
        try:
            gate.wait(WAIT_S_MAX)
            won = self._claims(store, generation)
            claimed.set()
            if won:
                self._write_on(store, generation)
        except BaseException as error:
            self._failed.append(error)
            claimed.set()

    def _claims(self, store: FileStore, generation: int) -> bool:
        """Try to win a generation; go on from what is there."""
        if not store.write(Store(CLAIM_KEY, b"", fence=generation)).done:
            return False
        with self._lock:
            self.granted[generation] += 1
        self.began[generation] = _numbers(store.read(MANIFEST_KEY))
        return True

    def _write_on(self, store: FileStore, generation: int) -> None:
        """Write manifests until a later driver has the checkpoint."""
        number, whole = 0, True
        while True:
            number += 1
            text = b"%d %d" % (generation, number)
            change = not whole and number % 3 > 0
            data = b";" + text if change else text
            try:
                stored = store.write(Store(MANIFEST_KEY, data, fence=generation, append=change))
            except OSError:  # such as a claim that was taken away while it was looked for
                self.errors, whole = self.errors + 1, True
                continue
            if stored.fenced:
                return
            whole = False
            with self._lock:
                self.counted[generation] = number
                self.acknowledged += 1


def _numbers(manifest: bytes | None) -> tuple[int, int]:
    """Read generation and number of a manifest and its changes."""
    if manifest is None:
        return 0, 0
    generation, number = manifest.split(b";")[-1].split()
    return int(generation), int(number)
