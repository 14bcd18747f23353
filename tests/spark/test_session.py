"""Sessions and Java: what is found, what is refused, and what the messages say to do."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander.runtime.process.memory import KEEP
from meander.spark.cluster import java
from meander.spark.cluster.session import classic, explained, local, settings


def test_a_running_session_is_used(spark: SparkSession) -> None:
    assert local("local[7]") is spark


def test_settings_are_put_back(spark: SparkSession) -> None:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    with settings(spark, {key: "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}):
        assert spark.conf.get(key) == "Asia/Tokyo"
    assert spark.conf.get(key) == before


def test_workers_have_a_settled_heap_and_keep_their_memory(spark: SparkSession) -> None:
    def look(_: int) -> tuple[int, str | None]:
        return gc.get_freeze_count(), os.environ.get("MIMALLOC_PURGE_DELAY")

    frozen, delay = spark.sparkContext.parallelize([0], 1).map(look).first()
    assert frozen > 0
    assert delay == os.environ.get("MIMALLOC_PURGE_DELAY", KEEP["MIMALLOC_PURGE_DELAY"])


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected:
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(InputError, match="Spark Connect"):
        classic(Connected())
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(InputError, match="Unset SPARK_REMOTE"):
        local()


def test_errors_of_spark_become_one_line(spark: SparkSession) -> None:
    wanted = pytest.raises(InputError, match=r"cannot look: \[TABLE_OR_VIEW_NOT_FOUND\]")
    with wanted, explained("cannot look"):
        spark.sql("select * from nothing_of_that_name")


def fake_java(home: Path, version: str, modules: str = java.MODULE_NEEDED) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="java.base {modules}"\n')
    return home


def test_the_first_fitting_java_wins_and_unfit_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "USUAL_PLACES", (str(tmp_path / "jvm-*"),))
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    old = fake_java(tmp_path / "old", "1.8.0_402")
    fake_java(tmp_path / "jvm-cut", "21.0.1", modules="java.sql")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(InputError) as caught:
        java.java_home()
    for part in ("apt-get install", "JAVA_HOME", "Java 8 is too old", "cut-down Java 21"):
        assert part in str(caught.value)
    good = fake_java(tmp_path / "jvm-good", "17.0.15")
    assert java.java_home() == good
