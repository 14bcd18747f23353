"""The simulated disk and object store: like real ones, and what the store makes of their faults."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from meander.errors import InputError
from meander.protocol.messages import Discard, Load, Loaded, Store, Stored, Sweep
from meander.protocol.records import Ref
from meander.runtime.clock import Clock
from meander.runtime.store.disk import Facts, OsDisk
from meander.runtime.store.durable import READERS, FileStore, NoStore
from meander.runtime.store.filesystem import Files, LocalFiles
from meander.testing.timeline import Timeline
from meander.testing.world.bucket import bucket
from meander.testing.world.disk import Dead, DiskView, SimDisk
from meander.testing.world.store import SimStoreWorker

ROOT = Path("/checkpoint")


def local(view: DiskView) -> Files:
    return LocalFiles(ROOT, disk=view, me=view.name)


def blind(view: DiskView) -> Files:
    return bucket(view, conditional=False)


def mixed(view: DiskView) -> Files:
    """Some know of conditional writes, and some do not."""
    return bucket(view, conditional=view.disk.coin())


FLAVOURS = pytest.mark.parametrize("flavour", [local, bucket, blind])
Flavour = Callable[[DiskView], Files]


def still(seed: int = 1) -> SimDisk:
    """A disk on which no time passes."""
    return SimDisk(Random(seed), lambda: 0.0)


def clock_of(timeline: Timeline) -> Clock:
    return Clock(lambda: timeline.now, lambda: int(timeline.now * 1e6))


def record(*texts: bytes) -> tuple[Any, ...]:
    return tuple((lambda text=text: (text[:2], text[2:])) for text in texts)


# ---------------------------------------------------------------------- like a real one


def test_it_does_what_a_real_disk_does(tmp_path: Path) -> None:
    """The same calls at random on both: the same results, the same errors."""
    seen = Counter[str]()
    for seed in range(20):
        random, sim, real = Random(seed), still().view("x"), OsDisk()
        real.make_folder(f"{tmp_path}/{seed}")
        sim.make_folder(f"{tmp_path}/{seed}")
        paths = [f"{tmp_path}/{seed}/{name}" for name in ("a", "b", "a/c", "a/d", "b/c", "a/c/e")]
        for _ in range(120):
            call, args = any_call(random, paths)
            if call in ("rename", "link") and any(map(os.path.isdir, args)):
                continue  # only files are renamed
            extra = {"pieces": [b"some", b"thing"], "sync": False} if call == "write" else {}
            results = [outcome(getattr(disk, call), *args, **extra) for disk in (real, sim)]
            assert results[0] == results[1], (seed, call, args)
            seen[call] += 1
    assert seen.keys() == set(CALLS)


CALLS = ["make_folder", "write", "write", "rename", "link", "unlink", "read", "scan"]
CALLS += ["facts", "sync_folder", "remove_folder"]


def any_call(random: Random, paths: list[str]) -> tuple[str, tuple[Any, ...]]:
    call, one, two = random.choice(CALLS), random.choice(paths), random.choice(paths)
    if call == "read":
        return call, (one, random.randrange(3), random.choice([None, 2]))
    return call, (one, two) if call in ("rename", "link") else (one,)


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Give what a call gives, as far as it can be compared, or the number of its error."""
    try:
        found = call(*args, **options)
    except OSError as error:
        return error.errno
    if isinstance(found, Facts):
        return None  # the size of a folder is anybody's guess
    return sorted(found) if isinstance(found, list) else found


@FLAVOURS
def test_a_store_works_on_it(flavour: Flavour) -> None:
    disk = still()
    store, other = (FileStore(flavour(disk.view(name)), name) for name in ("one", "two"))
    assert store.write(Store("generation", b"", fence=1)).done
    stored = store.write(Store("log/1/n1.1/1", record(b"first", b"second")))
    names = [str(Ref("log/1/n1.1/1", *extent)) for extent in stored.extents]
    assert [other.read(name) for name in names] == [b"first", b"second"]
    for number in range(4):
        assert store.write(Store("manifest", b"%d" % number, fence=1)).done
    assert (other.read("manifest"), other.generation()) == (b"3", 1)
    assert other.write(Store("generation", b"", fence=2)).done
    assert store.write(Store("manifest", b"late", fence=1)).fenced
    store.sweep(Sweep("log/"))
    assert store.files.list("log") == store.files.list("never") == []
    store.discard(["log/1/n1.1/1"])
    with pytest.raises(ValueError, match="missing"):
        store.read(names[0])


# ---------------------------------------------------------------------- faults


def test_a_process_that_dies_in_a_write_leaves_some_of_it_and_cleans_up_nothing() -> None:
    lengths = set()
    for seed in range(40):
        disk = still(seed)
        view = disk.view("x")
        files = local(view)
        view.die_after(1)  # the folder is made, then comes the write
        with pytest.raises(Dead):
            files.write("log/1", [b"0123", b"4567"])
        half = disk.peek("/checkpoint/log/1")
        assert half is not None
        lengths.add(len(half))
        with pytest.raises(Dead):
            files.read("log/1")
    assert lengths > {0, 3, 6, 8}


@FLAVOURS
def test_a_process_may_die_in_every_call_of_a_publish(flavour: Flavour) -> None:
    """Whoever looks afterwards finds it whole or not at all."""
    seen = Counter[bytes | None]()
    for calls in range(8):
        disk = still()
        files = flavour(view := disk.view("x"))
        view.die_after(calls)
        try:
            files.publish("manifest/1.json", b"whole")
        except Dead:
            assert view.dead
        after = flavour(disk.view("y"))
        seen[after.read("manifest/1.json")] += 1
        assert bool(after.list("manifest")) == bool(after.read("manifest/1.json"))
    assert set(seen) == {None, b"whole"}


@FLAVOURS
def test_what_did_not_fit_takes_no_room(flavour: Flavour) -> None:
    disk = still()
    files = flavour(view := disk.view("x"))
    disk.faults.full = 0.5
    results = [outcome(files.write, f"log/{n}", [b"some", b"thing"]) for n in range(100)]
    assert set(results) == {None, errno.ENOSPC}
    files.delete([f"log/{n}" for n, result in enumerate(results) if result is None])
    assert list(disk.paths("/")) == []
    assert not view.dead


@FLAVOURS
def test_errors_of_the_disk_come_out_as_they_are(flavour: Flavour) -> None:
    disk = still()
    files = flavour(disk.view("x"))
    files.write("log/1/a", [b"x"])
    disk.faults.read = 0.5
    results = [outcome(files.read, "log/1/a") for _ in range(50)]
    assert set(results) == {b"x", errno.EIO}
    assert files.read("log/1/never") is None
    disk.faults.read, disk.faults.change = 0.0, 1.0
    with pytest.raises(OSError, match="Input/output"):
        files.delete(["log/1/a"])


@FLAVOURS
def test_a_folder_that_fails_in_the_middle_of_a_walk_fails_the_listing(flavour: Flavour) -> None:
    disk = still()
    files = flavour(disk.view("x"))
    paths = [f"log/{a}/{b}/{c}" for a in range(3) for b in range(3) for c in range(2)]
    for path in paths:
        files.write(path, [b"x"])
    disk.faults.scan = 0.05
    results = [outcome(files.list, "log") for _ in range(100)]
    whole = [found for found in results if found != errno.EIO]
    assert 0 < len(whole) < 100
    assert all([entry.path for entry in found] == paths for found in whole)


@FLAVOURS
def test_a_listing_that_takes_a_while_sees_what_was_there_all_the_time(flavour: Flavour) -> None:
    now = [0.0]
    disk, seen = SimDisk(Random(5), lambda: now[0]), Counter[str]()
    files = flavour(view := disk.view("x"))
    for path in ("log/1/before", "log/1/stays", "log/1/goes", "log/2/goes"):
        files.write(path, [b"x"])
    files.delete(["log/1/before"])
    now[0] = 2.0
    for path in ("log/1/comes", "log/3/comes"):
        files.write(path, [b"x"])
    files.delete(["log/1/goes", "log/2/goes"])
    now[0], view.since = 3.0, 1.0
    for _ in range(200):
        seen.update(entry.path for entry in files.list("log"))
    assert seen.pop("log/1/stays") == 200
    assert seen.keys() == {"log/1/comes", "log/1/goes", "log/2/goes", "log/3/comes"}
    assert all(0 < times < 200 for times in seen.values())


# ---------------------------------------------------------------------- the worker


class Bench:
    """One worker on a disk, and what it answers."""

    def __init__(self, flavour: Flavour = local, seed: int = 1) -> None:
        self.timeline, random = Timeline(), Random(seed)
        self.disk = SimDisk(random, lambda: self.timeline.now)
        self.view = self.disk.view("x")
        self.store = FileStore(flavour(self.view), "x")
        self.broken, self.answers, self.died = list[BaseException](), list[Any](), list[float]()
        self.worker = SimStoreWorker(
            self.store, self.timeline, random, clock_of(self.timeline), self.view,
            broken=self.broken.append, died=lambda: self.died.append(self.timeline.now),
        )  # fmt: skip
        self.worker.start(lambda event: self.answers.append((self.timeline.now, event)))

    def events(self, until: float = 10.0) -> list[Any]:
        self.timeline.run(until)
        return [event for _, event in self.answers]


@FLAVOURS
def test_writes_keep_their_order_and_a_run_repeats_itself(flavour: Flavour) -> None:
    runs = []
    for _ in range(2):
        bench = Bench(flavour)
        for number in range(10):
            bench.worker.give(Store(f"log/1/n1.1/{number}", record(b"text")))
            bench.worker.give(Load("manifest"))
        assert bench.worker.outstanding().writes[0] == "log/1/n1.1/0"
        bench.worker.give(Discard(("log/1/n1.1/0",)))
        bench.worker.close()
        events = bench.events()
        assert [e.key for e in events if isinstance(e, Stored)] == [
            f"log/1/n1.1/{number}" for number in range(10)
        ]
        assert [e for e in events if isinstance(e, Loaded)] == [Loaded("manifest", None)] * 10
        assert bench.worker.idle()
        assert not bench.broken
        runs.append((bench.answers, list(bench.disk.paths("/"))))
    assert runs[0] == runs[1]


def test_no_more_are_read_side_by_side_than_in_production() -> None:
    bench = Bench()
    for _ in range(40):
        bench.worker.give(Load("log/1/n1.1/1"))
    assert bench.worker.outstanding().loads == ("log/1/n1.1/1",) * 40
    assert sum(lane.action is not None for lane in bench.worker._lanes) == READERS
    assert len(bench.events()) == 40


def test_what_a_store_raises_is_answered_and_what_leaves_an_operation_ends_it() -> None:
    def refuses() -> Any:
        raise ValueError("no rows")

    def exits() -> Any:
        raise SystemExit

    bench = Bench()
    bench.worker.give(Store("log/1/n1.1/1", (refuses,)))
    bench.worker.give(Store("log/1/n1.1/2", (exits,)))
    bench.worker.give(Store("log/1/n1.1/3", record(b"text")))
    assert bench.events() == [Stored("log/1/n1.1/1", done=False, fault="ValueError: no rows")]
    assert [type(error) for error in bench.broken] == [SystemExit]
    assert bench.worker.outstanding().writes == ("log/1/n1.1/2", "log/1/n1.1/3")
    bench.worker.give(Load("manifest"))
    assert bench.events(20.0)[-1] == Loaded("manifest", None)


def test_a_worker_without_a_store_refuses_writes_and_knows_nothing() -> None:
    timeline, answers = Timeline(), list[Any]()
    worker = SimStoreWorker(
        NoStore(), timeline, Random(1), clock_of(timeline), broken=pytest.fail, died=pytest.fail
    )
    worker.give(Store("log/1/n1.1/1", record(b"text")))
    worker.give(Load("manifest"))
    worker.start(answers.append)
    timeline.run(1.0)
    assert set(answers) == {Stored("log/1/n1.1/1", done=False), Loaded("manifest", None)}


def test_a_worker_that_is_killed_stops_in_the_middle() -> None:
    left = Counter[bytes | None]()
    for seed in range(200):
        bench = Bench(seed=seed)
        bench.worker.give(Store("log/1/n1.1/1", record(b"text")))
        bench.worker.kill()
        assert bench.events() == []
        left[bench.disk.peek("/checkpoint/log/1/n1.1/1")] += 1
    assert left[None]
    assert left[b"MEANDER1text"]
    assert len(left) > 6


def test_a_process_that_dies_in_a_write_says_so_and_nothing_more() -> None:
    bench = Bench()
    bench.view.faults.cut = 1.0
    bench.worker.give(Store("log/1/n1.1/1", record(b"text")))
    bench.worker.give(Load("manifest"))
    bench.events()
    assert len(bench.died) == 1
    assert not bench.broken


def test_a_process_that_is_stopped_goes_on_where_it_was() -> None:
    bench = Bench()
    bench.worker.give(Store("log/1/n1.1/1", record(b"text")))
    bench.worker.pause()
    assert bench.events(5.0) == []
    bench.worker.resume()
    assert len(bench.events(6.0)) == 1


# ---------------------------------------------------------------------- two drivers


def numbers(manifest: bytes | None) -> tuple[int, ...]:
    return (0, 0) if manifest is None else tuple(map(int, manifest.split(b";")[-1].split()))


class Driver:
    """Claims the next generation, reads, then writes manifests; asks again for what has failed.

    Args:
        world: where it is.
        name: its own.
        store_type: what it writes with.
    """

    def __init__(self, world: Drivers, name: str, store_type: type[FileStore]) -> None:
        self.world, self.generation, self.granted = world, 0, False
        self.began: tuple[int, ...] | None = None
        """The manifest that it went on from."""
        self.number, self.counted = 0, 0
        view = world.disk.view(name)
        self.store = store_type(world.flavour(view), name)
        self.worker = SimStoreWorker(
            self.store, world.timeline, world.random, clock_of(world.timeline), view,
            broken=world.broken.append, died=self.kill,
        )  # fmt: skip
        self.worker.start(self.hear)
        self.alive = True
        self.begin()

    def begin(self, _: Any = None) -> None:
        try:
            self.generation = self.store.generation() + 1
        except OSError:
            self.world.timeline.after(0.1, self.begin)
            return
        except Dead:
            return
        self.worker.give(Store("generation", b"", fence=self.generation))

    def kill(self) -> None:
        self.alive = False
        self.worker.kill()

    def hear(self, event: Any) -> None:
        if isinstance(event, Loaded):
            if event.again:
                self.worker.give(Load("manifest"))
            else:
                if self.world.claimed() == self.generation:  # else what it has read is of no use
                    self.began = numbers(event.data)
                self.write()
        elif event.fenced:
            self.alive = False
        elif event.key == "generation":
            if event.done:
                self.granted = True
                self.worker.give(Load("manifest"))
            else:
                self.worker.give(Store("generation", b"", fence=self.generation))
        else:
            self.counted = self.number if event.done else self.counted
            self.world.look()
            self.write(append=event.done and self.world.random.random() < 0.7)

    def write(self, *, append: bool = False) -> None:
        self.number += 1
        text = b"%d %d" % (self.generation, self.number)
        said = b";" + text if append else text
        self.worker.give(Store("manifest", said, fence=self.generation, append=append))


class Drivers:
    """Drivers that replace one another on a disk that fails; `wrong` is what they may not do."""

    def __init__(
        self, seed: int, flavour: Flavour, store_type: type[FileStore] = FileStore
    ) -> None:
        self.timeline, self.random, self.flavour = Timeline(), Random(seed), flavour
        self.disk = SimDisk(self.random, lambda: self.timeline.now)
        self.broken, self.wrong, self.drivers = list[BaseException](), set[str](), list[Driver]()
        faults, draw = self.disk.faults, self.random.random
        if seed % 3:
            faults.read, faults.scan, faults.full = 0.1 * draw(), 0.1 * draw(), 0.1 * draw()
            faults.change, faults.cut, faults.slow = 0.05 * draw(), 0.01 * draw(), 0.2 * draw()
            faults.slow_s = 0.1
        for number in range(5):
            for twin in range(self.random.choice([1, 1, 2])):
                at = 0.15 * number + (0.01 * draw() if twin else 0.0)
                self.timeline.at(at, self.add, f"d{number}{twin}")
        self.store_type = store_type
        self.timeline.run(1.0)
        self.disk.faults.__init__()  # type: ignore[misc]
        self.timeline.run(1.3)
        self.look()
        self.end()

    def add(self, name: str) -> None:
        """Let a driver begin; those before it live on, stop for a while, or die."""
        for driver in self.drivers:
            fate = self.random.random()
            if fate < 0.3:
                driver.kill()
            elif fate < 0.7:
                driver.worker.pause()
                self.timeline.after(
                    0.3 * self.random.random(), lambda _, d=driver: d.worker.resume()
                )
        try:
            self.drivers.append(Driver(self, name, self.store_type))
        except InputError:  # the folder cannot even be made
            self.timeline.after(0.1, self.add, f"{name}again")

    def look(self) -> None:
        """Find out what went wrong so far."""
        granted = [driver for driver in self.drivers if driver.granted]
        if len({driver.generation for driver in granted}) < len(granted):
            self.wrong.add("a generation was granted twice")
        for old in granted:
            for new in granted:
                later = old.generation < new.generation and new.began is not None
                if later and old.counted and new.began < (old.generation, old.counted):
                    self.wrong.add("a manifest that counts was lost")
        counted = max((d.generation for d in granted if d.counted), default=0)
        if self.newest()[0] < counted:
            self.wrong.add("the newest manifest is a fenced driver's")

    def newest(self) -> tuple[int, ...]:
        """Look at the newest manifest on the disk, past all faults."""
        names = self.names("manifest")
        return numbers(self.disk.peek(names[-1]) if names else None)

    def claimed(self) -> int:
        """Look at the highest claim."""
        return max((int(path.rpartition("/")[2][:8]) for path in self.names("claim")), default=0)

    def names(self, folder: str) -> list[str]:
        root = "/checkpoint" if self.flavour is local else "bucket"
        return [path for path in self.disk.paths(f"{root}/{folder}") if "/." not in path]

    def end(self) -> None:
        """Whoever comes last finds what counts."""
        last = FileStore(self.flavour(self.disk.view("last")), "last")
        found = numbers(last.read("manifest"))
        counted = max(
            ((d.generation, d.counted) for d in self.drivers if d.counted), default=(0, 0)
        )
        if found < counted:
            self.wrong.add("a manifest that counts was lost")


@pytest.mark.parametrize("flavour", [local, bucket, blind, mixed])
def test_drivers_that_replace_one_another_lose_nothing(flavour: Flavour) -> None:
    runs = [Drivers(seed, flavour) for seed in range(60)]
    assert [run.wrong | set(map(repr, run.broken)) for run in runs] == [set()] * 60
    drivers = [driver for run in runs for driver in run.drivers]
    assert sum(driver.counted > 0 for driver in drivers) > 60
    assert sum(not driver.alive for driver in drivers) > 60


class CountsAtOnce(FileStore):
    """Does not look for a later claim after a manifest is written."""

    def _publish(self, action: Store) -> Any:
        looks = iter([] if self._sure else [False])
        replaced = self._replaced

        def once(of: int) -> Any:
            if next(looks, True):
                yield from ()
                return False
            return (yield from replaced(of))

        self._replaced = once  # type: ignore[method-assign]
        try:
            return (yield from super()._publish(action))
        finally:
            self._replaced = replaced  # type: ignore[method-assign]


class ClaimsUnseen(FileStore):
    """Takes no notice of others that claim the same generation."""

    def _claim(self, generation: int) -> Any:
        yield from super()._claim(generation)
        return not any(n > generation for n, _ in (yield from self._claims()))


class TakesAFailureForNothing(FileStore):
    """Takes a listing that failed for an empty one."""

    def _newest(self) -> Any:
        try:
            return (yield from super()._newest())
        except OSError:
            return None


@FLAVOURS
@pytest.mark.parametrize("mutant", [CountsAtOnce, ClaimsUnseen, TakesAFailureForNothing])
def test_a_store_that_is_broken_is_found_out(mutant: type[FileStore], flavour: Flavour) -> None:
    assert any(Drivers(seed, flavour, mutant).wrong for seed in range(200))
