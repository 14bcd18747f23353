"""The comparison with a dict: same words, same counts, all figures there."""

import argparse
import json

import pyarrow as pa
import pytest

from meander_lab.bench import table as bench
from meander_lab.bench.table import table_over_dict, zipf_words
from meander_lab.cli import bench_table


def test_the_comparison_counts_the_same_and_reports_every_figure() -> None:
    found = table_over_dict(seconds=0.05, words=zipf_words(20_000, seed=2))
    assert found["exact"]
    assert found["rows"] == 20_000
    for name in ("table", "dict", "counter", "dict_strings"):
        assert found[f"{name}_rows_s"] > 0
    assert found["table_over_dict"] == found["table_rows_s"] / found["dict_rows_s"]


def test_words_are_drawn_alike_under_one_seed_and_some_are_common() -> None:
    first, again = zipf_words(10_000, seed=5), zipf_words(10_000, seed=5)
    assert first.equals(again)
    counts = pa.compute.value_counts(first).field("counts").to_pylist()
    assert max(counts) > 500


def test_the_command_prints_a_table_or_one_json_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "zipf_words", lambda rows, seed: pa.array(["a", "b", "a"] * 100))
    parser = argparse.ArgumentParser()
    bench_table.add_arguments(parser)
    assert bench_table.run(parser.parse_args(["--seconds", "0.01", "--json"])) == 0
    assert json.loads(capsys.readouterr().out)["keys"] == 2
    assert bench_table.run(parser.parse_args(["--seconds", "0.01"])) == 0
    assert "all counts are equal" in capsys.readouterr().out
