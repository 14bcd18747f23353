"""What `adopt` takes is of one batch: its state and its logs, whatever the old query does meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import CheckpointError
from meander.spark.deploy import adopt as module
from meander.spark.deploy.query_logs import copy_logs, has_logs, read_logs


class Query:
    """The checkpoint location of a query, as Spark writes it."""

    def __init__(self, path: Path, name: str = "old") -> None:
        self.path, self.batch, self.isActive = path, -1, True
        for folder in ("offsets", "commits"):
            (path / folder).mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": name}))
        self.go_on()

    def go_on(self) -> None:
        self.batch += 1
        source = json.dumps({"logOffset": self.batch})
        facts = json.dumps({"batchWatermarkMs": 0})
        (self.path / "offsets" / str(self.batch)).write_text(f"v1\n{facts}\n{source}")
        (self.path / "commits" / str(self.batch)).write_text("v1\n{}")

    def stop(self) -> None:
        self.isActive = False


@pytest.fixture
def old(tmp_path: Path) -> Query:
    return Query(tmp_path / "old")


def test_logs_are_copied_behind_the_batch_whose_state_was_taken_or_not_at_all(
    old: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "new")
    old.go_on()
    with pytest.raises(CheckpointError, match=r"behind batch 0: .*Stop the query"):
        copy_logs(str(old.path), place, 0)
    listed = list(module_logs()._all(module_logs().open_files(str(old.path))))
    monkeypatch.setattr(module_logs(), "_all", lambda _: (old.go_on(), iter(listed))[1])
    with pytest.raises(CheckpointError, match="behind batch 1"):  # it has gone on while they were
        copy_logs(str(old.path), place, 1)
    assert not has_logs(place)
    assert not list((tmp_path / "new").rglob("commits/*"))
    monkeypatch.undo()
    copy_logs(str(old.path), place, 2)
    assert read_logs(place).batch == 2


def module_logs() -> Any:
    from meander.spark.deploy import query_logs

    return query_logs


class Adopting:
    """`adopt` with a deployment that takes the state and dies, or lives, as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.taken: list[int] = []
        self.kept, self.done = tmp_path / "kept", False
        monkeypatch.setattr(module.OldQuery, "_read", lambda found: found.logs.batch)
        monkeypatch.setattr(module, "deploy", self._deploy)

    def _deploy(self, *_: object, initial_state: Any = None, **__: object) -> Any:
        self.kept.mkdir(exist_ok=True)
        if initial_state is not None and not self.done:
            self.taken.append(initial_state.take()[0])
        self.between()
        return SimpleNamespace(stop=lambda: None)

    def between(self) -> None:
        """What happens when the state is in and the logs are not copied."""

    def __call__(self, old: Query, *, known: bool = False) -> Any:
        query: Any = old if known else None
        return module.adopt(
            None, str(old.path), None, query=query, checkpoint=str(self.kept),  # type: ignore[arg-type]
        )  # fmt: skip


def test_a_query_that_goes_on_while_it_is_adopted_is_refused_and_from_then_on(
    old: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt = Adopting(monkeypatch, tmp_path)
    adopt.between = old.go_on  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="behind batch 0"):
        adopt(old)
    adopt.done, adopt.between = True, lambda: None  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="behind batch 0"):  # it is stopped now: too late
        adopt(old)
    assert adopt.taken == [0]
    assert not has_logs(f"{adopt.kept}/queries/transform")


def test_a_query_that_ran_again_after_an_adoption_that_died_is_refused(
    old: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. the state of batch 1 goes in, the program dies  2. called again, it goes on  3. the query ran
    again meanwhile: tasks may have the state of batch 1  4. nor is another query taken for it."""

    def die() -> None:
        raise KeyboardInterrupt

    adopt = Adopting(monkeypatch, tmp_path)
    old.go_on()
    for _ in range(2):
        old.isActive = True
        adopt.between = die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            adopt(old, known=True)
        assert not old.isActive
    assert adopt.taken == [1, 1]
    adopt.between = lambda: None  # type: ignore[method-assign]
    old.go_on()
    with pytest.raises(CheckpointError, match="behind batch 1"):
        adopt(old)
    with pytest.raises(CheckpointError, match="another query"):
        adopt(Query(tmp_path / "other", "other"))
    assert adopt.taken == [1, 1]


def test_a_query_that_stands_is_adopted_once(
    old: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt = Adopting(monkeypatch, tmp_path)
    assert adopt(old).adopted["batch"] == 0
    old.go_on()  # from now on nobody looks
    assert adopt(old).adopted["batch"] == 0
    assert adopt.taken == [0]
    assert read_logs(f"{adopt.kept}/queries/transform").batch == 0
