"""Files and sockets behind `op.source`: by the same interface as Kafka, every row counts once."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from runtime_kit import counted

from meander.operators import Aggregate, KeyedAggregate, WordCount
from meander.runtime.driver.local import deploy_local
from meander.sources import Texts
from meander.sources.files import FileReplay, SocketLines


def test_a_file_is_shared_by_two_processes_while_tasks_move(tmp_path: Path) -> None:
    words = [f"w{number % 7}" for number in range(5000)]
    parquet.write_table(pa.table({"word": words}), tmp_path / "words.parquet")
    replay = FileReplay(str(tmp_path / "words.parquet"), 0.0, rows=pa.schema({"word": pa.string()}))
    with deploy_local(WordCount(), tasks=8, nodes=1) as op:
        source = op.source("words", Texts(replay, parts=3), tasks=2)
        op.rescale(2).wait(60)
        assert source.wait(60).clean
        assert counted(op) == Counter(words)


def test_lines_of_a_socket_are_counted_until_it_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            server.accept()[0].close()  # somebody looks whether it answers
            with server.accept()[0] as connection:
                connection.sendall(b"a\nb\na\nc")

        threading.Thread(target=serve, daemon=True).start()
        lines = SocketLines("127.0.0.1", server.getsockname()[1])
        counts = KeyedAggregate(
            pa.schema({"text": pa.string()}), keys=["text"], aggregates={"n": Aggregate("count")}
        )
        with deploy_local(counts, tasks=4, nodes=1) as op:
            assert op.source("lines", Texts(lines)).wait(60).clean
            found = op.state().to_pylist()
    assert {row["text"]: row["n"] for row in found} == {"a": 2, "b": 1, "c": 1}
