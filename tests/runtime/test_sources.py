"""Sources give the same rows under the same offsets, when they are due; wrong input is named."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from meander.errors import InputError
from meander.sources import files as sources
from meander.sources.files import BLOCK_ROWS, FileReplay, SocketLines
from meander.sources.generated import Tweets
from meander.sources.own_rows import check_rows
from meander.sources.pacing import PacedPiece, evenly, paced

HOUR = 3_600_000_000


def write(path: Path, ts: Any, text: list[str | None]) -> str:
    table = pa.table({"ts": ts, "text": text})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        lines = (f'{{"ts": "{row["ts"]}", "text": "{row["text"]}"}}' for row in table.to_pylist())
        path.write_text("\n".join(lines))
    return str(path)


def stamps(*micros: int | None) -> Any:
    return pa.array(micros, pa.timestamp("us"))


def texts(pieces: list[PacedPiece]) -> list[str]:
    return [text for piece in pieces for text in piece.batch.column("text").to_pylist()]


def test_generated_tweets_are_the_same_from_any_offset_and_in_any_parts() -> None:
    tweets = Tweets(seconds=1.0, tweets_s=300.0)
    whole = list(tweets.read())
    assert [p.offset for p in whole] == list(range(50))
    assert texts(list(tweets.read(after=19))) == texts(whole[20:])
    parts = [p for part in range(3) for p in tweets.read(part=part, parts=3)]
    assert texts(sorted(parts)) == texts(whole)
    late = list(tweets.read(after=7, part=1, parts=3))
    assert [p.offset for p in late] == [k for k in range(8, 50) if k % 3 == 1]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_columns_of_an_operator_of_ones_own_are_read_by_name(tmp_path: Path, name: str) -> None:
    """As many columns as its schema has, of its types; time stamps are read where there is a speed."""
    schema, path = pa.schema({"user": pa.string(), "amount": pa.float64()}), tmp_path / name
    table = pa.table({"amount": [1, 2, 3], "more": ["x", "y", "z"], "user": ["a", "b", "a"]})
    if name.endswith("parquet"):
        pq.write_table(table, path)
    elif name.endswith("csv"):
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    source = FileReplay(str(path), speedup=0.0, rows=schema)
    check_rows(source, schema)
    (piece,) = source.read()
    assert piece.batch.schema == schema
    assert piece.batch.to_pylist() == [
        {"user": "a", "amount": 1.0}, {"user": "b", "amount": 2.0}, {"user": "a", "amount": 3.0},
    ]  # fmt: skip
    for wrong, said in (
        (FileReplay(str(path), rows=schema), "no column 'ts'"),
        (FileReplay(str(path), 0.0, rows=pa.schema({"much": pa.int64()})), "no column 'much'"),
        (FileReplay(str(path), 0.0, rows=pa.schema({"user": pa.int64()})), "user|CSV column"),
    ):
        with pytest.raises(InputError, match=said):
            check_rows(wrong, schema)


def test_generated_tweets_wave_burst_and_ascend() -> None:
    tweets = Tweets(seconds=144.0, tweets_s=100.0, slice_s=0.5)
    rates = [tweets.relative_rate(s) for s in range(144)]
    assert max(rates) > 2.0
    assert min(rates) < 0.6
    batch = tweets.batch(3)
    ts = batch.column("ts").cast(pa.int64()).to_pylist()
    assert ts == sorted(ts)
    assert Tweets(144.0, 100.0, seed=8).batch(3) != batch


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_files_are_replayed_by_their_time_stamps(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, stamps(0, HOUR, HOUR, 3 * HOUR), ["a", "b", "c", "d"])
    pieces = list(FileReplay(path, speedup=3600.0).read())
    assert [p.batch.column("text").to_pylist() for p in pieces] == [["a"], ["b", "c"], ["d"]]
    assert [p.after_s for p in pieces] == pytest.approx([0.0, 1.0, 3.0])


def test_rows_that_are_older_or_without_time_are_due_with_their_predecessor(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", stamps(0, 2 * HOUR, HOUR, None), list("abcd"))
    pieces = list(FileReplay(path, speedup=3600.0).read())
    assert [p.batch.column("text").to_pylist() for p in pieces] == [["a"], ["b", "c", "d"]]


def test_a_replay_goes_on_where_it_was_and_can_be_shared(tmp_path: Path) -> None:
    rows = BLOCK_ROWS + 5000
    ts = stamps(*range(0, rows * 1_000_000, 1_000_000))
    path = write(tmp_path / "rows.parquet", ts, [f"w{i}" for i in range(rows)])
    replay = FileReplay(path, speedup=10_000.0)
    whole = list(replay.read())
    assert texts(whole) == [f"w{i}" for i in range(rows)]
    assert texts(list(replay.read(after=10))) == texts(whole[11:])
    parts = [p for part in range(4) for p in replay.read(part=part, parts=4)]
    assert texts(sorted(parts, key=lambda p: p.offset)) == texts(whole)


def test_without_speedup_nothing_is_due(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", stamps(0, HOUR), ["a", "b"])
    assert [p.after_s for p in FileReplay(path, speedup=0.0).read()] == [None]


def test_a_replay_can_be_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", stamps(0, HOUR, 5 * HOUR), ["a", "b", "c"])
    assert texts(list(FileReplay(path, 3600.0, seconds=2.0).read())) == ["a", "b"]


def test_time_stamps_with_a_zone_and_numbers_with_a_unit(tmp_path: Path) -> None:
    zoned = tmp_path / "zoned.csv"
    zoned.write_text("ts,text\n2020-01-01T00:00:00Z,a\n2020-01-01T01:00:00Z,b\n")
    assert [p.after_s for p in FileReplay(str(zoned), 3600.0).read()] == pytest.approx([0, 1])
    path = write(tmp_path / "n.parquet", pa.array([0, 3600]), ["a", "b"])
    pieces = list(FileReplay(path, 3600.0, ts_unit="s").read())
    assert [p.after_s for p in pieces] == pytest.approx([0, 1])
    with pytest.raises(InputError, match="--ts-unit"):
        list(FileReplay(path, 3600.0).read())


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"not parquet at all", "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, named: str) -> None:
    path = tmp_path / "rows.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=named):
        FileReplay(str(path)).check()


def test_missing_columns_and_unknown_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"ts": stamps(0), "body": ["a"]}), path)
    with pytest.raises(InputError, match="no column 'text'"):
        FileReplay(str(path)).check()
    FileReplay(str(path), text="body").check()
    with pytest.raises(InputError, match="its name ends in none"):
        FileReplay(str(tmp_path / "rows.doc")).format  # noqa: B018
    (tmp_path / "bad.csv").write_text("ts,text\nyesterday,a\n")
    with pytest.raises(InputError, match=r"time stamp cannot be read.*numbers since 1970 need"):
        list(FileReplay(str(tmp_path / "bad.csv")).read())


def test_lines_of_a_socket_arrive_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"to be\nor not\nto be")

        thread = threading.Thread(target=serve)
        thread.start()
        lines = SocketLines("127.0.0.1", port)
        assert texts(list(lines.read())) == ["to be", "or not", "to be"]
        thread.join()
    with pytest.raises(InputError, match="cannot be read again"):
        next(lines.read(after=3))
    with pytest.raises(InputError, match="cannot be reached"):
        lines.check()


def test_garbage_on_a_socket_is_text_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no text, lines without an end: nothing is raised, and nothing piles up."""
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 100_000)
    junk = [os.urandom(20_000), b"\x00" * 1_000_000, b"\xff\xfe\n", b"a" * 250_000 + b"\nlast"]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for part in junk:
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        found = texts(list(SocketLines("127.0.0.1", server.getsockname()[1]).read()))
        thread.join()
    assert found[-1].endswith("last")
    assert max(map(len, found)) <= 100_000 + (1 << 16)
    assert sum(text.count("a") for text in found) >= 250_000


class Clock:
    """Time that passes only while somebody sleeps, or is held up."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_pieces_leave_when_they_are_due_and_lateness_is_never_forgiven() -> None:
    """1. three pieces, a second apart  2. the first holds its taker up for 2.5 s  3. the others keep
    their due times and follow at once."""
    clock, left = Clock(), list[tuple[float, float | None]]()
    pieces = [PacedPiece(k, None, float(k)) for k in range(4)]
    for offset, _, due_s in paced(pieces, 101.0, clock=clock, sleep=clock.sleep):
        left.append((round(clock.now, 6), due_s))
        if offset == 0:
            clock.now += 2.5
    assert left == [(101.0, 101.0), (103.5, 102.0), (103.5, 103.0), (104.0, 104.0)]


def test_a_stop_is_heard_while_waiting() -> None:
    clock = Clock()
    pieces = [PacedPiece(0, None, 0.0), PacedPiece(1, None, 1000.0)]
    given = list(paced(pieces, 100.0, lambda: clock.now > 103, clock, clock.sleep))
    assert [piece.offset for piece in given] == [0]
    assert clock.now < 104


def test_an_even_schedule_keeps_its_rate() -> None:
    batch = pa.record_batch({"word": ["a"] * 10})
    pieces = list(evenly([batch] * 100, rows_s=50.0, seconds=4.0))
    assert len(pieces) == 20
    assert pieces[-1].after_s == pytest.approx(3.8)
