"""Experiments that need Spark, at toy size: the pre-computation, and tweets that are generated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.registry import experiment
from meander_lab.experiments.runner import run
from meander_lab.experiments.tables import ResultTable


def test_figure_14_on_generated_tweets(spark: SparkSession, tmp_path: Path) -> None:
    ground = ExperimentGround("toy", None, tmp_path)
    assert ground.data.startswith("generated")
    assert run([experiment("fig14")], ground, tmp_path, lambda _: None) == []
    rows = ResultTable(tmp_path, "fig14").read()
    assert rows.names("method") == ["exact", "spark", "candidates"]
    for weights in ("recorded", "equal"):
        exact, spark_row = (rows.where(method=m, weights=weights)[0] for m in ("exact", "spark"))
        assert exact["partitions"] == exact["states"]
        assert exact["seconds"] > 0
        assert exact["fallbacks"] == 0  # the online choice that is timed is the forecast's own
        assert (spark_row["seconds"], spark_row["sweeps_on_spark"]) == (None, 0)  # too few rows
    again = ExperimentGround("toy", None, tmp_path)
    assert np.array_equal(again.trace.nodes, ground.trace.nodes)
