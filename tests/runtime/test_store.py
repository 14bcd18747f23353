"""The durable store: claims, manifests and records on local disks and on Arrow's file systems."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from meander.errors import InputError
from meander.protocol.messages import Load, Loaded, Store, Sweep
from meander.protocol.records import Ref
from meander.runtime.store.durable import FileStore, StoreWorker
from meander.runtime.store.filesystem import ArrowFiles, Files, LocalFiles, open_files


def local(path: Path) -> Files:
    return LocalFiles(path, sync=False)


def subtree(path: Path) -> Files:
    return ArrowFiles(fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()), "")


def objects(path: Path) -> Files:
    """A file system in memory that is taken for an object store: no rename, no exclusive file."""
    files = ArrowFiles(fs.FileSystem.from_uri("mock:///bucket/x")[0], "bucket/x")
    files._kind = "s3"
    files.system.create_dir("bucket/x", recursive=True)
    for folder in ("claim", "manifest", "log/1/n1.1", "log/2/n1.1", "log/2/n2.1"):
        files.system.create_dir(f"bucket/x/{folder}", recursive=True)
    return files


@pytest.fixture(params=[local, subtree, objects])
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
    for make in (local, subtree):
        files = make(tmp_path / make.__name__)
        old, new = FileStore(files), FileStore(files)
        assert claim(old, 1)
        assert old.write(Store("manifest", b"one", fence=1)).done
        assert not claim(new, 1)
        assert claim(new, 2)
        late = old.write(Store("manifest", b"late", fence=1))
        assert (late.done, late.fenced) == (False, True)
        assert new.read("manifest") == b"one"
        assert new.generation() == 2
        assert new.write(Store("manifest", b"two", fence=2)).done
        assert old.read("manifest") == b"two"


def test_a_claim_whose_answer_was_lost_may_be_asked_for_again(tmp_path: Path) -> None:
    store = FileStore(local(tmp_path))
    assert claim(store, 4)
    assert claim(store, 4)
    assert not claim(FileStore(local(tmp_path)), 4)


@pytest.mark.parametrize("make", [local, subtree, objects])
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
    assert answers.count(True) == 1 or (make is not local and not any(answers))


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


class Steps:
    """A file system whose every call waits for its turn: all interleavings of two drivers."""

    def __init__(self, files: Files, turn: Callable[[], None]) -> None:
        self.uri, self._files, self._turn = files.uri, files, turn

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self._turn()
            return getattr(self._files, name)(*args)

        return call


@pytest.mark.parametrize("make", [local, objects])
def test_a_manifest_that_counts_is_seen_by_whoever_claims_later(
    make: Callable[[Path], Files], tmp_path: Path
) -> None:
    """1. the old driver writes a manifest while the new one claims and reads, step by step in every
    order  2. if the old one's counts, the new one has read it."""
    outcomes = set()
    for i, olds in enumerate([*itertools.combinations(range(10), 4)][::3]):
        order = ["O" if step in olds else "N" for step in range(10)]
        files = make(tmp_path / str(i))
        begin = FileStore(files)
        assert claim(begin, 1)
        assert begin.write(Store("manifest", b"before", fence=1)).done
        counted, read = interleave(files, begin, iter(order))
        assert read == b"after" or not counted
        outcomes.add((counted, read))
    assert {counted for counted, _ in outcomes} == {True, False}


def interleave(files: Files, old: FileStore, order: Iterator[str]) -> tuple[bool, bytes | None]:
    gates = {"O": threading.Semaphore(0), "N": threading.Semaphore(0)}
    waiting, done = {"O": threading.Event(), "N": threading.Event()}, dict[str, Any]()

    def turn(who: str) -> Callable[[], None]:
        def wait() -> None:
            waiting[who].set()
            gates[who].acquire()

        return wait

    def write() -> None:
        old.files = Steps(files, turn("O"))  # type: ignore[assignment]
        done["O"] = old.write(Store("manifest", b"after", fence=1)).done
        waiting["O"].set()

    def read() -> None:
        new = FileStore(Steps(files, turn("N")))  # type: ignore[arg-type]
        done["N"] = new.read("manifest") if claim(new, 2) else None
        waiting["N"].set()

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for who in itertools.chain(order, itertools.repeat("O", 40), itertools.repeat("N", 40)):
        if who in done:
            continue
        waiting[who].wait(10)
        waiting[who].clear()
        gates[who].release()
        if who not in done:
            waiting[who].wait(10)
    for thread in threads:
        thread.join(10)
    return done["O"], done["N"]


def test_the_newest_manifests_are_kept(store: FileStore) -> None:
    assert claim(store, 3)
    for number in range(5):
        assert store.write(Store("manifest", b"%d" % number, fence=3)).done
    assert store.read("manifest") == b"4"
    assert [entry.path for entry in store.manifests()] == [
        "manifest/00000003-00000004.json",
        "manifest/00000003-00000005.json",
    ]


def test_a_sweep_leaves_what_is_named_and_what_may_be_being_written(store: FileStore) -> None:
    for key in ("log/1/n1.1/1", "log/1/n1.1/2", "log/2/n1.1/1", "log/2/n2.1/1"):
        store.write(Store(key, record(b"xx")))
    store.sweep(Sweep("log/", ("log/1/n1.1/2",), spare="log/2/"))
    left = ["log/1/n1.1/2", "log/2/n1.1/1", "log/2/n2.1/1"]
    assert [entry.path for entry in store.files.list("log")] == left
    store.sweep(Sweep("log/2/n1.1/", ()))
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
    for wrong in ("file://host/x", "nosuch://x/y"):
        with pytest.raises(InputError):
            open_files(wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be a folder"):
        open_files(tmp_path / "file")


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
