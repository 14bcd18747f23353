"""Profiles against a twin in plain Python, cell by cell, and what is read back from them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from twin import Cells, count_patterns, count_words, task_of, words, xxh64

from meander.errors import InputError
from meander.spark.pipeline.events import EventSource
from meander.spark.pipeline.patterns import PatternRules
from meander.spark.pipeline.profile import Profile, read_profile, read_workload
from meander.spark.pipeline.profiling import ProfileSettings, profile
from meander.spark.pipeline.words import words as spark_words

ODD = [
    "Plain words, PLAIN words", None, "", "…!", "snake_case and 3.14 and ½ x²",
    "\u2764\ufe0f heart \u200d joiner", "ΟΔΥΣΣΕΥΣ ΣΑΣ", "Straße №5 中文 한국어 😀",
    "I\u0307stanbul İstanbul",
    "e\u0301clair é naïve", "don't @user #tag_1", "\u0000nul\ttab\nline",
]  # fmt: skip
START = datetime(2020, 3, 1, tzinfo=UTC)


def some_rows(count: int, seed: int, span_s: int) -> list[tuple[int, str]]:
    draw = random.Random(seed)
    vocabulary = [f"w{int(draw.paretovariate(0.7)) % 500}" for _ in range(400)]
    base = int(START.timestamp())
    return [
        (base + draw.randrange(span_s), " ".join(draw.choices(vocabulary, k=draw.randrange(9))))
        for _ in range(count)
    ]


def cells_of(found: Profile) -> Cells:
    table = ds.dataset(found.path, format="parquet").to_table()
    assert table.column_names == ["slot", "task", "work", "bytes", "keys"]
    seconds = table["slot"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist()
    slots = [second // found.facts["slot_s"] for second in seconds]
    values = zip(*(table[c].to_pylist() for c in ("work", "bytes", "keys")), strict=True)
    return dict(zip(zip(slots, table["task"].to_pylist(), strict=True), values, strict=True))


def as_table(rows: list[tuple[int, str]]) -> dict[str, pa.Array]:
    moments = [datetime.fromtimestamp(second, UTC) for second, _ in rows]
    return {
        "ts": pa.array(moments, pa.timestamp("us", "UTC")),
        "text": pa.array([text for _, text in rows], pa.string()),
    }


def test_the_twins_hash_is_the_published_one() -> None:
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_words_are_those_of_python_also_in_odd_texts(
    spark: SparkSession, rows_file: Callable[..., str]
) -> None:
    frame = spark.read.parquet(rows_file(id=list(range(len(ODD))), text=pa.array(ODD)))
    found = frame.select("id", spark_words(col("text")).alias("w")).orderBy("id").collect()
    assert [row["w"] or [] for row in found] == [words(text) for text in ODD]


def test_word_count_equals_the_twin_in_every_cell_and_empty_slots_are_there(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path
) -> None:
    rows = some_rows(300, seed=1, span_s=3 * 3600)
    rows += [(second + 9 * 3600, text) for second, text in some_rows(100, seed=2, span_s=3600)]
    path = rows_file(**as_table(rows))
    found = profile(
        spark, EventSource((path,)), str(tmp_path / "p"), ProfileSettings(tasks=16, slot_s=1800)
    )
    expected = count_words(rows, 1800, 16)
    assert cells_of(found) == expected
    assert (
        sum(work for (slot, _), (work, _, _) in expected.items() if slot == min(expected)[0] + 8)
        == 0
    )
    assert found.facts["slots"] * 16 == len(expected)
    assert found.facts["summary"]["keys"] == len({w for _, text in rows for w in words(text)})


def test_a_profile_is_read_back_as_workloads(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path
) -> None:
    rows = some_rows(200, seed=3, span_s=5 * 3600)
    out = str(tmp_path / "p")
    profile(spark, EventSource((rows_file(**as_table(rows)),)), out, ProfileSettings(tasks=8))
    cells = count_words(rows, 3600, 8)
    slots = sorted({slot for slot, _ in cells})
    work = np.array([[cells[s, t][0] for t in range(8)] for s in slots])
    size = np.array([[cells[s, t][1] for t in range(8)] for s in slots])
    found = read_profile(out)
    assert [w.work.tolist() for w in found.workloads()] == work.tolist()
    assert read_workload(out, "last").size.tolist() == size[-1].tolist()
    assert read_workload(out, "peak").work.tolist() == work[work.sum(1).argmax()].tolist()
    assert read_workload(out, "total").work.tolist() == work.sum(0).tolist()
    assert abs(read_workload(out).work - work.mean(0)).max() <= 0.5
    within = START + timedelta(minutes=150)
    assert read_workload(out, within).work.tolist() == work[2].tolist()
    assert read_workload(out, "2020-03-01T02:59").work.tolist() == work[2].tolist()
    with pytest.raises(InputError, match="has no slot at 2021-01-01T00:00:00Z"):
        read_workload(out, "2021-01-01")
    with pytest.raises(InputError, match="not empty"):
        profile(spark, EventSource((rows_file(**as_table(rows)),)), out, ProfileSettings(tasks=8))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letters").touch()
    with pytest.raises(InputError, match="will not delete it"):
        profile(
            spark,
            EventSource((out,), "parquet"),
            str(tmp_path / "precious"),
            ProfileSettings(),
            force=True,
        )
    with pytest.raises(InputError, match="no profile, or was never completed"):
        read_profile(tmp_path)


def test_texts_without_words_give_a_profile_of_zeros(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path
) -> None:
    path = rows_file(**as_table([(int(START.timestamp()), "")]))
    found = profile(spark, EventSource((path,)), str(tmp_path / "p"), ProfileSettings(tasks=2))
    assert list(cells_of(found).values()) == [(0, 0, 0)] * 2
    assert found.facts["summary"]["keys"] == 0


@pytest.mark.parametrize(
    ("window_s", "slot_s"), [(90, 600), (1500, 600), pytest.param(600, 600, marks=pytest.mark.slow)]
)
def test_patterns_equal_a_replay_of_every_event(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path, window_s: int, slot_s: int
) -> None:
    rows = some_rows(60, seed=window_s, span_s=2400)
    rows[0] = (int(START.timestamp()) + 600 - 90, "leaves exactly at a boundary")
    rules = PatternRules(window_s, size_max=3, words_max=4)
    wanted = ProfileSettings("frequent-patterns", tasks=4, slot_s=slot_s, rules=rules)
    found = profile(spark, EventSource((rows_file(**as_table(rows)),)), str(tmp_path / "p"), wanted)
    assert cells_of(found) == count_patterns(rows, slot_s, 4, window_s, 3, 4)


def test_stop_words_and_dictionary_choose_the_words_of_patterns(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path
) -> None:
    rows = [(int(START.timestamp()), "the storm the apache storm is")]
    rules = PatternRules(3600, 2, 20, frozenset({"the"}), frozenset({"the", "storm", "apache"}))
    wanted = ProfileSettings("frequent-patterns", tasks=4, rules=rules)
    found = profile(spark, EventSource((rows_file(**as_table(rows)),)), str(tmp_path / "p"), wanted)
    alive = read_workload(tmp_path / "p", "last").size
    expected = [0] * 4
    for pattern in ("apache", "storm", "apache storm"):
        expected[task_of(pattern, 4)] += len(pattern) + 16
    assert alive.tolist() == expected
    assert found.facts["window_s"] == 3600


def test_any_key_columns_count_events_and_distinct_keys(
    spark: SparkSession, rows_file: Callable[..., str], tmp_path: Path
) -> None:
    path = rows_file(
        ts=pa.array([START] * 5, pa.timestamp("us", "UTC")),
        **{"slot.no": pa.array(["ann", "bob", "ann", None, None]), "flaw": pa.array([1, 2, 1, 7, 8])},
    )  # fmt: skip
    wanted = ProfileSettings("key", tasks=1, keys=("slot.no", "flaw"))
    found = profile(spark, EventSource((path,)), str(tmp_path / "p"), wanted)
    assert list(cells_of(found).values()) == [(5, 27 + 27 + 24 + 24, 4)]
    assert found.facts["summary"]["top"][0] == {"key": "ann, 1", "count": 2, "share": 0.4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": 0}, "tasks must be between"),
        ({"application": "sort"}, "unknown application 'sort'"),
        ({"application": "key"}, "needs --key"),
        ({"keys": ("user",)}, "needs --key"),
        ({"slot_s": 0}, "at least one second"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProfileSettings(**change)


def test_too_many_patterns_are_refused_before_any_work() -> None:
    with pytest.raises(InputError, match="more than 1000000"):
        PatternRules(size_max=8, words_max=40)
