"""The durable store: claims, manifests and records on disks, Arrow's file systems and object stores."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import files_kit
import pytest
from pyarrow import fs

from meander.errors import CheckpointError, InputError
from meander.protocol.messages import Load, Loaded, Store, Sweep
from meander.protocol.records import Ref
from meander.runtime.store.disk import OsDisk
from meander.runtime.store.durable import FileStore, StoreWorker
from meander.runtime.store.filesystem import ArrowFiles, Files, LocalFiles, ObjectFiles, open_files
from meander.runtime.store.resume import newest
from meander.runtime.store.steps import Delete, List, Publish, Steps


def local(path: Path) -> Files:
    return files_kit.local(path)()


def subtree(path: Path) -> Files:
    return files_kit.subtree(path)()


def objects(path: Path) -> Files:
    return files_kit.memory(path)()


def blind(path: Path) -> Files:
    return files_kit.blind(path)()


@pytest.fixture(params=[local, subtree, objects, blind])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    make: Callable[[Path], Files] = request.param
    return FileStore(make(tmp_path))


def record(*texts: bytes) -> tuple[Any, ...]:
    return tuple((lambda text=text: (text[:2], text[2:])) for text in texts)


def claim(store: FileStore, generation: int) -> bool:
    return store.write(Store("generation", b"", fence=generation)).done


def test_records_are_read_until_their_file_is_discarded(store: FileStore) -> None:
    stored = store.write(Store("log/1/n1.1/1", record(b"first", b"second")))
    names = [str(Ref("log/1/n1.1/1", *extent)) for extent in stored.extents]
    assert [store.read(name) for name in names] == [b"first", b"second"]
    store.discard(("log/1/n1.1/1", "log/1/n1.1/never"))
    with pytest.raises(ValueError, match=r"log/1/n1\.1/1 is missing"):
        store.read(names[0])


def test_a_record_that_was_damaged_or_cut_is_refused_by_name(store: FileStore) -> None:
    stored = store.write(Store("log/1/n1.1/1", record(b"first", b"second")))
    one, two = (str(Ref("log/1/n1.1/1", *extent)) for extent in stored.extents)
    whole = store.files.read("log/1/n1.1/1")
    assert whole is not None
    store.files.write("log/1/n1.1/1", [whole.replace(b"first", b"fIrst")[:-1]])
    with pytest.raises(ValueError, match=r"wrong checksum in log/1/n1\.1/1"):
        store.read(one)
    with pytest.raises(ValueError, match="cut short"):
        store.read(two)


def test_a_claim_is_granted_once_and_fences_earlier_generations(tmp_path: Path) -> None:
    for make in (local, subtree, objects, blind):
        files = make(tmp_path / make.__name__)
        old, new = FileStore(files), FileStore(files)
        assert claim(old, 1)
        assert old.write(Store("manifest", b"one", fence=1)).done
        assert not claim(new, 1)
        assert claim(new, 2)
        late = old.write(Store("manifest", b"late", fence=1))
        assert (late.done, late.fenced) == (False, True)
        assert new.read("manifest") in (b"one", b"late"), "neither has been followed yet"
        assert new.generation() == 2
        assert new.write(Store("manifest", b"two", fence=2)).done
        assert old.read("manifest") == b"two"


def test_a_claim_whose_answer_was_lost_may_be_asked_for_again(tmp_path: Path) -> None:
    store = FileStore(local(tmp_path))
    assert claim(store, 4)
    assert claim(store, 4)
    assert not claim(FileStore(local(tmp_path)), 4)


@pytest.mark.parametrize("make", [local, subtree, objects, blind])
def test_of_many_claims_at_once_at_most_one_is_granted(
    make: Callable[[Path], Files], tmp_path: Path
) -> None:
    answers, files = [], make(tmp_path)
    stores = [FileStore(files) for _ in range(8)]
    threads = [
        threading.Thread(target=lambda s=s: answers.append(claim(s, 5)))  # type: ignore[misc]
        for s in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(True) == 1 or (make in (subtree, blind) and not any(answers))


def test_a_folder_that_is_made_while_it_is_listed_is_no_error(tmp_path: Path) -> None:
    """Arrow looks whether a folder that it could not open is there: by then it may be."""

    class Late:
        type_name, calls = "local", 0

        def get_file_info(self, selector: fs.FileSelector) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise FileNotFoundError(selector.base_dir)
            return fs.LocalFileSystem().get_file_info(selector)

    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "1").touch()
    files = ArrowFiles(Late(), str(tmp_path))
    assert [entry.path for entry in files.list("claim")] == ["claim/1"]


def test_a_folder_that_cannot_be_reached_is_not_taken_for_one_that_is_not_there() -> None:
    """Arrow, told to excuse what is not there, excuses on HDFS whatever goes wrong."""

    class Unreachable:
        type_name = "hdfs"

        def get_file_info(self, selector: fs.FileSelector) -> Any:
            if selector.allow_not_found:
                return []
            raise OSError("HDFS list directory failed, errno: 255")

    store = FileStore(ArrowFiles(Unreachable(), "root"))
    with pytest.raises(OSError, match="HDFS list directory failed"):
        store.read("manifest")
    with pytest.raises(OSError, match="HDFS list directory failed"):
        claim(store, 1)


@pytest.mark.parametrize("make", [local, subtree, objects, blind])
def test_a_folder_that_is_not_there_has_no_files(
    make: Callable[[Path], Files], tmp_path: Path
) -> None:
    assert make(tmp_path).list("never") == []


@pytest.mark.parametrize("make", [local, objects, blind])
def test_a_manifest_that_counts_is_seen_by_whoever_claims_later(
    make: Callable[[Path], Files], tmp_path: Path
) -> None:
    """1. the old driver writes a manifest while the new one claims and reads, step by step in any
    order  2. if the old one's counts, the new one has read it."""
    outcomes = set()
    for seed in range(100):
        files = make(tmp_path / str(seed))
        old, new = FileStore(files), FileStore(files)
        assert claim(old, 1)
        assert old.write(Store("manifest", b"before", fence=1)).done
        late = old.writing(Store("manifest", b"after", fence=1))
        stored, read = interleave(Random(seed), late, claim_and_read(new))
        assert read == b"after" or not stored.done
        outcomes.add((stored.done, read))
    assert {(True, b"after"), (False, b"before")} <= outcomes


def claim_and_read(store: FileStore) -> Steps[bytes | None]:
    stored = yield from store.writing(Store("generation", b"", fence=2))
    assert stored.done
    return (yield from store.reading("manifest"))


def interleave(random: Random, *operations: Steps[Any]) -> list[Any]:
    """Take the steps of several operations in some order; give what each of them gives."""
    came, ended = dict.fromkeys(operations), dict[Steps[Any], Any]()
    haste = {operation: random.random() for operation in operations}
    while left := [operation for operation in operations if operation not in ended]:
        one = random.choices(left, [haste[operation] for operation in left])[0]
        try:
            came[one] = one.send(came[one])()
        except StopIteration as end:
            ended[one] = end.value
    return [ended[operation] for operation in operations]


def upto(steps: Steps[Any], kind: type, came: Any = None) -> tuple[Any, Any]:
    """Take steps up to the first of a kind; give it, and what came of the one before."""
    while not isinstance(step := steps.send(came), kind):
        came = step()
    return step, came


def finish(steps: Steps[Any], came: Any) -> Any:
    """Take the steps that are left; give what the operation gives."""
    try:
        while True:
            came = steps.send(came)()
    except StopIteration as end:
        return end.value


def test_a_claim_that_was_won_by_listing_is_not_taken_back(tmp_path: Path) -> None:
    """1. a driver has claimed  2. another sees no rival, lets that claim go, and then the store fails
    it  3. a third claims the same generation, and has lost  4. the second asks again: it has won. If
    both took their claims back, the next driver would be given the first one's generation."""
    files = subtree(tmp_path)
    first, second, third, last = (FileStore(files) for _ in range(4))
    assert claim(first, 1)
    action = Store("generation", b"", fence=2)
    steps, losing = second.writing(action), third.writing(action)
    upto(steps, Delete)[0]()
    with pytest.raises(OSError, match="no disk"):
        steps.throw(OSError("no disk"))
    withdraw, _ = upto(losing, Delete)
    won = claim(second, 2)
    withdraw()
    assert (won, last.generation()) == (True, 2)
    assert not claim(third, 2)


def test_a_listing_that_two_claims_came_and_went_by_does_not_count(store: FileStore) -> None:
    """1. a driver has written a manifest, and looks for later claims  2. meanwhile one comes and is
    replaced by another, so that a listing may have neither  3. its own claim has gone too: it is
    replaced."""
    assert claim(store, 1)
    stale = store.files.list("claim")
    steps = store.writing(Store("manifest", b"late", fence=1))
    publish, _ = upto(steps, Publish)
    publish()
    assert isinstance(steps.send(None), List)
    assert claim(FileStore(store.files), 2)
    assert claim(FileStore(store.files), 3)
    assert finish(steps, stale).fenced


def test_the_newest_manifests_are_kept(store: FileStore) -> None:
    assert claim(store, 3)
    for number in range(5):
        assert store.write(Store("manifest", b"%d" % number, fence=3)).done
    assert store.read("manifest") == b"4"
    assert [entry.path for entry in store.manifests()] == [
        "manifest/00000003-00000004-00000000.json",
        "manifest/00000003-00000005-00000000.json",
    ]


def test_a_manifest_and_its_changes_are_read_as_one_and_go_together(store: FileStore) -> None:
    """1. two manifests with changes  2. a third, whole: the first goes, with its change."""
    assert claim(store, 3)
    for text in (b"a", b"b", b"c"):
        assert store.write(Store("manifest", text, fence=3)).done
        assert store.read("manifest") == text
        assert store.write(Store("manifest", b"+", fence=3, append=True)).done
        assert store.read("manifest") == text + b"+"
    assert [entry.path for entry in store.manifests()] == [
        f"manifest/00000003-{number:08d}-{change:08d}.json"
        for number in (2, 3)
        for change in (0, 1)
    ]
    assert FileStore(store.files).read("manifest") == b"c+"
    store.files.delete(["manifest/00000003-00000003-00000000.json"])
    with pytest.raises(OSError, match=r"00000003-00000001\.json is listed and cannot be read"):
        store.read("manifest")


def test_a_sweep_takes_what_earlier_drivers_left_beside_their_claims_and_manifests(
    tmp_path: Path,
) -> None:
    names = ["claim/.00000001.dead.1", "manifest/.00000001-00000004-00000002.json.dead.7"]
    kept = [
        "claim/.00000002.rival.1", "manifest/.00000002-00000001-00000000.json.me.3",
        "manifest/.00000003-00000001-00000000.json.successor.1", "claim/.probe.who.1",
        "manifest/.00000001-00000004-00000002.json.crc", "log/.00000001.dead.1",
    ]  # fmt: skip
    for name in (*names, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half of it")
    for files in (LocalFiles(tmp_path), subtree(tmp_path)):
        for name in names:
            (tmp_path / name).write_bytes(b"half of it")
        store = FileStore(files)
        store.sweep(Sweep("log/2/n1.1/"))
        assert all((tmp_path / name).exists() for name in names)
        store.sweep(Sweep("log/", below=2))
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert left == set(kept)


class SweptMidway(OsDisk):
    """A disk where whoever has written a file beside its place is stopped before it goes there."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] | None = None

    def _stop(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def rename(self, old: str, new: str) -> None:
        self._stop()
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self._stop()
        super().link(old, new)


@pytest.mark.parametrize(
    "action", [Store("manifest", b"{}", fence=1), Store("generation", b"", fence=1)]
)
def test_a_driver_that_was_stopped_in_a_write_finds_that_it_failed_and_was_replaced(
    tmp_path: Path, action: Store
) -> None:
    disk = SweptMidway()
    old = FileStore(LocalFiles(tmp_path, disk=disk), "old")
    new = FileStore(LocalFiles(tmp_path), "new")
    if action.key == "manifest":
        assert claim(old, 1)

    def take_over() -> None:
        assert claim(new, 2)
        assert new.write(Store("manifest", b"{}", fence=2)).done
        new.sweep(Sweep("log/", below=2))

    disk.meanwhile = take_over
    with pytest.raises(FileNotFoundError):
        old.write(action)
    assert old.write(action).fenced
    assert new.generation() == 2
    assert new.write(Store("manifest", b"{}", fence=2)).done
    assert not list(tmp_path.rglob(".*"))


def test_a_sweep_leaves_what_is_named_and_what_may_be_being_written(store: FileStore) -> None:
    for key in ("log/1/n1.1/1", "log/1/n1.1/2", "log/2/n1.1/1", "log/2/n2.1/1"):
        store.write(Store(key, record(b"xx")))
    store.sweep(Sweep("log/", below=1))
    assert len(store.files.list("log")) == 4, "nor what a successor writes"
    store.sweep(Sweep("log/", frozenset({"log/1/n1.1/2"}), below=2))
    left = ["log/1/n1.1/2", "log/2/n1.1/1", "log/2/n2.1/1"]
    assert [entry.path for entry in store.files.list("log")] == left
    store.sweep(Sweep("log/2/n1.1/"))
    assert [entry.path for entry in store.files.list("log")] == [left[0], left[2]]


@pytest.mark.parametrize(
    "key", ["../escape", "/etc/passwd", "a//b", "", ".hidden", "a/../b", "x\0"]
)
def test_keys_cannot_leave_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(OSError, match="no key"):
        FileStore(tmp_path).write(Store(key, record(b"xx")))


def test_where_a_checkpoint_is_may_be_a_path_or_a_uri(tmp_path: Path) -> None:
    assert open_files(str(tmp_path)).uri == open_files(tmp_path.as_uri()).uri
    assert isinstance(open_files("mock:///x"), ArrowFiles)
    assert isinstance(open_files("s3://bucket/x"), ObjectFiles)
    for wrong in ("file://host/x", "nosuch://x/y", "s3://bucket/x?secret_access_key=abc"):
        with pytest.raises(InputError):
            open_files(wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        open_files(tmp_path / "file").prepare()
    open_files(tmp_path / "no" / "such").list("")
    assert not (tmp_path / "no").exists(), "who reads makes no folders"


def test_a_worker_answers_a_broken_record_with_what_is_wrong(tmp_path: Path) -> None:
    worker, answers = StoreWorker(FileStore(tmp_path)), list[Any]()
    came = threading.Semaphore(0)
    worker.start(lambda event: (answers.append(event), came.release()))  # type: ignore[func-returns-value]
    worker.give(Load("log/1/n1.1/1#8-2-00000000"))
    assert came.acquire(timeout=10)
    worker.give(Load("manifest"))
    assert came.acquire(timeout=10)
    worker.close()
    assert answers == [
        Loaded("log/1/n1.1/1#8-2-00000000", None, "the file log/1/n1.1/1 is missing"),
        Loaded("manifest", None),
    ]


# ---------------------------------------------------------------------- what a file system cannot do


def fail_listing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let one folder be unreadable."""
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path) == folder:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_listing_that_fails_does_not_unfence_an_old_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a new driver has claimed  2. the old one cannot list the claims: it does not know  3. it can
    again: it is fenced."""
    old, new = FileStore(local(tmp_path)), FileStore(local(tmp_path))
    assert claim(old, 1)
    assert claim(new, 2)
    with monkeypatch.context() as broken:
        fail_listing(broken, tmp_path / "claim")
        with pytest.raises(OSError, match="Input/output"):
            old.write(Store("manifest", b"late", fence=1))
        with pytest.raises(OSError, match="Input/output"):
            claim(FileStore(local(tmp_path)), 1)
    assert old.write(Store("manifest", b"late", fence=1)).fenced
    assert new.read("manifest") is None


def test_a_listing_that_fails_does_not_make_a_checkpoint_look_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(local(tmp_path))
    assert claim(store, 1)
    assert store.write(Store("manifest", b"one", fence=1)).done
    store.write(Store("log/1/n1.1/1", record(b"xx")))
    with monkeypatch.context() as broken:
        fail_listing(broken, tmp_path / "manifest")
        fail_listing(broken, tmp_path / "log" / "1")
        with pytest.raises(OSError, match="Input/output"):
            store.read("manifest")
        with pytest.raises(OSError, match="Input/output"):
            store.generation()
        with pytest.raises(OSError, match="Input/output"):
            store.sweep(Sweep("log/"))
        with pytest.raises(CheckpointError, match="Input/output"):
            newest(store)
    assert store.read("manifest") == b"one"


@pytest.mark.parametrize("make", [local, objects, blind])
def test_a_manifest_that_is_listed_and_cannot_be_read_is_not_taken_for_none(
    make: Callable[[Path], Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(make(tmp_path))
    assert claim(store, 1)
    assert store.write(Store("manifest", b"one", fence=1)).done
    monkeypatch.setattr(store.files, "read", lambda *_: None)
    with pytest.raises(
        OSError, match=r"00000001-00000001-00000000\.json is listed and cannot be read"
    ):
        store.read("manifest")


def test_a_manifest_that_is_let_go_while_it_is_read_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a reader has listed the manifests  2. the driver writes others and lets that one go  3. the
    reader looks again."""
    store, reader = FileStore(local(tmp_path)), FileStore(local(tmp_path))
    assert claim(store, 1)
    assert store.write(Store("manifest", b"0", fence=1)).done
    read = reader.files.read

    def late(path: str, *place: Any) -> bytes | None:
        for text in (b"1", b"2", b"3"):
            if path.endswith("00000001-00000000.json"):
                assert store.write(Store("manifest", text, fence=1)).done
        return read(path, *place)

    monkeypatch.setattr(reader.files, "read", late)
    assert reader.read("manifest") == b"3"


def test_a_driver_whose_claim_is_not_listed_does_not_count_its_manifests(store: FileStore) -> None:
    """1. a driver has claimed  2. the folder is emptied, or another disk is there now  3. nothing it
    writes counts."""
    assert claim(store, 3)
    store.files.delete([entry.path for entry in store.files.list("claim")])
    with pytest.raises(OSError, match="does not list the claim of this driver"):
        store.write(Store("manifest", b"one", fence=3))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), ValueError("no rows")])
def test_what_could_not_be_written_takes_no_room(
    store: FileStore, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise error

    with pytest.raises(type(error)):
        store.write(Store("log/1/n1.1/1", (*record(b"first"), broken)))
    assert store.files.list("log") == []
    if isinstance(store.files, LocalFiles) and isinstance(error, OSError):
        store.files.sync = True
        monkeypatch.setattr(os, "fsync", lambda _: broken())
        with pytest.raises(OSError, match="No space left"):
            claim(store, 1)
        with pytest.raises(OSError, match="No space left"):
            store.files.publish("manifest/x.json", b"{}")
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def answers_of(worker: StoreWorker, *actions: Any) -> list[Any]:
    """Let a worker carry out actions; give its answers."""
    answers, came = list[Any](), threading.Semaphore(0)
    worker.start(lambda event: (answers.append(event), came.release()))  # type: ignore[func-returns-value]
    for action in actions:
        worker.give(action)
        assert came.acquire(timeout=10)
    worker.close()
    return answers


def test_a_worker_lives_on_whatever_a_record_raises(tmp_path: Path) -> None:
    """1. a record cannot be made into bytes  2. its file is not written, and that is said  3. the next
    file is."""

    def broken() -> Any:
        raise ValueError("the columns differ in length")

    bad, good = Store("log/1/n1.1/1", (broken,)), Store("log/1/n1.1/2", record(b"xx"))
    failed, stored = answers_of(StoreWorker(FileStore(tmp_path)), bad, good)
    assert (failed.done, failed.fault) == (False, "ValueError: the columns differ in length")
    assert (stored.key, stored.done) == ("log/1/n1.1/2", True)


def test_a_worker_answers_what_it_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what is there: that is no "nothing", and it is said, so that it is asked again."""
    worker = StoreWorker(FileStore(tmp_path))
    errors = iter([OSError(errno.EIO, "Input/output error"), RuntimeError("a bug")])

    def read(_: str) -> bytes | None:
        raise next(errors)

    monkeypatch.setattr(worker.store, "reading", read)
    assert answers_of(worker, Load("manifest"), Load("manifest")) == [
        Loaded("manifest", None, "[Errno 5] Input/output error", again=True),
        Loaded("manifest", None, "RuntimeError: a bug", again=True),
    ]


def test_a_trouble_that_lasts_is_logged_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise OSError(errno.ENOSPC, "No space left")

    tries = [Store(f"log/1/n1.1/{i}", (broken,)) for i in range(100)]
    answers_of(StoreWorker(FileStore(tmp_path)), *tries, Store("log/1/n1.1/100", record(b"xx")))
    lines = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert lines[0] == "the durable store cannot write: [Errno 28] No space left"
    assert lines[-1].startswith("the durable store cannot write: over after")
    assert len(lines) <= 10
