"""What all kinds of files must do: disks, Arrow's, object stores, the simulator's, a real S3 server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from files_kit import ALONE, AT_HAND, Open, on_s3, s3_server

from meander.runtime.store.filesystem import Files
from meander_lab.servers.s3 import S3


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as running:
        yield running


class Kind:
    """One kind of files, and whether it lets one alone make a file."""

    def __init__(self, again: Open, alone: bool) -> None:
        self.again, self.alone = again, alone
        self.files = again()


@pytest.fixture(
    params=[*AT_HAND, "s3", "s3 without conditions"], ids=lambda p: getattr(p, "__name__", p)
)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if not isinstance(request.param, str):
        return Kind(request.param(tmp_path), request.param in ALONE)
    running, conditional = request.getfixturevalue("server"), request.param == "s3"
    return Kind(on_s3(running, tmp_path.name, conditional=conditional), conditional)


def names(files: Files, folder: str) -> list[str]:
    return [entry.path for entry in files.list(folder)]


def test_what_was_written_is_found_whole_by_everybody(kind: Kind) -> None:
    kind.files.prepare()
    kind.files.write("log/1/a", [b"some", memoryview(b"thing")])
    kind.files.publish("manifest/1.json", b"{}")
    other = kind.again()
    assert (other.read("log/1/a"), other.read("manifest/1.json")) == (b"something", b"{}")
    assert names(other, "log") == ["log/1/a"]
    assert names(other, "") == ["log/1/a", "manifest/1.json"]
    entry = other.list("log")[0]
    assert entry.size == 9
    assert abs(entry.written_s - time.time()) < 60 or entry.written_s == 0.0


def test_a_part_is_read_as_far_as_there_is_something(kind: Kind) -> None:
    kind.files.write("log/a", [b"0123456789"])
    read = kind.files.read
    assert [read("log/a", 2, 3), read("log/a", 8, 9), read("log/a", 4)] == [
        b"234",
        b"89",
        b"456789",
    ]
    assert (read("log/a", 10, 4), read("log/a", 20, 4), read("log/a", 20)) == (b"", b"", b"")
    assert read("log/none") is read("log/none", 3, 3) is None


def test_a_listing_has_all_files_below_by_name_and_no_neighbour(kind: Kind) -> None:
    paths = [f"log/{a}/{b}" for a in range(3) for b in range(4)]
    for path in Random(3).sample(paths, len(paths)):
        kind.files.write(path, [b"x"])
    kind.files.write("logs", [b"x"])
    assert names(kind.files, "log") == paths
    assert names(kind.files, "log/1") == paths[4:8]
    assert names(kind.files, "never") == []


def test_what_is_deleted_is_gone_and_what_is_not_there_is_no_error(kind: Kind) -> None:
    for name in "abc":
        kind.files.write(f"log/{name}", [b"x"])
    kind.files.delete(["log/a", "log/never", "never/x", "log/c"])
    kind.files.delete([])
    assert names(kind.again(), "log") == ["log/b"]
    kind.files.delete(["log/b"])
    assert names(kind.files, "log") == []


def test_a_manifest_may_be_published_again(kind: Kind) -> None:
    for text in (b"one", b"two"):
        kind.files.publish("manifest/1.json", text)
        assert kind.again().read("manifest/1.json") == text
    assert names(kind.files, "manifest") == ["manifest/1.json"]


def test_a_file_that_failed_while_it_was_written_is_not_there(kind: Kind) -> None:
    def breaks(first: int) -> Iterator[bytes]:
        yield b"x" * first
        raise ValueError("no rows")

    for first in (10, 20_000_000):
        with pytest.raises(ValueError, match="no rows"):
            kind.files.write("log/a", breaks(first))
    assert names(kind.files, "log") == []
    assert kind.files.read("log/a") is None


def test_a_large_file_is_written_piece_by_piece(kind: Kind) -> None:
    pieces = [bytes([n]) * 3_000_001 for n in range(7)]
    kind.files.write("log/large", iter(pieces))
    assert kind.files.read("log/large") == b"".join(pieces)
    assert kind.files.read("log/large", 3_000_000, 3) == b"\0\1\1"


def test_of_many_who_create_a_file_one_alone_does(kind: Kind) -> None:
    kind.files.prepare()
    answers, gate = list[tuple[int, bool | None]](), threading.Barrier(8)

    def create(number: int) -> None:
        files = kind.again()
        gate.wait()
        answers.append((number, files.create("claim/1", b"%d" % number)))

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not kind.alone:
        assert [answer for _, answer in answers] == [None] * 8
        assert names(kind.files, "claim") == []
        return
    winners = [number for number, answer in answers if answer]
    assert len(winners) == 1
    assert [answer for _, answer in answers].count(False) == 7
    assert kind.files.read("claim/1") == b"%d" % winners[0]


def test_nothing_is_listed_that_is_only_there_to_prepare(kind: Kind) -> None:
    kind.files.prepare()
    assert names(kind.files, "") == []


def test_random_calls_do_what_they_do_on_a_disk(kind: Kind, tmp_path: Path) -> None:
    """The same calls on these files and in a dictionary: the same answers."""
    random, model = Random(7), dict[str, bytes]()
    paths = [f"{a}/{b}" for a in ("log/1", "log/2", "claim") for b in "xyz"]
    for _ in range(150):
        call, path = (
            random.choice(("write", "read", "list", "delete", "create")),
            random.choice(paths),
        )
        text = b"%d" % random.randrange(1000)
        if call == "write":
            kind.files.write(path, [text])
            model[path] = text
        elif call == "create":
            made = kind.files.create(path, text)
            assert made is (path not in model if kind.alone else None)
            if made:
                model[path] = text
        elif call == "delete":
            kind.files.delete([path, random.choice(paths)][:1])
            model.pop(path, None)
        elif call == "read":
            assert kind.files.read(path) == model.get(path)
        else:
            folder = path.rpartition("/")[0]
            found: Any = {entry.path: entry.size for entry in kind.files.list(folder)}
            assert found == {p: len(t) for p, t in model.items() if p.startswith(folder + "/")}
