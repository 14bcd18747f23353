"""A durable store that is slow, fails for a while, or cannot say: asked once, again later, and told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from wire import Books, Settings, Town

from meander.model import Epoch
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import CLAIM_KEY, MANIFEST_KEY, Manifest
from meander.protocol.messages import MASTER, Beat, Loaded, Stored, Tick

CHECKPOINTS = Settings(checkpoint_s=0.3, lease_s=1e6)
TOWN = Settings(checkpoint_s=0.3)


def written(tasks, settings=CHECKPOINTS):
    """Task by task a record that is durable, all at node a; b has one task of its own."""
    books = Books("a" * tasks + "b", settings)
    books.tick(2.0, "a")
    books.tick(2.0, "a")
    books.write()
    books.run_quietly()
    return books


def restore(books, *tasks):
    """Let b restore tasks from their records."""
    for task in tasks:
        books.ledger.durable[task] = Kept(Epoch(1, 1), 1, tuple(books.records[task][:1]))
        books.ledger.restore(task, "b", books.epoch.next())
    books.publish()


def keys(books):
    return [load.key for _, load in books.loads]


# ---------------------------------------------------------------------- loads


def test_a_record_is_asked_for_once_while_the_store_has_not_answered():
    """1. the store is slow  2. half a minute passes  3. every record was asked for once."""
    books = written(9)
    restore(books, *range(9))
    for _ in range(60):
        books.tick(0.5, "b")
    assert sorted(keys(books)) == sorted(books.records[task][0] for task in range(9))


def test_the_store_is_asked_for_some_records_at_a_time():
    """1. many tasks are to be restored  2. the store answers one by one  3. never more than a few are
    under way, each was asked for once, and in the end all tasks are there."""
    most = 64
    tasks = 3 * most
    books = written(tasks)
    restore(books, *range(tasks))
    asked = list[str]()
    while books.loads:
        assert len(books.loads) <= most
        name, load = books.loads.pop(0)
        asked.append(load.key)
        books.give(name, books.loaded(load.key))
    assert sorted(asked) == sorted(books.records[task][0] for task in range(tasks))
    assert {books.phase("b", task) for task in range(tasks)} == {"serving"}


def test_what_the_store_could_not_read_is_asked_for_again_later():
    """1. the store cannot tell  2. it is not asked at once, but soon, then less and less often  3. it
    can: the task is there. Meanwhile the node tells the master."""
    books = written(1)
    restore(books, 0)
    times, began = [], books.now
    for _ in range(200):
        for name, load in books.loads:
            times.append(books.now - began)
            books.give(name, Loaded(load.key, None, "[Errno 5] EIO", again=True))
        books.loads.clear()
        books.tick(0.1, "b")
        assert not books.ended
    assert 3 <= len(times) <= 10
    beats = [e.body for e in books.pending(Beat, sender="b")]
    assert beats[-1].trouble == "[Errno 5] EIO"
    for _ in range(60):
        books.read()
        books.tick(0.1, "b")
    assert books.phase("b", 0) == "serving"
    assert [e.body for e in books.pending(Beat, sender="b")][-1].trouble == ""


def test_an_answer_that_comes_without_a_lease_is_asked_for_again():
    """1. b's lease runs out while the store reads  2. the answer comes: b may not act upon it  3. with
    its next lease b asks again."""
    settings = Settings(checkpoint_s=0.3, lease_s=5.0)
    books = Books("ab", settings)
    books.tick(2.0, "a")
    books.write()
    restore(books, 0)
    books.now += 6.0
    books.read()
    assert books.phase("b", 0) == "awaiting"
    books.tell("b")
    books.tick(0.1, "b")
    books.read()
    assert books.phase("b", 0) == "serving"


def test_what_became_of_a_record_says_nothing_of_a_later_tenure():
    """1. b is to restore task 0 from a record  2. before the store answers, from a newer one  3. the
    older has been let go: b does not care."""
    books = written(1)
    restore(books, 0)
    (old,) = keys(books)
    newer = "log/1/a.1/9#8-3-00000000"
    books.ledger.durable[0] = Kept(Epoch(1, 1), 2, (newer,))
    books.ledger.restore(0, "b", books.epoch.next())
    books.publish()
    books.give("b", Loaded(old, None, f"the file of {old} is missing"))
    assert not books.ended
    assert newer in keys(books)


# ---------------------------------------------------------------------- writes


def test_a_node_whose_files_are_refused_tries_less_and_less_often():
    """1. the store takes nothing for a minute  2. a node tries some times  3. the store has room:
    the records are written, and all is well."""
    books, tries = Books("aab", CHECKPOINTS), 0
    for _ in range(200):
        books.tick(0.3, "a")
        stores, books.stores = books.stores, []
        for name, action in stores:
            tries += 1
            books.give(name, Stored(action.key, done=False, fault="no space left"))
    assert 5 <= tries <= 25
    assert books.machines["a"]._store_trouble() == "no space left"
    for _ in range(30):
        books.tick(0.3, "a")
        books.write()
    assert books.machines["a"]._store_trouble() == ""


def test_a_trouble_ends_with_the_tasks_that_it_kept_waiting():
    """1. the store fails what a writes and what b reads  2. their tasks move on to c  3. nobody at a or
    b waits for the store any more: there is nothing to tell."""
    books = Books("abc", CHECKPOINTS)
    a, b = books.machines["a"], books.machines["b"]
    books.tick(2.0, "a")
    (name, file), *_ = books.stores
    books.give(name, Stored(file.key, done=False, fault="no space left"))
    books.ledger.durable[1] = Kept(Epoch(1, 1), 1, ("log/1/x.1/1#8-3-00000000",))
    books.ledger.restore(1, "b", books.epoch.next())
    books.publish()
    ((name, load),) = books.loads
    books.give(name, Loaded(load.key, None, "EIO", again=True))
    assert (a._store_trouble(), b._store_trouble()) == ("no space left", "EIO")
    books.move(0, "c")
    books.ledger.restore(1, "c", books.epoch.next())
    books.publish()
    assert (a._store_trouble(), b._store_trouble()) == ("", "")


def test_a_record_that_cannot_be_read_is_tried_less_and_less_often_though_others_can():
    """1. a task is restored, and its record cannot be read  2. others can, all the time  3. it is left
    alone for longer each time."""
    books, tries = written(1), list[float]()
    restore(books, 0)
    for _ in range(100):
        loads, books.loads = books.loads, []
        for name, load in loads:
            tries.append(books.now)
            books.give(name, Loaded(load.key, None, "EIO", again=True))
        books.machines["b"].retriever._again.worked()  # as it does when it has read another
        books.tick(0.1, "b")
    waits = [later - first for first, later in pairwise(tries)]
    assert 4 <= len(tries) <= 8
    assert waits == sorted(waits)
    assert waits[-1] > 2.0


def failing(town, seconds, fault="[Errno 28] no space left"):
    """Let time pass while the store fails the master; give its attempts."""
    tries = []
    for _ in range(round(seconds / 0.1)):
        town.tick(0.1)
        town.run()
        stores, town.stores = town.stores, []
        for name, action in stores:
            tries += [action.key] * (name == MASTER)
            town.give(name, Stored(action.key, done=False, fault=fault))
        loads, town.loads = town.loads, []
        for name, load in loads:
            tries.append(load.key)
            town.give(name, Loaded(load.key, None, fault, again=True))
    return tries


def test_a_manifest_that_cannot_be_written_is_tried_less_and_less_often():
    town = Town(settings=TOWN)
    town.settle(1.0)
    town.master.archive.unsaved = True
    tries = failing(town, 30.0)
    assert 5 <= tries.count(MANIFEST_KEY) <= 15
    told = town.master.status()["store"]
    assert "master" in told
    assert "[Errno 28] no space left" in told
    assert "make room" in told
    town.settle(10.0)
    assert town.master.status()["store"] is None
    assert not town.master.archive.unsaved
    assert [w for w in town.words() if w.startswith("store")] == ["store fails", "store works"]


@pytest.mark.parametrize("granted", [False, True])
def test_a_start_that_the_store_fails_is_tried_again(granted):
    """1. the store fails the claim, or grants it and fails to read the manifest  2. the master does not
    begin, does not give up, and says why  3. the store works: the master goes on from the manifest."""
    town = Town(settings=TOWN, start=False)
    town.store[MANIFEST_KEY] = Manifest(1, 4, (), {}, {"f": 7}, {}, "the line").dump()
    if granted:
        town.tick()
        town.write()
        assert [load.key for _, load in town.loads] == [MANIFEST_KEY]
    tries = failing(town, 30.0, "[Errno 5] EIO")
    assert 5 <= len(tries) <= 15
    assert set(tries) == {MANIFEST_KEY if granted else CLAIM_KEY}
    assert not town.master.started
    assert "[Errno 5] EIO" in town.master.status()["store"]
    for _ in range(100):
        town.tick(0.1)
        town.answer_store()
    assert town.master.started
    assert (town.master.books.offsets, town.master.archive.lineage) == ({"f": 7}, "the line")


def test_a_store_that_is_silent_at_the_start_is_named():
    town = Town(settings=TOWN, start=False)
    town.tick()
    assert "has not answered about the claim" in town.master.status()["store"]
    town.write()
    assert "has not answered about the manifest" in town.master.status()["store"]
    town.read()
    assert "has not answered about this driver's first manifest" in town.master.status()["store"]
    town.write()
    assert town.master.status()["store"] is None


def test_whoever_waits_is_told_why_nothing_becomes_durable():
    """1. the store fails n1  2. n1 tells the master, and the master the feeder  3. n1 is lost: that was
    its trouble alone."""
    town = Town(settings=TOWN)
    feeder = town.feeder()
    town.settle(1.0)
    n1 = town.machines["n1"]
    n1.checkpointer.trouble = "no space left"
    next(iter(n1.slots.values())).dirty = True
    town.tick(1.0)
    town.run()
    town.tick(1.0)
    town.run()
    assert "n1: no space left" in feeder.trouble
    assert feeder.trouble == town.master.status()["store"]
    town.master.archive.lost("n1", 1)
    assert town.master.status()["store"] is None


# ---------------------------------------------------------------------- the lineage


def test_a_checkpoint_keeps_its_lineage_through_all_generations():
    """1. the first driver's checkpoint has its lineage  2. the next one's goes on with it  3. one that
    begins with an empty store has its own."""
    first = Town(settings=TOWN, start=False)
    first.master.archive.lineage = "one"
    first.up()
    assert Manifest.load(first.store[MANIFEST_KEY]).lineage == "one"
    second = Town(settings=TOWN, generation=2, start=False)
    second.master.archive.lineage = "two"
    second.store = first.store
    second.up()
    assert second.master.archive.lineage == "one"
    assert Manifest.load(second.store[MANIFEST_KEY]).lineage == "one"
    third = Town(settings=TOWN, start=False)
    third.master.archive.lineage = "three"
    third.up()
    assert Manifest.load(third.store[MANIFEST_KEY]).lineage == "three"


def test_a_manifest_that_nobody_asked_for_starts_nothing():
    town = Town(settings=TOWN, start=False)
    town.give(MASTER, Tick())
    town.give(MASTER, Loaded(MANIFEST_KEY, None))
    assert not town.master.started
