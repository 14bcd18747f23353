from __future__ import annotations

import threading
from pathlib import Path

import pytest

from meander.protocol.messages import Store
from meander.runtime.store import DirectoryStore


def test_what_is_written_is_read_until_it_is_discarded(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new")
    assert store.read("task/1/1.2/3") is None
    assert store.write(Store("task/1/1.2/3", b"x")).done
    assert store.read("task/1/1.2/3") == b"x"
    store.discard(("task/1/1.2/3", "never"))
    assert store.read("task/1/1.2/3") is None


def test_a_claim_is_granted_once_and_fences_earlier_generations(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert store.write(Store("generation", b"1", fence=1)).done
    assert store.write(Store("manifest", b"one", fence=1)).done
    assert store.write(Store("generation", b"1", fence=1)).fenced
    assert store.write(Store("generation", b"2", fence=2)).done
    late = store.write(Store("manifest", b"late", fence=1))
    assert late.fenced
    assert not late.done
    assert store.read("manifest") == b"one"
    assert store.generation() == 2


def test_of_many_claims_at_once_one_is_granted(tmp_path: Path) -> None:
    answers = []

    def claim() -> None:
        answers.append(DirectoryStore(tmp_path).write(Store("generation", b"5", fence=5)).done)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(True) == 1


@pytest.mark.parametrize(
    "key", ["../escape", "/etc/passwd", "a//b", "", ".hidden", "a/../b", "x\0"]
)
def test_keys_cannot_leave_the_directory(tmp_path: Path, key: str) -> None:
    with pytest.raises(OSError, match="no key"):
        DirectoryStore(tmp_path).write(Store(key, b""))
